// One sequence's key/value rows: ONE length, from which the rope position, the visible range and the number
// of blocks all follow, and ONE call (trim) that shortens it. See docs/adr/0004-kv.md and
// docs/architecture.md.
//
// Owner: the engine's row. Threads: the engine thread only.
// Invariants: blocks held == ceil(length / block_size) - floor(first_visible / block_size) (plus pinned
// blocks); append after trim equals never having written the trimmed rows; no block with more than one
// reference is written; length never falls through front eviction; all layers move together or not at all.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "kv/block_pool.h"
#include "kv/kv_layout.h"
#include "kv/kv_view.h"

namespace mlxcel {

// Where dense slots come from and how their rows are copied (the backend's storage implements it).
class DenseSlots {
 public:
  virtual ~DenseSlots() = default;
  virtual Result<int32_t> take_slot() = 0;  // kResourceExhausted when all are used
  virtual void release_slot(int32_t slot) = 0;
  virtual Status reserve_rows(int32_t slot,
                              int64_t num_rows) = 0;  // grows; keeps the rows; may fail (memory)
  virtual void copy_rows(int32_t from, int32_t to, int64_t num_rows) = 0;  // all layers
};

// What an append will do. Made by plan_append (which changes nothing), consumed by commit_append (which
// cannot fail). The plan owns the blocks it took; dropping it gives them back.
class AppendPlan {
 public:
  AppendPlan() = default;
  AppendPlan(AppendPlan&&) noexcept;
  AppendPlan& operator=(AppendPlan&&) noexcept;
  AppendPlan(const AppendPlan&) = delete;
  AppendPlan& operator=(const AppendPlan&) = delete;
  ~AppendPlan();
  int64_t num_rows() const { return num_rows_; }
  std::span<const BlockId> new_blocks() const { return taken_; }
  // Copy-on-write forks the backend must carry out before it writes the new rows.
  std::span<const BlockCopy> copies() const { return copies_; }

 private:
  friend class SequenceCache;
  BlockPool* pool_ = nullptr;
  int64_t base_length_ = 0, num_rows_ = 0;
  std::vector<BlockId> taken_;  // fork target first (when there is one), then fresh blocks
  std::vector<BlockCopy> copies_;
};

class SequenceCache {
 public:
  // Paged.
  static SequenceCache paged(BlockPool& pool, const KvLayout& layout);
  // Dense: takes a slot.
  static Result<SequenceCache> dense(DenseSlots& slots, const KvLayout& layout);
  SequenceCache(SequenceCache&&) noexcept;
  SequenceCache& operator=(SequenceCache&&) noexcept;
  SequenceCache(const SequenceCache&) = delete;
  SequenceCache& operator=(const SequenceCache&) = delete;
  ~SequenceCache();  // gives everything back

  KvStorageKind kind() const;
  bool can_trim() const { return can_trim_; }
  int64_t length() const { return length_; }  // rows held = next rope position
  int64_t first_visible() const { return first_visible_; }
  std::span<const BlockId> blocks() const {
    return blocks_;
  }  // by absolute index; dropped entries are kNoBlock
  static constexpr BlockId kNoBlock = -1;
  int64_t blocks_held() const;

  // Changes nothing. kResourceExhausted when the pool cannot give the blocks. num_rows >= 0.
  Result<AppendPlan> plan_append(int64_t num_rows) const;
  // REQUIRES: the plan was made for this sequence at this length. Returns the forks to carry out first, in
  // this order: fewer than the plan had when the other holders have left the shared block meanwhile (the last
  // one writes in place).
  std::vector<BlockCopy> commit_append(AppendPlan&& plan);
  // Drops min(num_rows, length - first_visible) newest rows and returns how many; 0 with nothing changed
  // where the model's state cannot be wound back that far (KvLayout::can_trim()). trim(0) always succeeds.
  int64_t trim(int64_t num_rows);
  // Window eviction: the oldest rows but the first `keep` become invisible; positions never move. Blocks
  // wholly out of sight are released. Returns the rows dropped.
  Result<int64_t> trim_front(int64_t num_rows, int64_t keep);
  // Shares every block (paged) or copies the rows (dense). The next write to a shared block copies it.
  Result<SequenceCache> fork() const;
  // A new paged sequence whose first num_rows rows are the given blocks' (retains each).
  static SequenceCache adopt(BlockPool& pool, const KvLayout& layout, std::span<const BlockId> blocks,
                             int64_t num_rows);
  // For a forward pass that appended its rows already (length() includes them).
  KvView view() const;

 private:
  SequenceCache() = default;
  BlockPool* pool_ = nullptr;
  DenseSlots* slots_ = nullptr;
  int32_t slot_ = -1;
  bool can_trim_ = true;
  int64_t length_ = 0, first_visible_ = 0, num_pinned_ = 0;
  std::vector<BlockId> blocks_;
};

}  // namespace mlxcel
