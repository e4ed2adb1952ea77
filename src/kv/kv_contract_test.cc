// The cases of kv_contract.json: what every cache must do, whatever its kind.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/json.h"
#include "kv/layered_cache.h"
#include "kv/row_store_for_tests.h"
#include "kv/sequence_cache.h"
#include "kv/window_cache.h"

namespace mlxcel {
namespace {

using Ids = std::vector<int64_t>;
constexpr int64_t kFirstPaddingId = 900000;
constexpr int64_t kDenseRows = 4096;

int64_t integer(const JsonValue& object, std::string_view key, int64_t fallback = 0) {
  const JsonValue* value = object.find_set(key);
  return value == nullptr ? fallback : value->as_int();
}
std::string text(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find_set(key);
  return value == nullptr ? std::string() : value->as_string();
}
Ids expand_runs(const JsonValue& runs) {
  Ids ids;
  for (const JsonValue& run : runs.as_array()) {
    for (int64_t id = run.as_array()[0].as_int(); id <= run.as_array()[1].as_int(); ++id) ids.push_back(id);
  }
  return ids;
}
Ids new_ids(const JsonValue& step) {
  const int64_t rows = integer(step, "rows"), padding = integer(step, "padding");
  Ids ids;
  for (int64_t i = 0; i < rows - padding; ++i) ids.push_back(integer(step, "first_id") + i);
  for (int64_t i = 0; i < padding; ++i) ids.push_back(kFirstPaddingId + i);
  return ids;
}

// Paged and dense: named sequences over one storage.
class SequenceCase {
 public:
  explicit SequenceCase(const JsonValue& cache) : store_(RowStoreForTests::dense(8, kDenseRows)) {
    layout_.layers.resize(1);
    if (text(cache, "kind") != "paged") return;
    const auto blocks = static_cast<int32_t>(integer(cache, "pool_blocks"));
    const auto block_size = static_cast<int32_t>(integer(cache, "block_size"));
    store_ = RowStoreForTests::paged(blocks, block_size);
    pool_ = std::make_unique<BlockPool>(blocks, block_size);
    pool_->shuffle_free_list(3);
  }

  void run(const JsonValue& step) {
    const std::string op = text(step, "op"), name = text(step, "seq");
    if (op == "fork") {
      SequenceCache copy = sequence(name).fork().value();
      sequences_.emplace(text(step, "to"), std::move(copy));
    } else if (op == "release") {
      sequences_.erase(name);
    } else if (op == "append") {
      append(sequence(name), step);
    } else if (op == "trim") {
      EXPECT_EQ(sequence(name).trim(integer(step, "n")), integer(step, "returns"));
    } else if (op == "fetch") {
      fetch(sequence(name), step);
    } else {
      EXPECT_EQ(op, "create");
      sequence(name);
    }
    if (const JsonValue* then = step.find("then")) check(*then);
    check_integrity();
  }

 private:
  SequenceCache& sequence(const std::string& name) {
    const auto found = sequences_.find(name);
    if (found != sequences_.end()) return found->second;
    SequenceCache made = pool_ != nullptr ? SequenceCache::paged(*pool_, layout_)
                                          : SequenceCache::dense(store_, layout_).value();
    return sequences_.emplace(name, std::move(made)).first->second;
  }

  void append(SequenceCache& cache, const JsonValue& step) {
    const Ids ids = new_ids(step);
    const auto rows = static_cast<int64_t>(ids.size());
    Result<AppendPlan> plan = cache.plan_append(rows);
    if (step.find("refused") != nullptr) {
      ASSERT_FALSE(plan.ok());
      EXPECT_EQ(plan.error().kind, ErrorKind::kResourceExhausted);
      return;
    }
    ASSERT_TRUE(plan.ok()) << plan.error().one_line();
    store_.copy_blocks(cache.commit_append(std::move(plan).value()));
    for (int64_t i = 0; i < rows; ++i) {
      store_.row(cache.view(), cache.length() - rows + i) = ids[static_cast<size_t>(i)];
    }
  }

  void fetch(const SequenceCache& cache, const JsonValue& step) {
    const KvView view = cache.view();
    Ids found;
    for (int64_t p = 0; p < view.length; ++p) found.push_back(store_.row(view, p));
    EXPECT_EQ(view.length, integer(step, "rows"));
    EXPECT_EQ(found, expand_runs(*step.find("ids")));
  }

  void check(const JsonValue& then) {
    std::set<std::string> names, expected_names;
    for (const auto& [name, cache] : sequences_) names.insert(name);
    for (const auto& [name, state] : then.find("sequences")->as_object()) {
      expected_names.insert(name);
      const SequenceCache& cache = sequence(name);
      EXPECT_EQ(cache.length(), integer(state, "offset"));
      EXPECT_EQ(cache.view().length, integer(state, "length"));
      EXPECT_EQ(cache.blocks_held(), integer(state, "blocks_held"));
    }
    EXPECT_EQ(names, expected_names);
    const JsonValue* pool = then.find("pool");
    if (pool == nullptr) return;
    EXPECT_EQ(pool_->num_in_use(), integer(*pool, "blocks_in_use"));
    EXPECT_EQ(pool_->num_free(), integer(*pool, "blocks_free"));
    EXPECT_EQ(pool_->num_shared(), integer(*pool, "blocks_shared"));
  }

  void check_integrity() {
    if (pool_ == nullptr) return;
    std::vector<std::span<const BlockId>> holders;
    for (const auto& [name, cache] : sequences_) holders.push_back(cache.blocks());
    const Status status = pool_->check_integrity(holders);
    EXPECT_TRUE(status.ok()) << status.error().one_line();
  }

