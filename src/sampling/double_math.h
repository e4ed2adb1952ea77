// exp and log in double by fixed sequences of IEEE operations: a libm may choose another polynomial on
// another machine, and then a seed would not mean the same tokens everywhere.
//
// Threads: pure functions. Relative error below 1e-14 (double_math in sampler_test.cc).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace mlxcel {

// e^x; 0 below -708, +inf above 709, NaN stays NaN.
inline double exp_double(double x) {
  if (!(x >= -708.0)) return x < -708.0 ? 0.0 : x;
  if (x > 709.0) return HUGE_VAL;
  constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
  const double shifted = x * 0x1.71547652b82fep0 + kRound;
  const double n = shifted - kRound;
  const double r =
      (x - n * 0x1.62e42fefa0000p-1) - n * 0x1.cf79abc9e3b3ap-40;  // ln 2 in two parts, n * high is exact
  double p = 1.0 / 479001600.0;                                    // Taylor, |r| <= ln2 / 2
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const uint64_t exponent = (std::bit_cast<uint64_t>(shifted) + 1023) << 52;
  return p * std::bit_cast<double>(exponent);
}

// Natural logarithm. REQUIRES: x is positive, finite and normal.
inline double log_double(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  // ln m = 2 atanh(z), |z| <= 0.1716; the first term left out is z^23 / 23.
  const double z = (m - 1.0) / (m + 1.0), z2 = z * z;
  double sum = 0.0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * z2 + 1.0 / k;
  return 2.0 * z * sum + static_cast<double>(exponent) * 0x1.62e42fefa39efp-1;
}

}  // namespace mlxcel
