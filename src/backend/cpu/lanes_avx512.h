// The lanes policy for AVX-512 (F, BW, DQ, VL): 16 lanes as one 512-bit register. See lanes_scalar.h for what
// each operation means. Only for files built with MLXCEL_FLAGS_AVX512 or wider.
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "backend/cpu/inline.h"

namespace mlxcel {
namespace {

struct Avx512Lanes {
  // 32 registers: 12 tokens of integer sums and 12 of float sums leave 8.
  static constexpr int kQuantisedTokens = 12;
  static constexpr bool kWidensPanels = false;
  static constexpr int kPlainRegisters = 12;
  static constexpr int kPlainTokens = 8;
  static constexpr int kAttentionRows = 8;
  static constexpr int kAttentionRegisters = 12;
  struct F {
    __m512 a;
  };
  struct I {
    __m512i a;
  };
  struct M {
    __mmask16 a;
  };
  struct W {
    __m512i a;
  };
  struct Raw {
    __m512i a;
  };

  static MLXCEL_INLINE F set(float x) { return {_mm512_set1_ps(x)}; }
  static MLXCEL_INLINE F zero() { return {_mm512_setzero_ps()}; }
  static MLXCEL_INLINE F load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static MLXCEL_INLINE void store(float* p, F x) { _mm512_storeu_ps(p, x.a); }
  static MLXCEL_INLINE F fma(F x, F y, F z) { return {_mm512_fmadd_ps(x.a, y.a, z.a)}; }
  static MLXCEL_INLINE F mul(F x, F y) { return {_mm512_mul_ps(x.a, y.a)}; }
  static MLXCEL_INLINE F add(F x, F y) { return {_mm512_add_ps(x.a, y.a)}; }
  static MLXCEL_INLINE F sub(F x, F y) { return {_mm512_sub_ps(x.a, y.a)}; }
  static MLXCEL_INLINE F div(F x, F y) { return {_mm512_div_ps(x.a, y.a)}; }
  static MLXCEL_INLINE F max(F x, F y) { return {_mm512_max_ps(x.a, y.a)}; }
  static MLXCEL_INLINE F abs(F x) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), x.a)}; }
  static MLXCEL_INLINE F copysign(F x, F y) {
    const __m512 sign = _mm512_set1_ps(-0.0f);
    return {_mm512_or_ps(_mm512_andnot_ps(sign, x.a), _mm512_and_ps(sign, y.a))};
  }
  static MLXCEL_INLINE F round_even(F x) {
    return {_mm512_roundscale_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  static MLXCEL_INLINE F scale2(F p, F n) {
    const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n.a), _mm512_set1_epi32(127));
    return {_mm512_mul_ps(p.a, _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23)))};
  }
  static MLXCEL_INLINE M less(F x, F y) { return {_mm512_cmp_ps_mask(x.a, y.a, _CMP_LT_OQ)}; }
  static MLXCEL_INLINE F select(M m, F x, F y) { return {_mm512_mask_blend_ps(m.a, y.a, x.a)}; }
  static MLXCEL_INLINE F select_bits(uint32_t bits, F x, F y) {
    return {_mm512_mask_blend_ps(static_cast<__mmask16>(bits), y.a, x.a)};
  }
  static MLXCEL_INLINE __m128i load128(const void* p) {
    return _mm_loadu_si128(static_cast<const __m128i*>(p));
  }
  static MLXCEL_INLINE __m256i load256(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static MLXCEL_INLINE float f16(uint16_t h) { return _cvtsh_ss(h); }
  static MLXCEL_INLINE F load_f16(const uint16_t* p) { return {_mm512_cvtph_ps(load256(p))}; }
  static MLXCEL_INLINE F load_bf16(const uint16_t* p) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load256(p)), 16))};
  }
  static MLXCEL_INLINE F load_i8(const int8_t* p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load128(p)))};
  }
  static MLXCEL_INLINE F load_u8(const uint8_t* p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load128(p)))};
  }
  static MLXCEL_INLINE float sum16(F x) {
    const __m256 e = _mm256_add_ps(_mm512_castps512_ps256(x.a), _mm512_extractf32x8_ps(x.a, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
  }
  static MLXCEL_INLINE float max16(F x) {
    const __m256 e = _mm256_max_ps(_mm512_castps512_ps256(x.a), _mm512_extractf32x8_ps(x.a, 1));
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
  }

  static MLXCEL_INLINE I iset(int32_t x) { return {_mm512_set1_epi32(x)}; }
  static MLXCEL_INLINE I iadd(I x, I y) { return {_mm512_add_epi32(x.a, y.a)}; }
  static MLXCEL_INLINE F to_float(I x) { return {_mm512_cvtepi32_ps(x.a)}; }
  static MLXCEL_INLINE I to_int(F x) { return {_mm512_cvtps_epi32(x.a)}; }
  static MLXCEL_INLINE int32_t isum16(I x) { return _mm512_reduce_add_epi32(x.a); }
  static MLXCEL_INLINE void store_i16(int16_t* p, I x) {
    _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(p)), _mm512_cvtepi32_epi16(x.a));
  }
  static MLXCEL_INLINE I high_plane(I x) {
    return {_mm512_srai_epi32(_mm512_add_epi32(x.a, _mm512_set1_epi32(64)), 7)};
  }
  static MLXCEL_INLINE I low_plane(I x, I high) {
    return {_mm512_sub_epi32(x.a, _mm512_slli_epi32(high.a, 7))};
  }
  static MLXCEL_INLINE void store_quads(int8_t* p, I x) {
    _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(p)),
                     _mm512_cvtepi32_epi8(_mm512_shuffle_epi32(x.a, _MM_PERM_DBCA)));
  }

  static MLXCEL_INLINE I dot16(I acc, W w, const int16_t* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, 4);
    I sum = {_mm512_add_epi32(acc.a, _mm512_madd_epi16(w.a, _mm512_set1_epi32(pair)))};
    // The addition happens here: compilers like to gather many products first, and spill them all.
    __asm__("" : "+v"(sum.a));
    return sum;
  }
  static MLXCEL_INLINE W load_words(const int16_t* p) { return {_mm512_loadu_si512(p)}; }
  static MLXCEL_INLINE void store_words(int16_t* p, W w) { _mm512_storeu_si512(p, w.a); }
  static MLXCEL_INLINE Raw load_raw(const void* p) { return {_mm512_loadu_si512(p)}; }
  template <int c>
  static MLXCEL_INLINE W nibbles(Raw r) {
    if constexpr (c == 3) return {_mm512_srli_epi16(r.a, 12)};
    if constexpr (c == 0) return {_mm512_and_si512(r.a, _mm512_set1_epi16(15))};
    return {_mm512_and_si512(_mm512_srli_epi16(r.a, 4 * c), _mm512_set1_epi16(15))};
  }
  template <int c>
  static MLXCEL_INLINE W bytes(Raw r) {
    if constexpr (c == 1) return {_mm512_srli_epi16(r.a, 8)};
    return {_mm512_and_si512(r.a, _mm512_set1_epi16(255))};
  }
  template <int half>
  static MLXCEL_INLINE F word_floats(W w) {
    if constexpr (half == 1) return {_mm512_cvtepi32_ps(_mm512_srli_epi32(w.a, 16))};
    return {_mm512_cvtepi32_ps(_mm512_and_si512(w.a, _mm512_set1_epi32(0xFFFF)))};
  }
  static MLXCEL_INLINE void prefetch(const void* p) {
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
  }
};

}  // namespace
}  // namespace mlxcel
