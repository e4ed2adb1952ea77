#include "backend/cpu/cpu_attention.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace mlxcel {
namespace {

constexpr int64_t kBlockRows = 64, kSplitRows = 512;
// Query rows of a tile: enough that a block of keys and values (16 KiB at 64 dims in f16) is used from L1
// many times.
constexpr int64_t kTileRows = 24;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

KvElement element_of(KvType type) {
  switch (type) {
    case KvType::kF32:
      return KvElement::kF32;
    case KvType::kF16:
      return KvElement::kF16;
    case KvType::kBF16:
      return KvElement::kBF16;
    case KvType::kQ8_0:
      return KvElement::kQ8;
  }
  return KvElement::kF32;
}
int64_t element_bytes(KvElement type) {
  return type == KvElement::kF32 ? 4 : (type == KvElement::kQ8 ? 1 : 2);
}

int64_t padded(int64_t n) { return round_up(n, kLanes); }

// Bits [first, end) of a word.
uint64_t bit_range(int64_t first, int64_t end) {
  first = std::clamp(first, int64_t{0}, kBlockRows);
  end = std::clamp(end, int64_t{0}, kBlockRows);
  if (first >= end) return 0;
  const uint64_t below_end = end == kBlockRows ? ~uint64_t{0} : (uint64_t{1} << end) - 1;
  return below_end & (~uint64_t{0} << first);
}

}  // namespace

uint64_t CpuAttentionPass::Visible::mask(int64_t begin) const {
  return bit_range(low - begin, position + 1 - begin) | bit_range(0, std::min(pinned, position + 1) - begin);
}

CpuAttentionPass::CpuAttentionPass(const CpuModel& model, const KvLayout& layout, const KernelTable& kernels,
                                   int num_threads)
    : model_(model),
      layout_(layout),
      kernels_(kernels),
      num_threads_(num_threads),
      scratch_(static_cast<size_t>(num_threads)) {
  int64_t rows = kTileRows, value_dim = kLanes, gathered = 0;
  for (const CpuLayer& layer : model.layers) {
    const AttentionSpec& spec = *layer.attention.spec;
    rows = std::max<int64_t>(rows, spec.num_heads / spec.num_kv_heads);
    value_dim = std::max(value_dim, padded(spec.value_head_dim));
    // Elements of at most 4 bytes and q8_0's scales, for 64 positions.
    gathered =
        std::max<int64_t>(gathered, kBlockRows * (spec.head_dim + spec.value_head_dim + 2 * kLanes) * 6);
  }
  const size_t count = static_cast<size_t>(rows);
  for (ThreadScratch& scratch : scratch_) {
    scratch.outputs.reserve(2 * rows * value_dim);
    scratch.running.resize(count);
    scratch.current.resize(count);
    scratch.has_running.resize(count);
    scratch.has_current.resize(count);
    scratch.masks.resize(count);
    scratch.queries.resize(count);
    scratch.visible.resize(count);
    scratch.gathered.reserve(gathered);
  }
}

CpuAttentionPass::Visible CpuAttentionPass::visible_rows(const QueryToken& token) const {
  const KvView& view = segments_[static_cast<size_t>(token.segment)].kv;
  Visible visible{view.first_visible, token.position, view.num_pinned};
  if (spec_->sliding_window) visible.low = std::max(visible.low, token.position - *spec_->sliding_window + 1);
  return visible;
}

