// Counting of fixed-size KV blocks: which are free, how many hold each other one. No bytes here.
//
// Owner: the engine. Threads: the engine thread only, no locks.
// Invariants: free + in use == num_blocks; num_cached_alone() is kept, never counted anew; a reference is
// held by each block-table entry and each prefix-cache entry; retaining a free block or releasing below zero
// aborts. The free list is deterministic (last released, first taken).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "kv/kv_view.h"

namespace mlxcel {

class BlockPool {
 public:
  BlockPool(int32_t num_blocks, int32_t block_size);
  int32_t num_blocks() const { return static_cast<int32_t>(references_.size()); }
  int32_t block_size() const { return block_size_; }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_in_use() const { return num_blocks() - num_free(); }
  int32_t num_shared() const;  // blocks with two references or more
  int32_t references(BlockId block) const;
  // Takes a free block with one reference; nullopt when none is free.
  std::optional<BlockId> take();
  void retain(BlockId block);   // REQUIRES: references(block) >= 1
  void release(BlockId block);  // REQUIRES: references(block) >= 1
  // The prefix cache's own mark: one of the block's references is an entry's. What nothing else holds
  // could be given up. REQUIRES of mark: references >= 1 and not marked; of unmark: marked.
  void mark_cached(BlockId block);
  void unmark_cached(BlockId block);
  int32_t num_cached_alone() const { return num_cached_alone_; }  // marked, with one reference
  // Recomputes the counts from all holders' tables and compares. Error text says the first difference.
  Status check_integrity(std::span<const std::span<const BlockId>> holders) const;
  // Tests: hands blocks out in a shuffled order, so that nothing depends on their numbers.
  void shuffle_free_list(uint64_t seed);

 private:
  int32_t block_size_;
  std::vector<int32_t> references_;
  std::vector<uint8_t> is_cached_;
  int32_t num_cached_alone_ = 0;
  std::vector<BlockId> free_;
};

}  // namespace mlxcel
