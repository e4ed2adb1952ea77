// Norms, rotary embedding, gates and other element-wise work over a lanes policy L; the sequences are those
// of docs/numerics.md. Included once by each kernels_<isa>.cc; unnamed namespace, no standard library.
#pragma once

#include "backend/cpu/inline.h"
#include "backend/cpu/kernel_table.h"
#include "tensor/math.h"

namespace mlxcel {
namespace {

// The first n (1..16, or more: 16) elements; the other lanes are 0.
template <class L>
MLXCEL_INLINE typename L::F load_part(const float* p, int64_t n) {
  if (n >= kLanes) return L::load(p);
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return L::load(lanes);
}
template <class L>
MLXCEL_INLINE void store_part(float* p, int64_t n, typename L::F x) {
  if (n >= kLanes) return L::store(p, x);
  float lanes[kLanes];
  L::store(lanes, x);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}
// y[i] = op(lanes of x at i) for n elements.
template <class L, class Op>
MLXCEL_INLINE void map(const float* x, int64_t n, float* y, Op op) {
  for (int64_t i = 0; i < n; i += kLanes) store_part<L>(y + i, n - i, op(load_part<L>(x + i, n - i), i));
}

template <class L>
void rms_norm(const float* x, const float* w, const float* b, int64_t n, float epsilon, float* y) {
  using F = typename L::F;
  F lanes = L::zero();
  for (int64_t i = 0; i < n; i += kLanes) {
    const F v = load_part<L>(x + i, n - i);
    lanes = L::fma(v, v, lanes);
  }
  const float mean = L::sum16(lanes) / static_cast<float>(n);
  const F r = L::set(1.0f / __builtin_sqrtf(mean + epsilon));
  map<L>(x, n, y, [&](F v, int64_t i) {
    F value = L::mul(v, r);
    if (w != nullptr) value = L::mul(value, load_part<L>(w + i, n - i));
    return b == nullptr ? value : L::add(value, load_part<L>(b + i, n - i));
  });
}

template <class L>
void layer_norm(const float* x, const float* w, const float* b, int64_t n, float epsilon, float* y) {
  using F = typename L::F;
  F lanes = L::zero();
  for (int64_t i = 0; i < n; i += kLanes) lanes = L::add(lanes, load_part<L>(x + i, n - i));
  const float mean = L::sum16(lanes) / static_cast<float>(n);
  lanes = L::zero();
  for (int64_t i = 0; i < n; i += kLanes) {
    F c = L::sub(load_part<L>(x + i, n - i), L::set(mean));
    if (n - i < kLanes)
      c = L::select_bits((1u << (n - i)) - 1u, c, L::zero());  // lanes past the end add nothing
    lanes = L::fma(c, c, lanes);
  }
  const float variance = L::sum16(lanes) / static_cast<float>(n);
  const F r = L::set(1.0f / __builtin_sqrtf(variance + epsilon));
  map<L>(x, n, y, [&](F v, int64_t i) {
    const F c = L::mul(L::sub(v, L::set(mean)), r);
    const F weight = w == nullptr ? L::set(1.0f) : load_part<L>(w + i, n - i);
    return b == nullptr ? L::mul(c, weight) : L::fma(c, weight, load_part<L>(b + i, n - i));
  });
}

template <class L>
void add_scaled(const float* y, float factor, int64_t n, float* h) {
  using F = typename L::F;
  map<L>(h, n, h, [&](F v, int64_t i) { return L::fma(load_part<L>(y + i, n - i), L::set(factor), v); });
}
template <class L>
void add(const float* a, const float* b, int64_t n, float* y) {
  using F = typename L::F;
  map<L>(a, n, y, [&](F v, int64_t i) { return L::add(v, load_part<L>(b + i, n - i)); });
}
template <class L>
void scale(const float* x, float factor, int64_t n, float* y) {
  using F = typename L::F;
  map<L>(x, n, y, [&](F v, int64_t) { return L::mul(v, L::set(factor)); });
}
template <class L>
MLXCEL_INLINE typename L::F at_most(typename L::F v, float limit) {
  return L::select(L::less(L::set(limit), v), L::set(limit), v);
}
template <class L>
MLXCEL_INLINE typename L::F at_least(typename L::F v, float limit) {
  return L::select(L::less(v, L::set(limit)), L::set(limit), v);
}
template <class L>
void clamp(float limit, int64_t n, float* x) {
  using F = typename L::F;
  map<L>(x, n, x, [&](F v, int64_t) { return at_least<L>(at_most<L>(v, limit), -limit); });
}
template <class L>
MLXCEL_INLINE typename L::F capped(typename L::F v, float cap) {
  return L::mul(L::set(cap), tanh_lanes<L>(L::mul(v, L::set(1.0f / cap))));
}
template <class L>
void softcap(float cap, int64_t n, float* x) {
  using F = typename L::F;
  map<L>(x, n, x, [&](F v, int64_t) { return capped<L>(v, cap); });
}

template <class L, class Function>
MLXCEL_INLINE void gate_with(const float* gate, const float* up, int64_t n, float* out, Function function) {
  using F = typename L::F;
  map<L>(gate, n, out, [&](F v, int64_t i) {
    const F a = function(v);
    return up == nullptr ? a : L::mul(a, load_part<L>(up + i, n - i));
  });
}
template <class L>
void gate(GateFunction function, const float* g, const float* up, int64_t n, float* out) {
  using F = typename L::F;
  const auto relu = [](F v) { return L::select(L::less(v, L::zero()), L::zero(), v); };
  switch (function) {
    case GateFunction::kSilu:
      return gate_with<L>(g, up, n, out, [](F v) { return silu_lanes<L>(v); });
    case GateFunction::kGeluTanh:
      return gate_with<L>(g, up, n, out, [](F v) { return gelu_tanh_lanes<L>(v); });
    case GateFunction::kGeluErf:
      return gate_with<L>(g, up, n, out, [](F v) { return gelu_erf_lanes<L>(v); });
    case GateFunction::kRelu:
      return gate_with<L>(g, up, n, out, relu);
    case GateFunction::kReluSquared:
      return gate_with<L>(g, up, n, out, [&](F v) { return L::mul(relu(v), relu(v)); });
    case GateFunction::kSigmoid:
      return gate_with<L>(g, up, n, out, [](F v) { return sigmoid_lanes<L>(v); });
    case GateFunction::kIdentity:
      return gate_with<L>(g, up, n, out, [](F v) { return v; });
  }
}
template <class L>
void gate_clamped(const float* g, const float* up, float limit, float alpha, int64_t n, float* out) {
  using F = typename L::F;
  map<L>(g, n, out, [&](F v, int64_t i) {
    const F x = at_most<L>(v, limit);
    const F u = at_least<L>(at_most<L>(load_part<L>(up + i, n - i), limit), -limit);
    const F glu = L::mul(x, sigmoid_lanes<L>(L::mul(x, L::set(alpha))));
    return L::mul(L::add(u, L::set(1.0f)), glu);
  });
}

template <class L>
void rotate(const float* cos, const float* sin, int64_t dims, bool interleaved, float* x) {
  using F = typename L::F;
  const int64_t half = dims / 2;
  if (interleaved) {
    for (int64_t i = 0; i < half; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = __builtin_fmaf(a, cos[i], -(b * sin[i]));
      x[2 * i + 1] = __builtin_fmaf(b, cos[i], a * sin[i]);
    }
    return;
  }
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t n = half - i;
    const F a = load_part<L>(x + i, n), b = load_part<L>(x + half + i, n);
    const F c = load_part<L>(cos + i, n), s = load_part<L>(sin + i, n);
    const F minus = L::mul(L::mul(b, s), L::set(-1.0f));
    store_part<L>(x + i, n, L::fma(a, c, minus));
    store_part<L>(x + half + i, n, L::fma(b, c, L::mul(a, s)));
  }
}

template <class L>
void argmax(const float* x, int64_t n, float* best, int64_t* index) {
  using F = typename L::F;
  const float lowest = -__builtin_inff();
  F largest = L::set(lowest);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = L::max(L::load(x + i), largest);  // max(NaN, m) = m
  float top = L::max16(largest);
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  *best = top;
  for (i = 0; i < n; ++i) {
    if (x[i] == top) break;
  }
  *index = i < n ? i : -1;
}

}  // namespace
}  // namespace mlxcel