void CpuAttentionPass::begin(int layer, std::span<const QueryToken> tokens, std::span<const Segment> segments,
                             const HostKvStorage& storage) {
  layer_ = layer;
  spec_ = model_.layers[static_cast<size_t>(layer)].attention.spec;
  storage_ = &storage;
  tokens_ = tokens;
  segments_ = segments;
  shape_ = {spec_->head_dim,      spec_->value_head_dim,        spec_->scale,
            spec_->logit_softcap, element_of(layout_.key_type), element_of(layout_.value_type)};
  group_heads_ = spec_->num_heads / spec_->num_kv_heads;
  value_stride_ = padded(spec_->value_head_dim);
  const int32_t tile_tokens = static_cast<int32_t>(std::max<int64_t>(1, kTileRows / group_heads_));
  tiles_.clear();
  int64_t longest = 0;
  for (int32_t i = 0; i < static_cast<int32_t>(tokens.size());) {
    Tile tile{i, 1};
    const int32_t segment = tokens[static_cast<size_t>(i)].segment;
    while (tile.count < tile_tokens && i + tile.count < static_cast<int32_t>(tokens.size()) &&
           tokens[static_cast<size_t>(i + tile.count)].segment == segment)
      ++tile.count;
    i += tile.count;
    longest = std::max(longest, tokens[static_cast<size_t>(i - 1)].position + 1);
    tiles_.push_back(tile);
  }
  const int64_t whole_items = static_cast<int64_t>(tiles_.size()) * spec_->num_kv_heads;
  const int64_t splits = ceil_div(longest, kSplitRows);
  num_splits_ = num_threads_ > 1 && splits > 1 && whole_items < 4 * num_threads_ ? splits : 0;
  num_items_ = whole_items * std::max<int64_t>(1, num_splits_);
  if (num_splits_ > 0) {
    const int64_t states = static_cast<int64_t>(tokens.size()) * spec_->num_heads * num_splits_;
    partial_outputs_.reserve(states * value_stride_);
    if (static_cast<int64_t>(partial_states_.size()) < states) {
      partial_states_.resize(static_cast<size_t>(states));
      partial_used_.resize(static_cast<size_t>(states));
    }
    std::fill(partial_used_.begin(), partial_used_.begin() + states, uint8_t{0});
  }
  next_item_.store(0, std::memory_order_relaxed);
}

void CpuAttentionPass::attend(int thread, const RowBuffer& queries, LinearInput& out) {
  ThreadScratch& scratch = scratch_[static_cast<size_t>(thread)];
  const int64_t splits = std::max<int64_t>(1, num_splits_);
  for (;;) {
    const int64_t taken = next_item_.fetch_add(1, std::memory_order_relaxed);
    if (taken >= num_items_) return;
    const int64_t item = num_items_ - 1 - taken;  // later tokens see more rows: long work first
    const int64_t split = item % splits, head = item / splits % spec_->num_kv_heads;
    const Tile& tile = tiles_[static_cast<size_t>(item / splits / spec_->num_kv_heads)];
    attend_tile(scratch, tile, static_cast<int>(head), num_splits_ > 0 ? split : -1, queries, out);
  }
}

void CpuAttentionPass::attend_tile(ThreadScratch& scratch, const Tile& tile, int kv_head, int64_t only_split,
                                   const RowBuffer& queries, LinearInput& out) {
  const size_t rows = static_cast<size_t>(tile.count * group_heads_);
  int64_t first_row = std::numeric_limits<int64_t>::max(), last_row = 0;
  for (int32_t t = 0; t < tile.count; ++t) {
    const QueryToken& token = tokens_[static_cast<size_t>(tile.first + t)];
    const Visible visible = visible_rows(token);
    scratch.visible[static_cast<size_t>(t)] = visible;
    first_row = std::min(first_row, visible.first_row());
    last_row = std::max(last_row, visible.position);
  }
  for (size_t r = 0; r < rows; ++r) {
    const int64_t token = tile.first + static_cast<int64_t>(r) / group_heads_;
    const int64_t head = kv_head * group_heads_ + static_cast<int64_t>(r) % group_heads_;
    scratch.queries[r] = queries.row(token) + head * shape_.key_dim;
    scratch.running[r].o = scratch.outputs.data() + static_cast<int64_t>(r) * value_stride_;
    scratch.current[r].o = scratch.outputs.data() + static_cast<int64_t>(rows + r) * value_stride_;
    scratch.has_running[r] = 0;
  }
  if (only_split >= 0) {
    for (size_t r = 0; r < rows; ++r) {
      const int64_t token = tile.first + static_cast<int64_t>(r) / group_heads_;
      const int64_t head = kv_head * group_heads_ + static_cast<int64_t>(r) % group_heads_;
      scratch.current[r] = *partial(token, head, only_split);
    }
    if (only_split * kSplitRows > last_row || !attend_split(scratch, tile, kv_head, only_split)) return;
    for (size_t r = 0; r < rows; ++r) {
      const int64_t token = tile.first + static_cast<int64_t>(r) / group_heads_;
      const int64_t head = kv_head * group_heads_ + static_cast<int64_t>(r) % group_heads_;
      AttentionState* state = partial(token, head, only_split);
      *state = scratch.current[r];
      partial_used_[static_cast<size_t>(state - partial_states_.data())] = scratch.has_current[r];
    }
    return;
  }
  for (int64_t split = first_row / kSplitRows; split <= last_row / kSplitRows; ++split) {
    if (attend_split(scratch, tile, kv_head, split)) merge_split(scratch, rows);
  }
  const std::vector<float>& sinks = model_.layers[static_cast<size_t>(layer_)].attention.sinks;
  for (size_t r = 0; r < rows; ++r) {
    const int64_t token = tile.first + static_cast<int64_t>(r) / group_heads_;
    const int64_t head = kv_head * group_heads_ + static_cast<int64_t>(r) % group_heads_;
    kernels_.finish_attention(&scratch.running[r],
                              sinks.empty() ? nullptr : &sinks[static_cast<size_t>(head)], shape_.value_dim,
                              out.row(token) + head * shape_.value_dim);
  }
}

