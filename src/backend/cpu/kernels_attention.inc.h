// Attention over a lanes policy L (docs/numerics.md, "Attention"): a block of 64 positions for several query
// rows that share the block's keys and values. Scores keep positions in lanes, values keep dims in lanes;
// neither changes the chain of any number. Included once by each kernels_<isa>.cc; unnamed namespace, no
// standard library.
#pragma once

#include "backend/cpu/inline.h"
#include "backend/cpu/kernel_table.h"
#include "backend/cpu/kernels_vector.inc.h"
#include "tensor/math.h"

namespace mlxcel {
namespace {

constexpr int kBlock = 64;  // positions
constexpr int kGroups = kBlock / kLanes;

// 16 elements (n < 16: the first n, others 0) of a cache type, q8_0 without its scale.
template <class L, KvElement E>
MLXCEL_INLINE typename L::F load_kv(const void* data, int64_t index, int64_t n) {
  if constexpr (E == KvElement::kF32) return load_part<L>(static_cast<const float*>(data) + index, n);
  if constexpr (E == KvElement::kQ8) {
    const int8_t* p = static_cast<const int8_t*>(data) + index;
    if (n >= kLanes) return L::load_i8(p);
    int8_t lanes[kLanes] = {};
    for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
    return L::load_i8(lanes);
  }
  if constexpr (E == KvElement::kF16 || E == KvElement::kBF16) {
    const uint16_t* p = static_cast<const uint16_t*>(data) + index;
    uint16_t lanes[kLanes] = {};
    if (n < kLanes) {
      for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
      p = lanes;
    }
    if constexpr (E == KvElement::kF16) return L::load_f16(p);
    if constexpr (E == KvElement::kBF16) return L::load_bf16(p);
  }
}

template <class L>
MLXCEL_INLINE float exp_one(float x) {
  float lanes[kLanes];
  L::store(lanes, exp_lanes<L>(L::set(x)));
  return lanes[0];
}

// Scores of R rows against P groups of 16 positions.
template <class L, KvElement E, int R, int P>
void score_groups(const AttentionShape& shape, const AttentionBlock& block, const float* const* queries,
                  const int* groups, float (*scores)[kBlock]) {
  using F = typename L::F;
  F acc[R * P], key_scale[P];
  for (int i = 0; i < R * P; ++i) acc[i] = L::zero();
  for (int i = 0; i < P; ++i) key_scale[i] = L::zero();
  for (int64_t d = 0; d < shape.key_dim; ++d) {
    F k[P];
    if constexpr (E == KvElement::kQ8) {
      if (d % 32 == 0) {
        for (int i = 0; i < P; ++i)
          key_scale[i] = load_kv<L, KvElement::kF16>(block.key_scales[groups[i]],
                                                     d / 32 * block.key_scale_stride, kLanes);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < P; ++i) {
      k[i] = load_kv<L, E>(block.keys[groups[i]], d * block.key_stride, kLanes);
      if constexpr (E == KvElement::kQ8) k[i] = L::mul(k[i], key_scale[i]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F q = L::set(queries[r][d]);
#pragma GCC unroll 4
      for (int i = 0; i < P; ++i) acc[r * P + i] = L::fma(q, k[i], acc[r * P + i]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int i = 0; i < P; ++i) {
      F s = L::mul(acc[r * P + i], L::set(shape.scale));
      if (shape.softcap != 0.0f) s = capped<L>(s, shape.softcap);
      L::store(scores[r] + groups[i] * kLanes, s);
    }
}

template <class L>
constexpr int vectors_in_flight(int rows) {
  const int fit = L::kAttentionRegisters / rows;
  return fit >= 4 ? 4 : (fit >= 2 ? 2 : 1);
}

template <class L, KvElement E, int R>
void score_block(const AttentionShape& shape, const AttentionBlock& block, const float* const* queries,
                 float (*scores)[kBlock]) {
  constexpr int P = vectors_in_flight<L>(R);
  int groups[kGroups], count = 0;
  for (int i = 0; i < kGroups; ++i) {
    if (block.keys[i] != nullptr) groups[count++] = i;
  }
  int i = 0;
  for (; i + P <= count; i += P) score_groups<L, E, R, P>(shape, block, queries, groups + i, scores);
  if constexpr (P > 1) {
    for (; i < count; ++i) score_groups<L, E, R, 1>(shape, block, queries, groups + i, scores);
  }
}

// Scores to probabilities in place (exactly 0 where not visible); the new m and l; returns c, by which o is
// multiplied.
template <class L>
float softmax_block(float* scores, uint64_t mask, AttentionState& state) {
  using F = typename L::F;
  const float lowest = -__builtin_inff();
  F largest = L::set(lowest);
  for (int g = 0; g < kGroups; ++g) {
    const uint32_t bits = static_cast<uint32_t>(mask >> (g * kLanes)) & 0xFFFFu;
    if (bits != 0)
      largest = L::max(L::select_bits(bits, L::load(scores + g * kLanes), L::set(lowest)), largest);
  }
  const float block_max = L::max16(largest);
  const float m = state.m > block_max ? state.m : block_max;
  const float c = state.m == lowest ? 0.0f : exp_one<L>(state.m - m);
  F lanes = L::zero();
  for (int g = 0; g < kGroups; ++g) {
    const uint32_t bits = static_cast<uint32_t>(mask >> (g * kLanes)) & 0xFFFFu;
    F p = L::zero();
    if (bits != 0)
      p = L::select_bits(bits, exp_lanes<L>(L::sub(L::load(scores + g * kLanes), L::set(m))), L::zero());
    L::store(scores + g * kLanes, p);
    lanes = g == 0 ? p : L::add(lanes, p);
  }
  state.l = __builtin_fmaf(state.l, c, L::sum16(lanes));
  state.m = m;
  return c;
}

// A stretch of positions that the same rows see: all of them, or only some.
struct Run {
  int begin, end;
  bool all;
};

inline int find_runs(const uint64_t* masks, int num_rows, Run* runs) {
  uint64_t any = 0, all = ~uint64_t{0};
  for (int r = 0; r < num_rows; ++r) {
    any |= masks[r];
    all &= masks[r];
  }
  int count = 0;
  for (int j = 0; j < kBlock; ++j) {
    if (((any >> j) & 1u) == 0) continue;
    const bool joint = ((all >> j) & 1u) != 0;
    if (count > 0 && runs[count - 1].end == j && runs[count - 1].all == joint) {
      runs[count - 1].end = j + 1;
    } else {
      runs[count++] = {j, j + 1, joint};
    }
  }
  return count;
}

// V vectors of value row j from dim d, widened.
template <class L, KvElement E, int V>
MLXCEL_INLINE void load_values(const AttentionShape& shape, const AttentionBlock& block, int j, int64_t d,
                               typename L::F (&v)[V]) {
  const int g = j / kLanes, row = j % kLanes;
#pragma GCC unroll 4
  for (int i = 0; i < V; ++i) {
    const int64_t dim = d + i * kLanes;
    v[i] = load_kv<L, E>(block.values[g], row * block.value_stride + dim,
                         V > 1 ? kLanes : shape.value_dim - dim);
    if constexpr (E == KvElement::kQ8) {
      const uint16_t* scales = static_cast<const uint16_t*>(block.value_scales[g]);
      v[i] = L::mul(v[i], L::set(L::f16(scales[row * block.value_scale_stride + dim / 32])));
    }
  }
}

template <class L, KvElement E, int R, int V>
void weigh_values(const AttentionShape& shape, const AttentionBlock& block, int64_t d, const Run* runs,
                  int num_runs, const uint64_t* masks, const float (*p)[kBlock], const float* corrections,
                  AttentionState* states) {
  using F = typename L::F;
  F acc[R * V], v[V];
  for (int r = 0; r < R; ++r)
    for (int i = 0; i < V; ++i)
      acc[r * V + i] = L::mul(L::load(states[r].o + d + i * kLanes), L::set(corrections[r]));
  for (int n = 0; n < num_runs; ++n) {
    const Run run = runs[n];
    for (int j = run.begin; j < run.end; ++j) {
      load_values<L, E, V>(shape, block, j, d, v);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        if (!run.all && ((masks[r] >> j) & 1u) == 0) continue;
        const F weight = L::set(p[r][j]);
#pragma GCC unroll 4
        for (int i = 0; i < V; ++i) acc[r * V + i] = L::fma(weight, v[i], acc[r * V + i]);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int i = 0; i < V; ++i) L::store(states[r].o + d + i * kLanes, acc[r * V + i]);
}

template <class L, KvElement E, int R>
void value_block(const AttentionShape& shape, const AttentionBlock& block, const uint64_t* masks,
                 const float (*p)[kBlock], const float* corrections, AttentionState* states) {
  constexpr int V = vectors_in_flight<L>(R);
  Run runs[kBlock];
  const int num_runs = find_runs(masks, R, runs);
  int64_t d = 0;
  for (; d + V * kLanes <= shape.value_dim; d += V * kLanes)
    weigh_values<L, E, R, V>(shape, block, d, runs, num_runs, masks, p, corrections, states);
  if constexpr (V > 1) {
    for (; d < shape.value_dim; d += kLanes)
      weigh_values<L, E, R, 1>(shape, block, d, runs, num_runs, masks, p, corrections, states);
  } else {
    if (d < shape.value_dim)
      weigh_values<L, E, R, 1>(shape, block, d, runs, num_runs, masks, p, corrections, states);
  }
}

template <class L, int R>
void attend_rows(const AttentionShape& shape, const AttentionBlock& block, const float* const* queries,
                 const uint64_t* masks, AttentionState* states) {
  float scores[R][kBlock];
  switch (shape.key_type) {
    case KvElement::kF32:
      score_block<L, KvElement::kF32, R>(shape, block, queries, scores);
      break;
    case KvElement::kF16:
      score_block<L, KvElement::kF16, R>(shape, block, queries, scores);
      break;
    case KvElement::kBF16:
      score_block<L, KvElement::kBF16, R>(shape, block, queries, scores);
      break;
    case KvElement::kQ8:
      score_block<L, KvElement::kQ8, R>(shape, block, queries, scores);
      break;
  }
  float corrections[R];
  for (int r = 0; r < R; ++r) corrections[r] = softmax_block<L>(scores[r], masks[r], states[r]);
  switch (shape.value_type) {
    case KvElement::kF32:
      return value_block<L, KvElement::kF32, R>(shape, block, masks, scores, corrections, states);
    case KvElement::kF16:
      return value_block<L, KvElement::kF16, R>(shape, block, masks, scores, corrections, states);
    case KvElement::kBF16:
      return value_block<L, KvElement::kBF16, R>(shape, block, masks, scores, corrections, states);
    case KvElement::kQ8:
      return value_block<L, KvElement::kQ8, R>(shape, block, masks, scores, corrections, states);
  }
}

// num_rows <= L::kAttentionRows. Rows that see nothing in this block are left out.
template <class L>
void attend_block(const AttentionShape& shape, const AttentionBlock& block, int32_t num_rows,
                  const float* const* all_queries, const uint64_t* all_masks, AttentionState* all_states) {
  const float* queries[8];
  uint64_t masks[8];
  AttentionState states[8];
  int index[8], n = 0;
  for (int r = 0; r < num_rows; ++r) {
    if (all_masks[r] == 0) continue;
    queries[n] = all_queries[r];
    masks[n] = all_masks[r];
    states[n] = all_states[r];
    index[n++] = r;
  }
  if (n == 0) return;
  if (n == 1) attend_rows<L, 1>(shape, block, queries, masks, states);
  if constexpr (L::kAttentionRows >= 6) {
    if (n == 2) attend_rows<L, 2>(shape, block, queries, masks, states);
    if (n == 3) attend_rows<L, 3>(shape, block, queries, masks, states);
    if (n == 4) attend_rows<L, 4>(shape, block, queries, masks, states);
    if (n == 5) attend_rows<L, 5>(shape, block, queries, masks, states);
    if (n == 6) attend_rows<L, 6>(shape, block, queries, masks, states);
  }
  if constexpr (L::kAttentionRows >= 8) {
    if (n == 7) attend_rows<L, 7>(shape, block, queries, masks, states);
    if (n == 8) attend_rows<L, 8>(shape, block, queries, masks, states);
  }
  for (int i = 0; i < n; ++i) {
    all_states[index[i]].m = states[i].m;
    all_states[index[i]].l = states[i].l;
  }
}

template <class L>
void merge_states(AttentionState* a, const AttentionState* b, int64_t value_dim) {
  using F = typename L::F;
  const float m = a->m > b->m ? a->m : b->m;
  const float first = exp_one<L>(a->m - m), second = exp_one<L>(b->m - m);
  a->l = __builtin_fmaf(a->l, first, b->l * second);
  for (int64_t d = 0; d < value_dim; d += kLanes) {
    const F added = L::mul(L::load(b->o + d), L::set(second));
    L::store(a->o + d, L::fma(L::load(a->o + d), L::set(first), added));
  }
  a->m = m;
}

template <class L>
void finish_attention(AttentionState* state, const float* sink, int64_t value_dim, float* out) {
  using F = typename L::F;
  F factor = L::set(1.0f);
  if (sink != nullptr) {
    const float m = state->m > *sink ? state->m : *sink;
    const float a = exp_one<L>(state->m - m);
    state->l = __builtin_fmaf(state->l, a, exp_one<L>(*sink - m));
    state->m = m;
    factor = L::set(a);
  }
  for (int64_t d = 0; d < value_dim; d += kLanes) {
    const F o = L::mul(L::load(state->o + d), factor);  // times 1 changes nothing
    store_part<L>(out + d, value_dim - d, L::div(o, L::set(state->l)));
  }
}

}  // namespace
}  // namespace mlxcel
