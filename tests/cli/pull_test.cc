// mlxcel pull, from a hub on this machine to an answer of the model.
#include <gtest/gtest.h>

#include "base/file.h"
#include "hub/http_server_for_tests.h"
#include "program.h"

namespace mlxcel {
namespace {

constexpr const char* kCommit = "00112233445566778899aabbccddeeff00112233";
const std::vector<std::string>& model_files() {
  static const std::vector<std::string> files = {"config.json", "model.safetensors", "tokenizer.json",
                                                 "tokenizer_config.json"};
  return files;
}

TestResponse answer(const TestRequest& request) {
  if (request.path == "/api/models/own/Tiny/revision/main?blobs=true") {
    JsonArray siblings;
    for (const std::string& name : model_files()) {
      JsonObject entry;
      entry.set("rfilename", name);
      entry.set("size", static_cast<int64_t>(read_file(fixture("llama") + "/" + name)->size()));
      siblings.emplace_back(std::move(entry));
    }
    JsonObject root;
    root.set("sha", kCommit);
    root.set("siblings", std::move(siblings));
    return {200, {}, to_json(JsonValue(std::move(root)))};
  }
  const std::string prefix = fmt::format("/own/Tiny/resolve/{}/", kCommit);
  if (!request.path.starts_with(prefix)) return {404, {}, ""};
  return {200, {}, *read_file(fixture("llama") + "/" + request.path.substr(prefix.size()))};
}

TEST(Pull, ThenListedThenRun) {
  const TestServer server(answer);
  const ScratchFolder home;
  const RunOptions options{.environment = {{"MLXCEL_HOME", home.path()},
                                           {"HF_ENDPOINT", server.url()},
                                           {"HF_TOKEN", "hf_secretword"}}};
  const RunResult pulled = run_program({"pull", "own/Tiny", "-v", "--log-level", "trace"}, options);
  ASSERT_EQ(pulled.code, 0) << pulled.err;
  EXPECT_EQ(pulled.out, "");
  EXPECT_TRUE(contains(pulled.err, "model.safetensors  100%")) << pulled.err;
  EXPECT_FALSE(contains(pulled.err, "secretword"));
  EXPECT_FALSE(contains(pulled.err, "\r"));  // no redrawn lines where nobody looks
  for (const TestRequest& request : server.requests())
    EXPECT_EQ(request.headers.at("authorization"), "Bearer hf_secretword");
  EXPECT_TRUE(contains(run_program({"list"}, options).out, "own/Tiny"));
  const RunResult run =
      run_program({"generate", "-m", "own/Tiny", "--raw", "-p", "hello", "-n", "3", "--json"}, options);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.json().find("model")->as_string(), "own/Tiny");
  const RunResult missing = run_program({"pull", "own/Other"}, options);
  EXPECT_EQ(missing.code, 3);
  EXPECT_TRUE(contains(missing.err, "no such model")) << missing.err;
}

}  // namespace
}  // namespace mlxcel
