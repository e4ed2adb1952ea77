// An engine without a model: the real accounting of kv/ (BlockPool, SequenceCache, PrefixCache), and instead
// of keys and values one token id per row. A new token is a function of the ids that the sequence's rows
// really hold, of the request's seed and of the position, so a row of somebody else, a stale row or a row too
// many changes the text.
//
// Owner: a simulation. Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "kv/prefix_cache.h"
#include "scheduler/engine_control.h"
#include "scheduler/scheduler.h"

namespace mlxcel::sim {

// splitmix64 (Steele, Lea and Flood 2014): the same numbers on every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  int64_t between(int64_t low, int64_t high) {  // both included
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
  bool one_in(int64_t n) { return between(1, n) == 1; }

 private:
  uint64_t state_;
};

struct FakeRequest {
  std::vector<TokenId> prompt;
  uint64_t seed = 0;
  int64_t max_tokens = 1;
};

// The text of the request alone on an endless machine: what everybody must get.
struct LoneRun {
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kNone;
};
LoneRun run_alone(const FakeRequest& request, int64_t rows_max);

struct FakeEngineOptions {
  int32_t num_blocks = 16, block_size = 4;
  int64_t context_length = 64;
  uint64_t block_order_seed = 0;  // in which the pool hands its blocks out; must change nothing
  int64_t row_error_one_in = 0;   // 0: never
  int64_t step_error_one_in = 0;
  int64_t padding = 1;                 // segments of more than one row are padded to a multiple
  bool shares_running_prompts = true;  // whole blocks are donated when a prompt is done, not only at the end
  bool forgets_copies = false;         // the canary: a copy-on-write fork that copies nothing
};

struct FakeEngineCounters {
  uint64_t copies = 0, evicted = 0, padded_rows_trimmed = 0, drafts_accepted = 0, drafts_rejected = 0;
  uint64_t row_errors = 0, step_errors = 0, tails_not_adopted = 0, adopted_rows = 0;
};

class FakeEngine : public EngineControl {
 public:
  FakeEngine(const FakeEngineOptions& options, uint64_t seed);

  SequenceId add(const FakeRequest& request);
  void remove(SequenceId id) { rows_.erase(id); }
  bool knows(SequenceId id) const { return rows_.contains(id); }
  StepResult step(const ScheduledStep& step);
  Status check_integrity() const;
  // Everything has ended: drops the cached prefixes and says how many blocks are in use all the same.
  int64_t drain();
  const FakeEngineCounters& counters() const { return counters_; }

  int64_t context_length() const override { return options_.context_length; }
  BlockCounts blocks() const override;
  int64_t num_tokens(SequenceId id) const override;
  int64_t num_computed(SequenceId id) const override { return rows_.at(id).cache.length(); }
  int64_t blocks_needed(SequenceId id, int64_t num_rows) const override;
  int64_t admit(SequenceId id) override;
  void preempt(SequenceId id) override;
  void release(SequenceId id) override;

 private:
  struct Row {
    FakeRequest request;
    std::vector<TokenId> tokens;
    SequenceCache cache;
  };
  struct Work {  // one segment of the step that runs
    Row* row = nullptr;
    int64_t length_before = 0;
    int64_t num_known = 0;  // tokens whose rows are true
    std::vector<TokenId> drafts;
    int64_t num_padding = 0;
    bool fails = false;
  };

  void donate(const Row& row, int64_t num_rows);
  void append(Row& row, std::span<const TokenId> tokens);
  std::vector<TokenId> guess(const Row& row, int32_t count);
  void pad(Work& work, int64_t& spare_blocks);
  void finish_segment(Work& work, StepResult& result);
  TokenId sample(const Row& row, int64_t num_rows) const;
  TokenId& slot(BlockId block, int64_t position);

  FakeEngineOptions options_;
  Random random_;
  KvLayout layout_;
  BlockPool pool_;
  PrefixCache prefixes_;
  std::vector<TokenId> slots_;  // [num_blocks, block_size]
  std::map<SequenceId, Row> rows_;
  uint64_t num_added_ = 0;
  FakeEngineCounters counters_;
};

}  // namespace mlxcel::sim
