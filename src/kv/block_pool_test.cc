#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace mlxcel {
namespace {

TEST(BlockPool, TakesInOrderAndReusesTheLastReleased) {
  BlockPool pool(4, 16);
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 2);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_in_use(), 3);
  pool.release(1);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 3);
  EXPECT_EQ(pool.take(), std::nullopt);
  EXPECT_EQ(pool.num_free(), 0);
}

TEST(BlockPool, CountsReferences) {
  BlockPool pool(2, 1);
  const BlockId block = pool.take().value();
  EXPECT_EQ(pool.references(block), 1);
  EXPECT_EQ(pool.num_shared(), 0);
  pool.retain(block);
  pool.retain(block);
  EXPECT_EQ(pool.references(block), 3);
  EXPECT_EQ(pool.num_shared(), 1);
  pool.release(block);
  pool.release(block);
  EXPECT_EQ(pool.num_in_use(), 1);
  pool.release(block);
  EXPECT_EQ(pool.num_in_use(), 0);
}

TEST(BlockPool, KnowsHowManyBlocksOnlyTheCacheHolds) {
  BlockPool pool(3, 16);
  const BlockId a = pool.take().value(), b = pool.take().value();
  EXPECT_EQ(pool.num_cached_alone(), 0);
  pool.retain(a);
  pool.mark_cached(a);  // its sequence still runs
  pool.mark_cached(b);
  EXPECT_EQ(pool.num_cached_alone(), 1);
  pool.release(a);
  EXPECT_EQ(pool.num_cached_alone(), 2);
  pool.retain(a);
  pool.retain(a);
  EXPECT_EQ(pool.num_cached_alone(), 1);
  pool.release(a);
  EXPECT_EQ(pool.num_cached_alone(), 1);
  pool.release(a);
  pool.unmark_cached(b);
  EXPECT_EQ(pool.num_cached_alone(), 1);
  pool.release(b);
  pool.unmark_cached(a);
  pool.release(a);
  EXPECT_EQ(pool.num_cached_alone(), 0);
  EXPECT_TRUE(pool.check_integrity({}).ok());
}

TEST(BlockPool, AnEmptyPoolHasNothingToGive) {
  BlockPool pool(0, 32);
  EXPECT_EQ(pool.take(), std::nullopt);
  EXPECT_TRUE(pool.check_integrity({}).ok());
}

TEST(BlockPool, IntegrityNamesTheFirstDifference) {
  BlockPool pool(3, 16);
  const BlockId a = pool.take().value(), b = pool.take().value();
  const std::array<BlockId, 3> table{a, -1, b};
  const std::array<std::span<const BlockId>, 1> one{std::span<const BlockId>(table)};
  EXPECT_TRUE(pool.check_integrity(one).ok());
  const std::array<std::span<const BlockId>, 2> twice{std::span<const BlockId>(table),
                                                      std::span<const BlockId>(table)};
  EXPECT_EQ(pool.check_integrity(twice).error().where, "block 0");
  pool.retain(b);
  EXPECT_EQ(pool.check_integrity(one).error().where, "block 1");
  const std::array<BlockId, 1> outside{7};
  const std::array<std::span<const BlockId>, 1> bad{std::span<const BlockId>(outside)};
  EXPECT_FALSE(pool.check_integrity(bad).ok());
}

TEST(BlockPool, ShuffleKeepsTheBlocks) {
  BlockPool pool(64, 16), same(64, 16);
  pool.shuffle_free_list(7);
  same.shuffle_free_list(7);
  std::set<BlockId> seen;
  bool is_ascending = true;
  for (BlockId expected = 0; const auto block = pool.take(); ++expected) {
    EXPECT_EQ(block, same.take());
    is_ascending = is_ascending && block == expected;
    seen.insert(*block);
  }
  EXPECT_EQ(seen.size(), 64u);
  EXPECT_FALSE(is_ascending);
}

TEST(BlockPoolDeathTest, WrongMarksAbort) {
  BlockPool pool(2, 16);
  EXPECT_DEATH(pool.mark_cached(0), "cannot be cached");
  const BlockId block = pool.take().value();
  EXPECT_DEATH(pool.unmark_cached(block), "not cached");
  pool.mark_cached(block);
  EXPECT_DEATH(pool.mark_cached(block), "twice");
  EXPECT_DEATH(pool.release(block), "behind its back");
}

TEST(BlockPoolDeathTest, BrokenCountsAbort) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  BlockPool pool(2, 16);
  EXPECT_DEATH(pool.retain(0), "retain of a free block");
  EXPECT_DEATH(pool.release(0), "release of a free block");
  const BlockId block = pool.take().value();
  pool.release(block);
  EXPECT_DEATH(pool.release(block), "release of a free block");
  EXPECT_DEATH(pool.retain(2), "block");
  EXPECT_DEATH(pool.release(-1), "block");
}

}  // namespace
}  // namespace mlxcel