void CpuAttentionPass::merge_split(ThreadScratch& scratch, size_t rows) {
  for (size_t r = 0; r < rows; ++r) {
    if (scratch.has_current[r] == 0) continue;
    if (scratch.has_running[r] == 0) {
      std::swap(scratch.running[r], scratch.current[r]);
      scratch.has_running[r] = 1;
    } else {
      kernels_.merge_states(&scratch.running[r], &scratch.current[r], shape_.value_dim);
    }
  }
}

// The state of one split for every row of a tile; false when no row sees anything of it.
bool CpuAttentionPass::attend_split(ThreadScratch& scratch, const Tile& tile, int kv_head, int64_t split) {
  const int64_t rows = tile.count * group_heads_;
  const KvView& view = segments_[static_cast<size_t>(tokens_[static_cast<size_t>(tile.first)].segment)].kv;
  bool touched = false;
  for (int64_t begin = split * kSplitRows; begin < (split + 1) * kSplitRows; begin += kBlockRows) {
    uint64_t any = 0;
    for (int64_t t = 0; t < tile.count; ++t) {
      const uint64_t mask = scratch.visible[static_cast<size_t>(t)].mask(begin);
      any |= mask;
      for (int64_t h = 0; h < group_heads_; ++h)
        scratch.masks[static_cast<size_t>(t * group_heads_ + h)] = mask;
    }
    if (any == 0) continue;
    if (!touched) {
      touched = true;
      for (int64_t r = 0; r < rows; ++r) {
        AttentionState& state = scratch.current[static_cast<size_t>(r)];
        state.m = kLowest;
        state.l = 0.0f;
        std::fill(state.o, state.o + value_stride_, 0.0f);
        scratch.has_current[static_cast<size_t>(r)] = 0;
      }
    }
    AttentionBlock block = {};
    locate_block(scratch, view, kv_head, begin, any, block);
    for (int64_t r = 0; r < rows; r += kernels_.attention_rows) {
      const size_t at = static_cast<size_t>(r);
      const int32_t count = static_cast<int32_t>(std::min<int64_t>(kernels_.attention_rows, rows - r));
      kernels_.attend_block(shape_, block, count, &scratch.queries[at], &scratch.masks[at],
                            &scratch.current[at]);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const size_t at = static_cast<size_t>(r);
      if (scratch.masks[at] != 0) scratch.has_current[at] = 1;
    }
  }
  return touched;
}

void CpuAttentionPass::locate_block(ThreadScratch& scratch, const KvView& view, int kv_head, int64_t begin,
                                    uint64_t any, AttentionBlock& block) const {
  const int64_t chunk_rows = storage_->chunk_rows();
  const int64_t key_bytes = element_bytes(shape_.key_type), value_bytes = element_bytes(shape_.value_type);
  const bool whole_groups = chunk_rows % kLanes == 0;
  block.key_stride = block.key_scale_stride = whole_groups ? chunk_rows : kLanes;
  block.value_stride = shape_.value_dim;
  block.value_scale_stride = shape_.value_dim / 32;
  for (int group = 0; group < 4; ++group) {
    const uint32_t bits = static_cast<uint32_t>(any >> (group * kLanes)) & 0xFFFFu;
    if (bits == 0) continue;
    const int64_t row = begin + group * kLanes;
    if (!whole_groups) {
      gather_group(scratch, view, kv_head, row, group, bits, block);
      continue;
    }
    const int64_t chunk = row / chunk_rows, inside = row % chunk_rows;
    const std::byte* keys = storage_->keys(view, layer_, kv_head, chunk);
    const std::byte* values = storage_->values(view, layer_, kv_head, chunk);
    block.keys[group] = keys + inside * key_bytes;
    block.values[group] = values + inside * shape_.value_dim * value_bytes;
    if (shape_.key_type == KvElement::kQ8)
      block.key_scales[group] = keys + chunk_rows * shape_.key_dim + inside * 2;
    if (shape_.value_type == KvElement::kQ8)
      block.value_scales[group] =
          values + chunk_rows * shape_.value_dim + inside * block.value_scale_stride * 2;
  }
}

