// The caches of a model whose layers differ (full attention, sliding windows that really drop rows, recurrent
// state): all layers move together or not at all.
//
// Owner: the sequence. Threads: the engine thread only.
// Invariants: every layer has the same length; an append or a trim that one layer refuses changes no layer.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "base/error.h"
#include "kv/sequence_cache.h"
#include "kv/window_cache.h"

namespace mlxcel {

// State that only moves forward (Mamba, gated delta net, short convolution). Going back needs a snapshot,
// which is not a trim.
class RecurrentCache {
 public:
  int64_t length() const { return length_; }
  void append(int64_t num_rows) { length_ += num_rows; }
  bool can_trim(int64_t num_rows) const { return num_rows == 0; }

 private:
  int64_t length_ = 0;
};

class LayeredCache {
 public:
  using Layer = std::variant<SequenceCache, WindowCache, RecurrentCache>;

  // REQUIRES: at least one layer, all empty.
  explicit LayeredCache(std::vector<Layer> layers);
  const std::vector<Layer>& layers() const { return layers_; }
  int64_t length() const;
  // The copy-on-write forks of each layer, in the order of the layers; on an error nothing changed.
  Result<std::vector<std::vector<BlockCopy>>> append(int64_t num_rows);
  bool can_trim(int64_t num_rows) const;
  // As SequenceCache::trim: the same number of rows from every layer, or 0.
  int64_t trim(int64_t num_rows);

 private:
  std::vector<Layer> layers_;
};

}  // namespace mlxcel
