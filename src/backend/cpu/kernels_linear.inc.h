// Linear layers over a lanes policy L: quantising activations, the integer core, and the f32 chain. Included
// once by each kernels_<isa>.cc. Everything is in an unnamed namespace; no standard library (see
// kernel_table.h).
#pragma once

#include "backend/cpu/inline.h"
#include "backend/cpu/kernel_table.h"

namespace mlxcel {
namespace {

constexpr int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

template <class L, ScaleType S>
MLXCEL_INLINE typename L::F load_scales(const uint8_t* p) {
  const void* v = p;
  if constexpr (S == ScaleType::kF16) return L::load_f16(static_cast<const uint16_t*>(v));
  if constexpr (S == ScaleType::kBF16) return L::load_bf16(static_cast<const uint16_t*>(v));
  if constexpr (S == ScaleType::kF32) return L::load(static_cast<const float*>(v));
}
template <class L>
MLXCEL_INLINE typename L::F load_scales(ScaleType type, const uint8_t* p) {
  if (type == ScaleType::kF16) return load_scales<L, ScaleType::kF16>(p);
  if (type == ScaleType::kBF16) return load_scales<L, ScaleType::kBF16>(p);
  return load_scales<L, ScaleType::kF32>(p);
}
constexpr int64_t scale_bytes(ScaleType type) { return type == ScaleType::kF32 ? 64 : 32; }
constexpr int64_t code_bytes(CodeWidth width, int64_t group_size) {
  return width == CodeWidth::kNibble ? group_size * 8 : group_size * 16;
}

template <class L>
MLXCEL_INLINE void store_planes(typename L::I p, const QuantisedRow& row, int64_t k) {
  if (row.high == nullptr) return L::store_quads(row.low + k, p);
  const typename L::I high = L::high_plane(p);
  L::store_quads(row.high + k, high);
  L::store_quads(row.low + k, L::low_plane(p, high));
}

template <class L>
void quantise(const float* x, int64_t columns, int32_t group_size, float top, const QuantisedRow& row) {
  using F = typename L::F;
  float* d = row.d;
  int32_t* sum = row.sum;
  float* float_sum = row.float_sum;
  const int32_t span = group_size > 32 ? group_size : 32;
  for (int64_t begin = 0; begin < columns; begin += span, ++d) {
    const int32_t n = static_cast<int32_t>(min64(span, columns - begin));  // multiples of 16
    F largest = L::zero();
    F finite = L::zero();  // x * 0 is 0 for finite x and NaN otherwise
    for (int32_t i = 0; i < n; i += kLanes) {
      const F v = L::load(x + begin + i);
      largest = L::max(L::abs(v), largest);
      finite = L::fma(v, L::zero(), finite);
    }
    const float amax = L::max16(largest);
    const float check = L::sum16(finite);
    const bool usable = check == 0.0f && amax >= 0x1p-100f;
    const float step = usable ? amax / top : (check == 0.0f ? 0.0f : check);
    const F inverse = L::set(usable ? 1.0f / step : 0.0f);
    *d = step;
    for (int32_t i = 0; i < n; i += group_size) {
      typename L::I total = L::iset(0);
      for (int32_t j = i; j < i + group_size; j += kLanes) {
        const typename L::I q = usable ? L::to_int(L::mul(L::load(x + begin + j), inverse)) : L::iset(0);
        if (row.p != nullptr) L::store_i16(row.p + begin + j, q);
        if (row.low != nullptr) store_planes<L>(q, row, begin + j);
        total = L::iadd(total, q);
      }
      *sum = L::isum16(total);
      *float_sum++ = static_cast<float>(*sum++);
    }
  }
}

// Where the k pair lies that nibbles<c> or bytes<c> takes out of a vector (kernel_table.h).
template <CodeWidth C>
constexpr int64_t pair_offset(int c) {
  return C == CodeWidth::kNibble ? 4 * (c % 2) + 2 * (c / 2) : 2 * c;
}

// Sums that one token keeps at a time: enough independent chains to hide the latency of a product. Their
// total is the same integer.
constexpr int chains(int tokens) { return tokens == 1 ? 4 : (tokens == 2 ? 2 : 1); }

// One k pair group of a tile vector into the sums of T tokens.
template <class L, CodeWidth C, int c, int T, int N>
MLXCEL_INLINE void accumulate(typename L::Raw raw, const int16_t* const (&p)[T], int64_t k,
                              typename L::I (&sum)[N]) {
  typename L::W w;
  if constexpr (C == CodeWidth::kNibble) {
    w = L::template nibbles<c>(raw);
  } else {
    w = L::template bytes<c>(raw);
  }
  constexpr int chain = c % (N / T);
#pragma GCC unroll 12
  for (int t = 0; t < T; ++t) {
    typename L::I& one = sum[t + T * chain];
    one = L::dot16(one, w, p[t] + k + pair_offset<C>(c));
  }
}

// u = I * s (+ b * S); acc = fma(u, d, acc).
template <class L, bool kSymmetric>
MLXCEL_INLINE typename L::F scaled(typename L::I sum, typename L::F s, typename L::F b, float input_sum,
                                   float d, typename L::F acc) {
  typename L::F u = L::mul(L::to_float(sum), s);
  if constexpr (!kSymmetric) u = L::fma(b, L::set(input_sum), u);
  return L::fma(u, L::set(d), acc);
}

// T tokens over one row block, straight from the packed codes.
template <class L, CodeWidth C, ScaleType S, bool kSymmetric, int T>
void quantised_block(const QuantisedWeights& w, const QuantisedInput& x, const uint8_t* tile, int64_t token,
                     float* y, int64_t y_stride) {
  using F = typename L::F;
  using I = typename L::I;
  constexpr int64_t kPerVector = C == CodeWidth::kNibble ? 8 : 4;
  constexpr int N = T * chains(T);
  const int64_t group = w.group_size, vectors = group / kPerVector;
  const int shift = group == 16 ? 1 : 0;  // weight groups per activation group, as a power of two
  const int16_t* p[T];
  const float* d[T];
  const int32_t* sums[T];
  const float* float_sums[T];
  F acc[T];
  for (int t = 0; t < T; ++t) {
    p[t] = x.p + (token + t) * x.p_stride;
    d[t] = x.d + (token + t) * x.group_stride;
    sums[t] = x.sum + (token + t) * x.group_stride;
    float_sums[t] = x.float_sum + (token + t) * x.group_stride;
    acc[t] = L::zero();
  }
  int64_t k = 0;
  for (int64_t g = 0; g < w.num_groups; ++g) {
    I sum[N];
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) sum[t] = L::iset(kSymmetric ? -w.zero_point * sums[t][g] : 0);
    for (int i = T; i < N; ++i) sum[i] = L::iset(0);
    const uint8_t* codes = tile;
    for (int64_t j = 0; j < vectors; ++j, codes += 64, k += kPerVector) {
      const typename L::Raw raw = L::load_raw(codes);
      if constexpr (T <= 4) L::prefetch(codes + 2048);
      accumulate<L, C, 0, T>(raw, p, k, sum);
      accumulate<L, C, 1, T>(raw, p, k, sum);
      if constexpr (C == CodeWidth::kNibble) {
        accumulate<L, C, 2, T>(raw, p, k, sum);
        accumulate<L, C, 3, T>(raw, p, k, sum);
      }
    }
    for (int i = T; i < N; ++i) sum[i % T] = L::iadd(sum[i % T], sum[i]);
    const F s = load_scales<L, S>(codes);
    F b = L::zero();
    if constexpr (!kSymmetric) b = load_scales<L, S>(codes + scale_bytes(S));
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t)
      acc[t] = scaled<L, kSymmetric>(sum[t], s, b, float_sums[t][g], d[t][g >> shift], acc[t]);
    tile += w.group_bytes;
  }
  for (int t = 0; t < T; ++t) L::store(y + (token + t) * y_stride, acc[t]);
}

