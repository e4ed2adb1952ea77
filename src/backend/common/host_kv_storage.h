// KV bytes in host memory, for the reference and the CPU runner: paged slabs of fixed blocks or dense slots,
// over the same addressing, so that a kernel does not know which it reads.
//
// Rows live in chunks: chunk c of a sequence holds absolute rows [c * chunk_rows(), (c+1) * chunk_rows()).
// Paged: a chunk is the block view.blocks[c]. Dense: a slot grows by chunks of kDenseChunkRows rows; nothing
// moves when it grows. Inside a chunk, per layer and kv head:
//   keys, kRowMajor:  [chunk_rows][key_dim]
//   keys, kDimMajor:  [key_dim][chunk_rows]       (positions in SIMD lanes)
//   values:           [chunk_rows][value_dim]
// f32 elements are 4 bytes, f16 and bf16 2. q8_0: int8 codes in the shapes above, followed by f16 scales, one
// per 32 dims: keys kRowMajor and values [chunk_rows][dim/32], keys kDimMajor [key_dim/32][chunk_rows].
//
// Owner: the engine. Threads: write_row and the pointers may be used by kernel threads on disjoint rows;
// everything else by the engine thread. All addressing is 64-bit, widened before multiplying.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"

namespace mlxcel {

class HostKvStorage final : public KvStorage, private DenseSlots {
 public:
  enum class KeyLayout { kRowMajor, kDimMajor };
  static constexpr int32_t kDenseChunkRows = 64;

  // kInvalidArgument: block_size outside 1..256, q8_0 with a head dim that is no multiple of 32.
  // kOutOfMemory.
  static Result<std::unique_ptr<HostKvStorage>> create(KvStorageKind kind, const KvLayout& layout,
                                                       const KvBudget& budget, KeyLayout key_layout);
  ~HostKvStorage() override;

  KvStorageKind kind() const override { return kind_; }
  int64_t bytes() const override;
  DenseSlots* dense_slots() override { return kind_ == KvStorageKind::kDense ? this : nullptr; }
  std::vector<float> read_row(const KvView& view, int layer, bool value, int64_t position) const override;
  void poison_unused(std::span<const KvView> live) override;

  const KvLayout& layout() const { return layout_; }
  KeyLayout key_layout() const { return key_layout_; }
  int32_t chunk_rows() const { return chunk_rows_; }
  // First byte of a chunk's keys or values of one layer and kv head. REQUIRES: chunk * chunk_rows() <
  // view.length.
  std::byte* keys(const KvView& view, int layer, int kv_head, int64_t chunk) const;
  std::byte* values(const KvView& view, int layer, int kv_head, int64_t chunk) const;
  // Rounds and writes one row of one layer: keys [num_kv_heads * key_dim], values [num_kv_heads * value_dim].
  void write_row(const KvView& view, int layer, int64_t position, const float* keys, const float* values);
  void copy_blocks(std::span<const BlockCopy> copies);

 private:
  struct Impl;
  HostKvStorage();
  Result<int32_t> take_slot() override;
  void release_slot(int32_t slot) override;
  Status reserve_rows(int32_t slot, int64_t num_rows) override;
  void copy_rows(int32_t from, int32_t to, int64_t num_rows) override;

  KvStorageKind kind_ = KvStorageKind::kPaged;
  KvLayout layout_;
  KeyLayout key_layout_ = KeyLayout::kRowMajor;
  int32_t chunk_rows_ = 0;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxcel
