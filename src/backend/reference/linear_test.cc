// Products of quantised weights against exact ones, within the bound that docs/numerics.md implies: each
// activation is off by at most half a step d.
#include "backend/reference/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tensor/vector_file_for_test.h"

namespace mlxcel::reference {
namespace {

std::vector<float> apply(const WeightMatrix& matrix, ActivationPrecision precision,
                         std::span<const float> x) {
  std::vector<float> y(static_cast<size_t>(matrix.rows));
  Linear(matrix, precision).apply(x, y);
  return y;
}

// Half a step of each activation times the weights it meets, and the roundings of the chain.
double bound(const WeightMatrix& matrix, int64_t row, std::span<const float> x, float limit) {
  std::vector<float> w(x.size());
  decode_row(matrix, row, w);
  const std::optional<AffineShape> shape = affine_shape(matrix.format);
  const int group = shape ? std::max(32, shape->group_size) : 32;
  const QuantisedActivations activations = quantise_activations(x, group, limit);
  double error = 0.0;
  for (size_t k = 0; k < x.size(); ++k) {
    if (shape) error += double{activations.d[k / static_cast<size_t>(group)]} / 2.0 * std::fabs(double{w[k]});
    error += 1e-5 * std::fabs(double{w[k]} * double{x[k]});
  }
  return error;
}

void expect_products(const WeightMatrix& matrix, const std::vector<float>& activation,
                     const std::vector<float>& products) {
  const size_t columns = static_cast<size_t>(matrix.columns), rows = static_cast<size_t>(matrix.rows);
  const struct {
    ActivationPrecision precision;
    float limit;
  } cases[] = {{ActivationPrecision::kF32, std::numeric_limits<float>::infinity()},
               {ActivationPrecision::kHigh, 16256.0f},
               {ActivationPrecision::kInt8, 127.0f}};
  for (const auto& [precision, limit] : cases) {
    for (size_t t = 0; t * columns < activation.size(); ++t) {
      const std::span<const float> x = std::span(activation).subspan(t * columns, columns);
      const std::vector<float> y = apply(matrix, precision, x);
      for (size_t r = 0; r < rows; ++r) {
        ASSERT_LE(std::fabs(double{y[r]} - double{products[t * rows + r]}),
                  bound(matrix, static_cast<int64_t>(r), x, limit))
            << activation_precision_name(precision) << ", token " << t << ", row " << r;
      }
    }
  }
}

WeightMatrix mlx_matrix(const VectorFile& file, const std::string& tag, const JsonValue& settings) {
  WeightMatrix matrix;
  matrix.name = tag;
  matrix.rows = 64;
  matrix.columns = 256;
  matrix.data = file.bytes(tag + ".weight");
  matrix.scales = file.bytes(tag + ".scales");
  const std::string& mode = settings.find("mode")->as_string();
  matrix.format.kind = mode == "affine" ? WeightKind::kMlxAffine : WeightKind::kMlxFloat;
  matrix.format.mlx_mode = mode == "mxfp4"   ? MlxMode::kMxfp4
                           : mode == "mxfp8" ? MlxMode::kMxfp8
                           : mode == "nvfp4" ? MlxMode::kNvfp4
                                             : MlxMode::kAffine;
  matrix.format.bits = static_cast<int>(settings.find("bits")->as_int());
  matrix.format.group_size = static_cast<int>(settings.find("group_size")->as_int());
  if (mode == "affine") {
    matrix.biases = file.bytes(tag + ".biases");
    matrix.format.dtype = file.dtype(tag + ".scales");
  }
  return matrix;
}

TEST(ReferenceLinear, MlxProductsStayWithinTheBound) {
  const VectorFile file("quant_vectors.safetensors");
  const JsonValue description =
      parse_json_file(std::string(MLXCEL_SOURCE_DIR) + "/tests/data/models/quant_vectors.json").value();
  const std::vector<float> activation = file.floats("activation");
  size_t count = 0;
  for (const auto& [tag, settings] : description.find("tags")->as_object()) {
    SCOPED_TRACE(tag);
    const WeightMatrix matrix = mlx_matrix(file, tag, settings);
    ASSERT_TRUE(validate_weight_matrix(matrix).ok());
    expect_products(matrix, activation, file.floats(tag + ".product"));
    ++count;
  }
  EXPECT_EQ(count, 24U);
}

TEST(ReferenceLinear, GgufProductsStayWithinTheBound) {
  const VectorFile file("gguf_vectors.safetensors");
  const std::vector<float> activation = file.floats("activation");
  const GgufType types[] = {GgufType::kQ4_0, GgufType::kQ4_1, GgufType::kQ5_0,   GgufType::kQ5_1,
                            GgufType::kQ8_0, GgufType::kQ2_K, GgufType::kQ3_K,   GgufType::kQ4_K,
                            GgufType::kQ5_K, GgufType::kQ6_K, GgufType::kIQ4_NL, GgufType::kIQ4_XS};
  for (const GgufType type : types) {
    const std::string name(gguf_type_info(type)->name);
    SCOPED_TRACE(name);
    WeightMatrix matrix;
    matrix.name = name;
    matrix.format.kind = WeightKind::kGguf;
    matrix.format.gguf_type = type;
    matrix.rows = 4;
    matrix.columns = 512;
    matrix.data = file.bytes(name + ".blocks");
    expect_products(matrix, activation, file.floats(name + ".product"));
  }
}

TEST(ReferenceLinear, ActivationsRoundToTheNearestStep) {
  std::vector<float> x(64, 0.0f);
  x[0] = 127.0f;
  x[1] = 2.5f;  // exactly between two steps of one: the even one
  x[2] = -3.5f;
  x[33] = 0x1p-101f;
  const QuantisedActivations q = quantise_activations(x, 32, 127.0f);
  ASSERT_EQ(q.d.size(), 2U);
  EXPECT_EQ(q.d[0], 1.0f);
  EXPECT_EQ(q.p[0], 127);
  EXPECT_EQ(q.p[1], 2);
  EXPECT_EQ(q.p[2], -4);
  EXPECT_EQ(q.d[1], 0.0f);  // below the smallest amplitude nothing is left
  EXPECT_EQ(q.p[33], 0);
}

TEST(ReferenceLinear, NaNInAGroupIsNeverAPlausibleNumber) {
  const VectorFile file("gguf_vectors.safetensors");
  WeightMatrix matrix;
  matrix.format.kind = WeightKind::kGguf;
  matrix.format.gguf_type = GgufType::kQ4_1;
  matrix.rows = 4;
  matrix.columns = 512;
  matrix.data = file.bytes("Q4_1.blocks");
  for (const float poison :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x(512, 0.25f);
    x[300] = poison;
    for (const auto precision : {ActivationPrecision::kHigh, ActivationPrecision::kInt8}) {
      for (const float y : apply(matrix, precision, x)) EXPECT_TRUE(std::isnan(y));
    }
  }
}

}  // namespace
}  // namespace mlxcel::reference
