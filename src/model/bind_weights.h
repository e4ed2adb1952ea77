// Binds the tensors of a checkpoint to the roles of a spec: every role gets its tensor with the right shape,
// every tensor has a role or is known to mean nothing.
//
// Owner: one load. Threads: one.
#pragma once

#include <set>
#include <string>

#include "checkpoint/checkpoint.h"
#include "model/model_loader.h"
#include "model/weight_map.h"

namespace mlxcel {

struct BoundWeights {
  ModelWeights weights;
  std::set<std::string, std::less<>> used;  // tensors with a role, companions (scales) included
};
// Errors name the tensor, its role, and expected and found shapes.
Result<BoundWeights> bind_weights(const Checkpoint& checkpoint, const ModelSpec& spec, const WeightMap& map);

// An error naming the first tensor that is neither used nor ignored.
Status check_leftover_tensors(const Checkpoint& checkpoint, const std::set<std::string, std::less<>>& used,
                              const std::vector<std::string>& ignored);
// '*' stands for any characters.
bool matches_pattern(std::string_view name, std::string_view pattern);

}  // namespace mlxcel
