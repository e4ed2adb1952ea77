// Accounting of a layer that keeps only its sliding window: which rows it still has, and which trims it must
// refuse because the next token would need a row that is gone.
//
// The window counts the token itself: the token at position p sees rows [p - window + 1, p]. Storages that
// keep every row (HostKvStorage) do not need this; one that rotates does.
//
// Owner: the sequence. Threads: the engine thread only.
// Invariants: rows [oldest_kept(), length()) are kept; at most `window` of them after an append.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/error.h"

namespace mlxcel {

class WindowCache {
 public:
  explicit WindowCache(int64_t window) : window_(window) { MLXCEL_CHECK(window >= 1); }

  int64_t length() const { return length_; }
  int64_t oldest_kept() const { return oldest_; }
  int64_t rows_kept() const { return length_ - oldest_; }
  // First row before its own that the next token attends to; == length() when there is none.
  int64_t first_visible_to_next() const { return first_needed(length_); }

  void append(int64_t num_rows) {
    MLXCEL_CHECK(num_rows >= 0);
    length_ += num_rows;
    oldest_ = std::max(oldest_, length_ - window_);
  }
  // False when a row that the next token would need was dropped. More than length() counts as length().
  bool can_trim(int64_t num_rows) const {
    MLXCEL_CHECK(num_rows >= 0);
    const int64_t remaining = length_ - std::min(num_rows, length_);
    return num_rows == 0 || first_needed(remaining) >= oldest_;
  }
  // Drops min(num_rows, length()) newest rows and returns how many; 0 with nothing changed unless can_trim().
  int64_t trim(int64_t num_rows) {
    if (!can_trim(num_rows)) return 0;
    const int64_t dropped = std::min(num_rows, length_);
    length_ -= dropped;
    return dropped;
  }

 private:
  int64_t first_needed(int64_t position) const { return std::max<int64_t>(0, position - window_ + 1); }

  int64_t window_;
  int64_t length_ = 0, oldest_ = 0;
};

}  // namespace mlxcel