// Copies the rows of a group that any query sees into the shape a chunk of 16 rows has.
void CpuAttentionPass::gather_group(ThreadScratch& scratch, const KvView& view, int kv_head, int64_t begin,
                                    int group, uint32_t bits, AttentionBlock& block) const {
  const int64_t chunk_rows = storage_->chunk_rows(), key_dim = shape_.key_dim, value_dim = shape_.value_dim;
  const int64_t key_bytes = element_bytes(shape_.key_type), value_bytes = element_bytes(shape_.value_type);
  const int64_t key_groups = key_dim / 32, value_groups = value_dim / 32;
  const int64_t part = round_up(
      kLanes * (key_dim * key_bytes + value_dim * value_bytes + 2 * (key_groups + value_groups)), 64);
  uint8_t* keys = scratch.gathered.data() + group * part;
  uint8_t* values = keys + kLanes * key_dim * key_bytes;
  uint8_t* key_scales = values + kLanes * value_dim * value_bytes;
  uint8_t* value_scales = key_scales + kLanes * key_groups * 2;
  for (int64_t j = 0; j < kLanes; ++j) {
    if (((bits >> j) & 1u) == 0) continue;
    const int64_t chunk = (begin + j) / chunk_rows, inside = (begin + j) % chunk_rows;
    const std::byte* from_keys = storage_->keys(view, layer_, kv_head, chunk);
    const std::byte* from_values = storage_->values(view, layer_, kv_head, chunk);
    const size_t element = static_cast<size_t>(key_bytes);
    for (int64_t d = 0; d < key_dim; ++d)
      std::memcpy(keys + (d * kLanes + j) * key_bytes, from_keys + (d * chunk_rows + inside) * key_bytes,
                  element);
    const int64_t value_row = value_dim * value_bytes;
    std::memcpy(values + j * value_row, from_values + inside * value_row, static_cast<size_t>(value_row));
    if (shape_.key_type == KvElement::kQ8) {
      const std::byte* scales = from_keys + chunk_rows * key_dim;
      for (int64_t g = 0; g < key_groups; ++g)
        std::memcpy(key_scales + (g * kLanes + j) * 2, scales + (g * chunk_rows + inside) * 2, 2);
    }
    if (shape_.value_type == KvElement::kQ8) {
      const std::byte* scales = from_values + chunk_rows * value_dim;
      std::memcpy(value_scales + j * value_groups * 2, scales + inside * value_groups * 2,
                  static_cast<size_t>(value_groups * 2));
    }
  }
  block.keys[group] = keys;
  block.values[group] = values;
  block.key_scales[group] = key_scales;
  block.value_scales[group] = value_scales;
}

AttentionState* CpuAttentionPass::partial(int64_t token, int64_t head, int64_t split) {
  const int64_t index = (token * spec_->num_heads + head) * num_splits_ + split;
  AttentionState* state = &partial_states_[static_cast<size_t>(index)];
  state->o = partial_outputs_.data() + index * value_stride_;
  return state;
}

void CpuAttentionPass::finish_token(int64_t token, LinearInput& out) {
  if (num_splits_ == 0) return;
  const std::vector<float>& sinks = model_.layers[static_cast<size_t>(layer_)].attention.sinks;
  for (int64_t head = 0; head < spec_->num_heads; ++head) {
    AttentionState* whole = nullptr;
    for (int64_t split = 0; split < num_splits_; ++split) {
      AttentionState* state = partial(token, head, split);
      if (partial_used_[static_cast<size_t>(state - partial_states_.data())] == 0) continue;
      if (whole == nullptr) {
        whole = state;
      } else {
        kernels_.merge_states(whole, state, shape_.value_dim);
      }
    }
    MLXCEL_CHECK_MSG(whole != nullptr, "a token must see at least itself");
    kernels_.finish_attention(whole, sinks.empty() ? nullptr : &sinks[static_cast<size_t>(head)],
                              shape_.value_dim, out.row(token) + head * shape_.value_dim);
  }
}

uint64_t CpuAttentionPass::scratch_bytes() const {
  uint64_t total = partial_outputs_.bytes() + partial_states_.size() * sizeof(AttentionState);
  for (const ThreadScratch& scratch : scratch_) total += scratch.outputs.bytes() + scratch.gathered.bytes();
  return total;
}

}  // namespace mlxcel
