// The serving loop: one thread that owns scheduler and engine, takes requests from any thread, and hands
// their tokens back as events. `serve/` speaks to this header only.
//
// Owner: apps/ (through serve/). Threads: submit, cancel, snapshot and the text functions are free for all
// threads; the sink of a request is called on the loop's thread and must not block (it queues and returns).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/model_session.h"

namespace mlxcel {

using RequestId = uint64_t;

struct GenerationRequest {
  std::vector<TokenId> prompt;  // at least one token
  SamplingParams sampling;      // choice i uses choice_index i
  StopRules stop;               // eos_ids are filled in by the loop from the model
  std::vector<std::string> stop_strings;
  bool include_stop_string = false;  // the match itself is part of the text
  bool skip_special_tokens = true;
  int num_choices = 1;
  int num_logprobs = -1;               // -1: none; n: the chosen token's and the n best
  bool wants_prompt_logprobs = false;  // echo with logprobs: of every prompt token but the first
  bool use_prefix_cache = true;
  std::string cache_salt;         // separates tenants
  int priority = 0;               // higher first
  double deadline_seconds = 0.0;  // from submit; 0: none
  std::string client_id;          // for logs only ("req-17")
};

struct GeneratedToken {
  TokenId id = 0;
  std::string bytes;  // the token's own bytes (may be part of a character)
  std::optional<Logprobs> logprobs;
};

struct RequestTimings {  // seconds on the loop's one clock
  double queued = 0.0, first_scheduled = 0.0, first_token = 0.0, finished = 0.0;
};

// One event of one choice. Pieces of `text` concatenated are the answer; `tokens` are those that became final
// with this piece (their text may be held back until it is certain, so the two need not align).
struct GenerationEvent {
  int choice = 0;
  std::string text;
  std::vector<GeneratedToken> tokens;
  // The last event of a choice has a finish reason other than kNone.
  FinishReason finish = FinishReason::kNone;
  std::optional<std::string> matched_stop;  // kStopString: which
  std::optional<Error> error;               // kError
  bool is_last = false;                     // of the whole request
  // With the last event of a choice.
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  RequestTimings timings;
  // wants_prompt_logprobs: once per choice, on its first event; entry i belongs to prompt token i + 1.
  std::vector<Logprobs> prompt_logprobs;
};
using EventSink = std::function<void(GenerationEvent&&)>;

// A request as /slots and the activity page see it.
struct RequestView {
  RequestId id = 0;
  std::string client_id, phase;  // "queued", "prefill", "decode", "preempted"
  int64_t prompt_tokens = 0, computed_tokens = 0, cached_tokens = 0, generated_tokens = 0, kv_blocks = 0;
  double age_seconds = 0.0;
};

struct Histogram {
  std::vector<double> bounds;    // upper, ascending; the last bucket is +Inf
  std::vector<uint64_t> counts;  // bounds.size() + 1
  double sum = 0.0;
  void observe(double value);
  uint64_t count() const;
};

struct ServingSnapshot {
  std::vector<RequestView> requests;
  int64_t running = 0, waiting = 0;
  int64_t kv_blocks_total = 0, kv_blocks_free = 0, kv_blocks_held = 0, kv_blocks_cached = 0,
          kv_block_size = 0, kv_bytes = 0;
  int64_t kv_rows_total = 0;
  std::map<std::string, uint64_t> counters;  // by metric name, with labels: mlxcel_preemptions_total, ...
  std::map<std::string, Histogram> histograms;
  double uptime_seconds = 0.0, last_step_seconds = 0.0;
  uint64_t steps = 0;
};

struct ModelInfo {
  std::string id;  // --alias, or the folder's or file's name
  std::string path, family, architecture, quantisation, device, kv_type, storage, precision;
  int64_t context_length = 0, vocab_size = 0, max_rows = 0, parameters = 0;
  uint64_t weight_bytes = 0;
  std::string memory;                 // the memory plan, for people
  std::vector<std::string> warnings;  // of loading
  double load_seconds = 0.0;
  int64_t created = 0;  // unix time of the start
};

struct ServingOptions {
  SessionOptions session;
  std::string alias;
  int32_t max_rows = 8;          // sequences in one step (-np)
  int64_t max_batch_tokens = 0;  // 0: adapted
  int32_t prefill_chunk = 0;     // 0: adapted
  int32_t max_queue = 512;
  bool prefix_cache = true;
  bool lookahead = false, force_sync = false;
  std::string draft_kind;  // "", "ngram"
  int32_t draft_max = 8;
};

class ServingLoop {
 public:
  // Starts the thread, which loads the model; state() tells how far it is.
  static std::unique_ptr<ServingLoop> start(ServingOptions options);
  virtual ~ServingLoop() = default;  // cancels what runs and joins

  enum class State { kLoading, kReady, kFailed, kDraining };
  virtual State state() const = 0;
  virtual double load_progress() const = 0;          // 0..1
  virtual std::optional<Error> failure() const = 0;  // kFailed
  // Blocks until loading ended.
  virtual Status wait_until_ready() = 0;

  // REQUIRES: state is kReady or kDraining for the following.
  virtual const TextModel& text() const = 0;  // immutable: tokenizer, template
  virtual const ModelInfo& info() const = 0;
  // Refused before any stream is opened: kInvalidArgument (context_length_exceeded with both numbers, a bad
  // value), kResourceExhausted (the queue is full, the server drains).
  virtual Result<RequestId> submit(GenerationRequest request, EventSink sink) = 0;
  virtual void cancel(RequestId id) = 0;  // within one step; the sink gets kCancelled
  virtual ServingSnapshot snapshot() const = 0;
  virtual Status reset_prefix_cache() = 0;
  virtual void drain() = 0;  // no new requests; those that run end
  virtual bool is_idle() const = 0;
};

}  // namespace mlxcel
