#include "backend/reference/linear.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mlxcel::reference {
namespace {

constexpr float kHighLimit = 16256.0f;  // 15 bits in two byte planes: 127 * 128
constexpr float kInt8Limit = 127.0f;
constexpr float kSmallestAmplitude = 0x1p-100f;
constexpr int kSmallestActivationGroup = 32;

void quantise_group(std::span<const float> x, float limit, std::span<int32_t> p, float& d) {
  float amplitude = 0.0f;
  bool finite = true;
  for (const float value : x) {
    finite = finite && std::isfinite(value);
    amplitude = std::max(amplitude, std::fabs(value));
  }
  std::fill(p.begin(), p.end(), 0);
  d = std::numeric_limits<float>::quiet_NaN();
  if (!finite) return;
  d = 0.0f;
  if (amplitude < kSmallestAmplitude) return;
  d = amplitude / limit;
  const float inverse = 1.0f / d;
  for (size_t i = 0; i < x.size(); ++i) p[i] = static_cast<int32_t>(std::nearbyint(x[i] * inverse));
}

}  // namespace

QuantisedActivations quantise_activations(std::span<const float> x, int group, float limit) {
  const size_t size = static_cast<size_t>(group);
  QuantisedActivations result;
  result.p.resize(x.size());
  result.d.resize((x.size() + size - 1) / size);
  for (size_t g = 0; g < result.d.size(); ++g) {
    const size_t begin = g * size, count = std::min(size, x.size() - begin);
    quantise_group(x.subspan(begin, count), limit, std::span(result.p).subspan(begin, count), result.d[g]);
  }
  return result;
}

Linear::Linear(const WeightMatrix& matrix, ActivationPrecision precision) : matrix_(matrix) {
  const std::optional<AffineShape> shape = affine_shape(matrix.format);
  if (!shape || precision == ActivationPrecision::kF32) return;
  limit_ = precision == ActivationPrecision::kHigh ? kHighLimit : kInt8Limit;
  shape_ = *shape;
  const size_t rows = static_cast<size_t>(matrix.rows), columns = static_cast<size_t>(matrix.columns);
  const size_t groups = columns / static_cast<size_t>(shape_.group_size);
  codes_.resize(rows * columns);
  scale_.resize(rows * groups);
  offset_.resize(rows * groups);
  for (size_t r = 0; r < rows; ++r) {
    decode_affine_row(matrix, static_cast<int64_t>(r), std::span(codes_).subspan(r * columns, columns),
                      std::span(scale_).subspan(r * groups, groups),
                      std::span(offset_).subspan(r * groups, groups));
  }
}

void Linear::apply(std::span<const float> x, std::span<float> y) const {
  MLXCEL_CHECK(static_cast<int64_t>(x.size()) == columns() && static_cast<int64_t>(y.size()) == rows());
  if (limit_ == 0.0f) {
    apply_chain(x, y);
  } else {
    apply_integers(x, y);
  }
}

// One accumulator, k ascending.
void Linear::apply_chain(std::span<const float> x, std::span<float> y) const {
  std::vector<float> w(x.size());
  for (size_t r = 0; r < y.size(); ++r) {
    decode_row(matrix_, static_cast<int64_t>(r), w);
    float acc = 0.0f;
    for (size_t k = 0; k < x.size(); ++k) acc = std::fma(w[k], x[k], acc);
    y[r] = acc;
  }
}

void Linear::apply_integers(std::span<const float> x, std::span<float> y) const {
  const int group = std::max(kSmallestActivationGroup, shape_.group_size);
  const QuantisedActivations activations = quantise_activations(x, group, limit_);
  for (size_t r = 0; r < y.size(); ++r) y[r] = integer_row(static_cast<int64_t>(r), activations);
}

float Linear::integer_row(int64_t row, const QuantisedActivations& activations) const {
  const size_t size = static_cast<size_t>(shape_.group_size);
  const size_t columns = activations.p.size(), groups = columns / size;
  const size_t activation_size = std::max<size_t>(kSmallestActivationGroup, size);
  const uint8_t* codes = &codes_[static_cast<size_t>(row) * columns];
  float acc = 0.0f;
  for (size_t g = 0; g < groups; ++g) {
    int32_t product = 0, sum = 0;
    for (size_t k = g * size; k < (g + 1) * size; ++k) {
      product += int32_t{codes[k]} * activations.p[k];
      sum += activations.p[k];
    }
    const size_t at = static_cast<size_t>(row) * groups + g;
    float u = 0.0f;
    if (shape_.symmetric) {
      u = static_cast<float>(product - shape_.zero_point * sum) * scale_[at];
    } else {
      u = static_cast<float>(product) * scale_[at];
      u = std::fma(offset_[at], static_cast<float>(sum), u);
    }
    acc = std::fma(u, activations.d[g * size / activation_size], acc);
  }
  return acc;
}

std::vector<float> Linear::row(int64_t row) const {
  std::vector<float> values(static_cast<size_t>(columns()));
  decode_row(matrix_, row, values);
  return values;
}

uint64_t Linear::resident_bytes() const {
  return codes_.size() + (scale_.size() + offset_.size()) * sizeof(float);
}

}  // namespace mlxcel::reference
