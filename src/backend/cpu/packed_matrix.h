// One weight matrix in the layout that the CPU kernels read (kernel_table.h), made from a checkpoint's matrix
// at load.
//
// Formats that are affine in codes keep their codes (nibbles up to 15, bytes above) and store scales and
// offsets in the narrowest type that holds every one of them exactly; plain weights keep their element type;
// other formats (fp8, mxfp8) become plain elements of the narrowest exact type. So nothing is rounded here,
// and read_row() gives the very numbers of decode_row().
//
// Owner: the packed model, whose arena holds the bytes. Threads: pack() uses the pool; const functions are
// free.
#pragma once

#include <cstdint>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/kernel_table.h"
#include "backend/cpu/weight_arena.h"
#include "base/error.h"
#include "base/threads.h"
#include "tensor/weight_format.h"

namespace mlxcel {

class PackedMatrix {
 public:
  PackedMatrix() = default;
  static Result<PackedMatrix> pack(const WeightMatrix& source, WeightArena& arena, ThreadPool& pool);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t num_blocks() const { return (rows_ + kLanes - 1) / kLanes; }
  bool is_quantised() const { return quantised_; }
  // REQUIRES: is_quantised().
  const QuantisedWeights& quantised() const { return codes_; }
  // REQUIRES: !is_quantised().
  const PlainWeights& plain() const { return plain_; }
  uint64_t bytes() const { return bytes_; }
  // out[columns] = the row as f32, exactly as decode_row() has it.
  void read_row(int64_t row, float* out) const;

 private:
  static Result<PackedMatrix> pack_codes(const WeightMatrix& source, const AffineShape& shape,
                                         WeightArena& arena, ThreadPool& pool);
  static Result<PackedMatrix> pack_plain(const WeightMatrix& source, WeightArena& arena, ThreadPool& pool);

  int64_t rows_ = 0, columns_ = 0;
  bool quantised_ = false;
  QuantisedWeights codes_ = {};
  PlainWeights plain_ = {};
  uint64_t bytes_ = 0;
};

}  // namespace mlxcel
