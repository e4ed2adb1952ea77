// What a model loader does with an open checkpoint: every tensor as vector and matrix, some rows decoded.
// Owner: the fuzz targets. Threads: one.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace mlxcel {

inline void use_checkpoint(const Checkpoint& checkpoint) {
  for (const auto& [name, entry] : checkpoint.tensors) {
    const auto vector = load_vector(checkpoint, name);
    if (vector.ok()) MLXCEL_CHECK(!vector->empty());
    const auto expert = entry.shape.size() == 3 ? std::optional(0) : std::nullopt;
    const auto matrix = load_matrix(checkpoint, name, expert);
    if (!matrix.ok()) continue;
    std::vector<float> row(static_cast<size_t>(matrix->columns));
    decode_row(*matrix, 0, row);
    decode_row(*matrix, matrix->rows - 1, row);
    const auto shape = affine_shape(matrix->format);
    if (!shape) continue;
    const size_t groups = row.size() / static_cast<size_t>(shape->group_size);
    std::vector<uint8_t> codes(row.size());
    std::vector<float> scale(groups), offset(groups);
    decode_affine_row(*matrix, matrix->rows - 1, codes, scale, offset);
    MLXCEL_CHECK(*std::max_element(codes.begin(), codes.end()) <= shape->max_code);
  }
}

}  // namespace mlxcel
