#include "tensor/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>

namespace mlxcel {
namespace {

using Function = float (*)(float);
using Oracle = double (*)(double);

// Walks the f32 values of [low, high] in steps of `stride` representable numbers, on both sides of zero when
// the interval spans it, and calls visit(x).
template <class Visit>
void walk(float low, float high, uint32_t stride, Visit visit) {
  if (low < 0) {
    const uint32_t last = std::bit_cast<uint32_t>(-low);
    const uint32_t first = high < 0 ? std::bit_cast<uint32_t>(-high) : 0;
    for (uint32_t u = first; u <= last; u += stride) visit(-std::bit_cast<float>(u));
  }
  if (high > 0) {
    const uint32_t last = std::bit_cast<uint32_t>(high);
    const uint32_t first = low > 0 ? std::bit_cast<uint32_t>(low) : 0;
    for (uint32_t u = first; u <= last; u += stride) visit(std::bit_cast<float>(u));
  }
}

double ulp_of(double value) {
  const double magnitude = std::max(std::fabs(value), std::ldexp(1.0, -126));
  return std::ldexp(1.0, std::ilogb(magnitude) - 23);
}

double largest_ulp_error(Function function, Oracle oracle, float low, float high) {
  double worst = 0;
  walk(low, high, 1009, [&](float x) {
    const double exact = oracle(x);
    worst = std::max(worst, std::fabs(static_cast<double>(function(x)) - exact) / ulp_of(exact));
  });
  return worst;
}

double largest_absolute_error(Function function, Oracle oracle, float low, float high) {
  double worst = 0;
  walk(low, high, 1009,
       [&](float x) { worst = std::max(worst, std::fabs(static_cast<double>(function(x)) - oracle(x))); });
  return worst;
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
float exp_scalar(float x) { return exp_lanes<ScalarLanes>(x); }
float tanh_scalar(float x) { return tanh_lanes<ScalarLanes>(x); }
float erf_scalar(float x) { return erf_lanes<ScalarLanes>(x); }
float sigmoid_scalar(float x) { return sigmoid_lanes<ScalarLanes>(x); }
float silu_scalar(float x) { return silu_lanes<ScalarLanes>(x); }
float gelu_tanh_scalar(float x) { return gelu_tanh_lanes<ScalarLanes>(x); }
float gelu_erf_scalar(float x) { return gelu_erf_lanes<ScalarLanes>(x); }

double sigmoid_double(double x) { return 1 / (1 + std::exp(-x)); }
double silu_double(double x) { return x / (1 + std::exp(-x)); }
double gelu_tanh_double(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_erf_double(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }

// Measured on every 1009th f32 of each range: exp 1.00 ulp, tanh 1.21, sigmoid 2.04, silu 2.21; erf 2.9e-7,
// gelu 4.6e-7 (absolute). The limits leave room for the values between.
TEST(Math, ErrorsAgainstDouble) {
  EXPECT_LT(largest_ulp_error(exp_scalar, std::exp, -87.3f, 88.3f), 1.25);
  EXPECT_LT(largest_ulp_error(tanh_scalar, std::tanh, -20.0f, 20.0f), 1.5);
  EXPECT_LT(largest_absolute_error(erf_scalar, std::erf, -6.0f, 6.0f), 3e-7);
  EXPECT_LT(largest_ulp_error(sigmoid_scalar, sigmoid_double, -80.0f, 80.0f), 2.5);
  EXPECT_LT(largest_ulp_error(silu_scalar, silu_double, -80.0f, 80.0f), 2.5);
  EXPECT_LT(largest_absolute_error(gelu_tanh_scalar, gelu_tanh_double, -8.0f, 8.0f), 6e-7);
  EXPECT_LT(largest_absolute_error(gelu_erf_scalar, gelu_erf_double, -8.0f, 8.0f), 6e-7);
}

TEST(Math, EdgesAreDefined) {
  EXPECT_EQ(exp_scalar(0.0f), 1.0f);
  EXPECT_EQ(exp_scalar(-0.0f), 1.0f);
  EXPECT_EQ(exp_scalar(-87.4f), 0.0f);
  EXPECT_EQ(exp_scalar(-kInfinity), 0.0f);
  EXPECT_EQ(exp_scalar(88.4f), kInfinity);
  EXPECT_EQ(exp_scalar(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(exp_scalar(kNan)));
  EXPECT_EQ(tanh_scalar(kInfinity), 1.0f);
  EXPECT_EQ(tanh_scalar(-kInfinity), -1.0f);
  EXPECT_TRUE(std::isnan(tanh_scalar(kNan)));
  EXPECT_EQ(erf_scalar(40.0f), 1.0f);
  EXPECT_EQ(erf_scalar(-40.0f), -1.0f);
  EXPECT_TRUE(std::isnan(erf_scalar(kNan)));
  EXPECT_EQ(sigmoid_scalar(-200.0f), 0.0f);
  EXPECT_EQ(sigmoid_scalar(200.0f), 1.0f);
  EXPECT_EQ(silu_scalar(200.0f), 200.0f);
  EXPECT_EQ(silu_scalar(-200.0f), 0.0f);
}

TEST(Math, Sum16AddsHalves) {
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = static_cast<float>(1 << i);
  EXPECT_EQ(sum16(lanes), 65535.0f);
  // Order matters: 1e8 absorbs a 1 that is added to it, and keeps one that cancels first.
  float order[16] = {1e8f, 0, 0, 0, 1.0f, 0, 0, 0, -1e8f, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(sum16(order), 1.0f);
}

TEST(Math, SinCosOfRopeAngles) {
  // Positions times inverse frequencies, small angles, multiples of pi/2 and their neighbours.
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  double worst = 0;
  const auto check = [&](double x) {
    const SinCos value = sin_cos(x);
    // Long double has 64 bits of precision and the library reduces exactly: an oracle to about 1e-19.
    const auto wide = static_cast<long double>(x);
    worst =
        std::max({worst, static_cast<double>(std::fabs(static_cast<long double>(value.sin) - std::sin(wide))),
                  static_cast<double>(std::fabs(static_cast<long double>(value.cos) - std::cos(wide)))});
  };
  for (int i = 0; i < 100000; ++i) {
    check(uniform(random) * 1e7);
    check(uniform(random) * 1e4);
    check(uniform(random));
  }
  for (int n = 0; n < 6300000; n += 977) {
    const double x = n * (M_PI / 2);
    for (const double y : {x, std::nextafter(x, 0.0), std::nextafter(x, 1e9), x + M_PI / 4})
      check(std::min(y, 1e7));
  }
  EXPECT_LT(worst, 5e-16);
}

TEST(Math, SinCosEdges) {
  EXPECT_EQ(sin_cos(0.0).sin, 0.0);
  EXPECT_EQ(sin_cos(0.0).cos, 1.0);
  for (const double x :
       {1.1e7, -1e300, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_TRUE(std::isnan(sin_cos(x).sin)) << x;
    EXPECT_TRUE(std::isnan(sin_cos(x).cos)) << x;
  }
}

}  // namespace
}  // namespace mlxcel
