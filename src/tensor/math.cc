#include "tensor/math.h"

#include <limits>

namespace mlxcel {
namespace {

// pi/2 in three parts of 30, 30 and 53 bits: n * part is exact for the first two while |n| < 2^23.
constexpr double kHalfPiHigh = 0x1.921fb54p+0;
constexpr double kHalfPiMiddle = 0x1.10b46118p-30;
constexpr double kHalfPiLow = 0x1.313198a2e037p-61;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
constexpr double kArgumentMax = 1e7;
// Adding and subtracting 1.5 * 2^52 rounds a double below 2^51 to an integer, half to even.
constexpr double kRoundingShift = 0x1.8p52;

// Taylor coefficients: on |r| <= pi/4 the first term left out is below 1e-19 (sin) and 2e-18 (cos).
double sin_near_zero(double r) {
  const double z = r * r;
  double p = 1.0 / 355687428096000.0;
  p = p * z - 1.0 / 1307674368000.0;
  p = p * z + 1.0 / 6227020800.0;
  p = p * z - 1.0 / 39916800.0;
  p = p * z + 1.0 / 362880.0;
  p = p * z - 1.0 / 5040.0;
  p = p * z + 1.0 / 120.0;
  p = p * z - 1.0 / 6.0;
  return r + r * (z * p);
}

double cos_near_zero(double r) {
  const double z = r * r;
  double p = 1.0 / 20922789888000.0;
  p = p * z - 1.0 / 87178291200.0;
  p = p * z + 1.0 / 479001600.0;
  p = p * z - 1.0 / 3628800.0;
  p = p * z + 1.0 / 40320.0;
  p = p * z - 1.0 / 720.0;
  p = p * z + 1.0 / 24.0;
  p = p * z - 0.5;
  return 1.0 + z * p;
}

}  // namespace

SinCos sin_cos(double x) {
  if (!(std::fabs(x) <= kArgumentMax)) {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    return {nan, nan};
  }
  const double n = (x * kTwoOverPi + kRoundingShift) - kRoundingShift;
  const double r = ((x - n * kHalfPiHigh) - n * kHalfPiMiddle) - n * kHalfPiLow;
  const double s = sin_near_zero(r);
  const double c = cos_near_zero(r);
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

}  // namespace mlxcel
