#include "tensor/weight_format.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "tensor/weight_decoders.h"

namespace mlxcel {
namespace {

constexpr int64_t kFp8Block = 128;      // rows and columns of a block
constexpr int64_t kChunkColumns = 256;  // decode_row's piece: a multiple of every block and group
constexpr int64_t kGroupMin = 16;

struct GgufTypeRow {
  GgufType type;
  GgufTypeInfo info;
};
// Block sizes: ggml-common.h of the ggml project (MIT).
constexpr GgufTypeRow kGgufTypes[] = {
    {GgufType::kF32, {"F32", 1, 4}},
    {GgufType::kF16, {"F16", 1, 2}},
    {GgufType::kQ4_0, {"Q4_0", 32, 18}},
    {GgufType::kQ4_1, {"Q4_1", 32, 20}},
    {GgufType::kQ5_0, {"Q5_0", 32, 22}},
    {GgufType::kQ5_1, {"Q5_1", 32, 24}},
    {GgufType::kQ8_0, {"Q8_0", 32, 34}},
    {GgufType::kQ8_1, {"Q8_1", 32, 36}},
    {GgufType::kQ2_K, {"Q2_K", 256, 84}},
    {GgufType::kQ3_K, {"Q3_K", 256, 110}},
    {GgufType::kQ4_K, {"Q4_K", 256, 144}},
    {GgufType::kQ5_K, {"Q5_K", 256, 176}},
    {GgufType::kQ6_K, {"Q6_K", 256, 210}},
    {GgufType::kQ8_K, {"Q8_K", 256, 292}},
    {GgufType::kIQ2_XXS, {"IQ2_XXS", 256, 66}},
    {GgufType::kIQ2_XS, {"IQ2_XS", 256, 74}},
    {GgufType::kIQ3_XXS, {"IQ3_XXS", 256, 98}},
    {GgufType::kIQ1_S, {"IQ1_S", 256, 50}},
    {GgufType::kIQ4_NL, {"IQ4_NL", 32, 18}},
    {GgufType::kIQ3_S, {"IQ3_S", 256, 110}},
    {GgufType::kIQ2_S, {"IQ2_S", 256, 82}},
    {GgufType::kIQ4_XS, {"IQ4_XS", 256, 136}},
    {GgufType::kI8, {"I8", 1, 1}},
    {GgufType::kI16, {"I16", 1, 2}},
    {GgufType::kI32, {"I32", 1, 4}},
    {GgufType::kI64, {"I64", 1, 8}},
    {GgufType::kF64, {"F64", 1, 8}},
    {GgufType::kIQ1_M, {"IQ1_M", 256, 56}},
    {GgufType::kBF16, {"BF16", 1, 2}},
    {GgufType::kTQ1_0, {"TQ1_0", 256, 54}},
    {GgufType::kTQ2_0, {"TQ2_0", 256, 66}},
    {GgufType::kMXFP4, {"MXFP4", 32, 17}},
};

bool is_float(DType type) { return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16; }

std::string_view mlx_mode_name(MlxMode mode) {
  switch (mode) {
    case MlxMode::kAffine:
      return "affine";
    case MlxMode::kMxfp4:
      return "mxfp4";
    case MlxMode::kMxfp8:
      return "mxfp8";
    case MlxMode::kNvfp4:
      return "nvfp4";
  }
  MLXCEL_CHECK_MSG(false, "an MlxMode outside its enumeration");
}

bool is_known_mlx_format(const WeightFormat& f) {
  const bool wide_group = f.group_size == 32 || f.group_size == 64 || f.group_size == 128;
  if (f.kind == WeightKind::kMlxAffine) {
    const bool known_bits =
        f.bits == 2 || f.bits == 3 || f.bits == 4 || f.bits == 5 || f.bits == 6 || f.bits == 8;
    return known_bits && wide_group && is_float(f.dtype);
  }
  switch (f.mlx_mode) {
    case MlxMode::kMxfp4:
      return f.bits == 4 && f.group_size == 32;
    case MlxMode::kMxfp8:
      return f.bits == 8 && f.group_size == 32;
    case MlxMode::kNvfp4:
      return f.bits == 4 && f.group_size == 16;
    case MlxMode::kAffine:
      return false;
  }
  return false;
}

// Bytes that scales (and biases) of `matrix` must have; nullopt: overflow.
std::optional<uint64_t> scale_bytes(const WeightMatrix& matrix) {
  const WeightFormat& f = matrix.format;
  const auto rows = static_cast<uint64_t>(matrix.rows), columns = static_cast<uint64_t>(matrix.columns);
  switch (f.kind) {
    case WeightKind::kMlxAffine: {
      const auto pairs = checked_mul(rows, columns / static_cast<uint64_t>(f.group_size));
      return pairs ? checked_mul(*pairs, dtype_size(f.dtype)) : std::nullopt;
    }
    case WeightKind::kMlxFloat:
      return checked_mul(rows, columns / static_cast<uint64_t>(f.group_size));
    case WeightKind::kFp8Block: {
      // Up to the end of the block row that holds the last row; a slice may have more behind it.
      const int64_t block_rows = ceil_div(matrix.first_row + matrix.rows, kFp8Block);
      const auto blocks = checked_mul(static_cast<uint64_t>(block_rows),
                                      static_cast<uint64_t>(ceil_div(matrix.columns, kFp8Block)));
      return blocks ? checked_mul(*blocks, dtype_size(f.dtype)) : std::nullopt;
    }
    case WeightKind::kPlain:
    case WeightKind::kGguf:
      return 0;
  }
  return std::nullopt;
}

Error size_error(const WeightMatrix& matrix, std::string_view part, const std::optional<uint64_t>& expected,
                 uint64_t found) {
  return make_error(ErrorKind::kInvalidData,
                    std::string(part) + " of a " + matrix.format.name() + " matrix have the wrong size",
                    matrix.name, expected ? std::to_string(*expected) + " bytes" : "a size below 2^64",
                    std::to_string(found) + " bytes");
}

const std::byte* row_start(const WeightMatrix& matrix, int64_t row) {
  MLXCEL_CHECK(row >= 0 && row < matrix.rows);
  const auto bytes = row_bytes(matrix.format, matrix.columns);
  MLXCEL_CHECK(bytes.has_value());
  return matrix.data.data() + static_cast<uint64_t>(matrix.source_row(row)) * *bytes;
}

// A range of one row: `source_row` is the row as stored, `row` points at its first byte.
struct RowRange {
  const std::byte* row = nullptr;
  int64_t source_row = 0;
  int64_t begin = 0, count = 0;  // columns, both multiples of the format's block
};

void decode_mlx_affine(const WeightMatrix& matrix, const RowRange& range, const AffineOut& out) {
  const WeightFormat& f = matrix.format;
  unpack_mlx_codes(range.row + range.begin * f.bits / 8, f.bits, range.count, out.codes);
  const int64_t first = (range.source_row * matrix.columns + range.begin) / f.group_size;
  for (int64_t g = 0; g < range.count / f.group_size; ++g) {
    out.scale[g] = load_float(matrix.scales.data(), f.dtype, first + g);
    out.offset[g] = load_float(matrix.biases.data(), f.dtype, first + g);
  }
}

void decode_mlx_e2m1(const WeightMatrix& matrix, const RowRange& range, const AffineOut& out) {
  const WeightFormat& f = matrix.format;
  unpack_e2m1_codes(range.row + range.begin / 2, range.count, out.codes);
  const std::byte* scales =
      matrix.scales.data() + (range.source_row * matrix.columns + range.begin) / f.group_size;
  for (int64_t g = 0; g < range.count / f.group_size; ++g) {
    const auto code = std::to_integer<uint8_t>(scales[g]);
    // Codes are doubled values, so the scale is halved: exact, the smallest is 2^-128 (an f32 subnormal).
    const float scale = 0.5f * (f.mlx_mode == MlxMode::kMxfp4 ? e8m0_to_f32(code) : e4m3_to_f32(code));
    out.scale[g] = scale;
    out.offset[g] = -static_cast<float>(kE2m1ZeroPoint) * scale;
  }
}

void decode_affine_range(const WeightMatrix& matrix, const RowRange& range, const AffineOut& out) {
  const WeightFormat& f = matrix.format;
  if (f.kind == WeightKind::kMlxAffine) return decode_mlx_affine(matrix, range, out);
  if (f.kind == WeightKind::kMlxFloat) return decode_mlx_e2m1(matrix, range, out);
  const GgufTypeInfo info = *gguf_type_info(f.gguf_type);
  const std::byte* blocks = range.row + range.begin / info.block_elements * info.block_bytes;
  decode_gguf_blocks(f.gguf_type, blocks, range.count, out);
}

void widen_plain(const std::byte* row, DType type, std::span<float> out) {
  if (type == DType::kF32) {
    std::memcpy(out.data(), row, out.size_bytes());
  } else if (type == DType::kBF16) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = bf16_to_f32(load_unaligned<uint16_t>(row + 2 * i));
  } else {
    for (size_t i = 0; i < out.size(); ++i) out[i] = f16_to_f32(load_unaligned<uint16_t>(row + 2 * i));
  }
}

void decode_fp8_block(const WeightMatrix& matrix, const RowRange& range, std::span<float> out) {
  const int64_t blocks_per_row = ceil_div(matrix.columns, kFp8Block);
  const int64_t first = (matrix.first_row + range.source_row) / kFp8Block * blocks_per_row;
  for (int64_t begin = 0; begin < matrix.columns; begin += kFp8Block) {
    const float scale = load_float(matrix.scales.data(), matrix.format.dtype, first + begin / kFp8Block);
    const int64_t end = std::min(begin + kFp8Block, matrix.columns);
    for (int64_t i = begin; i < end; ++i) {
      out[static_cast<size_t>(i)] = e4m3_to_f32(std::to_integer<uint8_t>(range.row[i])) * scale;
    }
  }
}

void decode_mxfp8(const WeightMatrix& matrix, const RowRange& range, std::span<float> out) {
  const int64_t group = matrix.format.group_size;
  const std::byte* scales = matrix.scales.data() + range.source_row * (matrix.columns / group);
  for (int64_t g = 0; g < matrix.columns / group; ++g) {
    const float scale = e8m0_to_f32(std::to_integer<uint8_t>(scales[g]));
    for (int64_t i = g * group; i < (g + 1) * group; ++i) {
      out[static_cast<size_t>(i)] = e4m3_to_f32(std::to_integer<uint8_t>(range.row[i])) * scale;
    }
  }
}

// One group of affine codes as f32. A table of all codes' values is cheaper than an fma per element when the
// codes are few (without an FMA instruction in the baseline, fma is a library call), and holds the same
// values.
void dequantise_group(const uint8_t* codes, const AffineShape& shape, float scale, float offset, float* out) {
  if (shape.symmetric) {
    for (int i = 0; i < shape.group_size; ++i)
      out[i] = static_cast<float>(int{codes[i]} - shape.zero_point) * scale;
    return;
  }
  float values[32];
  if (shape.max_code < 32) {
    for (int q = 0; q <= shape.max_code; ++q) values[q] = std::fma(static_cast<float>(q), scale, offset);
    for (int i = 0; i < shape.group_size; ++i) out[i] = values[codes[i]];
    return;
  }
  for (int i = 0; i < shape.group_size; ++i) out[i] = std::fma(static_cast<float>(codes[i]), scale, offset);
}

void decode_affine_as_floats(const WeightMatrix& matrix, const AffineShape& shape, RowRange range,
                             std::span<float> out) {
  uint8_t codes[kChunkColumns];
  float scale[kChunkColumns / kGroupMin], offset[kChunkColumns / kGroupMin];
  for (range.begin = 0; range.begin < matrix.columns; range.begin += kChunkColumns) {
    range.count = std::min(kChunkColumns, matrix.columns - range.begin);
    decode_affine_range(matrix, range, {codes, scale, offset});
    for (int64_t g = 0; g < range.count / shape.group_size; ++g) {
      const int64_t first = g * shape.group_size;
      dequantise_group(codes + first, shape, scale[g], offset[g], out.data() + range.begin + first);
    }
  }
}

}  // namespace

