// Random scripts of append, trim, fork, adopt, front eviction and release against a plain list of rows: the
// accounting of SequenceCache and BlockPool together with the bytes of HostKvStorage. A failure names the
// seed.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backend/common/host_kv_storage.h"
#include "base/checked.h"
#include "kv/block_pool.h"
#include "kv/sequence_cache.h"

namespace mlxcel {
namespace {

struct Config {
  KvStorageKind kind = KvStorageKind::kPaged;
  int32_t block_size = 16;
  HostKvStorage::KeyLayout key_layout = HostKvStorage::KeyLayout::kRowMajor;
  KvType type = KvType::kF16;
};

// What the sequence should hold: one id per row ever written and not trimmed.
struct Twin {
  SequenceCache cache;
  std::vector<int64_t> ids;
  int64_t first_visible = 0, num_pinned = 0;
  int64_t keep = 0;  // of front evictions; fixed per sequence

  bool is_visible(int64_t position) const { return position < num_pinned || position >= first_visible; }
};

class Script {
 public:
  Script(const Config& config, uint64_t seed) : config_(config), random_(seed) {
    layout_.key_type = layout_.value_type = config.type;
    layout_.layers.push_back(
        {.num_kv_heads = 2, .key_dim = 4, .value_dim = 2, .sliding_window = std::nullopt});
    layout_.layers.push_back(
        {.num_kv_heads = 1, .key_dim = 3, .value_dim = 5, .sliding_window = std::nullopt});
    KvBudget budget;
    budget.block_size = config.block_size;
    budget.num_blocks = static_cast<int32_t>(4 + 240 / config.block_size);
    budget.num_slots = 4;
    budget.max_rows_per_slot = 150;
    storage_ = HostKvStorage::create(config.kind, layout_, budget, config.key_layout).value();
    if (config.kind == KvStorageKind::kPaged) {
      pool_.emplace(budget.num_blocks, budget.block_size);
      pool_->shuffle_free_list(seed);
    }
    storage_->poison_unused({});
  }

  void run(int num_operations) {
    for (int i = 0; i < num_operations && !testing::Test::HasFailure(); ++i) {
      step();
      check_accounting();
      if (pick(4) == 0) poison();
    }
    for (const Twin& twin : twins_) check_rows(twin);
    twins_.clear();
    if (pool_) {
      EXPECT_EQ(pool_->num_free(), pool_->num_blocks());
    }
  }

 private:
  int64_t pick(int64_t below) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(below)); }

  void step() {
    const int64_t operation = pick(100);
    if (twins_.empty() || operation < 8) return create();
    Twin& twin = twins_[static_cast<size_t>(pick(static_cast<int64_t>(twins_.size())))];
    if (operation < 45) return append(twin, pick(3) == 0 ? 1 : pick(40));
    if (operation < 70) return trim(twin, pick(3) == 0 ? pick(4) : pick(twin.cache.length() + 4));
    if (operation < 78) return fork(twin);
    if (operation < 82) return adopt(twin);
    if (operation < 88) return append_together();
    if (operation < 93) return trim_front(twin, pick(twin.cache.length() + 2));
    twins_.erase(twins_.begin() + (&twin - twins_.data()));
  }

  void create() {
    if (config_.kind == KvStorageKind::kPaged) {
      twins_.push_back({SequenceCache::paged(*pool_, layout_), {}, 0, 0, pick(2) * pick(20)});
      return;
    }
    Result<SequenceCache> made = SequenceCache::dense(*storage_->dense_slots(), layout_);
    ASSERT_EQ(made.ok(), twins_.size() < 4);
    if (made.ok()) twins_.push_back({std::move(made).value(), {}, 0, 0, pick(2) * pick(20)});
  }

  void append(Twin& twin, int64_t num_rows) {
    const int64_t before = twin.cache.length();
    Result<AppendPlan> plan = twin.cache.plan_append(num_rows);
    EXPECT_EQ(twin.cache.length(), before);
    if (!plan.ok()) {
      EXPECT_EQ(plan.error().kind, ErrorKind::kResourceExhausted);
      return check_rows(twin);
    }
    commit(twin, std::move(plan).value());
  }

  void commit(Twin& twin, AppendPlan plan) {
    const int64_t num_rows = plan.num_rows();
    storage_->copy_blocks(twin.cache.commit_append(std::move(plan)));
    for (int64_t i = 0; i < num_rows; ++i) {
      twin.ids.push_back(next_id_);
      write(twin.cache.view(), static_cast<int64_t>(twin.ids.size()) - 1, next_id_++);
    }
    check_rows(twin);
  }

  // As a batch does it: all plans first, then all commits.
  void append_together() {
    std::vector<std::optional<AppendPlan>> plans;
    for (const Twin& twin : twins_) {
      Result<AppendPlan> plan = twin.cache.plan_append(1 + pick(5));
      plans.emplace_back();
      if (plan.ok()) plans.back() = std::move(plan).value();
    }
    for (size_t i = 0; i < twins_.size(); ++i) {
      if (plans[i]) commit(twins_[i], std::move(*plans[i]));
    }
    for (const Twin& twin : twins_) check_rows(twin);
  }

  void trim(Twin& twin, int64_t num_rows) {
    const int64_t expected = std::min(num_rows, twin.cache.length() - twin.first_visible);
    EXPECT_EQ(twin.cache.trim(num_rows), expected);
    twin.ids.resize(twin.ids.size() - static_cast<size_t>(expected));
    check_rows(twin);
  }

