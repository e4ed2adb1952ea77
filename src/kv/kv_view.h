// What a kernel gets to see of one sequence: how long it is and where its rows are. Made by
// SequenceCache::view() for one forward pass; positions are absolute, row p of the sequence is in block p /
// block_size at p % block_size.
//
// Owner: borrows the block table; valid until the next change of the sequence. Threads: the engine thread
// makes it, kernel threads read it.
#pragma once

#include <cstdint>
#include <span>

namespace mlxcel {

using BlockId = int32_t;  // index into a storage's slabs

struct KvView {
  std::span<const BlockId>
      blocks;              // paged: block of absolute rows [i*block_size, (i+1)*block_size); empty when dense
  int32_t block_size = 0;  // 0 when dense
  int32_t dense_slot = -1;    // dense: which slot of the storage; -1 when paged
  int64_t length = 0;         // rows after this step's append, so the last new row is length - 1
  int64_t first_visible = 0;  // rows before it were dropped (front eviction)
  int64_t num_pinned = 0;     // rows [0, num_pinned) stay visible whatever first_visible says
};

struct BlockCopy {  // copy-on-write fork: all layers of `rows` rows
  BlockId from = 0, to = 0;
  int32_t rows = 0;
};

}  // namespace mlxcel
