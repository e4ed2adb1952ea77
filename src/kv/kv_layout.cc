#include "kv/kv_layout.h"

#include "base/error.h"

namespace mlxcel {

namespace {
// ggml's q8_0: 32 int8 codes and one f16 scale.
constexpr int64_t kQ8GroupElements = 32;
constexpr int64_t kQ8GroupBytes = 34;
}  // namespace

std::string_view kv_type_name(KvType type) {
  switch (type) {
    case KvType::kF32:
      return "f32";
    case KvType::kF16:
      return "f16";
    case KvType::kBF16:
      return "bf16";
    case KvType::kQ8_0:
      return "q8_0";
  }
  return "unknown";
}

std::optional<KvType> parse_kv_type(std::string_view name) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    if (kv_type_name(type) == name) return type;
  }
  return std::nullopt;
}

int64_t kv_row_bytes(KvType type, int64_t elements) {
  MLXCEL_CHECK(elements >= 0);
  switch (type) {
    case KvType::kF32:
      return elements * 4;
    case KvType::kF16:
    case KvType::kBF16:
      return elements * 2;
    case KvType::kQ8_0:
      MLXCEL_CHECK_MSG(elements % kQ8GroupElements == 0, "q8_0 rows come in groups of 32 elements");
      return elements / kQ8GroupElements * kQ8GroupBytes;
  }
  return 0;
}

bool KvLayout::can_trim() const { return state_bytes_per_sequence() == 0; }

int64_t KvLayout::bytes_per_row() const {
  int64_t total = 0;
  for (const LayerKvLayout& layer : layers) {
    total += int64_t{layer.num_kv_heads} *
             (kv_row_bytes(key_type, layer.key_dim) + kv_row_bytes(value_type, layer.value_dim));
  }
  return total;
}

int64_t KvLayout::state_bytes_per_sequence() const {
  int64_t total = 0;
  for (const LayerKvLayout& layer : layers) total += layer.state_bytes;
  return total;
}

}  // namespace mlxcel
