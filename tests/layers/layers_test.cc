// Every #include points down. Reads the one table of layers (cmake/Layers.cmake) and every include of src/
// and apps/.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

struct LayerTable {
  std::map<std::string, int> layer;
  std::set<std::string> sideways, forbidden;  // "from:to"
};

LayerTable parse_table(const std::string& text) {
  LayerTable table;
  const std::regex set_call(R"(set\((MLXCEL_[A-Z]+(?:_(\d+))?)\s+([^)]*)\))");
  for (std::sregex_iterator it(text.begin(), text.end(), set_call), end; it != end; ++it) {
    const std::string name = (*it)[1], number = (*it)[2];
    std::istringstream words((*it)[3]);
    for (std::string word; words >> word;) {
      if (name == "MLXCEL_SIDEWAYS") {
        table.sideways.insert(word);
      } else if (name == "MLXCEL_FORBIDDEN") {
        table.forbidden.insert(word);
      } else if (!number.empty()) {
        table.layer[word] = std::stoi(number);
      }
    }
  }
  return table;
}

// "" when the edge is allowed, else why not.
std::string judge(const LayerTable& table, const std::string& from, const std::string& to) {
  if (from == to) return "";
  const auto f = table.layer.find(from), t = table.layer.find(to);
  if (f == table.layer.end()) return "module '" + from + "' is in no layer";
  if (t == table.layer.end()) return "module '" + to + "' is in no layer";
  if (table.forbidden.contains(from + ":" + to)) return from + " must not know " + to;
  if (t->second > f->second) return from + " includes upwards into " + to;
  if (t->second == f->second && !table.sideways.contains(from + ":" + to))
    return from + " includes sideways into " + to;
  return "";
}

std::vector<std::string> find_violations(const LayerTable& table, const fs::path& root) {
  std::vector<std::string> violations;
  const std::regex include(R"re((?:^|\n)[ \t]*#[ \t]*include[ \t]*"([a-z_0-9]+)/[^"]+")re");
  for (const char* top : {"src", "apps"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      const std::string extension = entry.path().extension();
      if (!entry.is_regular_file() || (extension != ".h" && extension != ".cc" && extension != ".cu"))
        continue;
      // A test beside its module may look at everything below the program.
      if (entry.path().filename().string().ends_with("_test.cc")) continue;
      const fs::path relative = fs::relative(entry.path(), root);
      const std::string from = std::string(top) == "apps" ? "apps" : std::next(relative.begin())->string();
      const std::string text = read(entry.path());
      for (std::sregex_iterator it(text.begin(), text.end(), include), end; it != end; ++it) {
        const std::string why = judge(table, from, (*it)[1]);
        if (!why.empty()) violations.push_back(relative.string() + ": " + why);
      }
    }
  }
  return violations;
}

TEST(Layers, TableIsRead) {
  const LayerTable table = parse_table(read(fs::path(MLXCEL_SOURCE_DIR) / "cmake/Layers.cmake"));
  EXPECT_EQ(table.layer.at("base"), 0);
  EXPECT_EQ(table.layer.at("apps"), 7);
  EXPECT_TRUE(table.sideways.contains("chat:tokenizer"));
}

TEST(Layers, AnUpwardEdgeIsFound) {  // the canary: this test must be able to fail
  const LayerTable table = parse_table(read(fs::path(MLXCEL_SOURCE_DIR) / "cmake/Layers.cmake"));
  EXPECT_NE(judge(table, "base", "engine"), "");
  EXPECT_NE(judge(table, "checkpoint", "tokenizer"), "");
  EXPECT_NE(judge(table, "serve", "kv"), "");
  EXPECT_NE(judge(table, "base", "unheard_of"), "");
  EXPECT_EQ(judge(table, "engine", "base"), "");
}

TEST(Layers, EveryIncludePointsDown) {
  const fs::path root = MLXCEL_SOURCE_DIR;
  const auto violations = find_violations(parse_table(read(root / "cmake/Layers.cmake")), root);
  for (const std::string& v : violations) ADD_FAILURE() << v;
}

}  // namespace
