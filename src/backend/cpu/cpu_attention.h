// Attention of a step: tiles of query rows (tokens of one segment x heads that share a kv head) over the
// cached keys and values, handed out to the threads. When there are few tiles and long sequences, the splits
// of 512 positions are handed out one by one and merged afterwards in ascending order: the same bits.
//
// Owner: the forward pass. Threads: begin() by one thread between barriers; attend() and finish_token() by
// all.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/common/host_kv_storage.h"
#include "backend/cpu/buffers.h"
#include "backend/cpu/cpu_model.h"
#include "backend/cpu/kernel_table.h"

namespace mlxcel {

// A token on its way through the layers.
struct QueryToken {
  int32_t segment = 0;
  int32_t input = 0;  // index into the batch's inputs
  int64_t position = 0;
};

class CpuAttentionPass {
 public:
  CpuAttentionPass(const CpuModel& model, const KvLayout& layout, const KernelTable& kernels,
                   int num_threads);

  // Makes the tiles of one layer for these tokens. REQUIRES: tokens of a segment are neighbours, ascending.
  void begin(int layer, std::span<const QueryToken> tokens, std::span<const Segment> segments,
             const HostKvStorage& storage);
  // Works on tiles until none is left. queries: [token][heads * key_dim]; out: [token][heads * value_dim].
  void attend(int thread, const RowBuffer& queries, LinearInput& out);
  // Merges the splits of one token, where they were handed out one by one.
  void finish_token(int64_t token, LinearInput& out);
  uint64_t scratch_bytes() const;

 private:
  struct Tile {
    int32_t first = 0, count = 0;  // tokens
  };
  // The rows a token may see: [low, position] and [0, pinned).
  struct Visible {
    int64_t low = 0, position = 0, pinned = 0;
    uint64_t mask(int64_t begin) const;  // of the 64 rows from `begin` on
    int64_t first_row() const { return pinned > 0 ? 0 : low; }
  };
  struct ThreadScratch {
    AlignedBuffer<float> outputs;  // [2][rows][padded value_dim]: running and current o
    std::vector<AttentionState> running, current;
    std::vector<uint8_t> has_running, has_current;
    std::vector<uint64_t> masks;
    std::vector<const float*> queries;
    std::vector<Visible> visible;     // [tile tokens]
    AlignedBuffer<uint8_t> gathered;  // keys and values of a block where chunks do not hold whole groups
  };

  Visible visible_rows(const QueryToken& token) const;
  void attend_tile(ThreadScratch& scratch, const Tile& tile, int kv_head, int64_t only_split,
                   const RowBuffer& queries, LinearInput& out);
  bool attend_split(ThreadScratch& scratch, const Tile& tile, int kv_head, int64_t split);
  void locate_block(ThreadScratch& scratch, const KvView& view, int kv_head, int64_t begin, uint64_t any,
                    AttentionBlock& block) const;
  void gather_group(ThreadScratch& scratch, const KvView& view, int kv_head, int64_t begin, int group,
                    uint32_t bits, AttentionBlock& block) const;
  void merge_split(ThreadScratch& scratch, size_t rows);
  AttentionState* partial(int64_t token, int64_t head, int64_t split);

  const CpuModel& model_;
  const KvLayout& layout_;
  const KernelTable& kernels_;
  int num_threads_ = 1;
  std::vector<ThreadScratch> scratch_;

  // Of the current layer.
  int layer_ = 0;
  const AttentionSpec* spec_ = nullptr;
  const HostKvStorage* storage_ = nullptr;
  std::span<const QueryToken> tokens_;
  std::span<const Segment> segments_;
  AttentionShape shape_ = {};
  int64_t group_heads_ = 1, value_stride_ = 16;
  std::vector<Tile> tiles_;
  int64_t num_splits_ = 0;  // handed out one by one; 0: tiles walk all of theirs
  int64_t num_items_ = 0;
  std::atomic<int64_t> next_item_{0};
  AlignedBuffer<float> partial_outputs_;        // [token][head][split][value_stride_]
  std::vector<AttentionState> partial_states_;  // [token][head][split]
  std::vector<uint8_t> partial_used_;
};

}  // namespace mlxcel
