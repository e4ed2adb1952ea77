#include "model/model_spec.h"

#include <algorithm>

#include "model/weight_roles.h"

namespace mlxcel {

bool ModelSpec::has_length_dependent_rope() const {
  return std::any_of(layers.begin(), layers.end(), [](const LayerSpec& layer) {
    const AttentionSpec* attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (attention == nullptr) return false;
    return attention->rope.kind == RopeKind::kLongRope || attention->rope.kind == RopeKind::kDynamicNtk;
  });
}

int64_t ModelSpec::num_parameters_estimate() const {
  int64_t total = 0;
  for (const RoleShape& role : required_roles(*this)) {
    if (!role.optional) total += role.rows * role.columns;
  }
  return total;
}

}  // namespace mlxcel
