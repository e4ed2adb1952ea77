// The lanes policy for AVX2, FMA and F16C: 16 lanes as two 256-bit registers. See lanes_scalar.h for what
// each operation means. Only for files built with MLXCEL_FLAGS_AVX2.
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "backend/cpu/inline.h"

namespace mlxcel {
namespace {

struct Avx2Lanes {
  // 16 registers: 4 tokens x 2 halves of integer sums leave 8 for weights, mask and broadcasts.
  static constexpr int kQuantisedTokens = 4;
  // Few registers: unpacking codes for each tile of 4 tokens would cost as much as the products.
  static constexpr bool kWidensPanels = true;
  static constexpr int kPlainRegisters = 6;
  static constexpr int kPlainTokens = 6;
  static constexpr int kAttentionRows = 6;
  static constexpr int kAttentionRegisters = 6;
  struct F {
    __m256 a, b;
  };
  struct I {
    __m256i a, b;
  };
  struct M {
    __m256 a, b;
  };
  struct W {
    __m256i a, b;
  };
  struct Raw {
    __m256i a, b;
  };

  static MLXCEL_INLINE F set(float x) {
    const __m256 v = _mm256_set1_ps(x);
    return {v, v};
  }
  static MLXCEL_INLINE F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static MLXCEL_INLINE F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static MLXCEL_INLINE void store(float* p, F x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
  }
  static MLXCEL_INLINE F fma(F x, F y, F z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
  }
  static MLXCEL_INLINE F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  static MLXCEL_INLINE F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  static MLXCEL_INLINE F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  static MLXCEL_INLINE F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
  static MLXCEL_INLINE F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  static MLXCEL_INLINE F abs(F x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
  }
  static MLXCEL_INLINE F copysign(F x, F y) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_or_ps(_mm256_andnot_ps(sign, x.a), _mm256_and_ps(sign, y.a)),
            _mm256_or_ps(_mm256_andnot_ps(sign, x.b), _mm256_and_ps(sign, y.b))};
  }
  static MLXCEL_INLINE F round_even(F x) {
    return {_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
            _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  static MLXCEL_INLINE __m256 power_of_two(__m256 n) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
  }
  static MLXCEL_INLINE F scale2(F p, F n) {
    return {_mm256_mul_ps(p.a, power_of_two(n.a)), _mm256_mul_ps(p.b, power_of_two(n.b))};
  }
  static MLXCEL_INLINE M less(F x, F y) {
    return {_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
  }
  static MLXCEL_INLINE F select(M m, F x, F y) {
    return {_mm256_blendv_ps(y.a, x.a, m.a), _mm256_blendv_ps(y.b, x.b, m.b)};
  }
  static MLXCEL_INLINE F select_bits(uint32_t bits, F x, F y) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i all = _mm256_set1_epi32(static_cast<int>(bits));
    const __m256i lane_b = _mm256_slli_epi32(lane, 8);
    const M m = {_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, lane), lane)),
                 _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, lane_b), lane_b))};
    return select(m, x, y);
  }
  static MLXCEL_INLINE __m128i load128(const void* p) {
    return _mm_loadu_si128(static_cast<const __m128i*>(p));
  }
  static MLXCEL_INLINE __m128i load64(const void* p) {
    return _mm_loadl_epi64(static_cast<const __m128i*>(p));
  }
  static MLXCEL_INLINE float f16(uint16_t h) { return _cvtsh_ss(h); }
  static MLXCEL_INLINE F load_f16(const uint16_t* p) {
    return {_mm256_cvtph_ps(load128(p)), _mm256_cvtph_ps(load128(p + 8))};
  }
  static MLXCEL_INLINE F load_bf16(const uint16_t* p) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p + 8)), 16))};
  }
  static MLXCEL_INLINE F load_i8(const int8_t* p) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load64(p))),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load64(p + 8)))};
  }
  static MLXCEL_INLINE F load_u8(const uint8_t* p) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load64(p))),
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load64(p + 8)))};
  }
  static MLXCEL_INLINE float sum16(F x) {
    const __m256 e = _mm256_add_ps(x.a, x.b);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
  }
  static MLXCEL_INLINE float max16(F x) {
    const __m256 e = _mm256_max_ps(x.a, x.b);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
  }

  static MLXCEL_INLINE I iset(int32_t x) {
    const __m256i v = _mm256_set1_epi32(x);
    return {v, v};
  }
  static MLXCEL_INLINE I iadd(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
  static MLXCEL_INLINE F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
  static MLXCEL_INLINE I to_int(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
  static MLXCEL_INLINE int32_t isum16(I x) {
    const __m256i e = _mm256_add_epi32(x.a, x.b);
    __m128i q = _mm_add_epi32(_mm256_castsi256_si128(e), _mm256_extracti128_si256(e, 1));
    q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xB1)));
  }
  static MLXCEL_INLINE void store_i16(int16_t* p, I x) {
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xD8);
    _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(p)), packed);
  }
  static MLXCEL_INLINE I high_plane(I x) {
    const __m256i half = _mm256_set1_epi32(64);
    return {_mm256_srai_epi32(_mm256_add_epi32(x.a, half), 7),
            _mm256_srai_epi32(_mm256_add_epi32(x.b, half), 7)};
  }
  static MLXCEL_INLINE I low_plane(I x, I high) {
    return {_mm256_sub_epi32(x.a, _mm256_slli_epi32(high.a, 7)),
            _mm256_sub_epi32(x.b, _mm256_slli_epi32(high.b, 7))};
  }
  static MLXCEL_INLINE void store_quads(int8_t* p, I x) {
    const __m256i words =
        _mm256_packs_epi32(_mm256_shuffle_epi32(x.a, 0xD8), _mm256_shuffle_epi32(x.b, 0xD8));
    const __m256i ordered = _mm256_permute4x64_epi64(words, 0xD8);
    _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(p)),
                     _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
  }

  static MLXCEL_INLINE I dot16(I acc, W w, const int16_t* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, 4);
    const __m256i v = _mm256_set1_epi32(pair);
    I sum = {_mm256_add_epi32(acc.a, _mm256_madd_epi16(w.a, v)),
             _mm256_add_epi32(acc.b, _mm256_madd_epi16(w.b, v))};
    // The addition happens here: compilers like to gather many products first, and spill them all.
    __asm__("" : "+x"(sum.a), "+x"(sum.b));
    return sum;
  }
  static MLXCEL_INLINE __m256i load256(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static MLXCEL_INLINE W load_words(const int16_t* p) { return {load256(p), load256(p + 16)}; }
  static MLXCEL_INLINE void store_words(int16_t* p, W w) {
    _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(p)), w.a);
    _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(p + 16)), w.b);
  }
  static MLXCEL_INLINE Raw load_raw(const void* p) {
    return {load256(p), load256(static_cast<const char*>(p) + 32)};
  }
  template <int c>
  static MLXCEL_INLINE __m256i nibbles_of(__m256i v) {
    if constexpr (c == 3) return _mm256_srli_epi16(v, 12);
    if constexpr (c == 0) return _mm256_and_si256(v, _mm256_set1_epi16(15));
    return _mm256_and_si256(_mm256_srli_epi16(v, 4 * c), _mm256_set1_epi16(15));
  }
  template <int c>
  static MLXCEL_INLINE W nibbles(Raw r) {
    return {nibbles_of<c>(r.a), nibbles_of<c>(r.b)};
  }
  template <int c>
  static MLXCEL_INLINE __m256i bytes_of(__m256i v) {
    if constexpr (c == 1) return _mm256_srli_epi16(v, 8);
    return _mm256_and_si256(v, _mm256_set1_epi16(255));
  }
  template <int c>
  static MLXCEL_INLINE W bytes(Raw r) {
    return {bytes_of<c>(r.a), bytes_of<c>(r.b)};
  }
  template <int half>
  static MLXCEL_INLINE __m256 floats_of(__m256i w) {
    if constexpr (half == 1) return _mm256_cvtepi32_ps(_mm256_srli_epi32(w, 16));
    return _mm256_cvtepi32_ps(_mm256_and_si256(w, _mm256_set1_epi32(0xFFFF)));
  }
  template <int half>
  static MLXCEL_INLINE F word_floats(W w) {
    return {floats_of<half>(w.a), floats_of<half>(w.b)};
  }
  static MLXCEL_INLINE void prefetch(const void* p) {
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
  }
};

}  // namespace
}  // namespace mlxcel
