#include "backend/common/host_kv_storage.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "backend/common/kv_chunk_shape.h"
#include "tensor/dtype.h"

namespace mlxcel {
namespace {

using KeyLayout = HostKvStorage::KeyLayout;

KvLayout small_layout(KvType type) {
  KvLayout layout;
  layout.key_type = layout.value_type = type;
  layout.layers.push_back(
      {.num_kv_heads = 2, .key_dim = 64, .value_dim = 32, .sliding_window = std::nullopt});
  layout.layers.push_back(
      {.num_kv_heads = 1, .key_dim = 32, .value_dim = 96, .sliding_window = std::nullopt});
  return layout;
}

std::unique_ptr<HostKvStorage> make_storage(KvStorageKind kind, const KvLayout& layout, KeyLayout keys,
                                            int32_t block_size = 16) {
  KvBudget budget;
  budget.block_size = block_size;
  budget.num_blocks = 12;
  budget.num_slots = 3;
  budget.max_rows_per_slot = 200;
  return HostKvStorage::create(kind, layout, budget, keys).value();
}

std::vector<float> row_values(int64_t id, int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(0.37f * static_cast<float>((id * 31 + i * 17) % 101) - 18.0f);
  }
  return values;
}

float round_f16(float x) { return f16_to_f32(f32_to_f16(x)); }
float round_bf16(float x) { return bf16_to_f32(f32_to_bf16(x)); }

// docs/numerics.md, "KV cache", written a second time.
std::vector<float> rounded(KvType type, std::vector<float> row) {
  if (type == KvType::kQ8_0) {
    for (size_t g = 0; g < row.size(); g += 32) {
      float largest = 0;
      for (size_t i = g; i < g + 32; ++i) largest = std::max(largest, std::fabs(row[i]));
      const float d = round_f16(largest / 127.0f);
      for (size_t i = g; i < g + 32; ++i) {
        const float code = d == 0 ? 0 : std::nearbyint(row[i] * (1.0f / d));
        row[i] = std::min(127.0f, std::max(-127.0f, code)) * d;
      }
    }
    return row;
  }
  for (float& x : row) x = type == KvType::kF16 ? round_f16(x) : type == KvType::kBF16 ? round_bf16(x) : x;
  return row;
}

void write_all(HostKvStorage& storage, const KvView& view, int64_t position, int64_t id) {
  for (size_t layer = 0; layer < storage.layout().layers.size(); ++layer) {
    const LayerKvLayout& sizes = storage.layout().layers[layer];
    const auto keys = row_values(id, int64_t{sizes.num_kv_heads} * sizes.key_dim);
    const auto values = row_values(id + 5000, int64_t{sizes.num_kv_heads} * sizes.value_dim);
    storage.write_row(view, static_cast<int>(layer), position, keys.data(), values.data());
  }
}
void expect_row(const HostKvStorage& storage, const KvView& view, int64_t position, int64_t id) {
  for (size_t layer = 0; layer < storage.layout().layers.size(); ++layer) {
    const LayerKvLayout& sizes = storage.layout().layers[layer];
    EXPECT_EQ(
        storage.read_row(view, static_cast<int>(layer), false, position),
        rounded(storage.layout().key_type, row_values(id, int64_t{sizes.num_kv_heads} * sizes.key_dim)));
    EXPECT_EQ(storage.read_row(view, static_cast<int>(layer), true, position),
              rounded(storage.layout().value_type,
                      row_values(id + 5000, int64_t{sizes.num_kv_heads} * sizes.value_dim)));
  }
}

TEST(HostKvStorage, EveryTypeAndLayoutReadsBackWhatWasWritten) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    for (const KeyLayout keys : {KeyLayout::kRowMajor, KeyLayout::kDimMajor}) {
      const auto paged = make_storage(KvStorageKind::kPaged, small_layout(type), keys);
      const std::array<BlockId, 3> blocks{7, 0, 11};
      const KvView view{.blocks = blocks, .block_size = 16, .dense_slot = -1, .length = 40};
      for (int64_t p = 0; p < 40; ++p) write_all(*paged, view, p, p);
      for (int64_t p = 0; p < 40; ++p) expect_row(*paged, view, p, p);

      const auto dense = make_storage(KvStorageKind::kDense, small_layout(type), keys);
      const int32_t slot = dense->dense_slots()->take_slot().value();
      ASSERT_TRUE(dense->dense_slots()->reserve_rows(slot, 130).ok());
      const KvView slot_view{.blocks = {}, .block_size = 0, .dense_slot = slot, .length = 130};
      for (int64_t p = 0; p < 130; ++p) write_all(*dense, slot_view, p, p);
      for (int64_t p = 0; p < 130; ++p) expect_row(*dense, slot_view, p, p);
    }
  }
}

