#include "sampling/philox.h"

#include <gtest/gtest.h>

#include <set>

namespace mlxcel {
namespace {

// The three known answers for philox4x32-10 of the Random123 library (kat_vectors): zeros, ones, digits of
// pi.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DrawsAreUniformEnough) {
  int64_t bins[16] = {};
  double sum = 0;
  constexpr int64_t kDraws = 64000;
  for (int64_t position = 0; position < kDraws; ++position) {
    const double u = uniform_draw({.seed = 42, .position = position});
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    ++bins[static_cast<int>(u * 16)];
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
  for (const int64_t bin : bins) EXPECT_NEAR(static_cast<double>(bin), kDraws / 16.0, 300.0);
}

TEST(Philox, EveryFieldMatters) {
  std::set<double> seen;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, ~uint64_t{0}}) {
    for (const uint32_t choice : {0u, 1u}) {
      for (const uint32_t draw : {0u, 1u}) {
        for (const int64_t position : {int64_t{0}, int64_t{1}, int64_t{1} << 32}) {
          seen.insert(uniform_draw({seed, choice, draw, position}));
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), 4u * 2 * 2 * 3);
}

}  // namespace
}  // namespace mlxcel
