#include "tensor/dtype.h"

#include <array>

#include "base/error.h"

namespace mlxcel {
namespace {

struct DTypeRow {
  DType type;
  std::string_view name;
  std::string_view safetensors_name;
  size_t size;
};

// In the order of the enumeration, so that the type is the index. Names as in the safetensors format
// description.
constexpr std::array<DTypeRow, 15> kDTypes = {{
    {DType::kF32, "f32", "F32", 4},
    {DType::kF16, "f16", "F16", 2},
    {DType::kBF16, "bf16", "BF16", 2},
    {DType::kF64, "f64", "F64", 8},
    {DType::kF8E4M3, "f8_e4m3", "F8_E4M3", 1},
    {DType::kF8E5M2, "f8_e5m2", "F8_E5M2", 1},
    {DType::kI8, "i8", "I8", 1},
    {DType::kU8, "u8", "U8", 1},
    {DType::kI16, "i16", "I16", 2},
    {DType::kU16, "u16", "U16", 2},
    {DType::kI32, "i32", "I32", 4},
    {DType::kU32, "u32", "U32", 4},
    {DType::kI64, "i64", "I64", 8},
    {DType::kU64, "u64", "U64", 8},
    {DType::kBool, "bool", "BOOL", 1},
}};

constexpr bool rows_match_the_enumeration() {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (static_cast<size_t>(kDTypes[i].type) != i) return false;
  }
  return true;
}
static_assert(rows_match_the_enumeration());

const DTypeRow& row_of(DType type) {
  const auto index = static_cast<size_t>(type);
  MLXCEL_CHECK(index < kDTypes.size());
  return kDTypes[index];
}

}  // namespace

size_t dtype_size(DType type) { return row_of(type).size; }

std::string_view dtype_name(DType type) { return row_of(type).name; }

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.safetensors_name == name) return row.type;
  }
  return std::nullopt;
}

// The 15 bits below the sign, moved to the top of an f32's fraction and low exponent, are the value times
// 2^-112 for normal and subnormal numbers alike (the biases differ by 112), so one exact multiply widens
// both.
float f16_to_f32(uint16_t bits) {
  const uint32_t magnitude = bits & 0x7FFFu;
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  uint32_t result = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
  if (magnitude >= 0x7C00u) {
    const uint32_t quiet = magnitude > 0x7C00u ? 0x00400000u : 0u;
    result = 0x7F800000u | (magnitude & 0x03FFu) << 13 | quiet;
  }
  return std::bit_cast<float>(result | sign);
}

uint16_t f32_to_f16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const uint32_t magnitude = u & 0x7FFFFFFFu;
  uint32_t half = 0;
  if (magnitude > 0x7F800000u) {
    half = 0x7E00u | ((magnitude >> 13) & 0x03FFu);
  } else if (magnitude >=
             0x477FF000u) {  // 65520, half way between the largest finite f16 and 2^16: rounds to infinity
    half = 0x7C00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: units of 2^-24, which is the f32 spacing in [0.5, 1)
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f);
  } else {
    const uint32_t rounded = magnitude + 0x0FFFu + ((magnitude >> 13) & 1u);
    half = (rounded - (uint32_t{112} << 23)) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

}  // namespace mlxcel
