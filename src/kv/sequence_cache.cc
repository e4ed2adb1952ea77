#include "kv/sequence_cache.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/checked.h"

namespace mlxcel {

AppendPlan::AppendPlan(AppendPlan&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      base_length_(std::exchange(other.base_length_, 0)),
      num_rows_(std::exchange(other.num_rows_, 0)),
      taken_(std::exchange(other.taken_, {})),
      copies_(std::exchange(other.copies_, {})) {}

AppendPlan& AppendPlan::operator=(AppendPlan&& other) noexcept {
  AppendPlan incoming(std::move(other));  // holds our old blocks after the swaps and gives them back
  std::swap(pool_, incoming.pool_);
  std::swap(base_length_, incoming.base_length_);
  std::swap(num_rows_, incoming.num_rows_);
  std::swap(taken_, incoming.taken_);
  std::swap(copies_, incoming.copies_);
  return *this;
}

AppendPlan::~AppendPlan() {
  // Newest first, so that the pool's free list is as it was before the plan.
  for (auto block = taken_.rbegin(); block != taken_.rend(); ++block) pool_->release(*block);
}

SequenceCache SequenceCache::paged(BlockPool& pool, const KvLayout& layout) {
  SequenceCache cache;
  cache.pool_ = &pool;
  cache.can_trim_ = layout.can_trim();
  return cache;
}

Result<SequenceCache> SequenceCache::dense(DenseSlots& slots, const KvLayout& layout) {
  MLXCEL_ASSIGN_OR_RETURN(const int32_t slot, slots.take_slot());
  SequenceCache cache;
  cache.slots_ = &slots;
  cache.slot_ = slot;
  cache.can_trim_ = layout.can_trim();
  return cache;
}

SequenceCache::SequenceCache(SequenceCache&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      slots_(std::exchange(other.slots_, nullptr)),
      slot_(std::exchange(other.slot_, -1)),
      can_trim_(other.can_trim_),
      length_(std::exchange(other.length_, 0)),
      first_visible_(std::exchange(other.first_visible_, 0)),
      num_pinned_(std::exchange(other.num_pinned_, 0)),
      blocks_(std::exchange(other.blocks_, {})) {}

SequenceCache& SequenceCache::operator=(SequenceCache&& moved) noexcept {
  SequenceCache other(std::move(moved));  // holds our old rows after the swaps and gives them back
  std::swap(pool_, other.pool_);
  std::swap(slots_, other.slots_);
  std::swap(slot_, other.slot_);
  std::swap(can_trim_, other.can_trim_);
  std::swap(length_, other.length_);
  std::swap(first_visible_, other.first_visible_);
  std::swap(num_pinned_, other.num_pinned_);
  std::swap(blocks_, other.blocks_);
  return *this;
}

SequenceCache::~SequenceCache() {
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    if (*block != kNoBlock) pool_->release(*block);
  }
  if (slots_ != nullptr) slots_->release_slot(slot_);
}

KvStorageKind SequenceCache::kind() const {
  return slots_ != nullptr ? KvStorageKind::kDense : KvStorageKind::kPaged;
}

int64_t SequenceCache::blocks_held() const {
  if (first_visible_ == 0) return static_cast<int64_t>(blocks_.size());  // none was dropped at the front
  return static_cast<int64_t>(blocks_.size()) - std::count(blocks_.begin(), blocks_.end(), kNoBlock);
}

Result<AppendPlan> SequenceCache::plan_append(int64_t num_rows) const {
  MLXCEL_CHECK(num_rows >= 0 && num_rows <= std::numeric_limits<int64_t>::max() / 2 - length_);
  AppendPlan plan;
  plan.base_length_ = length_;
  plan.num_rows_ = num_rows;
  if (num_rows == 0) return plan;
  if (slots_ != nullptr) {
    MLXCEL_RETURN_IF_ERROR(slots_->reserve_rows(slot_, length_ + num_rows));
    return plan;
  }
  const int64_t block_size = pool_->block_size();
  const int64_t tail_rows = length_ % block_size;
  const bool must_fork = tail_rows != 0 && pool_->references(blocks_.back()) > 1;
  const int64_t fresh = ceil_div(length_ + num_rows, block_size) - static_cast<int64_t>(blocks_.size());
  const int64_t needed = fresh + (must_fork ? 1 : 0);
  if (needed > pool_->num_free()) {
    return make_error(ErrorKind::kResourceExhausted, "the key/value cache has too few free blocks",
                      std::to_string(num_rows) + " rows after " + std::to_string(length_),
                      std::to_string(needed) + " free blocks", std::to_string(pool_->num_free()));
  }
  plan.pool_ = pool_;
  plan.taken_.reserve(static_cast<size_t>(needed));
  for (int64_t i = 0; i < needed; ++i) plan.taken_.push_back(pool_->take().value());
  if (must_fork) {
    plan.copies_.push_back({blocks_.back(), plan.taken_.front(), static_cast<int32_t>(tail_rows)});
  }
  return plan;
}

std::vector<BlockCopy> SequenceCache::commit_append(AppendPlan&& plan) {
  MLXCEL_CHECK_MSG(plan.base_length_ == length_, "the plan was made at another length");
  std::vector<BlockCopy> copies;
  if (slots_ == nullptr && plan.num_rows_ > 0) {
    MLXCEL_CHECK_MSG(plan.pool_ == pool_ || plan.taken_.empty(), "the plan was made for another pool");
    std::vector<BlockId> taken = std::exchange(plan.taken_, {});
    auto fresh = taken.begin();
    if (!plan.copies_.empty()) {
      const BlockId target = *fresh++;
      BlockId& tail = blocks_.back();
      MLXCEL_CHECK_MSG(plan.copies_.front().from == tail, "the plan was made for another sequence");
      // Another holder may have written its own copy since the plan was made: the last one writes in place.
      if (pool_->references(tail) > 1) {
        pool_->release(tail);
        tail = target;
        copies = std::move(plan.copies_);
      } else {
        pool_->release(target);
      }
    }
    const int64_t block_size = pool_->block_size();
    if (length_ % block_size != 0) {
      MLXCEL_CHECK_MSG(pool_->references(blocks_.back()) == 1, "a block with two holders would be written");
    }
    blocks_.insert(blocks_.end(), fresh, taken.end());
    MLXCEL_CHECK(static_cast<int64_t>(blocks_.size()) == ceil_div(length_ + plan.num_rows_, block_size));
  }
  length_ += std::exchange(plan.num_rows_, 0);
  return copies;
}

int64_t SequenceCache::trim(int64_t num_rows) {
  MLXCEL_CHECK(num_rows >= 0);
  if (num_rows == 0 || !can_trim_) return 0;
  const int64_t dropped = std::min(num_rows, length_ - first_visible_);
  length_ -= dropped;
  if (slots_ == nullptr) {
    const auto keep = static_cast<size_t>(ceil_div(length_, pool_->block_size()));
    while (blocks_.size() > keep) {
      if (blocks_.back() != kNoBlock) pool_->release(blocks_.back());
      blocks_.pop_back();
    }
  }
  return dropped;
}

Result<int64_t> SequenceCache::trim_front(int64_t num_rows, int64_t keep) {
  if (num_rows < 0 || keep < 0) {
    return make_error(ErrorKind::kInvalidArgument, "row counts of a front eviction are negative", "",
                      "0 or more", std::to_string(num_rows) + " rows, " + std::to_string(keep) + " kept");
  }
  if (first_visible_ > 0 && keep != num_pinned_) {
    return make_error(ErrorKind::kInvalidArgument,
                      "the kept rows of a sequence cannot change once rows were dropped", "",
                      std::to_string(num_pinned_) + " kept rows", std::to_string(keep));
  }
  const int64_t oldest = std::max(first_visible_, keep);  // of the rows that may go
  const int64_t dropped = std::clamp<int64_t>(length_ - oldest, 0, num_rows);
  if (dropped == 0) return int64_t{0};
  first_visible_ = oldest + dropped;
  num_pinned_ = keep;
  if (slots_ == nullptr) {
    const int64_t block_size = pool_->block_size();
    for (int64_t i = ceil_div(keep, block_size); i < first_visible_ / block_size; ++i) {
      BlockId& block = blocks_[static_cast<size_t>(i)];
      if (block != kNoBlock) pool_->release(std::exchange(block, kNoBlock));
    }
  }
  return dropped;
}

Result<SequenceCache> SequenceCache::fork() const {
  SequenceCache copy;
  copy.pool_ = pool_;
  copy.can_trim_ = can_trim_;
  if (slots_ != nullptr) {
    MLXCEL_ASSIGN_OR_RETURN(copy.slot_, slots_->take_slot());
    copy.slots_ = slots_;  // from here on the copy gives its slot back, also when growing it fails
    MLXCEL_RETURN_IF_ERROR(slots_->reserve_rows(copy.slot_, length_));
    slots_->copy_rows(slot_, copy.slot_, length_);
  }
  for (const BlockId block : blocks_) {
    if (block != kNoBlock) pool_->retain(block);
  }
  copy.blocks_ = blocks_;
  copy.length_ = length_;
  copy.first_visible_ = first_visible_;
  copy.num_pinned_ = num_pinned_;
  return copy;
}

SequenceCache SequenceCache::adopt(BlockPool& pool, const KvLayout& layout, std::span<const BlockId> blocks,
                                   int64_t num_rows) {
  MLXCEL_CHECK(num_rows >= 0);
  MLXCEL_CHECK_MSG(static_cast<int64_t>(blocks.size()) == ceil_div(num_rows, pool.block_size()),
                   "the adopted blocks do not hold the adopted rows exactly");
  SequenceCache cache = paged(pool, layout);
  MLXCEL_CHECK_MSG(cache.can_trim_ || num_rows == 0, "rows without their recurrent state cannot be adopted");
  for (const BlockId block : blocks) pool.retain(block);
  cache.blocks_.assign(blocks.begin(), blocks.end());
  cache.length_ = num_rows;
  return cache;
}

KvView SequenceCache::view() const {
  KvView view;
  view.blocks = blocks_;
  view.block_size = slots_ == nullptr ? pool_->block_size() : 0;
  view.dense_slot = slot_;
  view.length = length_;
  view.first_visible = first_visible_;
  view.num_pinned = num_pinned_;
  return view;
}

}  // namespace mlxcel