TEST(HostKvStorage, PointersFollowTheDocumentedOrder) {
  for (const KeyLayout keys : {KeyLayout::kRowMajor, KeyLayout::kDimMajor}) {
    const auto storage = make_storage(KvStorageKind::kPaged, small_layout(KvType::kF32), keys);
    const std::array<BlockId, 2> blocks{3, 5};
    const KvView view{.blocks = blocks, .block_size = 16, .dense_slot = -1, .length = 20};
    write_all(*storage, view, 18, 1);  // row 2 of block 5
    const auto row = row_values(1, 128), values = row_values(5001, 64);
    for (int head = 0; head < 2; ++head) {
      for (int d = 0; d < 64; ++d) {
        const int64_t index = keys == KeyLayout::kRowMajor ? 2 * 64 + d : int64_t{d} * 16 + 2;
        float found = 0;
        std::memcpy(&found, storage->keys(view, 0, head, 1) + index * 4, 4);
        EXPECT_EQ(found, row[static_cast<size_t>(head * 64 + d)]);
      }
      float found = 0;
      std::memcpy(&found, storage->values(view, 0, head, 1) + (2 * 32 + 31) * 4, 4);
      EXPECT_EQ(found, values[static_cast<size_t>(head * 32 + 31)]);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(storage->keys(view, 0, head, 1)) % 64, 0u);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(storage->values(view, 1, 0, 0)) % 64, 0u);
    }
  }
}

TEST(HostKvStorage, Q8ScalesFollowTheCodes) {
  for (const KeyLayout keys : {KeyLayout::kRowMajor, KeyLayout::kDimMajor}) {
    const auto storage = make_storage(KvStorageKind::kPaged, small_layout(KvType::kQ8_0), keys);
    const std::array<BlockId, 1> blocks{2};
    const KvView view{.blocks = blocks, .block_size = 16, .dense_slot = -1, .length = 16};
    write_all(*storage, view, 9, 4);
    const auto row = row_values(4, 128);
    for (int group = 0; group < 2; ++group) {
      float largest = 0;
      for (int i = 0; i < 32; ++i)
        largest = std::max(largest, std::fabs(row[static_cast<size_t>(64 + group * 32 + i)]));
      const int64_t index = keys == KeyLayout::kRowMajor ? 9 * 2 + group : group * 16 + 9;
      uint16_t scale = 0;
      std::memcpy(&scale, storage->keys(view, 0, 1, 0) + 64 * 16 + index * 2, 2);
      EXPECT_EQ(scale, f32_to_f16(largest / 127.0f));
    }
  }
}

TEST(HostKvStorage, Q8OfNonFiniteRowsIsNan) {
  KvLayout layout;
  layout.key_type = layout.value_type = KvType::kQ8_0;
  layout.layers.push_back(
      {.num_kv_heads = 1, .key_dim = 64, .value_dim = 32, .sliding_window = std::nullopt});
  const auto storage = make_storage(KvStorageKind::kPaged, layout, KeyLayout::kDimMajor);
  const std::array<BlockId, 1> blocks{2};
  const KvView view{.blocks = blocks, .block_size = 16, .dense_slot = -1, .length = 3};
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3e38f}) {
    std::vector<float> keys(64, 1.0f), values(32, 0.0f);
    keys[5] = bad;
    storage->write_row(view, 0, 1, keys.data(), values.data());
    const auto found = storage->read_row(view, 0, false, 1);
    for (size_t i = 0; i < 32; ++i) EXPECT_TRUE(std::isnan(found[i])) << bad << " " << i;
    for (size_t i = 32; i < 64; ++i) EXPECT_NEAR(found[i], 1.0f, 1e-3f);
    EXPECT_EQ(storage->read_row(view, 0, true, 1), std::vector<float>(32, 0.0f));
  }
}

TEST(HostKvStorage, CopyOnWriteCopiesAllLayersOfTheRows) {
  for (const KvType type : {KvType::kF16, KvType::kQ8_0}) {
    for (const KeyLayout keys : {KeyLayout::kRowMajor, KeyLayout::kDimMajor}) {
      const auto storage = make_storage(KvStorageKind::kPaged, small_layout(type), keys);
      const std::array<BlockId, 1> source{4}, target{9};
      const KvView from{.blocks = source, .block_size = 16, .dense_slot = -1, .length = 16};
      const KvView to{.blocks = target, .block_size = 16, .dense_slot = -1, .length = 16};
      for (int64_t p = 0; p < 16; ++p) {
        write_all(*storage, from, p, p);
        write_all(*storage, to, p, 100 + p);
      }
      const std::array<BlockCopy, 1> copies{BlockCopy{4, 9, 11}};
      storage->copy_blocks(copies);
      for (int64_t p = 0; p < 16; ++p) {
        expect_row(*storage, from, p, p);
        expect_row(*storage, to, p, p < 11 ? p : 100 + p);
      }
      const std::array<BlockCopy, 1> whole{BlockCopy{4, 9, 16}};
      storage->copy_blocks(whole);
      expect_row(*storage, to, 15, 15);
    }
  }
}

