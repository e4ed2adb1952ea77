#include "backend/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/reference/vectors.h"
#include "tensor/dtype.h"
#include "tensor/math.h"

namespace mlxcel::reference {
namespace {

constexpr int64_t kBlock = 64;
constexpr int64_t kSplit = 512;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

float exp_of(float x) { return exp_lanes<ScalarLanes>(x); }

template <typename T>
T load(const std::byte* bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// Row `row` of a chunk [chunk_rows, dim] of one kv head, widened exactly.
void widen_row(KvType type, const std::byte* chunk, int64_t chunk_rows, int64_t row, std::span<float> out) {
  const int64_t dim = static_cast<int64_t>(out.size());
  for (int64_t d = 0; d < dim; ++d) {
    const int64_t index = row * dim + d;
    float& value = out[static_cast<size_t>(d)];
    switch (type) {
      case KvType::kF32:
        value = load<float>(chunk, index);
        break;
      case KvType::kF16:
        value = f16_to_f32(load<uint16_t>(chunk, index));
        break;
      case KvType::kBF16:
        value = bf16_to_f32(load<uint16_t>(chunk, index));
        break;
      case KvType::kQ8_0: {
        const std::byte* scales = chunk + chunk_rows * dim;
        const float scale = f16_to_f32(load<uint16_t>(scales, row * (dim / 32) + d / 32));
        value = static_cast<float>(load<int8_t>(chunk, index)) * scale;
        break;
      }
    }
  }
}

// Which rows a token sees: [low, position], and pinned ones before.
struct Visibility {
  int64_t low = 0, position = 0, pinned = 0;
  bool operator()(int64_t row) const { return row <= position && (row >= low || row < pinned); }
};
Visibility visibility(const AttentionSpec& spec, const AttentionQuery& where) {
  Visibility visible{where.view->first_visible, where.position, where.view->num_pinned};
  if (spec.sliding_window) visible.low = std::max(visible.low, where.position - *spec.sliding_window + 1);
  return visible;
}

struct State {
  float m = kMinusInfinity, l = 0.0f;
  std::vector<float> o;
};

class Head {
 public:
  Head(const AttentionSpec& spec, const AttentionQuery& where, std::span<const float> query)
      : spec_(spec), where_(where), query_(query), visible_(visibility(spec, where)) {}
  // Adds the rows of one block to a split's state; nothing when none is visible.
  void add_block(int64_t begin, State& state) const;
  bool any_visible(int64_t begin, int64_t end) const {
    for (int64_t j = begin; j < end; ++j) {
      if (visible_(j)) return true;
    }
    return false;
  }

 private:
  float score(int64_t row) const;
  void value(int64_t row, std::span<float> out) const;

  const AttentionSpec& spec_;
  const AttentionQuery& where_;
  std::span<const float> query_;
  Visibility visible_;
};

float Head::score(int64_t row) const {
  const HostKvStorage& storage = *where_.storage;
  const int64_t rows = storage.chunk_rows();
  std::vector<float> key(query_.size());
  widen_row(storage.layout().key_type, storage.keys(*where_.view, where_.layer, where_.kv_head, row / rows),
            rows, row % rows, key);
  float acc = 0.0f;
  for (size_t d = 0; d < key.size(); ++d) acc = std::fma(query_[d], key[d], acc);
  return soft_cap(acc * spec_.scale, spec_.logit_softcap);
}

void Head::value(int64_t row, std::span<float> out) const {
  const HostKvStorage& storage = *where_.storage;
  const int64_t rows = storage.chunk_rows();
  widen_row(storage.layout().value_type,
            storage.values(*where_.view, where_.layer, where_.kv_head, row / rows), rows, row % rows, out);
}

void Head::add_block(int64_t begin, State& state) const {
  if (!any_visible(begin, begin + kBlock)) return;
  float s[kBlock] = {}, p[kBlock] = {};
  float block_max = kMinusInfinity;
  for (int64_t j = 0; j < kBlock; ++j) {
    if (!visible_(begin + j)) continue;
    s[j] = score(begin + j);
    if (block_max < s[j]) block_max = s[j];
  }
  const float m = state.m < block_max ? block_max : state.m;
  const float c = state.m == kMinusInfinity ? 0.0f : exp_of(state.m - m);
  for (int64_t j = 0; j < kBlock; ++j) {
    if (visible_(begin + j)) p[j] = exp_of(s[j] - m);
  }
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = p[i] + p[i + 16] + p[i + 32] + p[i + 48];
  state.l = std::fma(state.l, c, sum16(lanes));
  for (float& o : state.o) o = o * c;
  std::vector<float> row(state.o.size());
  for (int64_t j = 0; j < kBlock; ++j) {
    if (!visible_(begin + j)) continue;
    value(begin + j, row);
    for (size_t d = 0; d < row.size(); ++d) state.o[d] = std::fma(p[j], row[d], state.o[d]);
  }
  state.m = m;
}

void merge(State& whole, const State& split) {
  const float m = whole.m < split.m ? split.m : whole.m;
  const float a = exp_of(whole.m - m), e = exp_of(split.m - m);
  whole.l = std::fma(whole.l, a, split.l * e);
  for (size_t d = 0; d < whole.o.size(); ++d) whole.o[d] = std::fma(whole.o[d], a, split.o[d] * e);
  whole.m = m;
}

void add_sink(State& state, float sink) {
  const float m = state.m < sink ? sink : state.m;
  const float a = exp_of(state.m - m);
  state.l = std::fma(state.l, a, exp_of(sink - m));
  for (float& o : state.o) o = o * a;
}

}  // namespace

void attend(const AttentionSpec& spec, const AttentionQuery& where, std::span<const float> query,
            std::span<float> out) {
  const Head head(spec, where, query);
  State whole;
  bool is_first = true;
  for (int64_t split = 0; split <= where.position; split += kSplit) {
    if (!head.any_visible(split, split + kSplit)) continue;
    State state;
    state.o.assign(out.size(), 0.0f);
    for (int64_t block = split; block < split + kSplit; block += kBlock) head.add_block(block, state);
    if (is_first) {
      whole = std::move(state);
      is_first = false;
    } else {
      merge(whole, state);
    }
  }
  MLXCEL_CHECK_MSG(!is_first, "a token must see at least itself");
  if (spec.has_sinks) add_sink(whole, where.sink);
  for (size_t d = 0; d < out.size(); ++d) out[d] = whole.o[d] / whole.l;
}

}  // namespace mlxcel::reference
