// What the scheduler keeps and tells of one request. Values.
//
// Owner: whoever holds the value. Threads: free.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>

#include "engine/engine.h"

namespace mlxcel {

// Of the one clock of the process; the scheduler never asks for the time.
using Timestamp = std::chrono::nanoseconds;

struct RequestOptions {
  int32_t priority = 0;  // lower runs earlier
  std::optional<Timestamp> deadline;
};

// The story of a request, for usage fields and histograms.
struct RequestRecord {
  Timestamp queued_at{};
  std::optional<Timestamp> scheduled_at, first_token_at, last_token_at, preempted_at, finished_at;
  int64_t num_prompt_tokens = 0;
  int64_t num_cached_tokens = 0;  // of the prompt, really reused when it was first scheduled
  int64_t num_generated_tokens = 0;
  int32_t num_preemptions = 0;  // preempted_at: the last one
};

struct SchedulerEvent {
  enum class Kind {
    kScheduled,  // admitted for the first time
    kOutput,     // `output` has a token or logits of prompt positions
    kPreempted,  // waits again; its text does not change
    kFinished,   // exactly one per request, the last of it: output.finish, output.error
  };
  Kind kind = Kind::kOutput;
  SequenceId sequence{};
  Timestamp at{};
  SequenceEvent output;
  RequestRecord record;  // as of now
};

}  // namespace mlxcel