std::optional<GgufTypeInfo> gguf_type_info(GgufType type) {
  for (const GgufTypeRow& row : kGgufTypes) {
    if (row.type == type) return row.info;
  }
  return std::nullopt;
}

std::string WeightFormat::name() const {
  switch (kind) {
    case WeightKind::kPlain:
      return std::string(dtype_name(dtype));
    case WeightKind::kMlxAffine:
      return "mlx " + std::to_string(bits) + "-bit g" + std::to_string(group_size);
    case WeightKind::kMlxFloat:
      return "mlx " + std::string(mlx_mode_name(mlx_mode));
    case WeightKind::kGguf: {
      const auto info = gguf_type_info(gguf_type);
      return info ? std::string(info->name) : "GGUF type " + std::to_string(static_cast<uint32_t>(gguf_type));
    }
    case WeightKind::kFp8Block:
      return "fp8 128x128";
  }
  MLXCEL_CHECK_MSG(false, "a WeightKind outside its enumeration");
}

double WeightFormat::bits_per_weight() const {
  switch (kind) {
    case WeightKind::kPlain:
      return 8.0 * static_cast<double>(dtype_size(dtype));
    case WeightKind::kMlxAffine:
      return bits + 16.0 * static_cast<double>(dtype_size(dtype)) / group_size;
    case WeightKind::kMlxFloat:
      return bits + 8.0 / group_size;
    case WeightKind::kGguf: {
      const auto info = gguf_type_info(gguf_type);
      return info ? 8.0 * info->block_bytes / info->block_elements : 0.0;
    }
    case WeightKind::kFp8Block:
      return 8.0 + 8.0 * static_cast<double>(dtype_size(dtype)) / (kFp8Block * kFp8Block);
  }
  MLXCEL_CHECK_MSG(false, "a WeightKind outside its enumeration");
}