// Calls f with the number of tokens as a constant.
template <int kMost, class Function>
MLXCEL_INLINE void with_tokens(int64_t tokens, int64_t begin, Function f) {
  if constexpr (kMost > 1) {
    if (tokens < kMost) return with_tokens<kMost - 1>(tokens, begin, f);
  }
  f.template operator()<kMost>(begin);
}

// Tokens [begin, end) as the fewest tiles of at most `kMost`, of equal size as far as possible.
template <int kMost, class Function>
MLXCEL_INLINE void for_token_tiles(int64_t begin, int64_t end, Function f) {
  for (int64_t tiles = (end - begin + kMost - 1) / kMost; tiles > 0; --tiles) {
    const int64_t tokens = (end - begin + tiles - 1) / tiles;
    with_tokens<kMost>(tokens, begin, f);
    begin += tokens;
  }
}

// Tokens [begin, end) over the row blocks of y, straight from the packed codes: the weights of a row block
// are streamed once; a second tile of tokens finds them in L1.
template <class L, CodeWidth C, ScaleType S, bool kSymmetric>
void quantised_tokens(const QuantisedWeights& w, const QuantisedInput& x, const LinearTarget& y,
                      int64_t begin, int64_t end) {
  const int64_t block_bytes = w.num_groups * w.group_bytes;
  for (int64_t r = y.block_begin; r < y.block_end; ++r)
    for_token_tiles<L::kQuantisedTokens>(begin, end, [&]<int T>(int64_t t) {
      quantised_block<L, C, S, kSymmetric, T>(w, x, w.data + r * block_bytes, t, y.y + r * kLanes,
                                              y.y_stride);
    });
}

