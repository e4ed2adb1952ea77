#include "engine/ngram_drafter.h"

#include <gtest/gtest.h>

namespace mlxcel {
namespace {

TEST(NgramDrafter, GuessesWhatFollowedLastTime) {
  NgramDrafter d;
  EXPECT_EQ(d.propose(std::vector<TokenId>{1, 2, 3, 4, 5, 6, 9, 1, 2, 3}, 8),
            (std::vector<TokenId>{4, 5, 6, 9}));
  EXPECT_EQ(d.propose(std::vector<TokenId>{1, 2, 3, 4, 5, 6, 9, 1, 2, 3}, 2), (std::vector<TokenId>{4, 5}));
}

TEST(NgramDrafter, PrefersTheLongerAndTheNewerMatch) {
  NgramDrafter d;
  // "2 3" occurs twice with different continuations; "1 2 3" only in the first.
  EXPECT_EQ(d.propose(std::vector<TokenId>{1, 2, 3, 7, 0, 2, 3, 8, 0, 1, 2, 3}, 1),
            (std::vector<TokenId>{7}));
  NgramDrafter e;
  EXPECT_EQ(e.propose(std::vector<TokenId>{5, 2, 3, 7, 6, 2, 3, 8, 0, 2, 3}, 1), (std::vector<TokenId>{8}));
}

TEST(NgramDrafter, NothingKnownIsNoGuess) {
  NgramDrafter d;
  EXPECT_TRUE(d.propose(std::vector<TokenId>{1, 2, 3, 4}, 8).empty());
  EXPECT_TRUE(d.propose(std::vector<TokenId>{1}, 8).empty());
  EXPECT_TRUE(d.propose(std::vector<TokenId>{}, 8).empty());
}

TEST(NgramDrafter, GrowsWithTheSequenceAndSurvivesACut) {
  NgramDrafter d;
  std::vector<TokenId> tokens = {1, 2, 3};
  EXPECT_TRUE(d.propose(tokens, 4).empty());
  tokens.insert(tokens.end(), {4, 1, 2});
  EXPECT_EQ(d.propose(tokens, 4), (std::vector<TokenId>{3, 4, 1, 2}));
  tokens = {9, 8, 7, 9, 8};
  EXPECT_EQ(d.propose(tokens, 1), (std::vector<TokenId>{7}));
}

TEST(NgramDrafter, GovernorPausesAfterFailuresAndRecovers) {
  NgramDrafter d;
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 9, 1, 2, 3};
  int proposals = 0;
  for (int step = 0; step < 1000; ++step) {
    const auto guess = d.propose(tokens, 8);
    if (guess.empty()) continue;
    ++proposals;
    d.report(static_cast<int32_t>(guess.size()), 0);
  }
  EXPECT_LT(proposals, 60);
  EXPECT_GT(proposals, 5);
  for (int step = 0; step < 200; ++step) {
    const auto guess = d.propose(tokens, 64);
    d.report(static_cast<int32_t>(guess.size()), static_cast<int32_t>(guess.size()));
  }
  EXPECT_GE(d.length(), 8);
}

}  // namespace
}  // namespace mlxcel
