#include "backend/common/kv_chunk_shape.h"

#include "base/checked.h"
#include "base/error.h"

namespace mlxcel {

namespace {

constexpr int64_t kAlignment = 64;  // a cache line, and the widest vector register
constexpr int32_t kQ8Group = 32;

int32_t element_bytes(KvType type) {
  switch (type) {
    case KvType::kF32:
      return 4;
    case KvType::kF16:
    case KvType::kBF16:
      return 2;
    case KvType::kQ8_0:
      return 1;
  }
  return 0;
}

// Elements, then (q8_0) one f16 scale per 32 of them, in the same order. Returns where the next part begins.
int64_t place(KvType type, int32_t dim, int32_t chunk_rows, bool dim_major, int64_t offset,
              KvPlanes& elements, KvPlanes& scales) {
  auto planes = [&](int32_t count, int32_t bytes) {
    const KvPlanes made = dim_major ? KvPlanes{offset, count, bytes} : KvPlanes{offset, 1, count * bytes};
    offset += made.bytes(chunk_rows);
    return made;
  };
  elements = planes(dim, element_bytes(type));
  if (type == KvType::kQ8_0) scales = planes(dim / kQ8Group, 2);
  return round_up(offset, kAlignment);
}

}  // namespace

KvChunkShape::KvChunkShape(const KvLayout& layout, int32_t chunk_rows, bool keys_dim_major)
    : chunk_rows_(chunk_rows) {
  MLXCEL_CHECK(chunk_rows >= 1);
  for (const LayerKvLayout& layer : layout.layers) {
    first_head_.push_back(heads_.size());
    for (int i = 0; i < layer.num_kv_heads; ++i) {
      Head head;
      chunk_bytes_ = place(layout.key_type, layer.key_dim, chunk_rows, keys_dim_major, chunk_bytes_,
                           head.keys, head.key_scales);
      chunk_bytes_ = place(layout.value_type, layer.value_dim, chunk_rows, false, chunk_bytes_, head.values,
                           head.value_scales);
      heads_.push_back(head);
    }
  }
}

}  // namespace mlxcel
