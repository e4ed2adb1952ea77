// Where the parts of one chunk of KV rows lie (see host_kv_storage.h for the picture). Only arithmetic, all
// of it in 64 bits and widened before multiplying, so that a test can ask for addresses far beyond any memory
// it has.
//
// Owner: a value inside HostKvStorage. Threads: free to read.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/kv_layout.h"

namespace mlxcel {

// Equal planes one after the other, each with one stretch of bytes per row: a row's keys in kRowMajor are one
// plane with dim elements per row, in kDimMajor dim planes with one element per row.
struct KvPlanes {
  int64_t offset = 0;  // of the first plane, from the chunk's first byte
  int32_t num_planes = 0;
  int32_t row_bytes = 0;  // of one row inside one plane

  int64_t plane_bytes(int32_t chunk_rows) const { return int64_t{chunk_rows} * row_bytes; }
  int64_t bytes(int32_t chunk_rows) const { return num_planes * plane_bytes(chunk_rows); }
  int64_t row_offset(int32_t chunk_rows, int32_t plane, int32_t row) const {
    return offset + plane * plane_bytes(chunk_rows) + int64_t{row} * row_bytes;
  }
};

class KvChunkShape {
 public:
  // Part `index` of one layer and kv head. Scales exist for q8_0 only (num_planes 0 otherwise).
  struct Head {
    KvPlanes keys, key_scales, values, value_scales;
  };

  // REQUIRES: chunk_rows >= 1; q8_0 dims are multiples of 32; the chunk's bytes fit 62 bits.
  KvChunkShape(const KvLayout& layout, int32_t chunk_rows, bool keys_dim_major);
  KvChunkShape() = default;

  int32_t chunk_rows() const { return chunk_rows_; }
  int64_t chunk_bytes() const { return chunk_bytes_; }  // a multiple of 64
  const Head& head(int layer, int kv_head) const {
    return heads_[first_head_[static_cast<size_t>(layer)] + static_cast<size_t>(kv_head)];
  }
  const std::vector<Head>& heads() const { return heads_; }
  // First byte of a chunk in a slab of chunks.
  int64_t slab_offset(int64_t chunk) const { return chunk * chunk_bytes_; }

 private:
  int32_t chunk_rows_ = 0;
  int64_t chunk_bytes_ = 0;
  std::vector<size_t> first_head_;  // [num_layers]
  std::vector<Head> heads_;
};

}  // namespace mlxcel
