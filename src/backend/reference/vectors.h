// Norms, activations and rotations of the scalar oracle: docs/numerics.md in plain loops.
//
// Owner: values. Threads: pure functions.
#pragma once

#include <span>

#include "model/model_spec.h"

namespace mlxcel::reference {

// y[i] = norm(x)[i] * weight[i] (+ bias[i]); weight and bias may be empty. y may be x.
void normalise(const NormSpec& spec, std::span<const float> x, std::span<const float> weight,
               std::span<const float> bias, std::span<float> y);
float activate(Activation activation, float x);
// cap * tanh(x * (1 / cap)); x when cap is 0.
float soft_cap(float x, float cap);
// Turns the first rotary_dim elements of one head; cosines and sines: [rotary_dim / 2].
void rotate(const RopeSpec& rope, const float* cosines, const float* sines, std::span<float> head);
// Softmax in ascending order, in place.
void softmax(std::span<float> values);
void add(std::span<float> y, std::span<const float> bias);  // y + bias; nothing when bias is empty
// h = fma(y, scale, h).
void add_residual(std::span<float> h, std::span<const float> y, float scale);

}  // namespace mlxcel::reference
