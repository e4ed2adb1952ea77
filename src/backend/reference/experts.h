// Mixture of experts of the scalar oracle: which experts a token uses and with which weights.
//
// Owner: values. Threads: pure functions.
#pragma once

#include <span>
#include <vector>

#include "model/model_spec.h"

namespace mlxcel::reference {

struct ChosenExpert {
  int expert = 0;
  float weight = 0.0f;
};
// In ascending id. logits: [num_experts]; correction: [num_experts] or empty.
std::vector<ChosenExpert> choose_experts(const MoeSpec& spec, std::span<const float> logits,
                                         std::span<const float> correction);
// act(gate) * up, or GPT-OSS's clamped form.
float gated_unit(const MoeSpec& spec, float gate, float up);

}  // namespace mlxcel::reference
