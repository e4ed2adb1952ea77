// The scheduler's view of an engine: counts go up, admissions and pre-emptions come down.
//
// Owner: the serving loop. Threads: the engine thread only.
#pragma once

#include "engine/engine.h"
#include "scheduler/engine_control.h"

namespace mlxcel {

class EngineAdapter final : public EngineControl {
 public:
  explicit EngineAdapter(Engine& engine) : engine_(engine) {}
  int64_t context_length() const override { return engine_.context_length(); }
  BlockCounts blocks() const override {
    const KvUse use = engine_.kv_use();
    return {use.free, use.cached, use.total, use.block_size, use.is_dense};
  }
  int64_t num_tokens(SequenceId id) const override { return static_cast<int64_t>(engine_.tokens(id).size()); }
  int64_t num_computed(SequenceId id) const override { return engine_.num_computed(id); }
  int64_t blocks_needed(SequenceId id, int64_t num_rows) const override {
    return engine_.blocks_needed(id, num_rows);
  }
  int64_t admit(SequenceId id) override { return engine_.adopt_prefix(id); }
  void preempt(SequenceId id) override { engine_.drop_rows(id); }
  void release(SequenceId id) override { engine_.remove(id); }

 private:
  Engine& engine_;
};

}  // namespace mlxcel
