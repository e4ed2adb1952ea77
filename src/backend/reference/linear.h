// Linear layers of the scalar oracle: y = W x for one token, in the three activation precisions of
// docs/numerics.md.
//
// Owner: the runner; borrows the matrix's bytes. Threads: const after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "tensor/weight_format.h"

namespace mlxcel::reference {

// Activations of one token as integers: x is about d * p in each group.
struct QuantisedActivations {
  std::vector<int32_t> p;  // [columns]
  std::vector<float> d;    // [groups]
};
// group: elements per group, the last may be shorter; limit: the largest |p|.
QuantisedActivations quantise_activations(std::span<const float> x, int group, float limit);

class Linear {
 public:
  Linear(const WeightMatrix& matrix, ActivationPrecision precision);
  int64_t rows() const { return matrix_.rows; }
  int64_t columns() const { return matrix_.columns; }
  // y [rows], x [columns].
  void apply(std::span<const float> x, std::span<float> y) const;
  // Row `row` as f32 (embedding look-up).
  std::vector<float> row(int64_t row) const;
  uint64_t resident_bytes() const;

 private:
  void apply_chain(std::span<const float> x, std::span<float> y) const;
  void apply_integers(std::span<const float> x, std::span<float> y) const;
  float integer_row(int64_t row, const QuantisedActivations& activations) const;

  WeightMatrix matrix_;
  float limit_ = 0.0f;                 // largest |p|; 0: the f32 chain
  AffineShape shape_;                  // integer core only, as are:
  std::vector<uint8_t> codes_;         // [rows, columns]
  std::vector<float> scale_, offset_;  // [rows, columns / group]
};

}  // namespace mlxcel::reference
