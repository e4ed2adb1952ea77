#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace mlxcel {
namespace {

// binary16 from its definition, in double: sign, 5 exponent bits of bias 15, 10 fraction bits.
double f16_by_definition(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double magnitude = 0;
  if (exponent == 31) {
    magnitude =
        fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// The nearest f16, ties to even, found in double: all magnitudes below 2^16 are multiples of the spacing at
// x.
uint16_t nearest_f16_by_search(float x) {
  const double magnitude = std::fabs(static_cast<double>(x));
  uint16_t best = 0x7C00;
  if (magnitude < 65520.0) {
    const int exponent = magnitude < std::ldexp(1.0, -14) ? -14 : std::ilogb(magnitude);
    const double spacing = std::ldexp(1.0, exponent - 10);
    const double steps = magnitude / spacing;  // exact: a power of two
    double whole = std::floor(steps);
    const double rest = steps - whole;
    if (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2.0) == 1.0)) whole += 1.0;
    const double rounded = whole * spacing;
    for (best = 0; best < 0x7C00 && f16_by_definition(best) != rounded;) {
      // Jump by the distance in units of the smallest spacing that is certainly not too far.
      const double missing = rounded - f16_by_definition(best);
      const int step_exponent = (best >> 10) == 0 ? -24 : (best >> 10) - 25;
      const double step = std::floor(missing / std::ldexp(1.0, step_exponent));
      const int room = 1024 - (best & 1023);
      best = static_cast<uint16_t>(best + std::min<int>(room, static_cast<int>(std::min(step, 1024.0))));
    }
  }
  return static_cast<uint16_t>(best | (std::signbit(x) ? 0x8000 : 0));
}

TEST(DType, EveryF16WidensToItsDefinitionAndBack) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const double expected = f16_by_definition(bits);
    const float widened = f16_to_f32(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(widened));
      // A signalling NaN comes back quiet, as from vcvtph2ps; sign and payload stay.
      EXPECT_EQ(f32_to_f16(widened), bits | 0x0200) << bits;
      continue;
    }
    EXPECT_EQ(static_cast<double>(widened), expected) << bits;
    EXPECT_EQ(std::signbit(widened), (bits & 0x8000) != 0) << bits;
    EXPECT_EQ(f32_to_f16(widened), bits);
  }
}

TEST(DType, F32RoundsToTheNearestF16HalfToEven) {
  std::mt19937 random(7);
  for (int i = 0; i < 300000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(x)) continue;
    ASSERT_EQ(f32_to_f16(x), nearest_f16_by_search(x)) << x;
  }
  // Inside the range of f16, with exact ties and their neighbours.
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const double a = f16_by_definition(static_cast<uint16_t>(bits));
    const double b = f16_by_definition(static_cast<uint16_t>(bits + 1));
    const auto middle = static_cast<float>((a + b) / 2);
    for (const float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      ASSERT_EQ(f32_to_f16(x), nearest_f16_by_search(x)) << x;
      ASSERT_EQ(f32_to_f16(-x), nearest_f16_by_search(-x)) << x;
    }
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::infinity()), 0xFC00);
}

TEST(DType, Bf16IsTheUpperHalfAndRoundsHalfToEven) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float widened = bf16_to_f32(bits);
    if (std::isnan(widened)) {
      EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(widened))));
      continue;
    }
    EXPECT_EQ(f32_to_bf16(widened), bits);
  }
  const auto from_bits = [](uint32_t u) { return f32_to_bf16(std::bit_cast<float>(u)); };
  EXPECT_EQ(from_bits(0x3F808000u), 0x3F80);  // tie to even: down
  EXPECT_EQ(from_bits(0x3F818000u), 0x3F82);  // tie to even: up
  EXPECT_EQ(from_bits(0x3F808001u), 0x3F81);
  EXPECT_EQ(from_bits(0x7F7FFFFFu), 0x7F80);  // overflows to infinity
  EXPECT_EQ(from_bits(0x7F800001u), 0x7FC0);  // a NaN whose payload is in the lower half stays NaN
}

TEST(DType, NamesAndSizes) {
  EXPECT_EQ(dtype_name(DType::kBF16), "bf16");
  EXPECT_EQ(dtype_size(DType::kBF16), 2u);
  EXPECT_EQ(dtype_size(DType::kI64), 8u);
  EXPECT_EQ(dtype_from_safetensors("F8_E4M3"), DType::kF8E4M3);
  EXPECT_EQ(dtype_from_safetensors("U32"), DType::kU32);
  EXPECT_EQ(dtype_from_safetensors("f32"), std::nullopt);
  EXPECT_EQ(dtype_from_safetensors(""), std::nullopt);
}

}  // namespace
}  // namespace mlxcel
