#include "options/values.h"

#include <gtest/gtest.h>

namespace mlxcel {
namespace {

TEST(Values, CountsKnowThousandsFromPowersOfTwo) {
  EXPECT_EQ(parse_count("8k"), 8000);
  EXPECT_EQ(parse_count("8K"), 8192);
  EXPECT_EQ(parse_count("1.5K"), 1536);
  EXPECT_EQ(parse_count("2M"), 2097152);
  EXPECT_EQ(parse_count("-1"), -1);
  for (const char* bad : {"", "k", "8 k", "8kk", "8KiB", "1.3", "0.0001k", "nan", "1e3", "99999999G"}) {
    EXPECT_EQ(parse_count(bad), std::nullopt) << bad;
  }
}

TEST(Values, SizesNeedAUnit) {
  EXPECT_EQ(parse_size("512MiB"), int64_t{512} << 20);
  EXPECT_EQ(parse_size("1.5GiB"), int64_t{3} << 29);
  EXPECT_EQ(parse_size("2GB"), 2000000000);
  EXPECT_EQ(parse_size("7B"), 7);
  for (const char* bad : {"512", "512M", "MiB", "-1MiB", "512mib", "1e30TiB"})
    EXPECT_EQ(parse_size(bad), std::nullopt) << bad;
}

TEST(Values, DurationsNeedAUnit) {
  EXPECT_EQ(parse_duration("250ms"), 0.25);
  EXPECT_EQ(parse_duration("30s"), 30.0);
  EXPECT_EQ(parse_duration("2h"), 7200.0);
  for (const char* bad : {"30", "s", "-1s", "1 s", "1d"}) EXPECT_EQ(parse_duration(bad), std::nullopt) << bad;
}

TEST(Values, NumbersTakeTheWholeText) {
  EXPECT_EQ(parse_number("0.7"), 0.7);
  EXPECT_EQ(parse_number("1e-3"), 1e-3);
  for (const char* bad : {"", "0.7x", "inf", "nan", " 1"}) EXPECT_EQ(parse_number(bad), std::nullopt) << bad;
  EXPECT_EQ(parse_integer("42"), 42);
  EXPECT_EQ(parse_integer("4.2"), std::nullopt);
}

TEST(Values, BytesForPeople) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(uint64_t{30} << 30), "30.0 GiB");
}

}  // namespace
}  // namespace mlxcel