TEST(HostKvStorage, PoisonReachesExactlyTheDeadRows) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    for (const KeyLayout keys : {KeyLayout::kRowMajor, KeyLayout::kDimMajor}) {
      const auto storage = make_storage(KvStorageKind::kPaged, small_layout(type), keys);
      const std::array<BlockId, 3> blocks{7, 0, 11};
      KvView view{.blocks = blocks, .block_size = 16, .dense_slot = -1, .length = 48};
      for (int64_t p = 0; p < 48; ++p) write_all(*storage, view, p, p);
      view.length = 37;
      view.first_visible = 20;
      view.num_pinned = 3;
      storage->poison_unused(std::array<KvView, 1>{view});
      view.length = 48;
      for (int64_t p = 0; p < 48; ++p) {
        if (p < 3 || (p >= 20 && p < 37)) {
          expect_row(*storage, view, p, p);
          continue;
        }
        for (int layer = 0; layer < 2; ++layer) {
          for (const float x : storage->read_row(view, layer, false, p)) EXPECT_TRUE(std::isnan(x));
          for (const float x : storage->read_row(view, layer, true, p)) EXPECT_TRUE(std::isnan(x));
        }
      }
    }
  }
}

TEST(HostKvStorage, DenseSlotsGrowWithoutMovingAndCountTheirBytes) {
  const auto storage = make_storage(KvStorageKind::kDense, small_layout(KvType::kF16), KeyLayout::kDimMajor);
  DenseSlots& slots = *storage->dense_slots();
  EXPECT_EQ(storage->bytes(), 0);
  const int32_t a = slots.take_slot().value();
  ASSERT_TRUE(slots.reserve_rows(a, 1).ok());
  const int64_t chunk = storage->bytes();
  EXPECT_EQ(chunk, HostKvStorage::kDenseChunkRows * storage->layout().bytes_per_row());
  const KvView view{.blocks = {}, .block_size = 0, .dense_slot = a, .length = 1};
  const std::byte* first = storage->keys(view, 0, 0, 0);
  ASSERT_TRUE(slots.reserve_rows(a, 200).ok());
  EXPECT_EQ(storage->keys(view, 0, 0, 0), first);
  EXPECT_EQ(storage->bytes(), 4 * chunk);
  const Status full = slots.reserve_rows(a, 201);
  EXPECT_EQ(full.error().kind, ErrorKind::kResourceExhausted);
  EXPECT_EQ(full.error().found, "201");
  slots.release_slot(a);
  EXPECT_EQ(storage->bytes(), 0);
}

TEST(HostKvStorage, ImpossibleBudgetsAreErrors) {
  KvBudget budget;
  budget.num_blocks = std::numeric_limits<int32_t>::max();
  budget.block_size = 256;
  KvLayout layout = small_layout(KvType::kF32);
  layout.layers.resize(1);
  layout.layers[0].num_kv_heads = 128;
  auto create = [&] {
    return HostKvStorage::create(KvStorageKind::kPaged, layout, budget, KeyLayout::kRowMajor);
  };
  EXPECT_EQ(create().error().kind, ErrorKind::kOutOfMemory);
  layout.layers[0].key_dim = std::numeric_limits<int32_t>::max();  // the product leaves 64 bits
  EXPECT_FALSE(create().ok());
  layout = small_layout(KvType::kQ8_0);
  layout.layers[0].key_dim = 48;
  budget.num_blocks = 1;
  EXPECT_EQ(create().error().kind, ErrorKind::kInvalidArgument);
  layout.layers[0].key_dim = 64;
  for (const int32_t block_size : {0, -1, 257}) {
    budget.block_size = block_size;
    EXPECT_EQ(create().error().kind, ErrorKind::kInvalidArgument) << block_size;
  }
}

// 131,072 blocks of 32 rows, 8 heads, 128 dims: 2^32 elements, where 32-bit arithmetic comes back to the
// start.
TEST(KvChunkShape, AddressesBeyondFourBillionElements) {
  KvLayout layout;
  layout.layers.push_back(
      {.num_kv_heads = 8, .key_dim = 128, .value_dim = 128, .sliding_window = std::nullopt});
  for (const bool dim_major : {false, true}) {
    const KvChunkShape shape(layout, 32, dim_major);
    EXPECT_EQ(shape.chunk_bytes(), int64_t{32} * 8 * 128 * 2 * 2);
    EXPECT_EQ(shape.slab_offset(131071), int64_t{131071} * 131072);
    EXPECT_EQ(shape.slab_offset(131072), int64_t{131072} * 131072);
    EXPECT_GT(shape.slab_offset(131072), int64_t{1} << 33);
    const int64_t last = shape.slab_offset(131072) + shape.head(0, 7).values.row_offset(32, 0, 31);
    EXPECT_EQ(last, shape.slab_offset(131073) - 256);
  }
  // One plane so large that row times bytes leaves 32 bits.
  const KvPlanes planes{.offset = 64, .num_planes = 3, .row_bytes = 1 << 30};
  EXPECT_EQ(planes.row_offset(256, 2, 255), 64 + 2 * (int64_t{256} << 30) + (int64_t{255} << 30));
}

}  // namespace
}  // namespace mlxcel
