#include "backend/common/forward_common.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace mlxcel {
namespace {

RopeSpec base_rope(RopeKind kind) {
  RopeSpec rope;
  rope.kind = kind;
  rope.theta = 10000.0;
  rope.rotary_dim = 64;
  rope.max_position = 4096;
  rope.original_max_position = 1024;
  rope.factor = 4.0;
  return rope;
}

TEST(RopeTable, DefaultFrequenciesAreAGeometricSeries) {
  const std::vector<float> f = RopeTable::inverse_frequencies(base_rope(RopeKind::kDefault), 0);
  ASSERT_EQ(f.size(), 32U);
  EXPECT_EQ(f[0], 1.0f);
  EXPECT_FLOAT_EQ(f[16], 0.01f);
  for (size_t i = 1; i < f.size(); ++i) EXPECT_LT(f[i], f[i - 1]);
}

TEST(RopeTable, LinearDividesEveryFrequency) {
  const auto plain = RopeTable::inverse_frequencies(base_rope(RopeKind::kDefault), 0);
  const auto linear = RopeTable::inverse_frequencies(base_rope(RopeKind::kLinear), 0);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_FLOAT_EQ(linear[i] * 4.0f, plain[i]);
}

TEST(RopeTable, Llama3KeepsShortWavesAndStretchesLongOnes) {
  RopeSpec rope = base_rope(RopeKind::kLlama3);
  rope.low_freq_factor = 1.0;
  rope.high_freq_factor = 4.0;
  const auto plain = RopeTable::inverse_frequencies(base_rope(RopeKind::kDefault), 0);
  const auto scaled = RopeTable::inverse_frequencies(rope, 0);
  int between = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2.0 * std::numbers::pi / double{plain[i]};
    if (wavelength < 256.0) {
      EXPECT_EQ(scaled[i], plain[i]);
    } else if (wavelength > 1024.0) {
      EXPECT_FLOAT_EQ(scaled[i] * 4.0f, plain[i]);
    } else {
      EXPECT_LT(scaled[i], plain[i]);
      EXPECT_GT(scaled[i] * 4.0f, plain[i]);
      ++between;
    }
  }
  EXPECT_GT(between, 0);
}

TEST(RopeTable, YarnRampsBetweenKeptAndStretched) {
  const auto plain = RopeTable::inverse_frequencies(base_rope(RopeKind::kDefault), 0);
  const auto yarn = RopeTable::inverse_frequencies(base_rope(RopeKind::kYarn), 0);
  EXPECT_EQ(yarn.front(), plain.front());
  EXPECT_FLOAT_EQ(yarn.back() * 4.0f, plain.back());
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_LE(yarn[i], plain[i]);
    EXPECT_GE(yarn[i] * 4.0001f, plain[i]);
  }
}

TEST(RopeTable, YarnAttentionFactor) {
  RopeSpec rope = base_rope(RopeKind::kYarn);
  EXPECT_DOUBLE_EQ(RopeTable::attention_factor(rope), 0.1 * std::log(4.0) + 1.0);
  rope.mscale = 1.0;
  rope.mscale_all_dim = 1.0;
  EXPECT_DOUBLE_EQ(RopeTable::attention_factor(rope), 1.0);
  rope.mscale_all_dim = 0.0;  // zero counts as not given
  EXPECT_DOUBLE_EQ(RopeTable::attention_factor(rope), 0.1 * std::log(4.0) + 1.0);
  rope.attention_factor = 0.5;
  EXPECT_DOUBLE_EQ(RopeTable::attention_factor(rope), 0.5);
}

TEST(RopeTable, LongRopeChangesItsFactorsWithTheLength) {
  RopeSpec rope = base_rope(RopeKind::kLongRope);
  rope.factor = 1.0;
  rope.short_factors.assign(32, 1.0);
  rope.long_factors.assign(32, 2.0);
  const RopeTable table(rope, 8);
  EXPECT_EQ(table.regime(1024), 0);
  EXPECT_EQ(table.regime(1025), 1);
  const double magnitude = std::sqrt(1.0 + std::log(4.0) / std::log(1024.0));
  EXPECT_FLOAT_EQ(table.cos(0, 0)[5], static_cast<float>(magnitude));
  EXPECT_FLOAT_EQ(table.cos(0, 3)[0], static_cast<float>(std::cos(3.0) * magnitude));
  EXPECT_FLOAT_EQ(table.cos(1, 3)[0], static_cast<float>(std::cos(1.5) * magnitude));
}

TEST(RopeTable, ExplicitFactorsDivideTheFrequencies) {
  RopeSpec rope = base_rope(RopeKind::kDefault);
  rope.explicit_factors.assign(32, 8.0);
  const auto plain = RopeTable::inverse_frequencies(base_rope(RopeKind::kDefault), 0);
  const auto divided = RopeTable::inverse_frequencies(rope, 0);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_FLOAT_EQ(divided[i] * 8.0f, plain[i]);
}

TEST(RopeTable, DynamicNtkEndsWhereItsBaseWouldMove) {
  ModelSpec spec;
  AttentionSpec attention;
  attention.rope = base_rope(RopeKind::kDynamicNtk);
  LayerSpec layer;
  layer.mixer = attention;
  spec.layers.push_back(layer);
  EXPECT_TRUE(check_max_position(spec, 4096).ok());
  const Status beyond = check_max_position(spec, 4097);
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(beyond.error().found, "4097");
}

TEST(RopeTables, LayersWithEqualSpecsShareATable) {
  ModelSpec spec;
  for (const RopeKind kind : {RopeKind::kDefault, RopeKind::kLinear, RopeKind::kDefault}) {
    AttentionSpec attention;
    attention.rope = base_rope(kind);
    LayerSpec layer;
    layer.mixer = attention;
    spec.layers.push_back(layer);
  }
  const RopeTables tables(spec, 4);
  EXPECT_EQ(&tables.of_layer(0), &tables.of_layer(2));
  EXPECT_NE(&tables.of_layer(0), &tables.of_layer(1));
}

}  // namespace
}  // namespace mlxcel