// Calls f with the matrix' properties as constants.
template <class Function>
MLXCEL_INLINE void with_format(const QuantisedWeights& w, Function f) {
  const auto with_symmetry = [&]<CodeWidth C, ScaleType S>() {
    w.symmetric ? f.template operator()<C, S, true>() : f.template operator()<C, S, false>();
  };
  const auto with_scales = [&]<CodeWidth C>() {
    switch (w.scale_type) {
      case ScaleType::kF16:
        return with_symmetry.template operator()<C, ScaleType::kF16>();
      case ScaleType::kBF16:
        return with_symmetry.template operator()<C, ScaleType::kBF16>();
      case ScaleType::kF32:
        return with_symmetry.template operator()<C, ScaleType::kF32>();
    }
  };
  w.width == CodeWidth::kNibble ? with_scales.template operator()<CodeWidth::kNibble>()
                                : with_scales.template operator()<CodeWidth::kByte>();
}

template <class L>
void quantised_tokens(const QuantisedWeights& w, const QuantisedInput& x, const LinearTarget& y,
                      int64_t begin, int64_t end) {
  with_format(w, [&]<CodeWidth C, ScaleType S, bool kSymmetric>() {
    quantised_tokens<L, C, S, kSymmetric>(w, x, y, begin, end);
  });
}

// Many tokens: the codes of a piece of a row block are widened once into a panel that stays in L1 (16 KiB),
// and token tiles of T run over it. The running sums live in y between pieces of k: the same chain, only
// parked in memory.
constexpr int64_t kPanelColumns = 512;

template <class L>
struct Panel {
  int16_t words[kPanelColumns * kLanes];      // [k pair][row][2]
  float scales[kPanelColumns / 16 * kLanes];  // [group][row]
  float offsets[kPanelColumns / 16 * kLanes];
};

