// What the scheduler may see and do of the engine between two steps. The engine owns all KV state
// (SequenceCache, BlockPool, PrefixCache) and implements this; the scheduler only counts.
//
// "Blocks" are whatever the storage hands out: blocks of the pool when paged; when dense, slots (block_size:
// the rows of a slot; blocks_needed: 1 for a sequence without a slot, else 0).
//
// Owner: the engine. Threads: the engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/engine.h"

namespace mlxcel {

struct BlockCounts {
  int64_t free = 0;
  int64_t evictable = 0;  // of the prefix cache, given up on demand; exactly what could be freed now
  int64_t total = 0;
  int64_t block_size = 1;
  bool is_dense = false;  // a block is a slot: it holds all rows of one sequence, which never needs another
  int64_t available() const { return free + evictable; }
};

class EngineControl {
 public:
  virtual ~EngineControl() = default;

  virtual int64_t context_length() const = 0;
  virtual BlockCounts blocks() const = 0;
  // Rows a sequence may reach. ENSURES: the engine ends a sequence (kContext) no later than with num_tokens
  // == rows_max.
  int64_t rows_max() const {
    const BlockCounts counts = blocks();
    return std::min(context_length(), counts.is_dense ? counts.block_size : counts.total * counts.block_size);
  }

  // 0 <= num_computed < num_tokens between steps, for every sequence that has not ended.
  virtual int64_t num_tokens(SequenceId id) const = 0;
  virtual int64_t num_computed(SequenceId id) const = 0;
  // Blocks that appending num_rows rows takes, the copy of a shared partial tail included. Grows with
  // num_rows.
  virtual int64_t blocks_needed(SequenceId id, int64_t num_rows) const = 0;

  // Adopts the longest cached prefix (at most num_tokens - 1 rows), counting and holding it in one moment;
  // num_computed becomes the result. REQUIRES: num_computed == 0. ENSURES: when no other sequence holds rows,
  // all remaining rows of this one can be appended: a partial tail whose copy would not fit is not adopted. A
  // sequence that wants the logits of its prompt adopts nothing.
  virtual int64_t admit(SequenceId id) = 0;
  // Gives up the rows, to the prefix cache; num_computed becomes 0, the tokens stay. Also undoes an admit().
  virtual void preempt(SequenceId id) = 0;
  // The sequence has ended, for whatever reason: gives up its rows, to the prefix cache where they are true,
  // and forgets it. The id is not used again.
  virtual void release(SequenceId id) = 0;
};

}  // namespace mlxcel
