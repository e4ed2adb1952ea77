#include "base/suggest.h"

#include <gtest/gtest.h>

#include <vector>

namespace mlxcel {
namespace {

TEST(Suggest, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("teh", "the"), 1);
}

TEST(Suggest, FindsTheNearestOrNothing) {
  const std::vector<std::string> words = {"--threads", "--temp", "--top-k"};
  EXPECT_EQ(closest_word("--thread", words), "--threads");
  EXPECT_EQ(closest_word("--THREADS", words), "--threads");
  EXPECT_EQ(closest_word("--tmep", words), "--temp");
  EXPECT_EQ(closest_word("--thr", words), "--threads");
  EXPECT_EQ(closest_word("--colour-of-the-sky", words), std::nullopt);
  EXPECT_EQ(closest_word("", words), std::nullopt);
  EXPECT_EQ(closest_word(std::string(100000, 'x'), words), std::nullopt);
}

}  // namespace
}  // namespace mlxcel
