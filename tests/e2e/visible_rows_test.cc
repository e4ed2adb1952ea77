// How many rows the first decode step of a prompt attends to, as the real server's log says it. Padding that
// stayed visible once made it 65 instead of 38, on default flags and for most prompts.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "e2e/server_process.h"

namespace mlxcel {
namespace {

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

struct Case {
  std::string storage, environment;
  std::vector<std::string> flags;
  bool pads = false;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.storage << ", " << c.environment; }

class VisibleRows : public ::testing::TestWithParam<Case> {};

// A prompt of 37 token ids; two tokens, so that one decode step runs.
std::string request_of_37_tokens() {
  std::string ids;
  for (int i = 0; i < 37; ++i) ids += (i == 0 ? "" : ",") + std::to_string(300 + 7 * i);
  return "{\"prompt\":[" + ids + "],\"max_tokens\":2,\"temperature\":0,\"ignore_eos\":true}";
}

TEST_P(VisibleRows, A37TokenPromptDecodesItsFirstTokenOver38Rows) {
  const std::string log =
      (std::filesystem::path(::testing::TempDir()) / ("visible_rows_" + std::to_string(::getpid()))).string();
  std::vector<std::string> flags = {"--log-level", "debug", "--decode-storage-backend", GetParam().storage};
  flags.insert(flags.end(), GetParam().flags.begin(), GetParam().flags.end());
  {
    e2e::ServerProcess server(flags, {GetParam().environment}, log);
    const e2e::Reply reply = server.post("/v1/completions", request_of_37_tokens());
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Result<JsonValue> answer = parse_json(reply.body, "reply");
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->find("usage")->find("prompt_tokens")->as_int(), 37);
    EXPECT_EQ(answer->find("usage")->find("completion_tokens")->as_int(), 2);
    EXPECT_EQ(server.metric("mlxcel_padded_rows_trimmed_total"), GetParam().pads ? 27.0 : 0.0);
    EXPECT_EQ(server.terminate(), 0);
  }
  const std::string lines = read(log);
  std::filesystem::remove(log);
  std::vector<std::string> decoded;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find(" decode: ");
    if (at != std::string::npos) decoded.push_back(line.substr(line.find(GetParam().storage)));
  }
  EXPECT_EQ(decoded, std::vector<std::string>{GetParam().storage +
                                              " decode: 38 visible KV tokens across 1 request(s)"})
      << lines;
}

const std::string kPadded = "MLXCEL_FORCE_PADDED_PREFILL=1", kPlain = "MLXCEL_NO_PADDED_PREFILL=1";

INSTANTIATE_TEST_SUITE_P(Storages, VisibleRows,
                         ::testing::Values(Case{"paged", kPadded, {}, true}, Case{"paged", kPlain, {}, false},
                                           Case{"paged", kPadded, {"--kv-block-size", "16"}, true},
                                           Case{"dense", kPadded, {}, true},
                                           Case{"dense", kPlain, {}, false}),
                         [](const auto& one) {
                           return one.param.storage + (one.param.pads ? "Padded" : "Plain") +
                                  std::to_string(one.index);
                         });

}  // namespace
}  // namespace mlxcel
