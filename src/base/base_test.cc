#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <numeric>
#include <random>

#include "base/checked.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory_info.h"
#include "base/threads.h"
#include "base/utf8.h"

namespace mlxcel {
namespace {

TEST(Error, ThreeLines) {
  const Error e = make_error(ErrorKind::kInvalidData, "tensor is truncated", "a.safetensors: x", "8 bytes",
                             "4 bytes", "download it again");
  EXPECT_EQ(e.to_string(),
            "tensor is truncated: a.safetensors: x\n  expected 8 bytes, found 4 bytes\n  download it again");
  EXPECT_EQ(e.one_line(),
            "tensor is truncated: a.safetensors: x (expected 8 bytes, found 4 bytes); download it again");
}

Result<int> half(int x) {
  if (x % 2 != 0) return make_error(ErrorKind::kInvalidArgument, "odd");
  return x / 2;
}
Result<int> quarter(int x) {
  MLXCEL_ASSIGN_OR_RETURN(const int h, half(x));
  MLXCEL_ASSIGN_OR_RETURN(const int q, half(h));
  return q;
}
TEST(Result, MacrosPassErrorsOn) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_FALSE(quarter(6).ok());
  EXPECT_FALSE(quarter(3).ok());
}
TEST(ResultDeathTest, ValueOfAnErrorAborts) { EXPECT_DEATH((void)half(3).value(), "odd"); }
TEST(CheckDeathTest, BrokenInvariantAborts) {
  EXPECT_DEATH(MLXCEL_CHECK(1 + 1 == 3), "broken invariant: 1 \\+ 1 == 3");
}

TEST(Checked, Overflows) {
  EXPECT_EQ(checked_mul(1u << 31, 4), uint64_t{1} << 33);
  EXPECT_FALSE(checked_mul(uint64_t{1} << 63, 2));
  EXPECT_FALSE(checked_add(~uint64_t{0}, 1));
  EXPECT_FALSE(checked_product(std::vector<int64_t>{int64_t{1} << 40, int64_t{1} << 40}));
  EXPECT_FALSE(checked_product(std::vector<int64_t>{-1, 4}));
  EXPECT_EQ(checked_product(std::vector<int64_t>{0, 5}), 0);
}

TEST(Utf8, DecodesAndRejects) {
  EXPECT_TRUE(is_valid_utf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"));
  // Unicode 15, table 3-8: one replacement per maximal subpart.
  EXPECT_EQ(repair_utf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
            "b\xEF\xBF\xBD"
            "c\xEF\xBF\xBD\xEF\xBF\xBD"
            "d");
  for (const char* bad : {"\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE0\x9F\x80", "\xFF"})
    EXPECT_FALSE(is_valid_utf8(bad));
}
TEST(Utf8, IncompleteTails) {
  const std::string smile = "\xF0\x9F\x98\x80";
  EXPECT_EQ(incomplete_utf8_tail(smile), 0u);
  for (size_t n = 1; n < 4; ++n) EXPECT_EQ(incomplete_utf8_tail("ab" + smile.substr(0, n)), n);
  EXPECT_EQ(incomplete_utf8_tail("\x80\x80"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("\xED\xA0"), 0u);  // a surrogate: nothing can complete it
  EXPECT_EQ(incomplete_utf8_tail(""), 0u);
}
TEST(Utf8, RoundTripsEveryCodePoint) {
  for (char32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 97) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string s;
    append_utf8(s, c);
    const Utf8Char d = decode_utf8(s, 0);
    ASSERT_TRUE(d.valid && d.code == c && d.size == s.size());
  }
}

TEST(File, NamesThatLeaveTheFolderAreRefused) {
  for (const char* bad : {"", "/etc/passwd", "../x", "a/../x", "a//b", "./a", "a/", ".."})
    EXPECT_FALSE(join_inside("/m", bad).ok()) << bad;
  EXPECT_EQ(*join_inside("/m", "a/b.safetensors"), "/m/a/b.safetensors");
}
TEST(File, WriteReadMap) {
  const std::string folder =
      std::filesystem::temp_directory_path() / ("mlxcel_base_test_" + std::to_string(::getpid()));
  ASSERT_TRUE(make_directories(folder).ok());
  const std::string path = path_join(folder, "f");
  ASSERT_TRUE(write_file_atomically(path, "hello").ok());
  EXPECT_EQ(*read_file(path), "hello");
  EXPECT_FALSE(read_file(path, 3).ok());
  EXPECT_FALSE(read_file("/proc/self/status")->empty());  // its size is said to be 0
  const auto mapped = MappedFile::open(path);
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ(mapped->size(), 5u);
  EXPECT_EQ(*list_directory(folder), std::vector<std::string>{"f"});
  EXPECT_FALSE(MappedFile::open(folder).ok());
  const std::string link = path_join(folder, "link");
  std::filesystem::create_symlink(path, link);
  ASSERT_TRUE(write_file_atomically(link, "through").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(*read_file(path), "through");
  EXPECT_FALSE(write_file_atomically("/dev/null", "x").ok());  // not replaced by a file
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_FALSE(write_file_atomically(folder, "x").ok());
  std::filesystem::remove(link);
  const auto absent = read_file(path_join(folder, "absent"));
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().kind, ErrorKind::kNotFound);
  std::filesystem::remove_all(folder);
}

TEST(Environment, Booleans) {
  EXPECT_EQ(parse_boolean("On"), true);
  EXPECT_EQ(parse_boolean("no"), false);
  EXPECT_EQ(parse_boolean("maybe"), std::nullopt);
  EXPECT_EQ(parse_boolean(""), std::nullopt);
}

TEST(Threads, EveryThreadRunsOnceAndBarriersHold) {
  for (const int n : {1, 2, 3, 5}) {
    ThreadPool pool(n);
    std::vector<int> calls(static_cast<size_t>(n), 0);
    for (int round = 0; round < 300; ++round) {
      std::atomic<int> phase_one{0};
      std::atomic<bool> early{false};
      pool.run([&](int t) {
        ++calls[static_cast<size_t>(t)];
        phase_one.fetch_add(1);
        pool.barrier();
        if (phase_one.load() != n) early = true;
        pool.barrier();
      });
      ASSERT_FALSE(early.load());
    }
    for (const int c : calls) EXPECT_EQ(c, 300);
  }
}
TEST(Threads, SplitCoversEverythingInMultiples) {
  for (const int64_t total : {0, 1, 15, 16, 17, 100, 4096}) {
    for (const int parts : {1, 2, 3, 7}) {
      int64_t next = 0;
      for (int i = 0; i < parts; ++i) {
        const Range r = split_range(total, 16, parts, i);
        EXPECT_EQ(r.begin, next);
        EXPECT_TRUE(r.end == total || r.end % 16 == 0);
        next = r.end;
      }
      EXPECT_EQ(next, total);
    }
  }
}

TEST(MemoryInfo, TheTightestControlGroupCounts) {
  const std::string root =
      std::filesystem::temp_directory_path() / ("mlxcel_cgroup_" + std::to_string(getpid()));
  const auto group = [&](const std::string& path, const char* limit, const char* used, const char* stat) {
    std::filesystem::create_directories(root + path);
    ASSERT_TRUE(write_file_atomically(root + path + "/memory.max", limit).ok());
    ASSERT_TRUE(write_file_atomically(root + path + "/memory.current", used).ok());
    ASSERT_TRUE(write_file_atomically(root + path + "/memory.stat", stat).ok());
  };
  group("/a", "1000\n", "600\n", "anon 500\ninactive_file 100\n");  // 500 left: page cache can be taken
  group("/a/b", "max\n", "50\n", "anon 50\ninactive_file 0\n");
  group("/a/c", "200\n", "500\n", "anon 500\ninactive_file 0\n");  // over its limit: nothing left
  EXPECT_EQ(control_group_headroom(root, "/a/b"), 500u);
  EXPECT_EQ(control_group_headroom(root, "/a/c"), 0u);
  EXPECT_EQ(control_group_headroom(root, "/elsewhere"), std::nullopt);
  std::filesystem::remove_all(root);
}
TEST(MemoryInfo, ThisMachineSays) {
  ASSERT_TRUE(peak_resident_bytes().has_value());
  EXPECT_GT(*peak_resident_bytes(), 1u << 16);
  EXPECT_GT(available_memory_bytes().value_or(1), 0u);
}

TEST(Log, Formats) {
  const auto line = [](LogFormat format) {
    return format_log_line(format, LogLevel::kWarning, "a \"b\"\n", 1'764'888'301.25);
  };
  EXPECT_EQ(line(LogFormat::kPlain), "warning: a \"b\"\n\n");
  EXPECT_EQ(line(LogFormat::kTimed), "2025-12-04T22:45:01.250Z warning a \"b\"\n\n");
  EXPECT_EQ(line(LogFormat::kJson),
            "{\"time\":\"2025-12-04T22:45:01.250Z\",\"level\":\"warning\",\"message\":\"a \\\"b\\\"\\n\"}\n");
}

TEST(Log, SinkSeesTheLinesAtItsLevel) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view m) { lines.emplace_back(m); });
  set_log_level(LogLevel::kInfo);
  log_debug("hidden {}", 1);
  log_info("shown {}", 2);
  set_log_level(LogLevel::kWarning);
  set_log_sink(nullptr);
  EXPECT_EQ(lines, std::vector<std::string>{"shown 2"});
}

}  // namespace
}  // namespace mlxcel
