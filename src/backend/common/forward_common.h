// What the reference and the CPU runner share: rope tables and checks of options and batches. Not kernels:
// those are written twice on purpose (an oracle that shares code with what it checks proves nothing).
//
// Owner: the runner. Threads: built once, then read by kernel threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/model_spec.h"

namespace mlxcel {

// cos/sin of one rope spec for positions [0, num_positions), f32 [position][rotary_dim / 2], attention factor
// included. LongRoPE has one table per regime; regime(length) picks it. A sequence that crosses the border
// must be recomputed by the engine (its cached keys were rotated by the other table). Dynamic NTK stretches
// its base only beyond max_position, which check_max_position() refuses, so it needs one table.
class RopeTable {
 public:
  RopeTable(const RopeSpec& spec, int64_t num_positions);
  const RopeSpec& spec() const { return spec_; }
  // Regime of a sequence of `length` tokens: 0 or 1 for longrope; always 0 for the others.
  int regime(int64_t length) const;
  const float* cos(int regime, int64_t position) const;  // [rotary_dim / 2]
  const float* sin(int regime, int64_t position) const;
  // The inverse frequencies [rotary_dim / 2] and the attention factor of a regime, for tests.
  static std::vector<float> inverse_frequencies(const RopeSpec& spec, int regime);
  static double attention_factor(const RopeSpec& spec);

 private:
  RopeSpec spec_;
  int half_ = 0;
  std::vector<std::vector<float>> cos_, sin_;  // per regime
};

// One table per distinct RopeSpec of a model; layers share.
class RopeTables {
 public:
  RopeTables(const ModelSpec& spec, int64_t num_positions);
  const RopeTable& of_layer(int layer) const;  // REQUIRES: the layer has attention

 private:
  std::vector<RopeTable> tables_;
  std::vector<int> of_layer_;  // index into tables_; -1: no attention
};

// Rows a sequence may reach: the option, or the checkpoint's claim when it is 0.
int64_t runner_max_position(const ModelSpec& spec, const RunnerOptions& options);
// An error when the model's ropes are not defined up to this length (dynamic NTK beyond its trained length).
Status check_max_position(const ModelSpec& spec, int64_t max_position);

// Aborts (our own bug) unless segments cover the inputs in order, positions match the views, outputs ascend
// and token ids lie in the vocabulary.
void check_forward_batch(const ForwardBatch& batch, const ModelSpec& spec);

}  // namespace mlxcel