template <class L, CodeWidth C>
void widen_codes(const uint8_t* codes, int64_t vectors, int16_t* words) {
  for (int64_t j = 0; j < vectors; ++j, codes += 64) {
    const typename L::Raw raw = L::load_raw(codes);
    if constexpr (C == CodeWidth::kNibble) {
      L::store_words(words, L::template nibbles<0>(raw));
      L::store_words(words + 32, L::template nibbles<2>(raw));
      L::store_words(words + 64, L::template nibbles<1>(raw));
      L::store_words(words + 96, L::template nibbles<3>(raw));
      words += 128;
    } else {
      L::store_words(words, L::template bytes<0>(raw));
      L::store_words(words + 32, L::template bytes<1>(raw));
      words += 64;
    }
  }
}

template <class L>
void fill_panel(const QuantisedWeights& w, const uint8_t* tile, int64_t groups, Panel<L>& panel) {
  const int64_t bytes = code_bytes(w.width, w.group_size);
  for (int64_t g = 0; g < groups; ++g, tile += w.group_bytes) {
    int16_t* words = panel.words + g * w.group_size * kLanes;
    if (w.width == CodeWidth::kNibble) {
      widen_codes<L, CodeWidth::kNibble>(tile, bytes / 64, words);
    } else {
      widen_codes<L, CodeWidth::kByte>(tile, bytes / 64, words);
    }
    L::store(panel.scales + g * kLanes, load_scales<L>(w.scale_type, tile + bytes));
    if (!w.symmetric)
      L::store(panel.offsets + g * kLanes,
               load_scales<L>(w.scale_type, tile + bytes + scale_bytes(w.scale_type)));
  }
}

// T tokens x one panel piece: groups [g0, g0 + groups) of the row.
template <class L, bool kSymmetric, int T>
void panel_tile(const QuantisedWeights& w, const QuantisedInput& x, const Panel<L>& panel, int64_t g0,
                int64_t groups, int64_t token, float* y, int64_t y_stride) {
  using F = typename L::F;
  using I = typename L::I;
  const int64_t group = w.group_size;
  const int shift = group == 16 ? 1 : 0;
  const int16_t* p[T];
  F acc[T];
  for (int t = 0; t < T; ++t) {
    p[t] = x.p + (token + t) * x.p_stride + g0 * group;
    acc[t] = g0 == 0 ? L::zero() : L::load(y + (token + t) * y_stride);
  }
  const int16_t* words = panel.words;
  int64_t k = 0;
  for (int64_t g = 0; g < groups; ++g) {
    I sum[T];
    const int64_t row_group = (token * x.group_stride) + g0 + g;
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      sum[t] = L::iset(kSymmetric ? -w.zero_point * x.sum[row_group + t * x.group_stride] : 0);
    for (const int64_t end = k + group; k < end; k += 4, words += 64) {
      const typename L::W w0 = L::load_words(words);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) sum[t] = L::dot16(sum[t], w0, p[t] + k);
      const typename L::W w1 = L::load_words(words + 32);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) sum[t] = L::dot16(sum[t], w1, p[t] + k + 2);
    }
    const F s = L::load(panel.scales + g * kLanes);
    F b = L::zero();
    if constexpr (!kSymmetric) b = L::load(panel.offsets + g * kLanes);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const int64_t i = t * x.group_stride;
      acc[t] = scaled<L, kSymmetric>(sum[t], s, b, x.float_sum[row_group + i],
                                     x.d[(token * x.group_stride) + ((g0 + g) >> shift) + i], acc[t]);
    }
  }
  for (int t = 0; t < T; ++t) L::store(y + (token + t) * y_stride, acc[t]);
}

template <class L, bool kSymmetric>
void panel_tokens(const QuantisedWeights& w, const QuantisedInput& x, const Panel<L>& panel, int64_t g0,
                  int64_t groups, int64_t begin, int64_t end, float* y, int64_t y_stride) {
  for_token_tiles<L::kQuantisedTokens>(begin, end, [&]<int T>(int64_t t) {
    panel_tile<L, kSymmetric, T>(w, x, panel, g0, groups, t, y, y_stride);
  });
}

// Tokens whose activations of one piece of k (1 KiB each) share half of L2 with the panel.
constexpr int64_t kTokensPerChunk = 192;

