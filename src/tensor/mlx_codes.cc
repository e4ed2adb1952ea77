// Packed codes of MLX checkpoints and the small floating-point types they use.
// Sources: MLX documentation of quantize/dequantize; OCP Microscaling Formats (MX) specification 1.0.
#include <array>
#include <limits>

#include "base/error.h"
#include "tensor/weight_decoders.h"

namespace mlxcel {
namespace {

constexpr std::array<float, 256> make_e4m3_table() {
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, fraction = code & 7;
    float magnitude = exponent == 0 ? static_cast<float>(fraction) : static_cast<float>(8 + fraction);
    for (int e = exponent == 0 ? 1 : exponent; e < 10; ++e) magnitude *= 0.5f;  // bias 7, and 3 fraction bits
    for (int e = 10; e < exponent; ++e) magnitude *= 2.0f;
    if ((code & 0x7F) == 0x7F) magnitude = std::numeric_limits<float>::quiet_NaN();
    table[static_cast<size_t>(code)] = code < 128 ? magnitude : -magnitude;
  }
  return table;
}
constexpr std::array<float, 256> kE4m3 = make_e4m3_table();

uint8_t byte_at(const std::byte* bytes, int64_t index) { return std::to_integer<uint8_t>(bytes[index]); }

// kCodes codes of kBits bits from kBits * kCodes / 8 bytes, lowest bits first.
template <int kBits, int kCodes>
void unpack(const std::byte* bytes, int64_t count, uint8_t* codes) {
  constexpr int kBytes = kBits * kCodes / 8;
  static_assert(kBits * kCodes % 8 == 0 && kBytes <= 8);
  for (int64_t done = 0; done < count; done += kCodes) {
    uint64_t packed = 0;
    std::memcpy(&packed, bytes, kBytes);
    for (int i = 0; i < kCodes; ++i)
      codes[i] = static_cast<uint8_t>(packed >> (kBits * i) & ((1u << kBits) - 1));
    bytes += kBytes;
    codes += kCodes;
  }
}

// Nibbles are by far the most common: a loop that compilers turn into byte shuffles.
void unpack_nibbles(const std::byte* bytes, int64_t count, uint8_t* codes) {
  for (int64_t i = 0; i < count / 2; ++i) {
    const uint8_t pair = byte_at(bytes, i);
    codes[2 * i] = pair & 0x0F;
    codes[2 * i + 1] = pair >> 4;
  }
}

}  // namespace

// 0, 0.5, 1, 1.5, 2, 3, 4, 6, then the negatives (with -0), doubled, plus 12.
const uint8_t kE2m1Codes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

float e4m3_to_f32(uint8_t code) { return kE4m3[code]; }

float e8m0_to_f32(uint8_t code) {
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(code == 0 ? 0x00400000u : uint32_t{code} << 23);
}

void unpack_mlx_codes(const std::byte* words, int bits, int64_t count, uint8_t* codes) {
  switch (bits) {
    case 2:
      return unpack<2, 4>(words, count, codes);
    case 3:
      return unpack<3, 8>(words, count, codes);
    case 4:
      return unpack_nibbles(words, count, codes);
    case 5:
      return unpack<5, 8>(words, count, codes);
    case 6:
      return unpack<6, 4>(words, count, codes);
    case 8:
      std::memcpy(codes, words, static_cast<size_t>(count));
      return;
    default:
      MLXCEL_CHECK_MSG(false, "MLX bits other than 2, 3, 4, 5, 6, 8");
  }
}

void unpack_e2m1_codes(const std::byte* words, int64_t count, uint8_t* codes) {
  for (int64_t i = 0; i < count / 2; ++i) {
    const uint8_t pair = byte_at(words, i);
    codes[2 * i] = kE2m1Codes[pair & 0x0F];
    codes[2 * i + 1] = kE2m1Codes[pair >> 4];
  }
}

}  // namespace mlxcel
