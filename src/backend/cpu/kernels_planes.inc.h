// Linear layers whose activations are byte planes, with vpdpbusd: four codes (unsigned) times four bytes of a
// plane (signed) per row and instruction. The integer is that of docs/numerics.md: 128 * (sum with the high
// plane) + (sum with the low plane). Included by files built with MLXCEL_FLAGS_AVX512VNNI or wider; unnamed
// namespace, no standard library.
#pragma once

#include <immintrin.h>

#include "backend/cpu/kernels_linear.inc.h"
#include "backend/cpu/lanes_avx512.h"

namespace mlxcel {
namespace {

// Four bytes of a plane for every row.
MLXCEL_INLINE __m512i broadcast_quad(const int8_t* p) {
  int32_t quad;
  __builtin_memcpy(&quad, p, 4);
  return _mm512_set1_epi32(quad);
}

// Sums of one group of k: R row blocks x T tokens x P planes.
template <int P, int R, int T>
struct PlaneSums {
  // Few sums: two chains for each, so that the latency of a product is hidden.
  static constexpr int kChains = P * R * T <= 4 ? 2 : 1;
  static constexpr int kSums = R * T * kChains;
  __m512i low[kSums], high[P == 2 ? kSums : 1];

  // Codes w[r] of the four k at offset k of the planes.
  template <int half>
  MLXCEL_INLINE void add(const __m512i (&w)[R], const int8_t* const (&planes)[T], int64_t k,
                         int64_t high_offset) {
    constexpr int at = half % kChains * R * T;
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      const __m512i l = broadcast_quad(planes[t] + k);
#pragma GCC unroll 2
      for (int r = 0; r < R; ++r) low[at + t * R + r] = _mm512_dpbusd_epi32(low[at + t * R + r], w[r], l);
      if constexpr (P == 2) {
        const __m512i h = broadcast_quad(planes[t] + k + high_offset);
#pragma GCC unroll 2
        for (int r = 0; r < R; ++r) high[at + t * R + r] = _mm512_dpbusd_epi32(high[at + t * R + r], w[r], h);
      }
    }
  }
  MLXCEL_INLINE Avx512Lanes::I total(int i) const {
    __m512i l = low[i];
    if constexpr (kChains == 2) l = _mm512_add_epi32(l, low[R * T + i]);
    if constexpr (P == 2) {
      __m512i h = high[i];
      if constexpr (kChains == 2) h = _mm512_add_epi32(h, high[R * T + i]);
      l = _mm512_add_epi32(l, _mm512_slli_epi32(h, 7));
    }
    return {l};
  }
};

// T tokens over R row blocks, P planes.
template <int P, CodeWidth C, ScaleType S, bool kSymmetric, int R, int T>
void planes_block(const QuantisedWeights& w, const QuantisedInput& x, const uint8_t* tile, int64_t token,
                  float* y, int64_t y_stride) {
  using L = Avx512Lanes;
  constexpr int64_t kPerVector = C == CodeWidth::kNibble ? 8 : 4;
  const int64_t vectors = w.group_size / kPerVector, high_offset = x.high_offset;
  const int64_t block_bytes = w.num_groups * w.group_bytes;
  const int shift = w.group_size == 16 ? 1 : 0;
  const __m512i nibble = _mm512_set1_epi8(15);
  const int8_t* planes[T];
  const float* d[T];
  const int32_t* sums[T];
  const float* float_sums[T];
  L::F acc[R * T];
  for (int t = 0; t < T; ++t) {
    planes[t] = x.planes + (token + t) * x.plane_stride;
    d[t] = x.d + (token + t) * x.group_stride;
    sums[t] = x.sum + (token + t) * x.group_stride;
    float_sums[t] = x.float_sum + (token + t) * x.group_stride;
    for (int r = 0; r < R; ++r) acc[t * R + r] = L::zero();
  }
  int64_t k = 0;
  for (int64_t g = 0; g < w.num_groups; ++g, tile += w.group_bytes) {
    PlaneSums<P, R, T> sum = {};
    if constexpr (kSymmetric) {
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        const __m512i start = _mm512_set1_epi32(-w.zero_point * sums[t][g]);
        for (int r = 0; r < R; ++r) sum.low[t * R + r] = start;
      }
    }
    const uint8_t* codes = tile;
    for (int64_t j = 0; j < vectors; ++j, codes += 64, k += kPerVector) {
      __m512i raw[R], part[R];
      for (int r = 0; r < R; ++r) {
        raw[r] = _mm512_loadu_si512(codes + r * block_bytes);
        if constexpr (T <= 4) L::prefetch(codes + r * block_bytes + 2048);
      }
      if constexpr (C == CodeWidth::kNibble) {
        for (int r = 0; r < R; ++r) part[r] = _mm512_and_si512(raw[r], nibble);
        sum.template add<0>(part, planes, k, high_offset);
        for (int r = 0; r < R; ++r) part[r] = _mm512_and_si512(_mm512_srli_epi16(raw[r], 4), nibble);
        sum.template add<1>(part, planes, k + 4, high_offset);
      } else {
        sum.template add<0>(raw, planes, k, high_offset);
      }
    }
    for (int r = 0; r < R; ++r) {
      const uint8_t* scales = codes + r * block_bytes;
      const L::F s = load_scales<L, S>(scales);
      L::F b = L::zero();
      if constexpr (!kSymmetric) b = load_scales<L, S>(scales + scale_bytes(S));
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        const int i = t * R + r;
        acc[i] = scaled<L, kSymmetric>(sum.total(i), s, b, float_sums[t][g], d[t][g >> shift], acc[i]);
      }
    }
  }
  for (int t = 0; t < T; ++t)
    for (int r = 0; r < R; ++r) L::store(y + (token + t) * y_stride + r * kLanes, acc[t * R + r]);
}

