#include "kv/block_pool.h"

#include <string>
#include <utility>

namespace mlxcel {

BlockPool::BlockPool(int32_t num_blocks, int32_t block_size) : block_size_(block_size) {
  MLXCEL_CHECK(num_blocks >= 0 && block_size >= 1);
  references_.assign(static_cast<size_t>(num_blocks), 0);
  is_cached_.assign(static_cast<size_t>(num_blocks), 0);
  free_.reserve(static_cast<size_t>(num_blocks));
  for (BlockId block = num_blocks - 1; block >= 0; --block) free_.push_back(block);  // block 0 is taken first
}

int32_t BlockPool::num_shared() const {
  int32_t shared = 0;
  for (const int32_t count : references_) shared += count >= 2 ? 1 : 0;
  return shared;
}

int32_t BlockPool::references(BlockId block) const {
  MLXCEL_CHECK(block >= 0 && block < num_blocks());
  return references_[static_cast<size_t>(block)];
}

std::optional<BlockId> BlockPool::take() {
  if (free_.empty()) return std::nullopt;
  const BlockId block = free_.back();
  free_.pop_back();
  int32_t& count = references_[static_cast<size_t>(block)];
  MLXCEL_CHECK_MSG(count == 0, "a block of the free list has references");
  count = 1;
  return block;
}

void BlockPool::retain(BlockId block) {
  MLXCEL_CHECK_MSG(references(block) >= 1, "retain of a free block");
  const auto index = static_cast<size_t>(block);
  if (++references_[index] == 2 && is_cached_[index] != 0) --num_cached_alone_;
}

void BlockPool::release(BlockId block) {
  MLXCEL_CHECK_MSG(references(block) >= 1, "release of a free block");
  const auto index = static_cast<size_t>(block);
  const int32_t left = --references_[index];
  MLXCEL_CHECK_MSG(left > 0 || is_cached_[index] == 0,
                   "a block of the prefix cache is freed behind its back");
  if (left == 1 && is_cached_[index] != 0) ++num_cached_alone_;
  if (left == 0) free_.push_back(block);
}

void BlockPool::mark_cached(BlockId block) {
  MLXCEL_CHECK_MSG(references(block) >= 1, "a free block cannot be cached");
  const auto index = static_cast<size_t>(block);
  MLXCEL_CHECK_MSG(is_cached_[index] == 0, "a block is cached twice");
  is_cached_[index] = 1;
  if (references_[index] == 1) ++num_cached_alone_;
}

void BlockPool::unmark_cached(BlockId block) {
  const int32_t count = references(block);
  const auto index = static_cast<size_t>(block);
  MLXCEL_CHECK_MSG(is_cached_[index] != 0, "the block is not cached");
  is_cached_[index] = 0;
  if (count == 1) --num_cached_alone_;
}

Status BlockPool::check_integrity(std::span<const std::span<const BlockId>> holders) const {
  std::vector<int32_t> counted(references_.size(), 0);
  for (size_t i = 0; i < holders.size(); ++i) {
    for (const BlockId block : holders[i]) {
      if (block < 0) continue;  // an entry whose rows were dropped at the front
      if (block >= num_blocks()) {
        return make_error(ErrorKind::kInternal, "a table names a block outside the pool",
                          "holder " + std::to_string(i), "below " + std::to_string(num_blocks()),
                          std::to_string(block));
      }
      ++counted[static_cast<size_t>(block)];
    }
  }
  for (size_t block = 0; block < counted.size(); ++block) {
    if (counted[block] == references_[block]) continue;
    return make_error(ErrorKind::kInternal, "reference count of a block is wrong",
                      "block " + std::to_string(block), std::to_string(counted[block]) + " holders",
                      std::to_string(references_[block]) + " references");
  }
  std::vector<bool> is_listed(references_.size(), false);
  for (const BlockId block : free_) {
    const auto index = static_cast<size_t>(block);
    if (references_[index] != 0 || is_listed[index]) {
      return make_error(ErrorKind::kInternal, "the free list names a block in use or twice",
                        "block " + std::to_string(block));
    }
    is_listed[index] = true;
  }
  int32_t cached_alone = 0;
  for (size_t block = 0; block < counted.size(); ++block) {
    cached_alone += is_cached_[block] != 0 && references_[block] == 1 ? 1 : 0;
    if (references_[block] != 0 || is_listed[block]) continue;
    return make_error(ErrorKind::kInternal, "a block without references is not in the free list",
                      "block " + std::to_string(block));
  }
  if (cached_alone != num_cached_alone_) {
    return make_error(ErrorKind::kInternal,
                      "the kept count of blocks that only the prefix cache holds is wrong", "",
                      std::to_string(cached_alone), std::to_string(num_cached_alone_));
  }
  return ok_status();
}

void BlockPool::shuffle_free_list(uint64_t seed) {
  // Fisher-Yates over splitmix64 (Steele, Lea and Flood 2014): the same order on every standard library.
  auto next = [&seed] {
    seed += 0x9E3779B97F4A7C15u;
    uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  };
  for (size_t i = free_.size(); i > 1; --i) std::swap(free_[i - 1], free_[next() % i]);
}

}  // namespace mlxcel
