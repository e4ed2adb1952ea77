// Element types of plain tensors and their exact widening to f32.
// Pure functions; any thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace mlxcel {

enum class DType {
  kF32,
  kF16,
  kBF16,
  kF64,
  kF8E4M3,
  kF8E5M2,
  kI8,
  kU8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kBool
};

size_t dtype_size(DType type);                                       // bytes
std::string_view dtype_name(DType type);                             // "f32", "bf16", ...
std::optional<DType> dtype_from_safetensors(std::string_view name);  // "F32", "BF16", "U32", ...

// bf16: the upper half of an f32.
inline float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
// Round half to even; NaN stays NaN (quiet).
inline uint16_t f32_to_bf16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}
// IEEE binary16 with subnormals; identical to vcvtph2ps / vcvtps2ph (round half to even).
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);

}  // namespace mlxcel
