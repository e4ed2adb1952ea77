// What the reference and the CPU runner share: rope tables, weight preparation, checks of a batch. Not kernels: those
// are written twice on purpose (an oracle that shares code with what it checks proves nothing).
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

// cos/sin of one rope spec for positions [0, num_positions), f32 [position][rotary_dim / 2], attention factor included.
// Length-dependent ropes (longrope, dynamic NTK) have one table per regime; table(length) picks it. A sequence that
// crosses a regime border must be recomputed by the engine (its cached keys were rotated by the other table).
class RopeTable {
 public:
  RopeTable(const RopeSpec& spec, int64_t num_positions);
  const RopeSpec& spec() const { return spec_; }
  // Regime of a sequence of `length` tokens: 0 or 1 for longrope; always 0 for the others.
  int regime(int64_t length) const;
  const float* cos(int regime, int64_t position) const;   // [rotary_dim / 2]
  const float* sin(int regime, int64_t position) const;
  // The inverse frequencies [rotary_dim / 2] and the attention factor of a regime, for tests.
  static std::vector<float> inverse_frequencies(const RopeSpec& spec, int regime);
  static double attention_factor(const RopeSpec& spec);

 private:
  RopeSpec spec_;
  int half_ = 0;
  std::vector<std::vector<float>> cos_, sin_;   // per regime
};

// Aborts (our own bug) unless segments cover the inputs in order, positions match the views, outputs ascend and token
// ids lie in the vocabulary.
void check_forward_batch(const ForwardBatch& batch, const ModelSpec& spec);

}  // namespace mlxcel