// P planes, tiles of at most kMost tokens, R row blocks at a time.
template <int P, int R, int kMost>
void planes_tokens(const QuantisedWeights& w, const QuantisedInput& x, const LinearTarget& y, int64_t begin,
                   int64_t end) {
  const int64_t block_bytes = w.num_groups * w.group_bytes;
  with_format(w, [&]<CodeWidth C, ScaleType S, bool kSymmetric>() {
    int64_t r = y.block_begin;
    for (; r + R <= y.block_end; r += R)
      for_token_tiles<kMost>(begin, end, [&]<int T>(int64_t t) {
        planes_block<P, C, S, kSymmetric, R, T>(w, x, w.data + r * block_bytes, t, y.y + r * kLanes,
                                                y.y_stride);
      });
    if constexpr (R > 1) {
      for (; r < y.block_end; ++r)
        for_token_tiles<kMost>(begin, end, [&]<int T>(int64_t t) {
          planes_block<P, C, S, kSymmetric, 1, T>(w, x, w.data + r * block_bytes, t, y.y + r * kLanes,
                                                  y.y_stride);
        });
    }
  });
}

// Two row blocks share each load of activations. 4 tokens of two planes, or 6 of one, then leave 4 of the 32
// registers.
constexpr int kPlaneRowBlocks = 2;
template <int P>
constexpr int kPlaneTokens = P == 2 ? 4 : 6;

template <int P>
void linear_planes(const QuantisedWeights& w, const QuantisedInput& x, const LinearTarget& y) {
  const int64_t chunk = chunk_tokens(x.plane_stride, kPlaneTokens<P>);
  for (int64_t t = 0; t < y.num_tokens; t += chunk)
    planes_tokens<P, kPlaneRowBlocks, kPlaneTokens<P>>(w, x, y, t, min64(y.num_tokens, t + chunk));
}

void linear_planes(const QuantisedWeights& w, const QuantisedInput& x, const LinearTarget& y) {
  x.high_offset != 0 ? linear_planes<2>(w, x, y) : linear_planes<1>(w, x, y);
}

}  // namespace
}  // namespace mlxcel
