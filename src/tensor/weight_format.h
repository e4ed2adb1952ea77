// The formats a weight matrix can have in a checkpoint, and the one shape all quantised ones share.
//
// Every quantised format that mlxcel runs is *affine in codes*: element k of a row is w = s*q + b with an
// unsigned integer code q <= 255 and a scale and an offset per group of k that are exact in f32
// (docs/numerics.md, "integer core"). decode_affine_row() turns any of them into that form; backends pack
// from it and the reference runner computes from it, so a new format is one decoder here and nothing
// elsewhere.
//
// Sources: MLX affine: mlx/ops quantize documentation. GGUF blocks: ggml-common.h block layouts.
// Owner: views do not own bytes. Threads: const functions on constant bytes, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tensor/dtype.h"

namespace mlxcel {

enum class WeightKind {
  kPlain,      // f32, f16, bf16 elements, row-major
  kMlxAffine,  // u32 words of packed codes + scales + biases, bits 2,3,4,5,6,8, group 32/64/128
  kMlxFloat,   // mxfp4 / mxfp8 / nvfp4: fp codes with a shared scale per group (e8m0 or e4m3), no biases
  kGguf,       // GGUF blocks of `gguf_type`
  kFp8Block,   // e4m3 elements with one scale (f32, f16 or bf16) per 128 x 128 block
};

enum class GgufType : uint32_t {  // numbers as in the file format
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
};
struct GgufTypeInfo {
  std::string_view name;    // "Q4_0"
  uint32_t block_elements;  // elements per block (1 for plain types)
  uint32_t block_bytes;
};
std::optional<GgufTypeInfo> gguf_type_info(GgufType type);

enum class MlxMode { kAffine, kMxfp4, kMxfp8, kNvfp4 };

struct WeightFormat {
  WeightKind kind = WeightKind::kPlain;
  DType dtype = DType::kF32;  // kPlain: of the elements; kMlxAffine, kFp8Block: of scales and biases
  int bits = 0;               // kMlxAffine: 2,3,4,5,6,8
  int group_size = 0;         // kMlxAffine, kMlxFloat
  MlxMode mlx_mode = MlxMode::kAffine;  // kMlxFloat
  GgufType gguf_type = GgufType::kF32;  // kGguf (block types only; plain GGUF tensors are kPlain)

  bool is_plain() const { return kind == WeightKind::kPlain; }
  std::string name() const;  // "bf16", "mlx 4-bit g64", "Q4_K"
  double bits_per_weight() const;
  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

// What the affine form of a format looks like.
struct AffineShape {
  int group_size = 0;      // k per (s, b) pair: 16, 32, 64 or 128; divides the number of columns
  int max_code = 0;        // codes are 0..max_code (15 fits a nibble, at most 255)
  bool symmetric = false;  // b == -zero_point * s for every group (so no offset needs to be stored)
  int zero_point = 0;      // when symmetric
};
// nullopt: the format is not affine (plain floats, fp8) and is used through decode_row().
std::optional<AffineShape> affine_shape(const WeightFormat& format);

// A matrix [rows, columns] in a checkpoint: y = W x with x of `columns` elements. For a stack of experts this
// is one expert. Bytes live in the checkpoint's mapping.
struct WeightMatrix {
  std::string name;  // of the tensor, for messages
  WeightFormat format;
  int64_t rows = 0, columns = 0;
  std::span<const std::byte> data;    // packed codes, or elements
  std::span<const std::byte> scales;  // kMlxAffine, kMlxFloat, kFp8Block
  std::span<const std::byte> biases;  // kMlxAffine
  // kFp8Block: which row of the scaled tensor is row 0 (a slice may begin inside a block of 128 rows).
  int64_t first_row = 0;
  // Row r of the matrix is stored row source_row(r): undoes GGUF's q/k permutation without touching the
  // bytes. 0: identity. Otherwise the number of heads h: the rows of each head are stored as interleaved
  // pairs.
  int interleaved_heads = 0;

  int64_t source_row(int64_t row) const {
    if (interleaved_heads == 0) return row;
    const int64_t head_rows = rows / interleaved_heads, half = head_rows / 2;
    const int64_t head = row / head_rows, i = row % head_rows;
    return head * head_rows + (i < half ? 2 * i : 2 * (i - half) + 1);  // rotate-half order from pair order
  }
  // Rows [begin, end) as a matrix of their own (phi3's fused qkv). REQUIRES: interleaved_heads == 0 and
  // 0 <= begin <= end <= rows.
  WeightMatrix slice_rows(int64_t begin, int64_t end) const;
};

// Sizes of data, scales and biases agree with format, rows and columns; columns is a multiple of the group.
Status validate_weight_matrix(const WeightMatrix& matrix);
// Bytes of one row of `data` for a format; nullopt when columns do not fit the format's blocks.
std::optional<uint64_t> row_bytes(const WeightFormat& format, int64_t columns);

// Row `row` (already in matrix order) in affine form. REQUIRES: affine_shape(format); codes.size() ==
// columns; scale.size() == offset.size() == columns / group_size.
void decode_affine_row(const WeightMatrix& matrix, int64_t row, std::span<uint8_t> codes,
                       std::span<float> scale, std::span<float> offset);
// Row `row` as f32: plain elements widened; affine: std::fma(float(q), s, b), for symmetric formats written
// float(q - zero_point) * s, which is the same rounding; fp8: value times scale. REQUIRES: out.size() ==
// columns.
void decode_row(const WeightMatrix& matrix, int64_t row, std::span<float> out);

}  // namespace mlxcel
