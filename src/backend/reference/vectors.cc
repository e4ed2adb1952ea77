#include "backend/reference/vectors.h"

#include <cmath>

#include "base/error.h"
#include "tensor/math.h"

namespace mlxcel::reference {
namespace {

constexpr size_t kLanes = 16;

float lane_sum(std::span<const float> x) {
  float lanes[kLanes] = {};
  for (size_t i = 0; i < x.size(); ++i) lanes[i % kLanes] += x[i];
  return sum16(lanes);
}

float lane_sum_of_squares(std::span<const float> x, float centre) {
  float lanes[kLanes] = {};
  for (size_t i = 0; i < x.size(); ++i) {
    const float c = x[i] - centre;
    lanes[i % kLanes] = std::fma(c, c, lanes[i % kLanes]);
  }
  return sum16(lanes);
}

void rms_norm(float epsilon, std::span<const float> x, std::span<const float> weight,
              std::span<const float> bias, std::span<float> y) {
  const float n = static_cast<float>(x.size());
  const float r = 1.0f / std::sqrt(lane_sum_of_squares(x, 0.0f) / n + epsilon);
  for (size_t i = 0; i < x.size(); ++i) {
    const float scaled = x[i] * r;
    y[i] = weight.empty() ? scaled : scaled * weight[i];
    if (!bias.empty()) y[i] = y[i] + bias[i];
  }
}

void layer_norm(float epsilon, std::span<const float> x, std::span<const float> weight,
                std::span<const float> bias, std::span<float> y) {
  const float n = static_cast<float>(x.size());
  const float mean = lane_sum(x) / n;
  const float r = 1.0f / std::sqrt(lane_sum_of_squares(x, mean) / n + epsilon);
  for (size_t i = 0; i < x.size(); ++i) {
    const float scaled = (x[i] - mean) * r;
    const float w = weight.empty() ? 1.0f : weight[i];
    y[i] = bias.empty() ? scaled * w : std::fma(scaled, w, bias[i]);
  }
}

}  // namespace

void normalise(const NormSpec& spec, std::span<const float> x, std::span<const float> weight,
               std::span<const float> bias, std::span<float> y) {
  MLXCEL_CHECK(y.size() == x.size());
  MLXCEL_CHECK(weight.size() == (spec.has_weight ? x.size() : 0));
  MLXCEL_CHECK(bias.size() == (spec.has_bias ? x.size() : 0));
  if (spec.kind == NormKind::kRms) {
    rms_norm(spec.epsilon, x, weight, bias, y);
  } else {
    layer_norm(spec.epsilon, x, weight, bias, y);
  }
}

float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu:
      return silu_lanes<ScalarLanes>(x);
    case Activation::kGeluTanh:
      return gelu_tanh_lanes<ScalarLanes>(x);
    case Activation::kGeluErf:
      return gelu_erf_lanes<ScalarLanes>(x);
    case Activation::kRelu:
      return x < 0.0f ? 0.0f : x;
    case Activation::kReluSquared: {
      const float positive = x < 0.0f ? 0.0f : x;
      return positive * positive;
    }
    case Activation::kSigmoid:
      return sigmoid_lanes<ScalarLanes>(x);
    case Activation::kIdentity:
      return x;
  }
  return x;
}

float soft_cap(float x, float cap) {
  return cap == 0.0f ? x : cap * tanh_lanes<ScalarLanes>(x * (1.0f / cap));
}

void rotate(const RopeSpec& rope, const float* cosines, const float* sines, std::span<float> head) {
  if (rope.kind == RopeKind::kNone) return;
  const size_t half = static_cast<size_t>(rope.rotary_dim / 2);
  for (size_t i = 0; i < half; ++i) {
    float& a = rope.interleaved ? head[2 * i] : head[i];
    float& b = rope.interleaved ? head[2 * i + 1] : head[i + half];
    const float x = a, y = b;
    a = std::fma(x, cosines[i], -(y * sines[i]));
    b = std::fma(y, cosines[i], x * sines[i]);
  }
}

void softmax(std::span<float> values) {
  float largest = values[0];
  for (const float value : values) largest = largest < value ? value : largest;
  float sum = 0.0f;
  for (float& value : values) {
    value = exp_lanes<ScalarLanes>(value - largest);
    sum += value;
  }
  for (float& value : values) value = value / sum;
}

void add(std::span<float> y, std::span<const float> bias) {
  if (bias.empty()) return;
  MLXCEL_CHECK(bias.size() == y.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = y[i] + bias[i];
}

void add_residual(std::span<float> h, std::span<const float> y, float scale) {
  for (size_t i = 0; i < h.size(); ++i) h[i] = std::fma(y[i], scale, h[i]);
}

}  // namespace mlxcel::reference
