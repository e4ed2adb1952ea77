#include "checkpoint/gguf.h"

#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/files_for_test.h"

namespace mlxcel {
namespace {

constexpr uint32_t kF32Type = 0, kQ40Type = 2;
constexpr uint32_t kU8 = 0, kU32 = 4, kF32 = 6, kBool = 7, kString = 8, kArray = 9, kU64 = 10;

Result<GgufContents> read(const std::string& file) {
  return read_gguf(as_byte_span(file), "m.gguf", "m.gguf");
}
std::string array_of(uint32_t type, uint64_t count, std::string_view elements) {
  return bytes_of(type) + bytes_of(count) + std::string(elements);
}

// Two tensors: 2 x 3 f32 at 0 (24 bytes, padded to 32) and 1 x 32 Q4_0 at 32 (18 bytes, padded).
GgufBuilder two_tensors() {
  GgufBuilder builder;
  builder.key("general.architecture", kString, GgufBuilder::text("llama"));
  builder.tensor("a", {3, 2}, kF32Type, 0).tensor("b", {32}, kQ40Type, 32);
  builder.data = std::string(64, 'x');
  return builder;
}

TEST(Gguf, ReadsTensorsAndTurnsDimensionsRound) {
  const std::string file = two_tensors().build();
  const auto contents = read(file);
  ASSERT_TRUE(contents.ok()) << contents.error().to_string();
  const TensorEntry& a = contents->tensors.at("a");
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(a.dtype, DType::kF32);
  EXPECT_EQ(a.gguf_type, GgufType::kF32);
  EXPECT_EQ(a.data.size(), 24u);
  EXPECT_EQ(contents->tensors.at("b").data.size(), 18u);
  EXPECT_EQ(contents->tensors.at("b").gguf_type, GgufType::kQ4_0);
  EXPECT_EQ(*contents->metadata.at("general.architecture").string(), "llama");
}

TEST(Gguf, EveryValueType) {
  GgufBuilder builder;
  builder.key("u8", 0, bytes_of(uint8_t{200})).key("i8", 1, bytes_of(int8_t{-3}));
  builder.key("u16", 2, bytes_of(uint16_t{60000})).key("i16", 3, bytes_of(int16_t{-300}));
  builder.key("u32", 4, bytes_of(uint32_t{4000000000})).key("i32", 5, bytes_of(int32_t{-5}));
  builder.key("f32", 6, bytes_of(0.5f))
      .key("bool", 7, bytes_of(uint8_t{1}))
      .key("s", 8, GgufBuilder::text("x\xFF"));
  builder.key("u64", 10, bytes_of(uint64_t{1} << 62))
      .key("i64", 11, bytes_of(int64_t{-7}))
      .key("f64", 12, bytes_of(0.25));
  builder.key("bytes", kArray, array_of(kU8, 3, "abc"));
  builder.key("strings", kArray, array_of(kString, 2, GgufBuilder::text("one") + GgufBuilder::text("")));
  builder.key("empty", kArray, array_of(kF32, 0, ""));
  builder.key("nested", kArray,
              array_of(kArray, 2, array_of(kU8, 2, "ab") + array_of(kString, 1, GgufBuilder::text("deep"))));
  const std::string file = builder.build();
  const auto contents = read(file);
  ASSERT_TRUE(contents.ok()) << contents.error().to_string();
  const auto& m = contents->metadata;
  EXPECT_EQ(*m.at("u8").integer(), 200);
  EXPECT_EQ(*m.at("i8").integer(), -3);
  EXPECT_EQ(*m.at("u16").integer(), 60000);
  EXPECT_EQ(*m.at("i16").integer(), -300);
  EXPECT_EQ(*m.at("u32").integer(), 4000000000);
  EXPECT_EQ(*m.at("i32").integer(), -5);
  EXPECT_EQ(*m.at("f32").number(), 0.5);
  EXPECT_EQ(*m.at("bool").boolean(), true);
  EXPECT_EQ(*m.at("s").string(), "x\xFF");  // tokens need not be UTF-8
  EXPECT_EQ(*m.at("u64").integer(), int64_t{1} << 62);
  EXPECT_EQ(*m.at("i64").integer(), -7);
  EXPECT_EQ(*m.at("f64").number(), 0.25);
  const GgufArray& bytes = *m.at("bytes").array();
  ASSERT_EQ(bytes.size(), 3u);
  EXPECT_EQ(*bytes[1].integer(), 'b');
  EXPECT_TRUE(bytes.strings().empty());
  const GgufArray& strings = *m.at("strings").array();
  ASSERT_EQ(strings.strings().size(), 2u);
  EXPECT_EQ(strings.strings()[0], "one");
  EXPECT_EQ(*strings[1].string(), "");
  EXPECT_TRUE(m.at("empty").array()->empty());
  const GgufValue inner = (*m.at("nested").array())[1];
  ASSERT_NE(inner.array(), nullptr);
  EXPECT_EQ(inner.array()->strings()[0], "deep");
  EXPECT_EQ(*(*(*m.at("nested").array())[0].array())[1].integer(), 'b');
}

TEST(Gguf, EveryTruncationIsAnError) {
  const std::string file = two_tensors().build();
  for (size_t size = 0; size < file.size(); ++size) {
    // The padding behind the last tensor (14 bytes) may be missing, as the last tensor itself may not.
    EXPECT_EQ(read(file.substr(0, size)).ok(), size >= file.size() - 14) << size;
  }
  EXPECT_FALSE(read(file + "1").ok());
  EXPECT_FALSE(read(file + "12345678").ok());
}

TEST(Gguf, HostileCounts) {
  for (const uint64_t huge : {uint64_t{1} << 63, ~uint64_t{0}, uint64_t{100000}}) {
    EXPECT_FALSE(read(two_tensors().counts(huge, 1).build()).ok());
    EXPECT_FALSE(read(two_tensors().counts(2, huge).build()).ok());
    for (const uint32_t type : {kU8, kString, kArray, kU64}) {
      GgufBuilder builder;
      builder.key("x", kArray, array_of(type, huge, std::string(64, '\0')));
      EXPECT_FALSE(read(builder.build()).ok()) << type << " " << huge;
    }
    GgufBuilder builder;
    builder.key("x", kString, bytes_of(huge) + "abc");
    EXPECT_FALSE(read(builder.build()).ok());
  }
}

TEST(Gguf, NestingHasALimit) {
  std::string payload = array_of(kU8, 1, "a");
  for (int depth = 2; depth <= 4; ++depth) payload = array_of(kArray, 1, payload);
  GgufBuilder fits, deeper, abyss;
  EXPECT_TRUE(read(fits.key("x", kArray, payload).build()).ok());
  EXPECT_FALSE(read(deeper.key("x", kArray, array_of(kArray, 1, payload)).build()).ok());
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += bytes_of(kArray) + bytes_of(uint64_t{1});
  EXPECT_FALSE(read(abyss.key("x", kArray, deep).build()).ok());
}

TEST(Gguf, ValuesOutOfRange) {
  GgufBuilder boolean, large, type, array_boolean, array_large;
  EXPECT_FALSE(read(boolean.key("x", kBool, "\x02").build()).ok());
  EXPECT_FALSE(read(large.key("x", kU64, bytes_of(uint64_t{1} << 63)).build()).ok());
  EXPECT_FALSE(read(type.key("x", 13, bytes_of(uint64_t{1})).build()).ok());
  EXPECT_FALSE(read(array_boolean.key("x", kArray, array_of(kBool, 2, "\x01\x03")).build()).ok());
  EXPECT_FALSE(read(array_large.key("x", kArray, array_of(kU64, 1, bytes_of(~uint64_t{0}))).build()).ok());
}

TEST(Gguf, DuplicatesAreErrors) {
  GgufBuilder keys = two_tensors();
  keys.key("general.architecture", kU8, "x");
  EXPECT_FALSE(read(keys.build()).ok());
  GgufBuilder tensors;
  tensors.tensor("a", {8}, kF32Type, 0).tensor("a", {8}, kF32Type, 32);
  tensors.data = std::string(64, 'x');
  EXPECT_FALSE(read(tensors.build()).ok());
}

TEST(Gguf, BadTensorsAreErrorsThatNameThem) {
  struct Case {
    std::vector<uint64_t> dims;
    uint32_t type;
    uint64_t offset;
  };
  const uint64_t huge = uint64_t{1} << 40;
  const Case bad[] = {
      {{8}, 5, 0},          // a removed type
      {{8}, 999, 0},        // no such type
      {{8}, kF32Type, 4},   // not aligned
      {{8}, kF32Type, 64},  // outside
      {{8}, kF32Type, uint64_t{1} << 63},
      {{9}, kF32Type, 32},  // its end is outside
      {{33}, kQ40Type, 0},  // not whole blocks
      {{0}, kF32Type, 0},
      {{}, kF32Type, 0},
      {{2, 1, 1, 1, 1}, kF32Type, 0},  // rank
      {{huge, huge}, kF32Type, 0},     // overflow
      {{uint64_t{1} << 62, 4}, kF32Type, 0},
      {{8}, kF32Type, 32},  // a hole before it
  };
  for (const Case& c : bad) {
    GgufBuilder builder;
    builder.tensor("blk.0.x", c.dims, c.type, c.offset);
    builder.data = std::string(64, 'x');
    const auto contents = read(builder.build());
    ASSERT_FALSE(contents.ok()) << c.type << " " << c.offset;
    EXPECT_NE(contents.error().where.find("blk.0.x"), std::string::npos) << contents.error().where;
  }
  GgufBuilder overlap;
  overlap.tensor("a", {16}, kF32Type, 0).tensor("b", {8}, kF32Type, 32);
  overlap.data = std::string(64, 'x');
  EXPECT_FALSE(read(overlap.build()).ok());
}

TEST(Gguf, AlignmentIsAPowerOfTwo) {
  for (const auto& [value, is_good] :
       {std::pair<uint32_t, bool>{8, true}, {64, true}, {0, false}, {24, false}, {1u << 31, false}}) {
    GgufBuilder builder;
    builder.alignment = is_good ? value : 32;
    builder.key("general.alignment", kU32, bytes_of(value)).tensor("a", {2}, kF32Type, 0);
    builder.data = std::string(8, 'x');
    EXPECT_EQ(read(builder.build()).ok(), is_good) << value;
  }
  GgufBuilder wrong_type;
  wrong_type.key("general.alignment", kString, GgufBuilder::text("32"));
  EXPECT_FALSE(read(wrong_type.build()).ok());
}

TEST(Gguf, VersionsMagicSplitsAndPointers) {
  GgufBuilder builder = two_tensors();
  builder.version = 2;
  EXPECT_TRUE(read(builder.build()).ok());
  for (const uint32_t version : {0u, 1u, 4u, 0x03000000u}) {
    builder.version = version;
    EXPECT_EQ(read(builder.build()).error().kind, ErrorKind::kUnsupported) << version;
  }
  std::string magic = two_tensors().build();
  magic[0] = 'g';
  EXPECT_FALSE(read(magic).ok());
  EXPECT_NE(read("version https://git-lfs.github.com/spec/v1\n").error().what.find("LFS"), std::string::npos);
  GgufBuilder split = two_tensors();
  split.key("split.count", 2, bytes_of(uint16_t{3}));
  EXPECT_EQ(read(split.build()).error().kind, ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace mlxcel
