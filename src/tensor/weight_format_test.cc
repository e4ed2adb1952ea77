#include "tensor/weight_format.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/vector_file_for_test.h"
#include "tensor/weight_decoders.h"

namespace mlxcel {
namespace {

WeightFormat gguf_format(GgufType type) {
  WeightFormat format;
  format.kind = WeightKind::kGguf;
  format.gguf_type = type;
  return format;
}

WeightMatrix matrix_of(std::string name, WeightFormat format, int64_t rows, int64_t columns) {
  WeightMatrix matrix;
  matrix.name = std::move(name);
  matrix.format = format;
  matrix.rows = rows;
  matrix.columns = columns;
  return matrix;
}

struct AffineRow {
  std::vector<uint8_t> codes;
  std::vector<float> scale, offset;
};
AffineRow affine_row(const WeightMatrix& matrix, int64_t row) {
  const AffineShape shape = *affine_shape(matrix.format);
  const auto columns = static_cast<size_t>(matrix.columns),
             groups = columns / static_cast<size_t>(shape.group_size);
  AffineRow result{std::vector<uint8_t>(columns), std::vector<float>(groups), std::vector<float>(groups)};
  decode_affine_row(matrix, row, result.codes, result.scale, result.offset);
  return result;
}

// decode_row is the fma of the affine form, for every element; codes stay in range; symmetric offsets are
// exact.
void expect_consistent(const WeightMatrix& matrix, int64_t row, std::span<const float> decoded) {
  const AffineShape shape = *affine_shape(matrix.format);
  const AffineRow affine = affine_row(matrix, row);
  for (size_t i = 0; i < affine.codes.size(); ++i) {
    const size_t g = i / static_cast<size_t>(shape.group_size);
    ASSERT_LE(affine.codes[i], shape.max_code);
    ASSERT_EQ(decoded[i], std::fma(static_cast<float>(affine.codes[i]), affine.scale[g], affine.offset[g]));
    if (shape.symmetric) {
      ASSERT_EQ(double{affine.offset[g]}, -double{affine.scale[g]} * shape.zero_point);
    }
  }
}

// Golden value of one element as the reference computes it, or nullopt when our value must equal it exactly.
// `slack`: half a unit in the last place of the product q*s, the one rounding that fma leaves out.
void expect_dequantised(const WeightMatrix& matrix, std::span<const float> golden, bool product_is_exact) {
  ASSERT_TRUE(validate_weight_matrix(matrix).ok()) << validate_weight_matrix(matrix).error().to_string();
  std::vector<float> out(static_cast<size_t>(matrix.columns));
  for (int64_t row = 0; row < matrix.rows; ++row) {
    decode_row(matrix, row, out);
    const auto expected = golden.subspan(static_cast<size_t>(row) * out.size(), out.size());
    const auto shape = affine_shape(matrix.format);
    AffineRow affine;
    if (shape) {
      expect_consistent(matrix, row, out);
      affine = affine_row(matrix, row);
    }
    for (size_t i = 0; i < out.size(); ++i) {
      if (product_is_exact) {
        ASSERT_EQ(out[i], expected[i]) << matrix.name << " row " << row << " column " << i;
        continue;
      }
      const size_t g = i / static_cast<size_t>(shape->group_size);
      const float product = static_cast<float>(affine.codes[i]) * affine.scale[g];
      ASSERT_EQ(product + affine.offset[g], expected[i]) << matrix.name << " row " << row << " column " << i;
      const double half_ulp = std::ldexp(1.0, std::ilogb(std::max(std::fabs(product), 0x1p-120f)) - 24);
      const double result_ulp = std::ldexp(1.0, std::ilogb(std::max(std::fabs(out[i]), 0x1p-120f)) - 23);
      ASSERT_LE(std::fabs(double{out[i]} - double{expected[i]}), half_ulp + result_ulp);
    }
  }
}

TEST(WeightFormat, GgufVectors) {
  const VectorFile vectors("gguf_vectors.safetensors");
  const GgufType types[] = {GgufType::kQ4_0, GgufType::kQ4_1, GgufType::kQ5_0,   GgufType::kQ5_1,
                            GgufType::kQ8_0, GgufType::kQ2_K, GgufType::kQ3_K,   GgufType::kQ4_K,
                            GgufType::kQ5_K, GgufType::kQ6_K, GgufType::kIQ4_NL, GgufType::kIQ4_XS,
                            GgufType::kMXFP4};
  for (const GgufType type : types) {
    const std::string name(gguf_type_info(type)->name);
    WeightMatrix matrix = matrix_of(name, gguf_format(type), 4, 512);
    matrix.data = vectors.bytes(name + ".blocks");
    // Scales have at most 17 significant bits and codes 8, so q*s is exact in f32: one rounding on both
    // sides.
    expect_dequantised(matrix, vectors.floats(name + ".dequantised"), true);
  }
}

TEST(WeightFormat, MlxAffineVectors) {
  const VectorFile vectors("quant_vectors.safetensors");
  int cases = 0;
  for (const auto& [key, value] : vectors.header().as_object()) {
    constexpr std::string_view suffix = ".weight";
    if (!key.starts_with("affine.b") || !key.ends_with(suffix)) continue;
    const std::string tag = key.substr(0, key.size() - suffix.size());
    WeightFormat format;
    format.kind = WeightKind::kMlxAffine;
    format.bits = tag[8] - '0';
    format.group_size = std::stoi(tag.substr(tag.find(".g") + 2));
    format.dtype = vectors.dtype(tag + ".scales");
    WeightMatrix matrix = matrix_of(tag, format, 64, 256);
    matrix.data = vectors.bytes(key);
    matrix.scales = vectors.bytes(tag + ".scales");
    matrix.biases = vectors.bytes(tag + ".biases");
    // 16-bit scales: q*s is exact, so fma equals multiply-then-add. f32 scales: the reference rounds the
    // product first.
    expect_dequantised(matrix, vectors.floats(tag + ".dequantised"), format.dtype != DType::kF32);
    ++cases;
  }
  EXPECT_EQ(cases, 21);
}

TEST(WeightFormat, MlxFloatVectors) {
  const VectorFile vectors("quant_vectors.safetensors");
  struct Case {
    std::string tag;
    MlxMode mode;
    int bits, group;
  };
  for (const Case& c : {Case{"mxfp4", MlxMode::kMxfp4, 4, 32}, Case{"mxfp8", MlxMode::kMxfp8, 8, 32},
                        Case{"nvfp4", MlxMode::kNvfp4, 4, 16}}) {
    WeightFormat format;
    format.kind = WeightKind::kMlxFloat;
    format.mlx_mode = c.mode;
    format.bits = c.bits;
    format.group_size = c.group;
    WeightMatrix matrix = matrix_of(c.tag, format, 64, 256);
    matrix.data = vectors.bytes(c.tag + ".weight");
    matrix.scales = vectors.bytes(c.tag + ".scales");
    expect_dequantised(matrix, vectors.floats(c.tag + ".dequantised"), true);
    EXPECT_EQ(affine_shape(format).has_value(), c.mode != MlxMode::kMxfp8);
  }
}

WeightMatrix fp8_matrix(const VectorFile& vectors, const std::string& tag) {
  WeightFormat format;
  format.kind = WeightKind::kFp8Block;
  WeightMatrix matrix =
      matrix_of(tag, format, vectors.dimension(tag + ".weight", 0), vectors.dimension(tag + ".weight", 1));
  matrix.data = vectors.bytes(tag + ".weight");
  matrix.scales = vectors.bytes(tag + ".weight_scale_inv");
  return matrix;
}

TEST(WeightFormat, Fp8Vectors) {
  const VectorFile vectors("fp8_vectors.safetensors");
  expect_dequantised(fp8_matrix(vectors, "block.exact"), vectors.floats("block.exact.dequantised"), true);
  expect_dequantised(fp8_matrix(vectors, "block.ragged"), vectors.floats("block.ragged.dequantised"), true);

  const WeightMatrix edge = fp8_matrix(vectors, "edge");
  const std::vector<float> golden = vectors.floats("edge.dequantised");
  std::vector<float> out(static_cast<size_t>(edge.columns));
  for (int64_t row = 0; row < edge.rows; ++row) {
    decode_row(edge, row, out);
    for (size_t i = 0; i < out.size(); ++i) {
      const float expected = golden[static_cast<size_t>(row) * out.size() + i];
      EXPECT_TRUE(out[i] == expected || (std::isnan(out[i]) && std::isnan(expected))) << row << " " << i;
    }
  }
}

TEST(WeightFormat, SmallFloatTables) {
  const VectorFile vectors("fp8_vectors.safetensors");
  const std::vector<float> e4m3 = vectors.floats("table.float8_e4m3fn");
  const std::vector<float> e8m0 = vectors.floats("table.float8_e8m0fnu");
  const std::vector<float> e2m1 = vectors.floats("table.fp4_e2m1");
  for (size_t code = 0; code < 256; ++code) {
    const float a = e4m3_to_f32(static_cast<uint8_t>(code)), b = e8m0_to_f32(static_cast<uint8_t>(code));
    EXPECT_TRUE(a == e4m3[code] || (std::isnan(a) && std::isnan(e4m3[code]))) << code;
    EXPECT_TRUE(b == e8m0[code] || (std::isnan(b) && std::isnan(e8m0[code]))) << code;
  }
  for (size_t code = 0; code < 16; ++code) {
    EXPECT_EQ(static_cast<float>(int{kE2m1Codes[code]} - kE2m1ZeroPoint) * 0.5f, e2m1[code]) << code;
  }
}

TEST(WeightFormat, Fp8SliceMayBeginInsideABlock) {
  const VectorFile vectors("fp8_vectors.safetensors");
  const WeightMatrix whole = fp8_matrix(vectors, "block.ragged");
  const WeightMatrix slice = whole.slice_rows(100, 180).slice_rows(10, 70);
  ASSERT_TRUE(validate_weight_matrix(slice).ok());
  std::vector<float> a(130), b(130);
  for (int64_t row = 0; row < slice.rows; ++row) {
    decode_row(slice, row, a);
    decode_row(whole, 110 + row, b);
    ASSERT_EQ(a, b) << row;
  }
}

TEST(WeightFormat, MlxSliceTakesItsScales) {
  const VectorFile vectors("quant_vectors.safetensors");
  WeightFormat format;
  format.kind = WeightKind::kMlxAffine;
  format.bits = 3;
  format.group_size = 64;
  WeightMatrix whole = matrix_of("affine.b3.g64", format, 64, 256);
  whole.data = vectors.bytes("affine.b3.g64.weight");
  whole.scales = vectors.bytes("affine.b3.g64.scales");
  whole.biases = vectors.bytes("affine.b3.g64.biases");
  const WeightMatrix slice = whole.slice_rows(17, 23);
  ASSERT_TRUE(validate_weight_matrix(slice).ok());
  std::vector<float> a(256), b(256);
  for (int64_t row = 0; row < slice.rows; ++row) {
    decode_row(slice, row, a);
    decode_row(whole, 17 + row, b);
    ASSERT_EQ(a, b) << row;
  }
}

TEST(WeightFormat, PlainElementsWiden) {
  const float values[6] = {1.0f, -2.5f, 0x1p-14f, 65504.0f, 0.0f, -0.0f};
  std::vector<uint16_t> halves, brains;
  for (const float v : values) {
    halves.push_back(f32_to_f16(v));
    brains.push_back(f32_to_bf16(v));
  }
  const std::pair<DType, std::span<const std::byte>> cases[] = {
      {DType::kF32, std::as_bytes(std::span(values))},
      {DType::kF16, std::as_bytes(std::span(halves))},
      {DType::kBF16, std::as_bytes(std::span(brains))}};
  for (const auto& [type, bytes] : cases) {
    WeightFormat format;
    format.dtype = type;
    WeightMatrix matrix = matrix_of("plain", format, 2, 3);
    matrix.data = bytes;
    ASSERT_TRUE(validate_weight_matrix(matrix).ok());
    std::vector<float> row(3);
    decode_row(matrix, 1, row);
    // 65504 needs 11 bits; bf16 has 8 and rounds it to 2^16.
    EXPECT_EQ(row[0], type == DType::kBF16 ? 65536.0f : 65504.0f);
    EXPECT_EQ(row[1], 0.0f);
    EXPECT_TRUE(std::signbit(row[2]));
  }
}

TEST(WeightFormat, InterleavedHeadsUndoThePermutation) {
  // Two heads of 6 rows; stored as pairs (0,3),(1,4),(2,5) of the rotate-half order.
  std::vector<float> stored(12);
  const int order[6] = {0, 3, 1, 4, 2, 5};
  for (int head = 0; head < 2; ++head) {
    for (int i = 0; i < 6; ++i)
      stored[static_cast<size_t>(head * 6 + i)] = static_cast<float>(head * 6 + order[i]);
  }
  WeightMatrix matrix = matrix_of("q", WeightFormat{}, 12, 1);
  matrix.data = std::as_bytes(std::span(stored));
  matrix.interleaved_heads = 2;
  ASSERT_TRUE(validate_weight_matrix(matrix).ok());
  for (int64_t row = 0; row < 12; ++row) {
    float value = -1;
    decode_row(matrix, row, {&value, 1});
    EXPECT_EQ(value, static_cast<float>(row));
  }
  matrix.interleaved_heads = 4;  // 3 rows a head: no pairs
  EXPECT_FALSE(validate_weight_matrix(matrix).ok());
}

TEST(WeightFormat, HugeScalesStayDefined) {
  // The offset of a symmetric format can overflow where the values do not: w = (q - zero_point) * s all the
  // same.
  const std::byte block[17] = {std::byte{254}, std::byte{0x21}};
  WeightMatrix matrix = matrix_of("mxfp4", gguf_format(GgufType::kMXFP4), 1, 32);
  matrix.data = block;
  std::vector<float> out(32);
  decode_row(matrix, 0, out);
  EXPECT_EQ(out[0], 0x1p126f);   // code 1: 0.5 * 2^127
  EXPECT_EQ(out[16], 0x1p127f);  // code 2: 1.0 * 2^127
  EXPECT_EQ(out[1], 0.0f);
}

TEST(WeightFormat, NamesAndSizes) {
  WeightFormat mlx;
  mlx.kind = WeightKind::kMlxAffine;
  mlx.bits = 4;
  mlx.group_size = 64;
  mlx.dtype = DType::kBF16;
  EXPECT_EQ(mlx.name(), "mlx 4-bit g64");
  EXPECT_EQ(mlx.bits_per_weight(), 4.5);
  EXPECT_EQ(row_bytes(mlx, 128), 64u);
  EXPECT_EQ(row_bytes(mlx, 100), std::nullopt);
  EXPECT_EQ(gguf_format(GgufType::kQ4_K).name(), "Q4_K");
  EXPECT_EQ(gguf_format(GgufType::kQ4_K).bits_per_weight(), 4.5);
  EXPECT_EQ(row_bytes(gguf_format(GgufType::kQ6_K), 512), 420u);
  EXPECT_EQ(row_bytes(gguf_format(GgufType::kQ6_K), 128), std::nullopt);
  EXPECT_EQ(row_bytes(WeightFormat{}, int64_t{1} << 62), std::nullopt);
  EXPECT_FALSE(gguf_type_info(static_cast<GgufType>(5)).has_value());
}

TEST(WeightFormat, WrongSizesAreErrorsThatNameTheTensor) {
  const std::vector<std::byte> bytes(18 * 2);
  WeightMatrix matrix = matrix_of("blk.0.attn_q.weight", gguf_format(GgufType::kQ4_0), 2, 32);
  matrix.data = bytes;
  ASSERT_TRUE(validate_weight_matrix(matrix).ok());
  matrix.rows = 3;
  EXPECT_EQ(validate_weight_matrix(matrix).error().where, "blk.0.attn_q.weight");
  matrix.rows = int64_t{1} << 62;
  EXPECT_FALSE(validate_weight_matrix(matrix).ok());
  matrix.rows = 0;
  EXPECT_FALSE(validate_weight_matrix(matrix).ok());
  matrix.rows = 2;
  matrix.columns = 33;
  EXPECT_FALSE(validate_weight_matrix(matrix).ok());
  matrix.columns = 32;
  matrix.format.gguf_type = GgufType::kIQ2_XXS;
  EXPECT_EQ(validate_weight_matrix(matrix).error().kind, ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace mlxcel