template <class L>
void linear_panels(const QuantisedWeights& w, const QuantisedInput& x, const LinearTarget& y) {
  static_assert(sizeof(Panel<L>) <= kLinearScratchBytes);
  Panel<L>& panel = *static_cast<Panel<L>*>(static_cast<void*>(y.scratch));
  const int64_t block_bytes = w.num_groups * w.group_bytes, per_panel = kPanelColumns / w.group_size;
  for (int64_t t = 0; t < y.num_tokens; t += kTokensPerChunk) {
    const int64_t t_end = min64(y.num_tokens, t + kTokensPerChunk);
    for (int64_t g = 0; g < w.num_groups; g += per_panel) {
      const int64_t groups = min64(per_panel, w.num_groups - g);
      for (int64_t r = y.block_begin; r < y.block_end; ++r) {
        fill_panel<L>(w, w.data + r * block_bytes + g * w.group_bytes, groups, panel);
        float* out = y.y + r * kLanes;
        w.symmetric ? panel_tokens<L, true>(w, x, panel, g, groups, t, t_end, out, y.y_stride)
                    : panel_tokens<L, false>(w, x, panel, g, groups, t, t_end, out, y.y_stride);
      }
    }
  }
}

// Tokens whose activations of one row share half of L2 (1 MiB at least) with the weights of a row block.
constexpr int64_t chunk_tokens(int64_t bytes_per_token, int64_t tile) {
  const int64_t fit = 512 * 1024 / bytes_per_token / tile * tile;
  return fit < tile ? tile : fit;
}

template <class L>
void linear_quantised(const QuantisedWeights& w, const QuantisedInput& x, const LinearTarget& y) {
  if (!L::kWidensPanels || y.num_tokens <= L::kQuantisedTokens) {
    const int64_t chunk = chunk_tokens(x.p_stride * 2, L::kQuantisedTokens);
    for (int64_t t = 0; t < y.num_tokens; t += chunk)
      quantised_tokens<L>(w, x, y, t, min64(y.num_tokens, t + chunk));
    return;
  }
  if constexpr (L::kWidensPanels) linear_panels<L>(w, x, y);
}

// Plain elements of type E as lanes.
template <class L, PlainType P>
MLXCEL_INLINE typename L::F load_plain(const void* data, int64_t index) {
  if constexpr (P == PlainType::kF32) return L::load(static_cast<const float*>(data) + index);
  if constexpr (P == PlainType::kF16) return L::load_f16(static_cast<const uint16_t*>(data) + index);
  if constexpr (P == PlainType::kBF16) return L::load_bf16(static_cast<const uint16_t*>(data) + index);
}

// T tokens x R row blocks: y[t][r] continues (first: starts) the chain over `columns` values of k. Weights of
// row block i begin at element i * block_stride.
template <class L, PlainType P, int T, int R>
void plain_tile(const void* weights, int64_t block_stride, int64_t columns, const float* x, int64_t x_stride,
                bool first, float* y, int64_t y_stride) {
  using F = typename L::F;
  F acc[T * R];
  const float* xs[T];
  for (int t = 0; t < T; ++t) {
    xs[t] = x + t * x_stride;
    for (int r = 0; r < R; ++r) acc[t * R + r] = first ? L::zero() : L::load(y + t * y_stride + r * kLanes);
  }
  for (int64_t k = 0; k < columns; ++k) {
    F w[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) w[r] = load_plain<L, P>(weights, r * block_stride + k * kLanes);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const F v = L::set(xs[t][k]);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) acc[t * R + r] = L::fma(w[r], v, acc[t * R + r]);
    }
  }
  for (int t = 0; t < T; ++t)
    for (int r = 0; r < R; ++r) L::store(y + t * y_stride + r * kLanes, acc[t * R + r]);
}

