// rows.txt says of each known failure where its test is; here the sources are asked whether that is true.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = MLXCEL_SOURCE_DIR;

struct Row {
  std::string id, status, note;
  std::vector<std::string> where;
};

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

std::vector<Row> rows() {
  std::vector<Row> result;
  std::ifstream in(kRoot / "tests/known_failures/rows.txt");
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> columns;
    std::istringstream parts(line);
    for (std::string column; std::getline(parts, column, '|');) columns.push_back(trimmed(column));
    EXPECT_EQ(columns.size(), 4u) << line;
    if (columns.size() != 4) continue;
    Row row{columns[0], columns[1], columns[3], {}};
    std::istringstream files(columns[2]);
    for (std::string file; files >> file;) {
      if (file != "-") row.where.push_back(file);
    }
    result.push_back(std::move(row));
  }
  return result;
}

// A-01: A_01_, as a test's name begins.
std::string name_of(const std::string& id) {
  std::string name = id + "_";
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool has_test(const std::string& file, const std::string& id) {
  const std::string text = read(kRoot / file);
  if (file.ends_with(".cc")) {
    return std::regex_search(text, std::regex("TEST(_F|_P)?\\(\\s*\\w+,\\s*" + name_of(id)));
  }
  const auto same = [](char a, char b) { return std::tolower(a) == std::tolower(b); };
  const std::string name = name_of(id);
  return std::search(text.begin(), text.end(), name.begin(), name.end(), same) != text.end();
}

TEST(KnownFailuresTable, EveryRowMarkedBuiltHasATestOfItsName) {
  int built = 0, absent = 0;
  std::string owed;
  std::set<std::string> seen;
  for (const Row& row : rows()) {
    EXPECT_TRUE(seen.insert(row.id).second) << row.id << " stands twice in rows.txt";
    EXPECT_FALSE(row.note.empty()) << row.id << ": the last column says what it is, or why it is not built";
    if (row.status == "built") {
      ++built;
      EXPECT_FALSE(row.where.empty()) << row.id << " is marked built and names no file";
      for (const std::string& file : row.where) {
        EXPECT_TRUE(has_test(file, row.id)) << file << " has no test whose name begins " << name_of(row.id);
      }
    } else {
      EXPECT_TRUE(row.status == "not-built" || row.status == "owed")
          << row.id << ": status is built, not-built or owed, found " << row.status;
      EXPECT_TRUE(row.where.empty()) << row.id << " is not marked built and names a file";
      absent += row.status == "not-built" ? 1 : 0;
      if (row.status == "owed") owed += " " + row.id;
    }
  }
  EXPECT_EQ(seen.size(), 99u) << "rows come and go with a reason";
  std::cout << built << " rows built, " << absent << " not built; owed:" << (owed.empty() ? " none" : owed)
            << "\n";
}

// A test that bears a row's name and is not in the table would be lost when it is renamed.
TEST(KnownFailuresTable, EveryTestNamedAfterARowStandsInTheTable) {
  std::map<std::string, Row> by_name;
  for (const Row& row : rows()) by_name.emplace(name_of(row.id), row);
  const std::regex test("TEST(?:_F|_P)?\\(\\s*\\w+,\\s*(A_\\d\\d_|B_[A-Z]+_\\d\\d_)");
  for (const char* top : {"src", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
      if (!entry.is_regular_file() || entry.path().extension() != ".cc") continue;
      const std::string file = fs::relative(entry.path(), kRoot).string();
      const std::string text = read(entry.path());
      for (std::sregex_iterator it(text.begin(), text.end(), test), end; it != end; ++it) {
        const auto row = by_name.find((*it)[1]);
        if (row == by_name.end()) {
          ADD_FAILURE() << file << ": " << (*it)[1] << " is no row of rows.txt";
          continue;
        }
        const std::vector<std::string>& where = row->second.where;
        EXPECT_NE(std::find(where.begin(), where.end(), file), where.end())
            << "rows.txt does not name " << file << " for " << row->second.id;
      }
    }
  }
}

}  // namespace
