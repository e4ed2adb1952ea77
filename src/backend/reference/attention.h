// Attention of the scalar oracle over host KV rows: one query head of one token at a time, in the blocks and
// splits of docs/numerics.md.
//
// Owner: borrows storage and view for one call. Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "backend/common/host_kv_storage.h"
#include "model/model_spec.h"

namespace mlxcel::reference {

// What one query head attends to.
struct AttentionQuery {
  const HostKvStorage* storage = nullptr;
  const KvView* view = nullptr;
  int layer = 0, kv_head = 0;
  int64_t position = 0;
  float sink = 0.0f;  // only when the spec has sinks
};

// out [value_head_dim], query [head_dim].
void attend(const AttentionSpec& spec, const AttentionQuery& where, std::span<const float> query,
            std::span<float> out);

}  // namespace mlxcel::reference
