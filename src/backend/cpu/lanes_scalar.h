// The lanes policy without vector instructions: 16 lanes as arrays. It is what the kernels run as on machines
// without a wider table, and what defines the meaning of each operation of the other policies (same results,
// bit for bit).
//
// A policy offers tensor/math.h's functions over F (16 x f32) and M (mask), and besides them loads with exact
// widening, integers I (16 x i32) and W: 16 rows x 2 consecutive k as 16-bit integers, the operand of dot16.
// Everything sits in an unnamed namespace: each kernel file has its own copy, built for its own instruction
// set.
//
// Threads: pure functions.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "backend/cpu/inline.h"

namespace mlxcel {
namespace {

struct ScalarLanes16 {
  // One token, one row block, one query row at a time: nothing is gained by more without vectors.
  static constexpr int kQuantisedTokens = 1;
  static constexpr bool kWidensPanels = false;
  static constexpr int kPlainRegisters = 1;
  static constexpr int kPlainTokens = 1;
  static constexpr int kAttentionRows = 1;
  static constexpr int kAttentionRegisters = 1;
  struct F {
    float v[16];
  };
  struct I {
    int32_t v[16];
  };
  struct M {
    bool v[16];
  };
  struct W {
    int16_t v[32];
  };

  template <class Op>
  static F each(Op op) {
    F r;
    for (int i = 0; i < 16; ++i) r.v[i] = op(i);
    return r;
  }
  static F set(float x) {
    return each([&](int) { return x; });
  }
  static F zero() { return set(0.0f); }
  static F load(const float* p) {
    return each([&](int i) { return p[i]; });
  }
  static void store(float* p, F a) { memcpy(p, a.v, sizeof a.v); }
  static F fma(F a, F b, F c) {
    return each([&](int i) { return ::fmaf(a.v[i], b.v[i], c.v[i]); });
  }
  static F mul(F a, F b) {
    return each([&](int i) { return a.v[i] * b.v[i]; });
  }
  static F add(F a, F b) {
    return each([&](int i) { return a.v[i] + b.v[i]; });
  }
  static F sub(F a, F b) {
    return each([&](int i) { return a.v[i] - b.v[i]; });
  }
  static F div(F a, F b) {
    return each([&](int i) { return a.v[i] / b.v[i]; });
  }
  static F max(F a, F b) {
    return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F abs(F a) {
    return each([&](int i) { return ::fabsf(a.v[i]); });
  }
  static F copysign(F a, F b) {
    return each([&](int i) { return ::copysignf(a.v[i], b.v[i]); });
  }
  static F round_even(F a) {
    return each([&](int i) { return ::nearbyintf(a.v[i]); });
  }
  static F scale2(F p, F n) {
    return each([&](int i) {
      const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n.v[i]) + 127) << 23;
      float power;
      memcpy(&power, &bits, 4);
      return p.v[i] * power;
    });
  }
  static M less(F a, F b) {
    M r;
    for (int i = 0; i < 16; ++i) r.v[i] = a.v[i] < b.v[i];
    return r;
  }
  static F select(M m, F a, F b) {
    return each([&](int i) { return m.v[i] ? a.v[i] : b.v[i]; });
  }
  // Lane i is chosen by bit i.
  static F select_bits(uint32_t bits, F a, F b) {
    return each([&](int i) { return ((bits >> i) & 1u) != 0 ? a.v[i] : b.v[i]; });
  }

  static float widen_f16(uint16_t h) {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, exponent = (h >> 10) & 31u,
                   fraction = h & 1023u;
    uint32_t bits = sign;
    if (exponent == 31) {
      bits |= 0x7F800000u | (fraction << 13) | (fraction != 0 ? 0x400000u : 0u);
    } else if (exponent != 0) {
      bits |= ((exponent + 112) << 23) | (fraction << 13);
    } else {
      const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
      memcpy(&bits, &magnitude, 4);
      bits |= sign;
    }
    float r;
    memcpy(&r, &bits, 4);
    return r;
  }
  static float f16(uint16_t h) { return widen_f16(h); }
  static F load_f16(const uint16_t* p) {
    return each([&](int i) { return widen_f16(p[i]); });
  }
  static F load_bf16(const uint16_t* p) {
    return each([&](int i) {
      const uint32_t bits = static_cast<uint32_t>(p[i]) << 16;
      float r;
      memcpy(&r, &bits, 4);
      return r;
    });
  }
  static F load_i8(const int8_t* p) {
    return each([&](int i) { return static_cast<float>(p[i]); });
  }
  static F load_u8(const uint8_t* p) {
    return each([&](int i) { return static_cast<float>(p[i]); });
  }
  // Halves are added: 8, 4, 2, 1.
  static float sum16(F a) {
    for (int half = 8; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) a.v[i] = a.v[i] + a.v[i + half];
    return a.v[0];
  }
  static float max16(F a) {
    float r = a.v[0];
    for (int i = 1; i < 16; ++i) r = a.v[i] > r ? a.v[i] : r;
    return r;
  }

