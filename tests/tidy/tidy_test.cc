// House style as a test: what a reviewer would otherwise say again and again. Looks at tracked files only.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = MLXCEL_SOURCE_DIR;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

struct CommandResult {
  int status = -1;
  std::string output;
};
CommandResult run_command(const std::string& command) {
  CommandResult result;
  const std::string full = "cd '" + kRoot.string() + "' && " + command + " 2>&1";
  FILE* pipe = ::popen(full.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> buffer{};
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
    result.output.append(buffer.data(), n);
  result.status = ::pclose(pipe);
  return result;
}

// Source files of the project: from git where there is a repository, else (a source tarball) from the
// folders.
std::vector<std::string> source_files() {
  std::vector<std::string> files;
  const CommandResult git = run_command("git ls-files -co --exclude-standard -- src apps tests fuzz bench");
  std::istringstream lines(git.output);
  if (git.status == 0) {
    for (std::string line; std::getline(lines, line);) files.push_back(line);
  } else {
    for (const char* top : {"src", "apps", "tests", "fuzz", "bench"}) {
      for (const auto& e : fs::recursive_directory_iterator(kRoot / top)) {
        if (e.is_regular_file()) files.push_back(fs::relative(e.path(), kRoot).string());
      }
    }
  }
  std::erase_if(files, [](const std::string& f) {
    return !(f.ends_with(".h") || f.ends_with(".cc")) || !fs::exists(kRoot / f);
  });
  return files;
}

int count_lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Tidy, ThereAreFiles) { EXPECT_GT(source_files().size(), 50u); }

TEST(Tidy, FilesStayShort) {
  for (const std::string& f : source_files()) EXPECT_LE(count_lines(read(kRoot / f)), 1200) << f;
}

TEST(Tidy, HeadersSayWhatTheyAre) {
  for (const std::string& f : source_files()) {
    if (!f.ends_with(".h")) continue;
    const std::string text = read(kRoot / f);
    EXPECT_TRUE(text.starts_with("// "))
        << f << ": a header opens with a comment: what it is, who owns it, threads";
    EXPECT_NE(text.find("#pragma once"), std::string::npos) << f;
  }
}

TEST(Tidy, NoUnfinishedWork) {
  const std::regex words(
      "\\b(TO"
      "DO|FIX"
      "ME|XX"
      "X)\\b|not imple"
      "mented|for n"
      "ow[,.;]");
  for (const std::string& f : source_files()) {
    std::istringstream lines(read(kRoot / f));
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      EXPECT_FALSE(std::regex_search(line, words)) << f << ":" << number << ": " << line;
    }
  }
}

TEST(Tidy, EnvironmentIsReadInOnePlace) {
  for (const std::string& f : source_files()) {
    if (f.starts_with("tests/") || f.starts_with("src/options/") || f == "src/base/environment.cc") continue;
    EXPECT_EQ(read(kRoot / f).find("getenv("), std::string::npos) << f;
  }
}

// Two types of one name in one namespace link without a word and free each other's memory (One Definition
// Rule).
TEST(Tidy, TypeNamesOfHeadersAreUnique) {
  const std::regex definition(
      "\\n(?:struct|class|enum class) (?:alignas\\(\\d+\\) )?([A-Z]\\w+)(?: final)?\\s*[:{]");
  const std::regex nested("\\nnamespace ([\\w:]+) \\{");
  std::map<std::string, std::string> seen;
  for (const std::string& f : source_files()) {
    if (!f.ends_with(".h") || !f.starts_with("src/")) continue;
    const std::string text = read(kRoot / f);
    std::string space;
    for (std::sregex_iterator it(text.begin(), text.end(), nested), end; it != end; ++it)
      space += (*it)[1].str() + "::";
    for (std::sregex_iterator it(text.begin(), text.end(), definition), end; it != end; ++it) {
      const auto [place, is_new] = seen.emplace(space + (*it)[1].str(), f);
      EXPECT_TRUE(is_new || place->second == f)
          << (*it)[1] << " is defined in " << f << " and in " << place->second;
    }
  }
  EXPECT_GT(seen.size(), 100u);
}

TEST(Tidy, NoTabsAndNoTrailingBlanks) {
  for (const std::string& f : source_files()) {
    const std::string text = read(kRoot / f);
    EXPECT_EQ(text.find('\t'), std::string::npos) << f;
    EXPECT_EQ(text.find(" \n"), std::string::npos) << f;
    EXPECT_TRUE(text.empty() || text.back() == '\n') << f;
  }
}

TEST(Tidy, SourceIsFormatted) {
  if (run_command("clang-format --version").status != 0) {
    GTEST_SKIP() << "not run: clang-format is absent (scripts/install-dependencies.sh installs it)";
  }
  const std::vector<std::string> files = source_files();
  for (size_t begin = 0; begin < files.size(); begin += 50) {
    std::string command = "clang-format --dry-run -Werror";
    for (size_t i = begin; i < std::min(files.size(), begin + 50); ++i) command += " '" + files[i] + "'";
    const CommandResult r = run_command(command);
    EXPECT_EQ(r.status, 0) << "run `make format`\n" << r.output.substr(0, 2000);
  }
}

TEST(Tidy, TrackedTreeIsSmall) {
  if (run_command("git rev-parse").status != 0) GTEST_SKIP() << "not run: not a git repository";
  uintmax_t bytes = 0;
  std::istringstream lines(run_command("git ls-files").output);
  for (std::string line; std::getline(lines, line);) {
    if (fs::is_regular_file(kRoot / line)) bytes += fs::file_size(kRoot / line);
  }
  EXPECT_LT(bytes, 45u << 20);
}

}  // namespace
