// Which roles a ModelSpec needs and the shape of each: the one place that knows, for mapping names and for
// checking the tensors that are bound.
//
// Owner: values. Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_spec.h"
#include "model/weight_map.h"

namespace mlxcel {

struct RoleShape {
  WeightKey key;
  bool is_matrix = false;
  int64_t rows = 0, columns = 0;  // a vector has `rows` elements and columns 1
  float offset = 0.0f;            // norm weights: added when the vector is loaded
  bool optional = false;          // the head beside a tied embedding
};

// In a fixed order: model-wide roles, then layer by layer. Per-head norm weights appear once per head,
// numbered by `expert`.
std::vector<RoleShape> required_roles(const ModelSpec& spec);

}  // namespace mlxcel