  static I iset(int32_t x) {
    I r;
    for (int i = 0; i < 16; ++i) r.v[i] = x;
    return r;
  }
  static I iadd(I a, I b) {
    for (int i = 0; i < 16; ++i) a.v[i] += b.v[i];
    return a;
  }
  static F to_float(I a) {
    return each([&](int i) { return static_cast<float>(a.v[i]); });
  }
  // Round half to even; lanes within +-2^24.
  static I to_int(F a) {
    I r;
    for (int i = 0; i < 16; ++i) r.v[i] = static_cast<int32_t>(::nearbyintf(a.v[i]));
    return r;
  }
  static int32_t isum16(I a) {
    int32_t r = 0;
    for (int i = 0; i < 16; ++i) r += a.v[i];
    return r;
  }
  // 16 integers within int16.
  static void store_i16(int16_t* p, I a) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<int16_t>(a.v[i]);
  }
  // The high plane of 16 integers, and what is left for the low one.
  static I high_plane(I a) {
    for (int i = 0; i < 16; ++i) a.v[i] = (a.v[i] + 64) >> 7;
    return a;
  }
  static I low_plane(I a, I high) {
    for (int i = 0; i < 16; ++i) a.v[i] -= 128 * high.v[i];
    return a;
  }
  // 16 integers within int8, each four in the order 0, 2, 1, 3.
  static void store_quads(int8_t* p, I a) {
    for (int i = 0; i < 16; i += 4) {
      p[i] = static_cast<int8_t>(a.v[i]);
      p[i + 1] = static_cast<int8_t>(a.v[i + 2]);
      p[i + 2] = static_cast<int8_t>(a.v[i + 1]);
      p[i + 3] = static_cast<int8_t>(a.v[i + 3]);
    }
  }

  // acc[r] += w[r][0] * p[0] + w[r][1] * p[1]; p points at two int16.
  static I dot16(I acc, W w, const int16_t* p) {
    for (int i = 0; i < 16; ++i) acc.v[i] += w.v[2 * i] * p[0] + w.v[2 * i + 1] * p[1];
    return acc;
  }
  static W load_words(const int16_t* p) {
    W w;
    memcpy(w.v, p, sizeof w.v);
    return w;
  }
  static void store_words(int16_t* p, W w) { memcpy(p, w.v, sizeof w.v); }
  // 64 bytes of packed codes: 16 dwords, one per row.
  struct Raw {
    uint16_t v[32];
  };
  static Raw load_raw(const void* p) {
    Raw r;
    memcpy(r.v, p, sizeof r.v);
    return r;
  }
  // The pair of codes in nibbles c and c+4 of every row's dword.
  template <int c>
  static W nibbles(Raw raw) {
    W w;
    for (int i = 0; i < 32; ++i) w.v[i] = static_cast<int16_t>((raw.v[i] >> (4 * c)) & 15);
    return w;
  }
  // The pair of codes in bytes c and c+2 of every row's dword.
  template <int c>
  static W bytes(Raw raw) {
    W w;
    for (int i = 0; i < 32; ++i) w.v[i] = static_cast<int16_t>((raw.v[i] >> (8 * c)) & 255);
    return w;
  }
  // Words of one k pair as floats: first k (half 0) or second (half 1) of every row.
  template <int half>
  static F word_floats(W w) {
    return each([&](int i) { return static_cast<float>(w.v[2 * i + half]); });
  }
  static void prefetch(const void*) {}
};

}  // namespace
}  // namespace mlxcel
