#include "progress.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace mlxcel {
namespace {

TEST(Progress, NameShareBarSizesSpeedAndRest) {
  EXPECT_EQ(ProgressLine::format("model.safetensors", 1200000000, 2900000000, 0, 10.0, 110),
            "model.safetensors   41% [#########               ]  1.2 GB/2.9 GB  120.0 MB/s  eta 14s");
}

TEST(Progress, ResumedBytesCountForTheBarAndNotForTheSpeed) {
  const std::string line = ProgressLine::format("x", 600, 1000, 500, 1.0, 100);
  EXPECT_NE(line.find(" 60%"), std::string::npos) << line;
  EXPECT_NE(line.find("100 B/s"), std::string::npos) << line;
  EXPECT_NE(line.find("eta 4s"), std::string::npos) << line;
}

TEST(Progress, AnyWidthAndAnyNumbers) {
  for (int width = 1; width < 130; ++width) {
    const std::string line = ProgressLine::format("ein-längerer-name.safetensors", 7, 9, 3, 0.5, width);
    EXPECT_LE(display_width(line), std::max(width, 1)) << line;
    EXPECT_TRUE(is_valid_utf8(line));
  }
  EXPECT_EQ(ProgressLine::format("x", 0, 0, 0, 0.0, 80), "x  0 B");
  EXPECT_NE(ProgressLine::format("x", 20, 10, 0, 1.0, 80).find("100%"),
            std::string::npos);  // more than was announced
  EXPECT_NE(ProgressLine::format("x", 5, 10, 9, 1.0, 80).find("50%"), std::string::npos);
}

TEST(ExitCodes, FollowTheKindOfError) {
  EXPECT_EQ(exit_code_of(ErrorKind::kInvalidArgument), 2);
  EXPECT_EQ(exit_code_of(ErrorKind::kNotFound), 3);
  EXPECT_EQ(exit_code_of(ErrorKind::kInvalidData), 3);
  EXPECT_EQ(exit_code_of(ErrorKind::kUnsupported), 3);
  EXPECT_EQ(exit_code_of(ErrorKind::kOutOfMemory), 4);
  EXPECT_EQ(exit_code_of(ErrorKind::kCancelled), 130);
  EXPECT_EQ(exit_code_of(ErrorKind::kIo), 1);
  EXPECT_EQ(exit_code_of(ErrorKind::kInternal), 1);
  EXPECT_EQ(exit_code_of(ErrorKind::kResourceExhausted), 1);
}

}  // namespace
}  // namespace mlxcel
