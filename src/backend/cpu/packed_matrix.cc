#include "backend/cpu/packed_matrix.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/checked.h"

namespace mlxcel {
namespace {

int64_t scale_type_bytes(ScaleType type) { return type == ScaleType::kF32 ? 4 : 2; }
int64_t plain_type_bytes(PlainType type) { return type == PlainType::kF32 ? 4 : 2; }

// The same number, NaNs of any kind being the same.
bool same_number(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}
bool fits_f16(float v) { return same_number(f16_to_f32(f32_to_f16(v)), v); }
bool fits_bf16(float v) { return same_number(bf16_to_f32(f32_to_bf16(v)), v); }

// Which 16-bit types hold every number seen so far exactly. Threads keep their own and combine.
struct Exactness {
  bool f16 = true, bf16 = true;
  void see(float v) {
    f16 = f16 && fits_f16(v);
    bf16 = bf16 && fits_bf16(v);
  }
  void combine(const Exactness& other) {
    f16 = f16 && other.f16;
    bf16 = bf16 && other.bf16;
  }
};

void store_number(std::byte* out, int64_t index, ScaleType type, float v) {
  if (type == ScaleType::kF32) {
    std::memcpy(out + index * 4, &v, 4);
    return;
  }
  const uint16_t bits = type == ScaleType::kF16 ? f32_to_f16(v) : f32_to_bf16(v);
  std::memcpy(out + index * 2, &bits, 2);
}

float load_number(const uint8_t* data, int64_t index, ScaleType type) {
  if (type == ScaleType::kF32) {
    float v = 0.0f;
    std::memcpy(&v, data + index * 4, 4);
    return v;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, data + index * 2, 2);
  return type == ScaleType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

ScaleType as_scale_type(PlainType type) {
  switch (type) {
    case PlainType::kF32:
      return ScaleType::kF32;
    case PlainType::kF16:
      return ScaleType::kF16;
    case PlainType::kBF16:
      return ScaleType::kBF16;
  }
  return ScaleType::kF32;
}

// One row of a quantised matrix in affine form.
struct AffineRow {
  AffineRow(int64_t columns, int64_t groups)
      : codes(static_cast<size_t>(columns)),
        scale(static_cast<size_t>(groups)),
        offset(static_cast<size_t>(groups)) {}
  std::vector<uint8_t> codes;
  std::vector<float> scale, offset;
};

struct GroupLayout {
  int group_size = 0;
  CodeWidth width = CodeWidth::kNibble;
  ScaleType scale_type = ScaleType::kF32;
  bool symmetric = false;
  int64_t codes() const { return width == CodeWidth::kNibble ? group_size * 8 : group_size * 16; }
  int64_t bytes() const { return codes() + kLanes * scale_type_bytes(scale_type) * (symmetric ? 1 : 2); }
};

// Where code k of lane `lane` of a group lies (kernel_table.h).
struct CodePlace {
  int64_t byte = 0;
  int shift = 0;
};
CodePlace code_place(CodeWidth width, int64_t k, int64_t lane) {
  if (width == CodeWidth::kNibble) {
    const int64_t inside = k % 8, nibble = inside / 4 + 2 * (inside / 2 % 2) + 4 * (inside % 2);
    return {k / 8 * 64 + lane * 4 + nibble / 2, static_cast<int>(nibble % 2) * 4};
  }
  const int64_t inside = k % 4;
  return {k / 4 * 64 + lane * 4 + inside / 2 + 2 * (inside % 2), 0};
}

// Adds row `lane` of a row block to its packed groups, whose bytes are zero.
void place_row(const AffineRow& row, const GroupLayout& layout, int64_t lane, std::byte* block) {
  const int64_t groups = static_cast<int64_t>(row.scale.size());
  for (int64_t g = 0; g < groups; ++g, block += layout.bytes()) {
    const uint8_t* codes = row.codes.data() + g * layout.group_size;
    for (int64_t k = 0; k < layout.group_size; ++k) {
      const CodePlace place = code_place(layout.width, k, lane);
      block[place.byte] |= static_cast<std::byte>(codes[k] << place.shift);
    }
    store_number(block + layout.codes(), lane, layout.scale_type, row.scale[static_cast<size_t>(g)]);
    if (!layout.symmetric)
      store_number(block + layout.codes(), kLanes + lane, layout.scale_type,
                   row.offset[static_cast<size_t>(g)]);
  }
}

// The type that the format stores scales in; packing checks it and falls back to f32.
ScaleType likely_scale_type(const WeightFormat& format) {
  if (format.kind == WeightKind::kMlxAffine) {
    if (format.dtype == DType::kF16) return ScaleType::kF16;
    return format.dtype == DType::kBF16 ? ScaleType::kBF16 : ScaleType::kF32;
  }
  if (format.kind == WeightKind::kMlxFloat) return ScaleType::kBF16;  // e8m0 and e4m3 scales
  switch (format.gguf_type) {
    case GgufType::kQ4_0:
    case GgufType::kQ4_1:
    case GgufType::kQ5_0:
    case GgufType::kQ5_1:
    case GgufType::kQ8_0:
    case GgufType::kIQ4_NL:
      return ScaleType::kF16;
    case GgufType::kMXFP4:
      return ScaleType::kBF16;
    default:
      return ScaleType::kF32;  // K-quants: a product of two numbers
  }
}

// Packs all rows; false when a scale or an offset is not exact in layout.scale_type.
bool place_rows(const WeightMatrix& source, const AffineShape& shape, const GroupLayout& layout,
                std::byte* data, ThreadPool& pool) {
  const int64_t groups = source.columns / layout.group_size, block_bytes = groups * layout.bytes();
  std::atomic<bool> exact{true};
  pool.run([&](int thread) {
    const Range blocks = split_range(ceil_div(source.rows, kLanes), 1, pool.num_threads(), thread);
    AffineRow row(source.columns, groups);
    Exactness seen;
    for (int64_t r = blocks.begin * kLanes; r < std::min(blocks.end * kLanes, source.rows); ++r) {
      decode_affine_row(source, r, row.codes, row.scale, row.offset);
      for (size_t g = 0; g < row.scale.size(); ++g) {
        seen.see(row.scale[g]);
        if (shape.symmetric) {
          MLXCEL_CHECK_MSG(same_number(row.offset[g], static_cast<float>(-shape.zero_point) * row.scale[g]),
                           "a symmetric format whose offset is not -zero_point * scale");
        } else {
          seen.see(row.offset[g]);
        }
      }
      place_row(row, layout, r % kLanes, data + r / kLanes * block_bytes);
    }
    const bool fits =
        layout.scale_type == ScaleType::kF32 || (layout.scale_type == ScaleType::kF16 ? seen.f16 : seen.bf16);
    if (!fits) exact.store(false, std::memory_order_relaxed);
  });
  return exact.load(std::memory_order_relaxed);
}

// The narrowest type that holds every element of a matrix.
PlainType narrowest_type(const WeightMatrix& source, ThreadPool& pool) {
  if (source.format.is_plain()) {
    if (source.format.dtype == DType::kF32) return PlainType::kF32;
    if (source.format.dtype == DType::kF16) return PlainType::kF16;
    if (source.format.dtype == DType::kBF16) return PlainType::kBF16;
  }
  std::vector<Exactness> seen(static_cast<size_t>(pool.num_threads()));
  pool.run([&](int thread) {
    const Range rows = split_range(source.rows, 1, pool.num_threads(), thread);
    std::vector<float> row(static_cast<size_t>(source.columns));
    Exactness mine;
    for (int64_t r = rows.begin; r < rows.end && (mine.f16 || mine.bf16); ++r) {
      decode_row(source, r, row);
      for (const float v : row) mine.see(v);
    }
    seen[static_cast<size_t>(thread)] = mine;
  });
  Exactness all;
  for (const Exactness& one : seen) all.combine(one);
  if (all.bf16) return PlainType::kBF16;
  return all.f16 ? PlainType::kF16 : PlainType::kF32;
}

Result<std::byte*> allocate_blocks(const WeightMatrix& source, int64_t bytes_per_block, WeightArena& arena,
                                   uint64_t& bytes) {
  const auto total = checked_mul(static_cast<uint64_t>(ceil_div(source.rows, kLanes)),
                                 static_cast<uint64_t>(bytes_per_block));
  if (!total) return make_error(ErrorKind::kOutOfMemory, "packed weights do not fit in memory", source.name);
  bytes = *total;
  return arena.allocate(bytes);
}

}  // namespace

Result<PackedMatrix> PackedMatrix::pack(const WeightMatrix& source, WeightArena& arena, ThreadPool& pool) {
  MLXCEL_CHECK(source.rows > 0 && source.columns > 0);
  const std::optional<AffineShape> shape = affine_shape(source.format);
  return shape ? pack_codes(source, *shape, arena, pool) : pack_plain(source, arena, pool);
}

Result<PackedMatrix> PackedMatrix::pack_codes(const WeightMatrix& source, const AffineShape& shape,
                                              WeightArena& arena, ThreadPool& pool) {
  MLXCEL_CHECK(source.columns % shape.group_size == 0);
  PackedMatrix result;
  result.rows_ = source.rows;
  result.columns_ = source.columns;
  result.quantised_ = true;
  GroupLayout layout;
  layout.group_size = shape.group_size;
  layout.width = shape.max_code <= 15 ? CodeWidth::kNibble : CodeWidth::kByte;
  layout.scale_type = likely_scale_type(source.format);
  layout.symmetric = shape.symmetric;
  const int64_t groups = source.columns / shape.group_size;
  MLXCEL_ASSIGN_OR_RETURN(std::byte * data,
                          allocate_blocks(source, groups * layout.bytes(), arena, result.bytes_));
  if (!place_rows(source, shape, layout, data, pool)) {
    layout.scale_type = ScaleType::kF32;
    MLXCEL_ASSIGN_OR_RETURN(data, allocate_blocks(source, groups * layout.bytes(), arena, result.bytes_));
    MLXCEL_CHECK(place_rows(source, shape, layout, data, pool));
  }
  QuantisedWeights& w = result.codes_;
  w.data = std::bit_cast<const uint8_t*>(data);
  w.num_groups = groups;
  w.group_bytes = layout.bytes();
  w.group_size = shape.group_size;
  w.zero_point = shape.zero_point;
  w.width = layout.width;
  w.scale_type = layout.scale_type;
  w.symmetric = layout.symmetric;
  return result;
}

Result<PackedMatrix> PackedMatrix::pack_plain(const WeightMatrix& source, WeightArena& arena,
                                              ThreadPool& pool) {
  PackedMatrix result;
  result.rows_ = source.rows;
  result.columns_ = source.columns;
  const PlainType type = narrowest_type(source, pool);
  const int64_t element = plain_type_bytes(type), block_bytes = source.columns * kLanes * element;
  MLXCEL_ASSIGN_OR_RETURN(std::byte * data, allocate_blocks(source, block_bytes, arena, result.bytes_));
  pool.run([&](int thread) {
    const Range blocks = split_range(result.num_blocks(), 1, pool.num_threads(), thread);
    std::vector<float> row(static_cast<size_t>(source.columns));
    for (int64_t r = blocks.begin * kLanes; r < std::min(blocks.end * kLanes, source.rows); ++r) {
      decode_row(source, r, row);
      std::byte* block = data + r / kLanes * block_bytes;
      for (int64_t k = 0; k < source.columns; ++k)
        store_number(block, k * kLanes + r % kLanes, as_scale_type(type), row[static_cast<size_t>(k)]);
    }
  });
  result.plain_ = {data, source.columns, type};
  return result;
}

void PackedMatrix::read_row(int64_t row, float* out) const {
  const int64_t block = row / kLanes, lane = row % kLanes;
  if (!quantised_) {
    const int64_t block_bytes = columns_ * kLanes * plain_type_bytes(plain_.type);
    const uint8_t* data = static_cast<const uint8_t*>(plain_.data) + block * block_bytes;
    for (int64_t k = 0; k < columns_; ++k)
      out[k] = load_number(data, k * kLanes + lane, as_scale_type(plain_.type));
    return;
  }
  const GroupLayout layout = {codes_.group_size, codes_.width, codes_.scale_type, codes_.symmetric};
  const uint8_t* group = codes_.data + block * codes_.num_groups * codes_.group_bytes;
  const int mask = codes_.width == CodeWidth::kNibble ? 15 : 255;
  for (int64_t g = 0; g < codes_.num_groups; ++g, group += codes_.group_bytes) {
    const float s = load_number(group + layout.codes(), lane, layout.scale_type);
    const float b =
        codes_.symmetric ? 0.0f : load_number(group + layout.codes(), kLanes + lane, layout.scale_type);
    for (int64_t k = 0; k < codes_.group_size; ++k) {
      const CodePlace place = code_place(codes_.width, k, lane);
      const int q = (group[place.byte] >> place.shift) & mask;
      *out++ = codes_.symmetric ? static_cast<float>(q - codes_.zero_point) * s
                                : std::fma(static_cast<float>(q), s, b);
    }
  }
}

}  // namespace mlxcel
