// mlxcel bench serve against the real server with the tiny model.
#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "program.h"

namespace mlxcel {
namespace {

class BackgroundServer {
 public:
  BackgroundServer() {
    int out[2];
    if (::pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    const std::vector<std::string> environment = clean_environment(home_, {});
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(out[1], STDOUT_FILENO);
      execute({"serve", tiny_chat(), "--port", "0"}, environment);
    }
    ::close(out[1]);
    std::string line;
    for (char c = 0; ::read(out[0], &c, 1) == 1 && c != '\n';) line.push_back(c);
    ::close(out[0]);
    url_ = line.substr(line.find("http"));
    for (int i = 0; i < 600 && run_program({"bench", "serve", "--server", url_, "--num-prompts", "1", "-p",
                                            "1", "-n", "1", "--json"})
                                       .code != 0;
         ++i)
      ::usleep(50'000);
  }
  ~BackgroundServer() {
    ::kill(child_, SIGTERM);
    ::waitpid(child_, nullptr, 0);
  }
  BackgroundServer(const BackgroundServer&) = delete;
  BackgroundServer& operator=(const BackgroundServer&) = delete;
  const std::string& url() const { return url_; }

 private:
  ScratchFolder home_;
  pid_t child_ = -1;
  std::string url_;
};

TEST(BenchServe, CountsWhatItAskedFor) {
  const BackgroundServer server;
  const JsonValue random = run_program({"bench", "serve", "--server", server.url(), "--num-prompts", "12",
                                        "-c", "4", "-p", "40", "-n", "8", "--json"})
                               .json();
  EXPECT_EQ(random.find("completed")->as_int(), 12);
  EXPECT_EQ(random.find("failed")->as_int(), 0);
  EXPECT_EQ(random.find("total_output_tokens")->as_int(), 12 * 8);
  EXPECT_EQ(random.find("total_cached_tokens")->as_int(), 0);
  EXPECT_NEAR(random.find("total_input_tokens")->as_double(), 12.0 * 40.0, 12.0 * 10.0);
  EXPECT_LE(random.find("peak_concurrent_requests")->as_int(), 4);
  EXPECT_GT(random.find("mean_ttft_ms")->as_double(), 0.0);
  EXPECT_GT(random.find("output_throughput")->as_double(), 0.0);

  const JsonValue shared = run_program({"bench", "serve", "--server", server.url(), "--num-prompts", "6",
                                        "--load-endpoint", "chat", "--shared-prefix", "200", "-p", "10", "-n",
                                        "4", "--request-rate", "100", "--json"})
                               .json();
  EXPECT_EQ(shared.find("completed")->as_int(), 6);
  EXPECT_GT(shared.find("total_cached_tokens")->as_int(), 0);

  const ScratchFolder folder;
  std::ofstream(folder / "load.jsonl") << R"({"prompt": "Hello", "max_tokens": 3})"
                                       << "\n\n"
                                       << R"({"prompt": "Good day"})"
                                       << "\n";
  const RunResult table =
      run_program({"bench", "serve", "--server", server.url(), "--dataset", folder / "load.jsonl", "-n", "2",
                   "--save-result", folder / "result.json"});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_TRUE(contains(table.out, "Successful requests:                     2")) << table.out;
  const auto saved = parse_json_file(folder / "result.json");
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ(saved->find("num_prompts")->as_int(), 2);
}

TEST(BenchServe, WithoutAServerOrWithABadFileItSaysSo) {
  const RunResult nobody = run_program({"bench", "serve", "--server", "http://127.0.0.1:9"});
  EXPECT_EQ(nobody.code, 1);
  EXPECT_TRUE(contains(nobody.err, "no server answers")) << nobody.err;
  const RunResult address = run_program({"bench", "serve", "--server", "nowhere"});
  EXPECT_EQ(address.code, 2);
}

}  // namespace
}  // namespace mlxcel
