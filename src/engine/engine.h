// One step for many ragged sequences: append rows, forward, sample, stop rules. The scheduler (or the CLI's
// loop, a batch of one) says what to run in a StepBatch, a value that can be printed and compared; the engine
// owns what an id stands for: tokens, KV rows, sampler, stop matcher.
//
// A sequence's phase is derived, never stored: 0 <= num_computed <= num_tokens, and length of its cache ==
// num_computed between steps, on every path including errors (padding and rejected rows are trimmed in the
// same step).
//
// Owner: the engine thread. Threads: that thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "kv/block_pool.h"
#include "kv/prefix_cache.h"
#include "kv/sequence_cache.h"
#include "sampling/sampler.h"

namespace mlxcel {

enum class SequenceId : uint64_t {};

struct StopRules {
  std::vector<TokenId> eos_ids;  // union of all config files; by id
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  int64_t min_tokens = 0;   // before that EOS and stop ids are suppressed in sampling
  int64_t max_tokens = -1;  // -1: until the context is full
};
enum class FinishReason { kNone, kEos, kStopToken, kStopString, kMaxTokens, kContext, kCancelled, kError };
std::string_view finish_reason_name(FinishReason reason);

struct SequenceRequest {
  std::vector<TokenId> prompt;  // at least one token
  SamplingParams sampling;
  StopRules stop;
  int num_logprobs = -1;             // -1: none; 0: the chosen token's; n: and the n best
  bool wants_prompt_logits = false;  // logits of every prompt position (score, echo)
  bool use_prefix_cache = true;  // where the engine has one: reuse cached rows, and leave these for others
  std::string cache_salt;        // rows are shared only between sequences of the same salt
};

struct SegmentPlan {
  SequenceId sequence{};
  int32_t num_tokens = 0;  // of the sequence's uncomputed tokens; the last one makes a new token
  int32_t num_drafts =
      0;  // guesses of propose_drafts() verified behind them; all tokens must be in this segment
  friend bool operator==(const SegmentPlan&, const SegmentPlan&) = default;
};
struct StepBatch {
  std::vector<SegmentPlan> segments;
  friend bool operator==(const StepBatch&, const StepBatch&) = default;
};

struct SequenceEvent {
  SequenceId sequence{};
  int32_t num_computed = 0;      // rows added by this step
  std::optional<TokenId> token;  // a new token, when the segment reached the end of the known tokens
  std::optional<Logprobs> logprobs;
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error;  // kError: this row failed; its cache is as before the step
  // wants_prompt_logits: positions and their logits, [count, vocab_size]
  int64_t first_logits_position = 0;
  std::vector<float> logits;
};
struct StepResult {
  std::vector<SequenceEvent>
      events;  // in the order of the segments; one each, and one more per accepted draft
  double seconds = 0.0;
};

struct EngineOptions {
  KvStorageKind storage = KvStorageKind::kPaged;
  int32_t block_size = 32;
  int64_t max_sequences = 1;                 // that hold rows at once
  int64_t max_waiting = 0;                   // more that may be known to the engine without rows
  int64_t context_length = 0;                // rows a sequence may reach; 0: the spec's max_position
  int64_t kv_bytes = 0;                      // budget of the pool; 0: max_sequences * context_length rows
  std::optional<bool> force_padded_prefill;  // MLXCEL_FORCE_PADDED_PREFILL / MLXCEL_NO_PADDED_PREFILL
  int32_t padding_multiple = 32;             // when forced
  bool prefix_cache = false;
  // After each step the rows of the tokens it made are computed at once, before anyone has looked at them;
  // what turns out not to be wanted is trimmed.
  bool lookahead = false;
  // For tests: sees each row of logits that a token is about to be chosen from, and the position of that
  // token.
  std::function<void(SequenceId, int64_t position, std::span<const float> logits)> on_choice;
};

struct EngineCounters {
  uint64_t padded_rows_trimmed = 0, kv_block_copies = 0, steps = 0, prompt_tokens = 0, generated_tokens = 0;
  uint64_t lookahead_rows = 0, lookahead_rows_trimmed = 0;
  uint64_t drafts = 0, draft_tokens = 0, accepted_tokens = 0;
};

// Blocks of the pool; when dense, slots (block_size: the rows of one).
struct KvUse {
  int64_t total = 0, free = 0;
  int64_t held = 0;    // by sequences
  int64_t cached = 0;  // by the prefix cache alone: given up on demand
  int64_t block_size = 1;
  bool is_dense = false;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(std::unique_ptr<ModelRunner> runner,
                                                const EngineOptions& options);
  virtual ~Engine() = default;
  virtual const ModelRunner& runner() const = 0;
  virtual int64_t context_length() const = 0;
  virtual const EngineCounters& counters() const = 0;
  virtual int64_t kv_capacity_rows() const = 0;
  virtual int64_t kv_bytes() const = 0;
  virtual const BlockPool* block_pool() const = 0;  // nullptr when dense

  // Refuses with both numbers what can never fit: prompt + 1 > context (kInvalidArgument,
  // "context_length_exceeded").
  virtual Result<SequenceId> add(SequenceRequest request) = 0;
  // A new sequence sharing this one's rows (n > 1 choices).
  virtual Result<SequenceId> fork(SequenceId id, SamplingParams sampling) = 0;
  virtual void remove(SequenceId id) = 0;  // finished, cancelled: gives everything back
  // Appends tokens from outside (the REPL's next turn); the sequence continues. Its finish state is cleared.
  virtual Status extend(SequenceId id, std::span<const TokenId> tokens, const StopRules& stop) = 0;
  // Drops the newest tokens so that `num_tokens` remain, rows and all (edit of a turn, rollback).
  virtual Status truncate(SequenceId id, int64_t num_tokens) = 0;
  virtual std::span<const TokenId> tokens(SequenceId id) const = 0;
  virtual int64_t num_computed(SequenceId id) const = 0;
  virtual FinishReason finish_reason(SequenceId id) const = 0;

  virtual StepResult step(const StepBatch& batch) = 0;
  // ---- for a scheduler ----
  virtual KvUse kv_use() const = 0;
  // Blocks that appending num_rows rows to the computed ones takes now, the copy of a shared tail included.
  virtual int64_t blocks_needed(SequenceId id, int64_t num_rows) const = 0;
  // Adopts the longest cached prefix and returns its rows (0 without a prefix cache). REQUIRES:
  // num_computed(id) == 0.
  virtual int64_t adopt_prefix(SequenceId id) = 0;
  // Pre-emption: gives up the rows, to the prefix cache where there is one; the tokens stay.
  virtual void drop_rows(SequenceId id) = 0;
  // Prepares at most `most` guesses for the next step of this sequence and returns how many there are.
  virtual int32_t propose_drafts(SequenceId id, int32_t most) = 0;
  virtual Status reset_prefix_cache() = 0;
  virtual const PrefixCacheCounters& prefix_counters() const = 0;

  // free + held + cached == total, counts recomputed; for tests and idle time.
  virtual Status check_integrity() const = 0;
};

}  // namespace mlxcel