// Row blocks in flight for T tokens: enough chains to hide the latency of an FMA, few enough to stay in
// registers.
template <class L>
constexpr int blocks_in_flight(int tokens) {
  const int fit = L::kPlainRegisters / tokens;
  return fit >= 4 ? 4 : (fit >= 2 ? 2 : 1);
}

template <class L, PlainType P, int T>
void plain_blocks(const void* weights, int64_t block_stride, int64_t columns, const float* x,
                  int64_t x_stride, bool first, int64_t blocks, float* y, int64_t y_stride) {
  constexpr int R = blocks_in_flight<L>(T);
  constexpr int64_t kElement = P == PlainType::kF32 ? 4 : 2;
  const uint8_t* w = static_cast<const uint8_t*>(weights);
  int64_t r = 0;
  for (; r + R <= blocks; r += R)
    plain_tile<L, P, T, R>(w + r * block_stride * kElement, block_stride, columns, x, x_stride, first,
                           y + r * kLanes, y_stride);
  if constexpr (R > 1) {
    for (; r < blocks; ++r)
      plain_tile<L, P, T, 1>(w + r * block_stride * kElement, block_stride, columns, x, x_stride, first,
                             y + r * kLanes, y_stride);
  }
}

// All tokens over `blocks` row blocks.
template <class L, PlainType P>
void plain_tokens(const void* weights, int64_t block_stride, int64_t columns, const float* x,
                  int64_t x_stride, int64_t tokens, bool first, int64_t blocks, float* y, int64_t y_stride) {
  for_token_tiles<L::kPlainTokens>(0, tokens, [&]<int T>(int64_t t) {
    plain_blocks<L, P, T>(weights, block_stride, columns, x + t * x_stride, x_stride, first, blocks,
                          y + t * y_stride, y_stride);
  });
}

// Four row blocks of 512 columns, widened to f32: 128 KiB of scratch, read from L2 once per token tile.
constexpr int64_t kWideColumns = 512, kWideBlocks = 4;

template <class L, PlainType P>
void linear_plain_typed(const PlainWeights& w, const float* x, int64_t x_stride, const LinearTarget& y) {
  constexpr int64_t kElement = P == PlainType::kF32 ? 4 : 2;
  const uint8_t* data = static_cast<const uint8_t*>(w.data);
  const int64_t block_stride = w.columns * kLanes;
  if (y.num_tokens <= L::kPlainTokens) {  // one pass over the weights
    plain_tokens<L, P>(data + y.block_begin * block_stride * kElement, block_stride, w.columns, x, x_stride,
                       y.num_tokens, true, y.block_end - y.block_begin, y.y + y.block_begin * kLanes,
                       y.y_stride);
    return;
  }
  // Pieces of k so that a row block's piece (32 KiB at most) stays near while the tokens pass.
  for (int64_t t = 0; t < y.num_tokens; t += kTokensPerChunk) {
    const int64_t tokens = min64(kTokensPerChunk, y.num_tokens - t);
    for (int64_t k = 0; k < w.columns; k += kWideColumns)
      for (int64_t r = y.block_begin; r < y.block_end; ++r)
        plain_tokens<L, P>(data + (r * block_stride + k * kLanes) * kElement, block_stride,
                           min64(kWideColumns, w.columns - k), x + t * x_stride + k, x_stride, tokens, k == 0,
                           1, y.y + t * y.y_stride + r * kLanes, y.y_stride);
  }
}

template <class L>
void linear_plain(const PlainWeights& w, const float* x, int64_t x_stride, const LinearTarget& y) {
  switch (w.type) {
    case PlainType::kF32:
      return linear_plain_typed<L, PlainType::kF32>(w, x, x_stride, y);
    case PlainType::kF16:
      return linear_plain_typed<L, PlainType::kF16>(w, x, x_stride, y);
    case PlainType::kBF16:
      return linear_plain_typed<L, PlainType::kBF16>(w, x, x_stride, y);
  }
}

