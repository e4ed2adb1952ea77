#include "kv/kv_layout.h"

#include <gtest/gtest.h>

namespace mlxcel {
namespace {

TEST(KvLayout, NamesReadBack) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    EXPECT_EQ(parse_kv_type(kv_type_name(type)), type);
  }
  EXPECT_EQ(parse_kv_type("q4_0"), std::nullopt);
  EXPECT_EQ(parse_kv_type(""), std::nullopt);
  EXPECT_EQ(parse_kv_type("F16"), std::nullopt);
}

TEST(KvLayout, BytesPerRow) {
  EXPECT_EQ(kv_row_bytes(KvType::kF32, 64), 256);
  EXPECT_EQ(kv_row_bytes(KvType::kF16, 64), 128);
  EXPECT_EQ(kv_row_bytes(KvType::kBF16, 64), 128);
  EXPECT_EQ(kv_row_bytes(KvType::kQ8_0, 64), 68);
  KvLayout layout;
  layout.layers.assign(2,
                       {.num_kv_heads = 8, .key_dim = 128, .value_dim = 64, .sliding_window = std::nullopt});
  EXPECT_EQ(layout.bytes_per_row(), 2 * 8 * (256 + 128));
  layout.key_type = KvType::kQ8_0;
  EXPECT_EQ(layout.bytes_per_row(), 2 * 8 * (136 + 128));
  EXPECT_TRUE(layout.can_trim());
}

TEST(KvLayout, RecurrentStateCannotBeTrimmed) {
  KvLayout layout;
  layout.layers.resize(3);
  EXPECT_TRUE(layout.can_trim());
  layout.layers[1].state_bytes = 4096;
  layout.layers[2].state_bytes = 128;
  EXPECT_FALSE(layout.can_trim());
  EXPECT_EQ(layout.state_bytes_per_sequence(), 4224);
}

}  // namespace
}  // namespace mlxcel
