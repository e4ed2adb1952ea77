// The engine over a runner and its KV storage. engine.cc has requests and budgets, engine_step.cc the step,
// engine_reuse.cc rows that outlive their sequence (prefix cache, pre-emption), engine_ahead.cc lookahead and
// drafts.
//
// Owner and threads: see engine.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_row.h"

namespace mlxcel {

struct EngineBudget {
  int64_t context_length = 0;
  KvBudget kv;
};
// Checks the options and turns them into sizes; errors name the option with expected and found.
Result<EngineBudget> plan_engine_budget(const ModelRunner& runner, const EngineOptions& options);

class EngineImpl final : public Engine {
 public:
  EngineImpl(std::unique_ptr<ModelRunner> runner, std::unique_ptr<KvStorage> storage,
             const EngineOptions& options, const EngineBudget& budget);

  const ModelRunner& runner() const override { return *runner_; }
  int64_t context_length() const override { return budget_.context_length; }
  const EngineCounters& counters() const override { return counters_; }
  int64_t kv_capacity_rows() const override;
  int64_t kv_bytes() const override { return storage_->bytes(); }
  const BlockPool* block_pool() const override { return pool_ ? &*pool_ : nullptr; }

  Result<SequenceId> add(SequenceRequest request) override;
  Result<SequenceId> fork(SequenceId id, SamplingParams sampling) override;
  void remove(SequenceId id) override;
  Status extend(SequenceId id, std::span<const TokenId> tokens, const StopRules& stop) override;
  Status truncate(SequenceId id, int64_t num_tokens) override;
  std::span<const TokenId> tokens(SequenceId id) const override { return row(id).tokens; }
  int64_t num_computed(SequenceId id) const override { return row(id).num_computed(); }
  FinishReason finish_reason(SequenceId id) const override { return row(id).finish; }

  KvUse kv_use() const override;
  int64_t blocks_needed(SequenceId id, int64_t num_rows) const override;
  int64_t adopt_prefix(SequenceId id) override;
  void drop_rows(SequenceId id) override;
  int32_t propose_drafts(SequenceId id, int32_t most) override;
  Status reset_prefix_cache() override;
  const PrefixCacheCounters& prefix_counters() const override;

  StepResult step(const StepBatch& batch) override;
  Status check_integrity() const override;

 private:
  // One segment of the step being made.
  struct Work {
    EngineRow* row = nullptr;
    SequenceEvent event;
    std::vector<SequenceEvent> more;  // of accepted drafts
    int64_t first_position = 0;       // of the first input
    int64_t old_computed = 0;         // before the step
    int64_t num_rows = 0;             // of known tokens
    int64_t num_drafts = 0;           // rows of guesses behind them
    int64_t num_padding = 0;
    bool uses_ahead = false;         // the one row was computed by the step before
    std::optional<AppendPlan> plan;  // nullopt: the row failed
    size_t first_output = 0, num_outputs = 0;
    bool makes_token = false;
    int64_t end() const { return first_position + num_rows; }
    int64_t rows_written() const { return num_rows + num_drafts + num_padding; }
  };

  EngineRow& row(SequenceId id);
  const EngineRow& row(SequenceId id) const;
  Status check_new_sequence() const;
  Status check_tokens(std::span<const TokenId> tokens) const;
  Status check_request(const SequenceRequest& request) const;
  Status check_length(int64_t num_tokens, const StopRules& stop) const;
  int rope_regime(int64_t total_length) const;
  int64_t rows_limit() const;  // that one sequence can reach

  Status ensure_cache(EngineRow& row);
  // Gives up the oldest retired sequence's slot. REQUIRES: there is one.
  void forget_oldest_retired();
  void make_room(const EngineRow& row, int64_t num_rows);
  uint64_t cache_context(const EngineRow& row) const;
  void retire(EngineRow& row);
  void share_prompt(EngineRow& row);
  int64_t adopt_paged(EngineRow& row);
  int64_t adopt_dense(EngineRow& row);

  void plan_segment(const SegmentPlan& segment, Work& work);
  void plan_rows(Work& work);
  void plan_padding(Work& work);
  void commit(std::vector<Work>& works);
  void build_segment(Work& work);
  void request_outputs(Work& work, int32_t input_begin);
  void log_decode_rows(const std::vector<Work>& works) const;
  void undo_rows(Work& work, int64_t num_rows);
  void fail(Work& work, Error error);
  void finish_segment(Work& work, const StepOutputs& outputs);
  void finish_ahead(Work& work);
  bool choose_token(Work& work, const Output& output, SequenceEvent& event);
  void verify_drafts(Work& work, const StepOutputs& outputs);
  void settle(EngineRow& row);
  void look_ahead(std::vector<Work>& works);

  std::unique_ptr<ModelRunner> runner_;
  EngineBudget budget_;
  EngineOptions options_;
  int64_t padding_multiple_ = 1;       // 1: off
  std::vector<int64_t> rope_borders_;  // lengths beyond which a rope changes; ascending
  // The storage outlives the caches, which give their slots back to it.
  std::unique_ptr<KvStorage> storage_;
  std::optional<BlockPool> pool_;
  std::optional<PrefixCache> prefix_;
  // Dense: finished sequences whose slots are kept for their prefixes, oldest first.
  struct Retired {
    std::vector<TokenId> tokens;
    uint64_t context = 0;
    SequenceCache cache;
  };
  std::vector<Retired> retired_;
  PrefixCacheCounters dense_counters_;
  std::map<uint64_t, EngineRow> rows_;
  uint64_t next_id_ = 1;
  EngineCounters counters_;

  // Of the step being made; kept for their capacity.
  std::vector<Input> inputs_;
  std::vector<Segment> segments_;
  std::vector<BlockCopy> copies_;
  std::vector<OutputRequest> requests_;
  std::vector<Work> works_ahead_;
};

}  // namespace mlxcel