template <class L, CodeWidth C, int c, class Function>
MLXCEL_INLINE void widen_pair(typename L::Raw raw, Function value, float* out) {
  typename L::W w;
  if constexpr (C == CodeWidth::kNibble) {
    w = L::template nibbles<c>(raw);
  } else {
    w = L::template bytes<c>(raw);
  }
  out += pair_offset<C>(c) * kLanes;
  L::store(out, value(L::template word_floats<0>(w)));
  L::store(out + kLanes, value(L::template word_floats<1>(w)));
}

// `groups` groups of one row block as f32 [k][16]: fma(q, s, b); symmetric formats: (q - zero_point) * s.
template <class L, CodeWidth C, class Function>
MLXCEL_INLINE float* widen_group(const uint8_t* codes, int64_t bytes, Function value, float* out) {
  constexpr int64_t kPerVector = C == CodeWidth::kNibble ? 8 : 4;
  for (int64_t j = 0; j < bytes; j += 64, out += kPerVector * kLanes) {
    const typename L::Raw raw = L::load_raw(codes + j);
    widen_pair<L, C, 0>(raw, value, out);
    widen_pair<L, C, 1>(raw, value, out);
    if constexpr (C == CodeWidth::kNibble) {
      widen_pair<L, C, 2>(raw, value, out);
      widen_pair<L, C, 3>(raw, value, out);
    }
  }
  return out;
}

template <class L, CodeWidth C>
void widen_groups(const QuantisedWeights& w, const uint8_t* tile, int64_t groups, float* out) {
  using F = typename L::F;
  const int64_t bytes = code_bytes(C, w.group_size);
  for (int64_t g = 0; g < groups; ++g, tile += w.group_bytes) {
    const F s = load_scales<L>(w.scale_type, tile + bytes);
    if (w.symmetric) {
      const F zero_point = L::set(static_cast<float>(w.zero_point));
      out = widen_group<L, C>(
          tile, bytes, [&](F q) { return L::mul(L::sub(q, zero_point), s); }, out);
    } else {
      const F b = load_scales<L>(w.scale_type, tile + bytes + scale_bytes(w.scale_type));
      out = widen_group<L, C>(
          tile, bytes, [&](F q) { return L::fma(q, s, b); }, out);
    }
  }
}

template <class L>
void linear_dequantised(const QuantisedWeights& w, const float* x, int64_t x_stride, const LinearTarget& y) {
  static_assert(kWideColumns * kWideBlocks * kLanes * 4 <= kLinearScratchBytes);
  float* wide = static_cast<float*>(static_cast<void*>(y.scratch));
  const int64_t block_bytes = w.num_groups * w.group_bytes, per_piece = kWideColumns / w.group_size;
  for (int64_t t = 0; t < y.num_tokens; t += kTokensPerChunk) {
    const int64_t tokens = min64(kTokensPerChunk, y.num_tokens - t);
    for (int64_t r = y.block_begin; r < y.block_end; r += kWideBlocks) {
      const int64_t blocks = min64(kWideBlocks, y.block_end - r);
      for (int64_t g = 0; g < w.num_groups; g += per_piece) {
        const int64_t groups = min64(per_piece, w.num_groups - g), k = g * w.group_size;
        for (int64_t i = 0; i < blocks; ++i) {
          const uint8_t* tile = w.data + (r + i) * block_bytes + g * w.group_bytes;
          float* out = wide + i * kWideColumns * kLanes;
          w.width == CodeWidth::kNibble ? widen_groups<L, CodeWidth::kNibble>(w, tile, groups, out)
                                        : widen_groups<L, CodeWidth::kByte>(w, tile, groups, out);
        }
        plain_tokens<L, PlainType::kF32>(wide, kWideColumns * kLanes, groups * w.group_size,
                                         x + t * x_stride + k, x_stride, tokens, g == 0, blocks,
                                         y.y + t * y.y_stride + r * kLanes, y.y_stride);
      }
    }
  }
}

}  // namespace
}  // namespace mlxcel
