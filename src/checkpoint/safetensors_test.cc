#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include "checkpoint/files_for_test.h"

namespace mlxcel {
namespace {

constexpr std::string_view kTwo =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},)"
    R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}}   )";
const std::string kData = "0123456789AB";

Status read(const std::string& file, TensorMap& tensors) {
  return read_safetensors(as_byte_span(file), "m.safetensors", "m.safetensors", tensors);
}
Status read(const std::string& file) {
  TensorMap tensors;
  return read(file, tensors);
}
std::string one(std::string_view entry) {
  return safetensors_file("{\"a\":" + std::string(entry) + "}", kData);
}

TEST(Safetensors, ReadsTensorsInAnyOrder) {
  const std::string file = safetensors_file(kTwo, kData);
  TensorMap tensors;
  const Status status = read(file, tensors);
  ASSERT_TRUE(status.ok()) << status.error().to_string();
  ASSERT_EQ(tensors.size(), 2u);
  const TensorEntry& b = tensors.at("b");
  EXPECT_EQ(b.dtype, DType::kF32);
  EXPECT_EQ(b.shape, std::vector<int64_t>{2});
  EXPECT_EQ(std::memcmp(b.data.data(), "456789AB", 8), 0);
  EXPECT_EQ(b.file, "m.safetensors");
  EXPECT_EQ(tensors.at("a").shape, (std::vector<int64_t>{1, 2}));
}

TEST(Safetensors, EmptyTensorsAndNoTensors) {
  EXPECT_TRUE(read(safetensors_file("{}", "")).ok());
  EXPECT_TRUE(read(safetensors_file(R"({"e":{"dtype":"I64","shape":[0,5],"data_offsets":[0,0]}})", "")).ok());
  EXPECT_TRUE(
      read(safetensors_file(R"({"s":{"dtype":"I32","shape":[],"data_offsets":[0,4]}})", "abcd")).ok());
}

TEST(Safetensors, TruncatedOrLongerFilesAreErrorsThatNameTheFile) {
  const std::string file = safetensors_file(kTwo, kData);
  for (size_t size = 0; size < file.size(); ++size) {
    const Status status = read(file.substr(0, size));
    ASSERT_FALSE(status.ok()) << size;
    EXPECT_NE(status.error().where.find("m.safetensors"), std::string::npos);
  }
  EXPECT_FALSE(read(file + "12345678").ok());
  EXPECT_FALSE(read(file + "1").ok());
  EXPECT_FALSE(read("abcd").ok());
}

TEST(Safetensors, HostileHeaderLengths) {
  for (const uint64_t length : {uint64_t{1} << 63, ~uint64_t{0}, uint64_t{13}, uint64_t{100'000'001}}) {
    EXPECT_FALSE(read(bytes_of(length) + "{}          ").ok()) << length;
  }
}

TEST(Safetensors, LfsPointerIsRecognised) {
  const Status status = read("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n");
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().what.find("LFS"), std::string::npos);
  EXPECT_NE(status.error().hint.find("git lfs pull"), std::string::npos);
}

TEST(Safetensors, BadEntriesAreErrors) {
  EXPECT_TRUE(read(one(R"({"dtype":"U8","shape":[12],"data_offsets":[0,12]})")).ok());
  const char* bad[] = {
      R"({"dtype":"U8","shape":[11],"data_offsets":[0,12]})",                    // size
      R"({"dtype":"Q8","shape":[12],"data_offsets":[0,12]})",                    // type
      R"({"dtype":"U8","shape":[-12],"data_offsets":[0,12]})",                   // sign
      R"({"dtype":"U8","shape":[12.0],"data_offsets":[0,12]})",                  // fraction
      R"({"dtype":"U8","shape":[1e1],"data_offsets":[0,12]})",                   // exponent
      R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})",  // overflow to 0
      R"({"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,12]})",  // above 2^64
      R"({"dtype":"U8","shape":[1,1,1,1,1,1,1,1,12],"data_offsets":[0,12]})",    // rank
      R"({"dtype":"U8","shape":[12],"data_offsets":[12,0]})",                    // reversed
      R"({"dtype":"U8","shape":[12],"data_offsets":[0,13]})",                    // outside
      R"({"dtype":"U8","shape":[12],"data_offsets":[1,13]})",                    // outside
      R"({"dtype":"U8","shape":[11],"data_offsets":[1,12]})",                    // hole
      R"({"dtype":"U8","shape":[11],"data_offsets":[0,11]})",                    // trailing
      R"({"dtype":"U8","shape":[12],"data_offsets":[0]})",
      R"({"dtype":"U8","shape":[12],"data_offsets":[0,12,12]})",
      R"({"dtype":"U8","shape":[12]})",
      R"({"dtype":"U8","shape":[12],"data_offsets":[0,12],"x":1})",         // unknown key
      R"({"dtype":"U8","dtype":"U8","shape":[12],"data_offsets":[0,12]})",  // repeated key
      R"({"dtype":null,"shape":[12],"data_offsets":[0,12]})",
      R"([])",
      R"({"dtype":"U8","shape":[12],"data_offsets":[0,12])",    // not closed
      R"({"dtype":"U8","shape":[012],"data_offsets":[0,12]})",  // leading zero
  };
  for (const char* entry : bad) EXPECT_FALSE(read(one(entry)).ok()) << entry;
}

TEST(Safetensors, OverlapsAndDuplicatesAreErrors) {
  const auto two = [](std::string_view second) {
    return safetensors_file(
        R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)" + std::string(second) + "}", kData);
  };
  EXPECT_TRUE(read(two(R"("b":{"dtype":"U8","shape":[4],"data_offsets":[8,12]})")).ok());
  EXPECT_FALSE(read(two(R"("b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]})")).ok());
  EXPECT_FALSE(read(two(R"("b":{"dtype":"U8","shape":[12],"data_offsets":[0,12]})")).ok());
  EXPECT_FALSE(read(two(R"("a":{"dtype":"U8","shape":[4],"data_offsets":[8,12]})")).ok());
  const Status twice = read(two(R"("\u0061":{"dtype":"U8","shape":[4],"data_offsets":[8,12]})"));
  ASSERT_FALSE(twice.ok());  // the same name, written with an escape
  EXPECT_NE(twice.error().what.find("twice"), std::string::npos);
}

TEST(Safetensors, HeaderTextIsStrict) {
  for (const std::string_view header :
       {"", "[]", "nul", "{", "{\"a\"}", "{} x", "{},", "{\"a\":1}", "\"a\"", "{\"__metadata__\":{\"x\":}}",
        "{\"__metadata__\":tru}", "{\"\":{}}"}) {
    EXPECT_FALSE(read(safetensors_file(header, "")).ok()) << header;
  }
  EXPECT_FALSE(
      read(safetensors_file("{\"\xFF\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", "")).ok());
  // Nesting deep enough to overflow a stack that trusted it.
  EXPECT_FALSE(read(safetensors_file("{\"__metadata__\":" + std::string(1000000, '[') + "}", "")).ok());
  EXPECT_TRUE(read(safetensors_file(R"({"__metadata__":{"a":"\"\\\ud83d\ude00"}})", "")).ok());
}

TEST(Safetensors, TooManyTensorsIsALimit) {
  std::string header = "{";
  for (size_t i = 0; i <= kTensorsMax; ++i) {
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[],"data_offsets":[)" +
              std::to_string(i) + "," + std::to_string(i + 1) + "]}";
  }
  const Status status = read(safetensors_file(header + "}", std::string(kTensorsMax + 1, 'x')));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, ErrorKind::kResourceExhausted);
}

}  // namespace
}  // namespace mlxcel
