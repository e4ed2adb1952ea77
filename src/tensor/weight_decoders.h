// Decoders of packed weight rows, one per family of formats. Private to tensor/.
//
// Each turns a range of one stored row into codes and one (scale, offset) pair per group; the range begins
// and ends at a multiple of the format's block, so callers can work in pieces that stay in cache. Owner:
// none, all views. Threads: pure functions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tensor/dtype.h"
#include "tensor/weight_format.h"

namespace mlxcel {

// Where a decoder writes. Sizes: codes [count], scale and offset [count / group_size].
struct AffineOut {
  uint8_t* codes = nullptr;
  float* scale = nullptr;
  float* offset = nullptr;
};

// Elements in files are little-endian and need not be aligned. All supported hosts are little-endian.
static_assert(std::endian::native == std::endian::little);
template <typename T>
inline T load_unaligned(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// Element `index` of an array of f32, f16 or bf16. REQUIRES: one of these types.
inline float load_float(const std::byte* bytes, DType type, int64_t index) {
  if (type == DType::kF32) return load_unaligned<float>(bytes + 4 * index);
  const auto bits = load_unaligned<uint16_t>(bytes + 2 * index);
  return type == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// e4m3 without infinities (OCP 8-bit floating point specification, "E4M3"): 0x7F and 0xFF are NaN.
float e4m3_to_f32(uint8_t code);
// A power of two, 2^(code - 127); 255 is NaN (OCP Microscaling specification, "E8M0").
float e8m0_to_f32(uint8_t code);
// e2m1 times two, plus 12: 0..24. (OCP Microscaling specification, "E2M1": 0, .5, 1, 1.5, 2, 3, 4, 6 and
// negatives.)
extern const uint8_t kE2m1Codes[16];
inline constexpr int kE2m1ZeroPoint = 12;

// GGUF: `count` elements from whole blocks at `blocks`. REQUIRES: gguf_affine_shape(type).
std::optional<AffineShape> gguf_affine_shape(GgufType type);
void decode_gguf_blocks(GgufType type, const std::byte* blocks, int64_t count, const AffineOut& out);

// MLX packed codes of 2, 3, 4, 5, 6 or 8 bits: `count` (a multiple of 32) codes from a little-endian bit
// stream.
void unpack_mlx_codes(const std::byte* words, int bits, int64_t count, uint8_t* codes);
// MLX e2m1 codes (mxfp4, nvfp4) as 2 * value + 12.
void unpack_e2m1_codes(const std::byte* words, int64_t count, uint8_t* codes);

}  // namespace mlxcel