std::optional<AffineShape> affine_shape(const WeightFormat& format) {
  switch (format.kind) {
    case WeightKind::kMlxAffine:
      return AffineShape{format.group_size, (1 << format.bits) - 1, false, 0};
    case WeightKind::kMlxFloat:
      if (format.mlx_mode == MlxMode::kMxfp8) return std::nullopt;
      return AffineShape{format.group_size, 24, true, kE2m1ZeroPoint};
    case WeightKind::kGguf:
      return gguf_affine_shape(format.gguf_type);
    case WeightKind::kPlain:
    case WeightKind::kFp8Block:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<uint64_t> row_bytes(const WeightFormat& format, int64_t columns) {
  if (columns <= 0) return std::nullopt;
  const auto n = static_cast<uint64_t>(columns);
  switch (format.kind) {
    case WeightKind::kPlain:
      return checked_mul(n, dtype_size(format.dtype));
    case WeightKind::kMlxAffine:
    case WeightKind::kMlxFloat: {
      // Groups are multiples of 16 codes and rows of 32-bit words.
      if (format.group_size <= 0 || columns % format.group_size != 0 || columns % 8 != 0) return std::nullopt;
      const auto bits = checked_mul(n, static_cast<uint64_t>(format.bits));
      if (!bits || *bits % 32 != 0) return std::nullopt;
      return *bits / 8;
    }
    case WeightKind::kGguf: {
      const auto info = gguf_type_info(format.gguf_type);
      if (!info || n % info->block_elements != 0) return std::nullopt;
      return checked_mul(n / info->block_elements, info->block_bytes);
    }
    case WeightKind::kFp8Block:
      return n;
  }
  return std::nullopt;
}

Status validate_weight_matrix(const WeightMatrix& matrix) {
  const WeightFormat& f = matrix.format;
  if (matrix.rows <= 0 || matrix.columns <= 0 || matrix.first_row < 0) {
    return make_error(ErrorKind::kInvalidData, "a matrix has an empty or negative dimension", matrix.name,
                      "at least one row and one column",
                      std::to_string(matrix.rows) + " x " + std::to_string(matrix.columns));
  }
  const bool is_mlx = f.kind == WeightKind::kMlxAffine || f.kind == WeightKind::kMlxFloat;
  if ((is_mlx && !is_known_mlx_format(f)) ||
      (f.kind == WeightKind::kGguf && !gguf_affine_shape(f.gguf_type)) ||
      ((f.kind == WeightKind::kPlain || f.kind == WeightKind::kFp8Block) && !is_float(f.dtype))) {
    return make_error(
        ErrorKind::kUnsupported, "a weight format that cannot be computed with", matrix.name,
        "f32, f16, bf16, MLX 2-8 bit with groups of 32, 64 or 128, mxfp4, mxfp8, nvfp4, fp8 128x128, "
        "Q4_0 to Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS or MXFP4",
        f.name());
  }
  const auto per_row = row_bytes(f, matrix.columns);
  if (!per_row) {
    return make_error(ErrorKind::kInvalidData, "the number of columns does not fit the weight format",
                      matrix.name, "whole blocks of " + f.name(),
                      std::to_string(matrix.columns) + " columns");
  }
  const auto data_bytes = checked_mul(*per_row, static_cast<uint64_t>(matrix.rows));
  if (data_bytes != matrix.data.size())
    return size_error(matrix, "the elements", data_bytes, matrix.data.size());
  const auto scales = scale_bytes(matrix);
  const bool scales_fit = f.kind == WeightKind::kFp8Block ? scales && *scales <= matrix.scales.size()
                                                          : scales == matrix.scales.size();
  if (!scales_fit) return size_error(matrix, "the scales", scales, matrix.scales.size());
  const uint64_t biases = f.kind == WeightKind::kMlxAffine ? *scales : 0;
  if (biases != matrix.biases.size()) return size_error(matrix, "the biases", biases, matrix.biases.size());
  const int64_t heads = matrix.interleaved_heads;
  if (heads < 0 || (heads > 0 && (matrix.rows % heads != 0 || matrix.rows / heads % 2 != 0))) {
    return make_error(ErrorKind::kInvalidData, "rows cannot be split into heads of row pairs", matrix.name,
                      "rows a multiple of 2 * " + std::to_string(heads), std::to_string(matrix.rows));
  }
  return ok_status();
}

WeightMatrix WeightMatrix::slice_rows(int64_t begin, int64_t end) const {
  MLXCEL_CHECK(interleaved_heads == 0 && begin >= 0 && begin <= end && end <= rows);
  const auto per_row = row_bytes(format, columns);
  MLXCEL_CHECK(per_row.has_value());
  WeightMatrix slice = *this;
  const auto first = static_cast<uint64_t>(begin), count = static_cast<uint64_t>(end - begin);
  slice.rows = end - begin;
  slice.data = data.subspan(first * *per_row, count * *per_row);
  if (format.kind == WeightKind::kFp8Block) {
    slice.first_row = first_row + begin;
    return slice;
  }
  if (!scales.empty()) {
    const uint64_t scale_row = scales.size() / static_cast<uint64_t>(rows);
    slice.scales = scales.subspan(first * scale_row, count * scale_row);
    if (!biases.empty()) slice.biases = biases.subspan(first * scale_row, count * scale_row);
  }
  return slice;
}

void decode_affine_row(const WeightMatrix& matrix, int64_t row, std::span<uint8_t> codes,
                       std::span<float> scale, std::span<float> offset) {
  const auto shape = affine_shape(matrix.format);
  MLXCEL_CHECK(shape.has_value());
  const auto columns = static_cast<size_t>(matrix.columns);
  const size_t groups = columns / static_cast<size_t>(shape->group_size);
  MLXCEL_CHECK(codes.size() == columns && scale.size() == groups && offset.size() == groups);
  const RowRange range{row_start(matrix, row), matrix.source_row(row), 0, matrix.columns};
  decode_affine_range(matrix, range, {codes.data(), scale.data(), offset.data()});
}

void decode_row(const WeightMatrix& matrix, int64_t row, std::span<float> out) {
  MLXCEL_CHECK(out.size() == static_cast<size_t>(matrix.columns));
  const RowRange range{row_start(matrix, row), matrix.source_row(row), 0, matrix.columns};
  if (matrix.format.kind == WeightKind::kPlain) return widen_plain(range.row, matrix.format.dtype, out);
  if (matrix.format.kind == WeightKind::kFp8Block) return decode_fp8_block(matrix, range, out);
  const auto shape = affine_shape(matrix.format);
  if (!shape) return decode_mxfp8(matrix, range, out);
  decode_affine_as_floats(matrix, *shape, range, out);
}

}  // namespace mlxcel
