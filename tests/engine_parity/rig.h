// Runs requests through scheduler and engine as the serving loop does, on a clock of its own, and keeps all
// logits that a token was chosen from.
//
// Owner: the test. Threads: one (and the runner's).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "scheduler/scheduler.h"

namespace mlxcel::engine_parity {

using Tokens = std::vector<TokenId>;

// A fixture loaded once per number of threads; engines share its runners, one engine at a time.
class Model {
 public:
  explicit Model(const std::string& fixture);
  ModelRunner& runner(int num_threads = 1);
  const ModelSpec& spec() { return runner().spec(); }
  bool can_trim() { return runner().capabilities().can_trim && runner().kv_layout().can_trim(); }

 private:
  std::string fixture_;
  std::vector<std::unique_ptr<ModelRunner>> runners_;
};

struct Ask {
  Tokens prompt;
  SamplingParams sampling;
  int64_t max_tokens = 6;
  // When it arrives: not before `step`; with `after`, not before that ask has a token, or has ended.
  int64_t step = 0;
  std::optional<size_t> after;
  bool after_its_end = false;
  std::optional<int64_t> cancel_after_tokens;  // then the answer is a part of the lone one
};
struct Told {
  Tokens tokens;
  std::vector<std::vector<float>> logits;  // per token [vocab_size]
  int64_t num_cached = 0;
  FinishReason finish = FinishReason::kNone;
};

struct Way {
  std::string name;
  EngineOptions engine;
  SchedulerOptions scheduler;
  int num_threads = 1;
  int32_t drafts = 0;  // at most, from prompt lookup
  int64_t pool_blocks = 0;
};
// One sequence after the other, paged in blocks of 16, whole prompts, nothing else on.
Way plain(std::string name);

struct Outcome {
  std::vector<Told> told;  // one per ask
  EngineCounters engine;
  SchedulerCounters scheduler;
  PrefixCacheCounters prefix;
  size_t most_segments = 0;  // of one step
  uint64_t rejected_drafts() const { return engine.draft_tokens - engine.accepted_tokens; }
};

Outcome serve(Model& model, const Way& way, const std::vector<Ask>& asks);
// A second sequence forked off the first before its last prompt token; both in one batch from there on.
Outcome serve_forked(Model& model, const Way& way, const Ask& ask, const SamplingParams& second);
// Dense storage, the whole prompt at once, one thread, no company and nothing that could be clever.
Told lone(Model& model, const Ask& ask);
// The first difference, or nothing.
std::string difference(const Ask& ask, const Told& want, const Told& found);

}  // namespace mlxcel::engine_parity
