#include "backend/reference/experts.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "backend/reference/vectors.h"
#include "tensor/math.h"

namespace mlxcel::reference {
namespace {

// Larger first, ties to the lower id, NaN last.
bool comes_before(float a, float b, int id_a, int id_b) {
  const bool nan_a = a != a, nan_b = b != b;
  if (nan_a != nan_b) return nan_b;
  if (nan_a || a == b) return id_a < id_b;
  return a > b;
}

std::vector<int> top(std::span<const float> values, int count) {
  std::vector<int> ids(values.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::sort(ids.begin(), ids.end(), [&](int a, int b) {
    return comes_before(values[static_cast<size_t>(a)], values[static_cast<size_t>(b)], a, b);
  });
  ids.resize(static_cast<size_t>(count));
  return ids;
}

// Group-limited routing (DeepSeek V3, arXiv 2412.19437): a group counts as the sum of its two best scores;
// scores outside the best groups become 0 for the choice.
void limit_to_groups(const MoeSpec& spec, std::vector<float>& scores) {
  if (spec.num_groups <= 1) return;
  const size_t groups = static_cast<size_t>(spec.num_groups), size = scores.size() / groups;
  std::vector<float> group_scores(groups);
  for (size_t g = 0; g < groups; ++g) {
    const std::span<const float> members = std::span<const float>(scores).subspan(g * size, size);
    const std::vector<int> best = top(members, static_cast<int>(std::min<size_t>(2, size)));
    float sum = 0.0f;
    for (const int id : best) sum += members[static_cast<size_t>(id)];
    group_scores[g] = sum;
  }
  const std::vector<int> kept = top(group_scores, spec.groups_per_token);
  for (size_t i = 0; i < scores.size(); ++i) {
    const int group = static_cast<int>(i / size);
    if (std::find(kept.begin(), kept.end(), group) == kept.end()) scores[i] = 0.0f;
  }
}

}  // namespace

std::vector<ChosenExpert> choose_experts(const MoeSpec& spec, std::span<const float> logits,
                                         std::span<const float> correction) {
  std::vector<float> scores(logits.begin(), logits.end());
  if (spec.router == RouterKind::kSoftmaxAll) softmax(scores);
  if (spec.router == RouterKind::kSigmoid) {
    for (float& score : scores) score = sigmoid_lanes<ScalarLanes>(score);
  }
  std::vector<float> choice = scores;
  add(choice, correction);
  limit_to_groups(spec, choice);
  std::vector<int> ids = top(choice, spec.experts_per_token);
  std::sort(ids.begin(), ids.end());
  std::vector<float> weights;
  for (const int id : ids) weights.push_back(scores[static_cast<size_t>(id)]);
  if (spec.router == RouterKind::kSoftmaxTopK) softmax(weights);
  if (spec.normalise_weights) {
    float sum = 0.0f;
    for (const float weight : weights) sum += weight;
    for (float& weight : weights) weight = weight / sum;
  }
  std::vector<ChosenExpert> chosen;
  for (size_t i = 0; i < ids.size(); ++i) {
    const float weight = spec.routed_scale == 1.0f ? weights[i] : weights[i] * spec.routed_scale;
    chosen.push_back({ids[i], weight});
  }
  return chosen;
}

float gated_unit(const MoeSpec& spec, float gate, float up) {
  if (!spec.swiglu_limit) return activate(spec.activation, gate) * up;
  const float limit = *spec.swiglu_limit;
  const float g = gate > limit ? limit : gate;
  const float u = up > limit ? limit : up < -limit ? -limit : up;
  return (u + 1.0f) * (g * sigmoid_lanes<ScalarLanes>(spec.swiglu_alpha * g));
}

}  // namespace mlxcel::reference
