#include "kv/sequence_cache.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "kv/row_store_for_tests.h"

namespace mlxcel {
namespace {

KvLayout one_layer() {
  KvLayout layout;
  layout.layers.resize(1);
  return layout;
}

void append(SequenceCache& cache, RowStoreForTests& store, int64_t num_rows, int64_t first_id) {
  Result<AppendPlan> plan = cache.plan_append(num_rows);
  ASSERT_TRUE(plan.ok()) << plan.error().one_line();
  store.copy_blocks(cache.commit_append(std::move(plan).value()));
  for (int64_t i = 0; i < num_rows; ++i)
    store.row(cache.view(), cache.length() - num_rows + i) = first_id + i;
}

// Once a padded prefill of 64 rows was trimmed by 27 and the pooled storage ignored it: the 27 padding rows
// stayed visible and the next token was rotated at row 64.
TEST(SequenceCache, Trim27Of64Leaves37) {
  for (const int32_t block_size : {1, 3, 8, 16, 32, 64, 256}) {
    BlockPool pool(80, block_size);
    pool.shuffle_free_list(static_cast<uint64_t>(block_size));
    RowStoreForTests store = RowStoreForTests::paged(80, block_size);
    SequenceCache cache = SequenceCache::paged(pool, one_layer());
    append(cache, store, 64, 0);
    EXPECT_EQ(cache.trim(27), 27);
    EXPECT_EQ(cache.length(), 37);
    EXPECT_EQ(cache.view().length, 37);
    EXPECT_EQ(cache.blocks_held(), (37 + block_size - 1) / block_size);
    EXPECT_EQ(pool.num_in_use(), cache.blocks_held());
    append(cache, store, 1, 1000);
    EXPECT_EQ(cache.length(), 38);
    for (int64_t p = 0; p < 37; ++p) EXPECT_EQ(store.row(cache.view(), p), p);
    EXPECT_EQ(store.row(cache.view(), 37), 1000);
  }
}

TEST(SequenceCache, Trim27Of64Leaves37Dense) {
  RowStoreForTests store = RowStoreForTests::dense(1, 1024);
  SequenceCache cache = SequenceCache::dense(store, one_layer()).value();
  append(cache, store, 64, 0);
  EXPECT_EQ(cache.trim(27), 27);
  EXPECT_EQ(cache.length(), 37);
  append(cache, store, 1, 1000);
  EXPECT_EQ(store.row(cache.view(), 36), 36);
  EXPECT_EQ(store.row(cache.view(), 37), 1000);
}

TEST(SequenceCache, APlanChangesNothingAndGivesItsBlocksBack) {
  BlockPool pool(4, 16);
  SequenceCache cache = SequenceCache::paged(pool, one_layer());
  {
    const Result<AppendPlan> plan = cache.plan_append(40);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->new_blocks().size(), 3u);
    EXPECT_EQ(pool.num_free(), 1);
    EXPECT_EQ(cache.length(), 0);
    EXPECT_EQ(cache.blocks_held(), 0);
  }
  EXPECT_EQ(pool.num_free(), 4);
  AppendPlan plan = cache.plan_append(40).value();
  EXPECT_EQ(plan.new_blocks().front(), 0);  // the free list is as before the dropped plan
  plan = cache.plan_append(16).value();     // assigning over a plan drops it
  EXPECT_EQ(pool.num_free(), 3);
  cache.commit_append(std::move(plan));
  EXPECT_EQ(cache.length(), 16);
  EXPECT_EQ(pool.num_in_use(), 1);
}

TEST(SequenceCache, ARefusedAppendNamesBothNumbers) {
  BlockPool pool(2, 16);
  SequenceCache cache = SequenceCache::paged(pool, one_layer());
  const Result<AppendPlan> plan = cache.plan_append(33);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().kind, ErrorKind::kResourceExhausted);
  EXPECT_EQ(plan.error().expected, "3 free blocks");
  EXPECT_EQ(plan.error().found, "2");
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(SequenceCache, HugeAppendsAreRefusedWithoutAllocating) {
  BlockPool pool(2, 1);
  SequenceCache cache = SequenceCache::paged(pool, one_layer());
  EXPECT_FALSE(cache.plan_append(std::numeric_limits<int64_t>::max() / 4).ok());
}

TEST(SequenceCache, DestroyingAndMovingGiveBlocksBackOnce) {
  BlockPool pool(8, 4);
  RowStoreForTests store = RowStoreForTests::paged(8, 4);
  SequenceCache cache = SequenceCache::paged(pool, one_layer());
  append(cache, store, 9, 0);
  SequenceCache other = SequenceCache::paged(pool, one_layer());
  append(other, store, 5, 100);
  EXPECT_EQ(pool.num_in_use(), 5);
  other = std::move(cache);
  EXPECT_EQ(pool.num_in_use(), 3);
  EXPECT_EQ(other.length(), 9);
  EXPECT_EQ(store.row(other.view(), 8), 8);
  { const SequenceCache last = std::move(other); }
  EXPECT_EQ(pool.num_in_use(), 0);
}

TEST(SequenceCache, ForkCopiesOnlyTheTailBeforeTheWrite) {
  BlockPool pool(8, 16);
  RowStoreForTests store = RowStoreForTests::paged(8, 16);
  SequenceCache a = SequenceCache::paged(pool, one_layer());
  append(a, store, 37, 0);
  SequenceCache b = a.fork().value();
  EXPECT_EQ(pool.num_shared(), 3);
  const AppendPlan plan = b.plan_append(1).value();
  ASSERT_EQ(plan.copies().size(), 1u);
  EXPECT_EQ(plan.copies()[0].from, a.blocks()[2]);
  EXPECT_EQ(plan.copies()[0].rows, 5);
}

// Two holders plan in the same step: the second to commit finds that it is alone and writes in place.
TEST(SequenceCache, TheLastHolderWritesInPlaceEvenWhenItPlannedACopy) {
  BlockPool pool(8, 16);
  RowStoreForTests store = RowStoreForTests::paged(8, 16);
  SequenceCache a = SequenceCache::paged(pool, one_layer());
  append(a, store, 5, 0);
  SequenceCache b = a.fork().value();
  AppendPlan plan_a = a.plan_append(1).value(), plan_b = b.plan_append(1).value();
  const auto copies_a = a.commit_append(std::move(plan_a));
  const auto copies_b = b.commit_append(std::move(plan_b));
  EXPECT_EQ(copies_a.size(), 1u);
  EXPECT_TRUE(copies_b.empty());
  EXPECT_NE(a.blocks()[0], b.blocks()[0]);
  EXPECT_EQ(pool.num_in_use(), 2);
}

TEST(SequenceCache, FrontEvictionMovesNoPosition) {
  BlockPool pool(16, 16);
  RowStoreForTests store = RowStoreForTests::paged(16, 16);
  SequenceCache cache = SequenceCache::paged(pool, one_layer());
  append(cache, store, 100, 0);
  EXPECT_EQ(cache.trim_front(40, 0).value(), 40);  // blocks 0 and 1 go, block 2 keeps rows 40..47
  EXPECT_EQ(cache.length(), 100);
  EXPECT_EQ(cache.first_visible(), 40);
  EXPECT_EQ(cache.blocks_held(), 7 - 2);
  EXPECT_EQ(cache.blocks()[1], SequenceCache::kNoBlock);
  append(cache, store, 3, 100);
  EXPECT_EQ(store.row(cache.view(), 40), 40);
  EXPECT_EQ(store.row(cache.view(), 102), 102);
  EXPECT_EQ(cache.trim(1000), 63);  // never past the evicted rows
  EXPECT_EQ(cache.length(), 40);
  EXPECT_EQ(cache.blocks_held(), 1);
  append(cache, store, 1, 500);
  EXPECT_EQ(store.row(cache.view(), 40), 500);
}

TEST(SequenceCache, PinnedRowsStay) {
  BlockPool pool(16, 8);
  RowStoreForTests store = RowStoreForTests::paged(16, 8);
  SequenceCache cache = SequenceCache::paged(pool, one_layer());
  append(cache, store, 64, 0);
  EXPECT_EQ(cache.trim_front(30, 4).value(), 30);
  EXPECT_EQ(cache.first_visible(), 34);
  EXPECT_EQ(cache.view().num_pinned, 4);
  EXPECT_EQ(cache.blocks_held(), 1 + (8 - 4));  // block 0 for the pinned rows, blocks 4..7
  EXPECT_EQ(store.row(cache.view(), 3), 3);
  EXPECT_EQ(cache.trim_front(6, 4).value(), 6);
  EXPECT_EQ(cache.blocks_held(), 1 + (8 - 5));
  EXPECT_EQ(cache.trim_front(1000, 4).value(), 24);
  EXPECT_EQ(cache.first_visible(), 64);
  EXPECT_EQ(cache.blocks_held(), 1);
  EXPECT_FALSE(cache.trim_front(1, 5).ok());
  EXPECT_FALSE(cache.trim_front(-1, 4).ok());
  append(cache, store, 1, 900);
  EXPECT_EQ(store.row(cache.view(), 64), 900);
}

TEST(SequenceCache, NothingToEvictChangesNothing) {
  BlockPool pool(4, 8);
  RowStoreForTests store = RowStoreForTests::paged(4, 8);
  SequenceCache cache = SequenceCache::paged(pool, one_layer());
  append(cache, store, 5, 0);
  EXPECT_EQ(cache.trim_front(3, 5).value(), 0);
  EXPECT_EQ(cache.trim_front(0, 0).value(), 0);
  EXPECT_EQ(cache.first_visible(), 0);
  EXPECT_EQ(cache.view().num_pinned, 0);
}

TEST(SequenceCache, AdoptRetainsEachBlock) {
  BlockPool pool(8, 16);
  RowStoreForTests store = RowStoreForTests::paged(8, 16);
  SequenceCache a = SequenceCache::paged(pool, one_layer());
  append(a, store, 50, 0);
  {
    SequenceCache b = SequenceCache::adopt(pool, one_layer(), a.blocks().first(3), 37);
    EXPECT_EQ(b.length(), 37);
    EXPECT_EQ(pool.num_shared(), 3);
    append(b, store, 2, 700);
    EXPECT_EQ(store.row(b.view(), 36), 36);
    EXPECT_EQ(store.row(b.view(), 38), 701);
    EXPECT_EQ(store.row(a.view(), 38), 38);
  }
  EXPECT_EQ(pool.num_shared(), 0);
  EXPECT_EQ(pool.num_in_use(), 4);
}

TEST(SequenceCache, StateThatCannotBeRewoundRefusesEveryTrim) {
  KvLayout layout = one_layer();
  layout.layers[0].state_bytes = 64;
  BlockPool pool(8, 16);
  RowStoreForTests store = RowStoreForTests::paged(8, 16);
  SequenceCache cache = SequenceCache::paged(pool, layout);
  append(cache, store, 37, 0);
  EXPECT_EQ(cache.trim(0), 0);
  EXPECT_EQ(cache.trim(5), 0);
  EXPECT_EQ(cache.length(), 37);
  EXPECT_EQ(cache.blocks_held(), 3);
}

TEST(SequenceCache, DenseSlotsRunOutAndComeBack) {
  RowStoreForTests store = RowStoreForTests::dense(2, 100);
  SequenceCache a = SequenceCache::dense(store, one_layer()).value();
  append(a, store, 10, 0);
  {
    SequenceCache b = a.fork().value();
    EXPECT_EQ(store.row(b.view(), 9), 9);
    append(b, store, 1, 50);
    append(a, store, 1, 60);
    EXPECT_EQ(store.row(b.view(), 10), 50);
    EXPECT_EQ(store.row(a.view(), 10), 60);
    EXPECT_EQ(a.fork().error().kind, ErrorKind::kResourceExhausted);
  }
  EXPECT_TRUE(a.fork().ok());
  EXPECT_FALSE(a.plan_append(90).ok());
  EXPECT_EQ(a.length(), 11);
}

TEST(SequenceCacheDeathTest, MisuseAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  BlockPool pool(8, 16);
  SequenceCache cache = SequenceCache::paged(pool, one_layer());
  EXPECT_DEATH((void)cache.plan_append(-1), "num_rows");
  EXPECT_DEATH(cache.trim(-1), "num_rows");
  AppendPlan stale = cache.plan_append(3).value();
  cache.commit_append(cache.plan_append(5).value());
  EXPECT_DEATH(cache.commit_append(std::move(stale)), "another length");
  EXPECT_DEATH(SequenceCache::adopt(pool, one_layer(), cache.blocks(), 17), "adopted");
  // A plan made before the block was shared would write into it.
  AppendPlan plan = cache.plan_append(1).value();
  const SequenceCache sharer = cache.fork().value();
  EXPECT_DEATH(cache.commit_append(std::move(plan)), "two holders");
}

}  // namespace
}  // namespace mlxcel