  KvLayout layout_;
  RowStoreForTests store_;
  std::unique_ptr<BlockPool> pool_;
  std::map<std::string, SequenceCache> sequences_;
};

// A window layer: the ids of all rows ever written at their positions, of which only the kept ones may be
// read.
class WindowCase {
 public:
  explicit WindowCase(const JsonValue& cache) : cache_(integer(cache, "window")) {}

  void run(const JsonValue& step) {
    if (text(step, "op") == "append") {
      const Ids ids = new_ids(step);
      cache_.append(static_cast<int64_t>(ids.size()));
      ids_.insert(ids_.end(), ids.begin(), ids.end());
    } else {
      EXPECT_EQ(cache_.trim(integer(step, "n")), integer(step, "returns"));
      ids_.resize(static_cast<size_t>(cache_.length()));
    }
    const JsonValue& then = *step.find("then");
    const JsonValue& state = *then.find("sequences")->find("A");
    EXPECT_EQ(cache_.length(), integer(state, "offset"));
    EXPECT_EQ(cache_.rows_kept(), integer(state, "rows_kept"));
    if (cache_.rows_kept() > 0) {
      EXPECT_EQ(cache_.oldest_kept(), integer(state, "oldest_position_kept", -1));
    }
    EXPECT_GE(cache_.first_visible_to_next(), cache_.oldest_kept());
    const Ids visible(ids_.begin() + cache_.first_visible_to_next(), ids_.end());
    EXPECT_EQ(visible, expand_runs(*then.find("visible")));
  }

 private:
  WindowCache cache_;
  Ids ids_;
};

class LayersCase {
 public:
  explicit LayersCase(const JsonValue& cache) : pool_(256, 16) {
    KvLayout layout;
    layout.layers.resize(1);
    std::vector<LayeredCache::Layer> layers;
    for (const JsonValue& layer : cache.find("layers")->as_array()) {
      if (text(layer, "kind") == "paged") {
        EXPECT_EQ(integer(layer, "block_size"), pool_.block_size());
        layers.emplace_back(SequenceCache::paged(pool_, layout));
      } else if (text(layer, "kind") == "rotating") {
        layers.emplace_back(WindowCache(integer(layer, "window")));
      } else {
        EXPECT_EQ(text(layer, "kind"), "recurrent");
        layers.emplace_back(RecurrentCache());
      }
    }
    cache_.emplace(std::move(layers));
  }

  void run(const JsonValue& step) {
    if (text(step, "op") == "append") {
      ASSERT_TRUE(cache_->append(integer(step, "rows")).ok());
    } else {
      EXPECT_EQ(cache_->trim(integer(step, "n")), integer(step, "returns"));
    }
    const JsonValue* then = step.find("then");
    if (then == nullptr) return;
    Ids lengths, expected;
    for (const LayeredCache::Layer& layer : cache_->layers()) {
      lengths.push_back(std::visit([](const auto& one) { return one.length(); }, layer));
    }
    for (const JsonValue& offset : then->find("layer_offsets")->as_array())
      expected.push_back(offset.as_int());
    EXPECT_EQ(lengths, expected);
  }

 private:
  BlockPool pool_;
  std::optional<LayeredCache> cache_;
};

template <typename Case>
void run_case(const JsonValue& description) {
  Case under_test(*description.find("cache"));
  size_t number = 0;
  for (const JsonValue& step : description.find("steps")->as_array()) {
    SCOPED_TRACE("step " + std::to_string(number++) + ": " + text(step, "op"));
    under_test.run(step);
  }
}

TEST(KvContract, AllCases) {
  const Result<JsonValue> file = parse_json_file(MLXCEL_SOURCE_DIR "/tests/data/models/kv_contract.json");
  ASSERT_TRUE(file.ok()) << file.error().one_line();
  std::map<std::string, int> ran;
  for (const JsonValue& description : file->find("cases")->as_array()) {
    SCOPED_TRACE(text(description, "id"));
    const std::string kind = text(*description.find("cache"), "kind");
    ++ran[kind];
    if (kind == "paged" || kind == "dense") {
      run_case<SequenceCase>(description);
    } else if (kind == "rotating") {
      run_case<WindowCase>(description);
    } else {
      ASSERT_EQ(kind, "layers");
      run_case<LayersCase>(description);
    }
  }
  EXPECT_EQ(ran["paged"], 45);
  EXPECT_EQ(ran["dense"], 3);
  EXPECT_EQ(ran["rotating"], 8);
  EXPECT_EQ(ran["layers"], 5);
}

TEST(LayeredCache, AnAppendThatOneLayerRefusesChangesNone) {
  BlockPool large(8, 16), small(1, 16);
  KvLayout layout;
  layout.layers.resize(1);
  std::vector<LayeredCache::Layer> layers;
  layers.emplace_back(SequenceCache::paged(large, layout));
  layers.emplace_back(WindowCache(8));
  layers.emplace_back(SequenceCache::paged(small, layout));
  LayeredCache cache(std::move(layers));
  ASSERT_TRUE(cache.append(10).ok());
  EXPECT_FALSE(cache.append(10).ok());
  for (const LayeredCache::Layer& layer : cache.layers()) {
    EXPECT_EQ(std::visit([](const auto& one) { return one.length(); }, layer), 10);
  }
  EXPECT_EQ(large.num_in_use(), 1);
  EXPECT_EQ(cache.trim(1), 1);
  EXPECT_EQ(cache.trim(5), 0);  // the window layer dropped rows that this would need
  EXPECT_EQ(cache.length(), 9);
}

}  // namespace
}  // namespace mlxcel
