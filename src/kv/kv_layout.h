// What a model needs to remember per layer, without saying where the bytes are. Derived from a ModelSpec;
// read by storages (backend/), by the accounting in kv/ and by the memory budget.
//
// Owner: a value. Threads: free to read.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace mlxcel {

enum class KvType { kF32, kF16, kBF16, kQ8_0 };
std::string_view kv_type_name(KvType type);
std::optional<KvType> parse_kv_type(std::string_view name);
// Bytes of `elements` values of one row and head (q8_0: 34 bytes per 32 values).
int64_t kv_row_bytes(KvType type, int64_t elements);

enum class KvStorageKind { kDense, kPaged };

struct LayerKvLayout {
  int num_kv_heads = 0;
  int key_dim = 0, value_dim = 0;     // per head
  std::optional<int> sliding_window;  // rows visible including the row itself
  int64_t state_bytes = 0;            // recurrent and convolution state per sequence; 0: none
};

struct KvLayout {
  std::vector<LayerKvLayout> layers;
  KvType key_type = KvType::kF16, value_type = KvType::kF16;

  // False when any layer keeps state that cannot be wound back.
  bool can_trim() const;
  int64_t bytes_per_row() const;  // of all layers together
  int64_t state_bytes_per_sequence() const;
};

}  // namespace mlxcel
