#include "scheduler/prefill_governor.h"

#include <gtest/gtest.h>

#include <limits>

namespace mlxcel {
namespace {

TEST(PrefillGovernor, SmallestChunkUntilBothCostsAreKnown) {
  PrefillGovernor governor(1.5, 8);
  EXPECT_EQ(governor.tokens_max(1), 8);
  governor.observe(0, 100, 1.0);
  EXPECT_EQ(governor.tokens_max(1), 8);
  governor.observe(1, 0, 1.0);
  EXPECT_EQ(governor.tokens_max(1), 50);  // half a usual step of 1 s at 10 ms per token
}

TEST(PrefillGovernor, ConvergesOnTheCostOfMixedSteps) {
  PrefillGovernor governor(1.5, 1);
  governor.observe(0, 100, 1.0);
  for (int i = 0; i < 100; ++i) {
    governor.observe(4, 0, 0.5);
    governor.observe(4, 10, 0.5 + 10 * 0.025);
  }
  EXPECT_EQ(governor.tokens_max(4), 10);
  EXPECT_EQ(governor.tokens_max(7), 10);   // the same power of two
  EXPECT_EQ(governor.tokens_max(64), 10);  // the nearest below
  EXPECT_EQ(governor.tokens_max(1), 1);    // nothing measured at or below
}

TEST(PrefillGovernor, NearlyFreeTokensAreLimitedAllTheSame) {
  PrefillGovernor governor(1.25, 1);
  governor.observe(1, 0, 1.0);
  governor.observe(1, 16, 0.5);  // faster than usual
  EXPECT_GT(governor.tokens_max(1), 16);
  EXPECT_LE(governor.tokens_max(1), 800);
}

TEST(PrefillGovernor, ImpossibleTimesChangeNothing) {
  PrefillGovernor governor(1.5, 8);
  governor.observe(0, 100, 1.0);
  governor.observe(1, 0, 1.0);
  for (const double seconds :
       {0.0, -1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    governor.observe(1, 0, seconds);
    governor.observe(1, 5, seconds);
    governor.observe(0, 5, seconds);
  }
  governor.observe(0, 0, 1.0);
  EXPECT_EQ(governor.tokens_max(1), 50);
}

}  // namespace
}  // namespace mlxcel
