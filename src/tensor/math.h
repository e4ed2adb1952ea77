// The transcendental functions of the numeric contract (docs/numerics.md): the same sequence of f32
// operations on every path. Written once over a "lanes" policy L, so that the scalar reference and each SIMD
// kernel run the same roundings; no result of libm reaches a logit.
//
// L offers: types F (floats) and M (mask); set(float); fma(a,b,c) = a*b+c rounded once; mul, add, sub, div;
// abs; copysign(magnitude, sign); round_even(F) (half to even); scale2(F p, F n): p * 2^n for an integral n
// in [-126, 127]; less(a,b) -> M (false for NaN); select(M, if_true, if_false).
//
// Threads: pure functions. Errors stated are asserted against double in math_test.cc, on a fine sample of
// all f32 in the range.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace mlxcel {

struct ScalarLanes {
  using F = float;
  using M = bool;
  static F set(float v) { return v; }
  static F fma(F a, F b, F c) { return std::fma(a, b, c); }
  static F mul(F a, F b) { return a * b; }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F div(F a, F b) { return a / b; }
  static F abs(F a) { return std::fabs(a); }
  static F copysign(F magnitude, F sign) { return std::copysign(magnitude, sign); }
  static F round_even(F a) { return std::nearbyint(a); }
  static F scale2(F p, F n) {
    return p * std::bit_cast<float>(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
  }
  static M less(F a, F b) { return a < b; }
  static F select(M m, F a, F b) { return m ? a : b; }
};

// e^x. Exactly 0 below -87.33 (no subnormal results), +inf above 88.37; NaN stays NaN. At most 1.25 ulp.
// Reduction x = n ln2 + r with a two-part ln2; polynomial of degree 5 on |r| <= ln2/2 (Cephes expf
// coefficients, S. Moshier, netlib).
template <class L>
inline typename L::F exp_lanes(typename L::F x) {
  using F = typename L::F;
  const auto too_small = L::less(x, L::set(-87.33654f));
  const auto too_large = L::less(L::set(88.37626f), x);
  const F clamped = L::select(too_small, L::set(0.0f), L::select(too_large, L::set(0.0f), x));
  const F n = L::round_even(L::mul(clamped, L::set(1.44269504088896341f)));
  F r = L::fma(n, L::set(-0.693359375f), clamped);
  r = L::fma(n, L::set(2.12194440e-4f), r);
  F p = L::set(1.9875691500e-4f);
  p = L::fma(p, r, L::set(1.3981999507e-3f));
  p = L::fma(p, r, L::set(8.3334519073e-3f));
  p = L::fma(p, r, L::set(4.1665795894e-2f));
  p = L::fma(p, r, L::set(1.6666665459e-1f));
  p = L::fma(p, r, L::set(5.0000001201e-1f));
  p = L::fma(p, L::mul(r, r), r);
  p = L::add(p, L::set(1.0f));
  const F y = L::scale2(p, n);
  return L::select(too_small, L::set(0.0f), L::select(too_large, L::set(__builtin_inff()), y));
}

// 1 / (1 + e^-x).
template <class L>
inline typename L::F sigmoid_lanes(typename L::F x) {
  return L::div(L::set(1.0f), L::add(L::set(1.0f), exp_lanes<L>(L::sub(L::set(0.0f), x))));
}

// x / (1 + e^-x).
template <class L>
inline typename L::F silu_lanes(typename L::F x) {
  return L::div(x, L::add(L::set(1.0f), exp_lanes<L>(L::sub(L::set(0.0f), x))));
}

// tanh: odd polynomial below 0.625 (Cephes tanhf), 1 - 2/(e^2|x| + 1) above.
template <class L>
inline typename L::F tanh_lanes(typename L::F x) {
  using F = typename L::F;
  const F a = L::abs(x);
  const F z = L::mul(x, x);
  F p = L::set(-5.70498872745e-3f);
  p = L::fma(p, z, L::set(2.06390887954e-2f));
  p = L::fma(p, z, L::set(-5.37397155531e-2f));
  p = L::fma(p, z, L::set(1.33314422036e-1f));
  p = L::fma(p, z, L::set(-3.33332819422e-1f));
  const F small = L::fma(L::mul(p, z), x, x);
  const F e = exp_lanes<L>(L::add(a, a));
  const F large = L::sub(L::set(1.0f), L::div(L::set(2.0f), L::add(e, L::set(1.0f))));
  return L::select(L::less(a, L::set(0.625f)), small, L::copysign(large, x));
}

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
template <class L>
inline typename L::F gelu_tanh_lanes(typename L::F x) {
  using F = typename L::F;
  const F inner = L::mul(L::set(0.79788456080286536f), L::fma(L::mul(L::set(0.044715f), L::mul(x, x)), x, x));
  return L::mul(L::mul(L::set(0.5f), x), L::add(L::set(1.0f), tanh_lanes<L>(inner)));
}

// erf: Maclaurin series below 0.5; above, 1 - P(t) e^-x^2 (Abramowitz and Stegun 7.1.26, absolute
// error 1.5e-7).
template <class L>
inline typename L::F erf_lanes(typename L::F x) {
  using F = typename L::F;
  const F a = L::abs(x);
  const F z = L::mul(x, x);
  F s = L::set(-8.54832702e-4f);
  s = L::fma(s, z, L::set(5.22397762e-3f));
  s = L::fma(s, z, L::set(-2.68661706e-2f));
  s = L::fma(s, z, L::set(1.12837917e-1f));
  s = L::fma(s, z, L::set(-3.76126389e-1f));
  s = L::fma(s, z, L::set(1.12837917f));
  const F small = L::mul(s, x);
  const F t = L::div(L::set(1.0f), L::fma(L::set(0.3275911f), a, L::set(1.0f)));
  F p = L::set(1.061405429f);
  p = L::fma(p, t, L::set(-1.453152027f));
  p = L::fma(p, t, L::set(1.421413741f));
  p = L::fma(p, t, L::set(-0.284496736f));
  p = L::fma(p, t, L::set(0.254829592f));
  const F e = exp_lanes<L>(L::sub(L::set(0.0f), z));
  const F large = L::sub(L::set(1.0f), L::mul(L::mul(p, t), e));
  return L::select(L::less(a, L::set(0.5f)), small, L::copysign(large, x));
}

// 0.5 x (1 + erf(x / sqrt 2)).
template <class L>
inline typename L::F gelu_erf_lanes(typename L::F x) {
  return L::mul(L::mul(L::set(0.5f), x),
                L::add(L::set(1.0f), erf_lanes<L>(L::mul(x, L::set(0.70710678118654752f)))));
}

// Sum of 16 lanes by the one fixed tree: halves are added, 8, 4, 2, 1.
inline float sum16(const float lanes[16]) {
  float a[8];
  for (int i = 0; i < 8; ++i) a[i] = lanes[i] + lanes[i + 8];
  for (int i = 0; i < 4; ++i) a[i] = a[i] + a[i + 4];
  a[0] = a[0] + a[2];
  a[1] = a[1] + a[3];
  return a[0] + a[1];
}

// sin and cos of a double by our own reduction and polynomials (for rope tables): absolute error below 1e-14
// for |x| <= 1e7.
struct SinCos {
  double sin, cos;
};
SinCos sin_cos(double x);

}  // namespace mlxcel