  void fork(Twin& twin) {
    Result<SequenceCache> copy = twin.cache.fork();
    if (!copy.ok()) {
      EXPECT_EQ(copy.error().kind, ErrorKind::kResourceExhausted);
      return;
    }
    twins_.push_back({std::move(copy).value(), twin.ids, twin.first_visible, twin.num_pinned, twin.keep});
    check_rows(twins_.back());
  }

  void adopt(Twin& twin) {
    if (!pool_ || twin.first_visible > 0) return;
    const int64_t num_rows = pick(twin.cache.length() + 1);
    const auto count = static_cast<size_t>(ceil_div(num_rows, config_.block_size));
    SequenceCache made = SequenceCache::adopt(*pool_, layout_, twin.cache.blocks().first(count), num_rows);
    std::vector<int64_t> ids(twin.ids.begin(), twin.ids.begin() + num_rows);
    twins_.push_back({std::move(made), std::move(ids), 0, 0, 0});
    check_rows(twins_.back());
  }

  void trim_front(Twin& twin, int64_t num_rows) {
    const int64_t oldest = std::max(twin.first_visible, twin.keep);
    const int64_t expected = std::max<int64_t>(0, std::min(num_rows, twin.cache.length() - oldest));
    EXPECT_EQ(twin.cache.trim_front(num_rows, twin.keep).value(), expected);
    if (expected > 0) {
      twin.first_visible = oldest + expected;
      twin.num_pinned = twin.keep;
    }
    check_rows(twin);
  }

  static float element(int64_t id, int layer, bool value, int64_t index) {
    return static_cast<float>((id * 7 + layer * 101 + (value ? 53 : 0) + index * 29) % 251) -
           125.0f;  // exact in bf16
  }
  std::vector<float> row_of(int64_t id, int layer, bool value) const {
    const LayerKvLayout& sizes = layout_.layers[static_cast<size_t>(layer)];
    std::vector<float> row(
        static_cast<size_t>(sizes.num_kv_heads * (value ? sizes.value_dim : sizes.key_dim)));
    for (size_t i = 0; i < row.size(); ++i) row[i] = element(id, layer, value, static_cast<int64_t>(i));
    return row;
  }
  void write(const KvView& view, int64_t position, int64_t id) {
    for (int layer = 0; layer < 2; ++layer) {
      storage_->write_row(view, layer, position, row_of(id, layer, false).data(),
                          row_of(id, layer, true).data());
    }
  }

  void check_rows(const Twin& twin) const {
    const KvView view = twin.cache.view();
    ASSERT_EQ(view.length, static_cast<int64_t>(twin.ids.size()));
    for (int64_t p = 0; p < view.length; ++p) {
      if (!twin.is_visible(p)) continue;
      const int64_t id = twin.ids[static_cast<size_t>(p)];
      for (int layer = 0; layer < 2; ++layer) {
        ASSERT_EQ(storage_->read_row(view, layer, false, p), row_of(id, layer, false)) << "position " << p;
        ASSERT_EQ(storage_->read_row(view, layer, true, p), row_of(id, layer, true)) << "position " << p;
      }
    }
  }

  void check_accounting() {
    std::vector<std::span<const BlockId>> holders;
    for (const Twin& twin : twins_) {
      const SequenceCache& cache = twin.cache;
      EXPECT_EQ(cache.length(), static_cast<int64_t>(twin.ids.size()));
      EXPECT_EQ(cache.first_visible(), twin.first_visible);
      EXPECT_EQ(cache.view().num_pinned, twin.num_pinned);
      if (!pool_) continue;
      holders.push_back(cache.blocks());
      const int64_t size = config_.block_size;
      const int64_t pinned_blocks = std::min(ceil_div(twin.num_pinned, size), twin.first_visible / size);
      EXPECT_EQ(cache.blocks_held(),
                ceil_div(cache.length(), size) - twin.first_visible / size + pinned_blocks);
    }
    if (!pool_) return;
    const Status status = pool_->check_integrity(holders);
    EXPECT_TRUE(status.ok()) << status.error().one_line();
  }

  void poison() {
    std::vector<KvView> live;
    for (const Twin& twin : twins_) live.push_back(twin.cache.view());
    storage_->poison_unused(live);
    for (const Twin& twin : twins_) check_rows(twin);
  }

  Config config_;
  std::mt19937_64 random_;
  KvLayout layout_;
  std::optional<BlockPool> pool_;
  std::unique_ptr<HostKvStorage> storage_;
  std::vector<Twin> twins_;
  int64_t next_id_ = 1;
};

void run_scripts(const Config& config, uint64_t first_seed, int num_scripts) {
  for (uint64_t seed = first_seed; seed < first_seed + static_cast<uint64_t>(num_scripts); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", block size " + std::to_string(config.block_size));
    Script(config, seed).run(40);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(KvProperty, PagedEqualsAPlainList) {
  uint64_t seed = 0;
  for (const auto key_layout : {HostKvStorage::KeyLayout::kRowMajor, HostKvStorage::KeyLayout::kDimMajor}) {
    for (const int32_t block_size : {1, 3, 8, 16, 32, 64, 256}) {
      for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
        run_scripts({KvStorageKind::kPaged, block_size, key_layout, type}, seed += 1000, 50);
      }
    }
  }
}

TEST(KvProperty, DenseEqualsAPlainList) {
  uint64_t seed = 500000;
  for (const auto key_layout : {HostKvStorage::KeyLayout::kRowMajor, HostKvStorage::KeyLayout::kDimMajor}) {
    for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
      run_scripts({KvStorageKind::kDense, 16, key_layout, type}, seed += 1000, 100);
    }
  }
}

}  // namespace
}  // namespace mlxcel
