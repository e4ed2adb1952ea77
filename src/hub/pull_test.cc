#include "hub/pull.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "hub/digest.h"
#include "hub/http_server_for_tests.h"

namespace mlxcel {
namespace {

std::string sha256_of(const std::string& text) {
  Digest digest = Digest::sha256();
  digest.update(text);
  return digest.finish();
}
std::string git_sha1_of(const std::string& text) {
  Digest digest = Digest::git_blob(text.size());
  digest.update(text);
  return digest.finish();
}

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

// A repository behind the hub's two routes.
struct FakeHub {
  std::map<std::string, std::string> files;
  std::map<std::string, std::string> wrong_digest;            // by path
  std::map<std::string, std::vector<TestResponse>> scripted;  // answers given first, by request path
  std::string redirect_weights_to;                            // another server's URL
  bool knows_ranges = true;
  int served_bytes = 0;

  TestResponse answer(const TestRequest& request) {
    if (auto& queue = scripted[request.path]; !queue.empty()) {
      TestResponse response = queue.front();
      queue.erase(queue.begin());
      return response;
    }
    if (request.path == "/api/models/o/m/revision/main?blobs=true") return {200, {}, listing()};
    const std::string prefix = fmt::format("/o/m/resolve/{}/", kCommit);
    if (!request.path.starts_with(prefix)) return {404, {}, "{\"error\":\"not found\"}"};
    const std::string name = request.path.substr(prefix.size());
    if (!redirect_weights_to.empty() && name.ends_with(".safetensors")) {
      return {302, {{"Location", redirect_weights_to + "/cdn/" + name}}, ""};
    }
    return file(name, request);
  }
  TestResponse file(const std::string& name, const TestRequest& request) {
    const auto it = files.find(name);
    if (it == files.end()) return {404, {}, ""};
    const std::string etag = "\"" + sha256_of(it->second) + "\"";
    TestResponse response{200, {{"ETag", etag}}, it->second};
    const auto range = request.headers.find("range");
    const auto condition = request.headers.find("if-range");
    const bool is_same = condition == request.headers.end() || condition->second == etag;
    if (knows_ranges && range != request.headers.end() && is_same) {
      const size_t begin = std::stoul(range->second.substr(6));
      if (begin >= it->second.size()) return {416, {}, ""};
      response.status = 206;
      response.body = it->second.substr(begin);
      response.headers["Content-Range"] =
          fmt::format("bytes {}-{}/{}", begin, it->second.size() - 1, it->second.size());
    }
    served_bytes += static_cast<int>(response.body.size());
    return response;
  }
  std::string listing() const {
    JsonArray siblings;
    for (const auto& [path, text] : files) {
      JsonObject entry;
      entry.set("rfilename", path);
      entry.set("size", static_cast<int64_t>(text.size()));
      const auto wrong = wrong_digest.find(path);
      if (path.ends_with(".safetensors") || path.ends_with(".gguf")) {
        JsonObject lfs;
        lfs.set("sha256", wrong == wrong_digest.end() ? sha256_of(text) : wrong->second);
        entry.set("lfs", std::move(lfs));
      } else {
        entry.set("blobId", wrong == wrong_digest.end() ? git_sha1_of(text) : wrong->second);
      }
      siblings.emplace_back(std::move(entry));
    }
    JsonObject root;
    root.set("sha", kCommit);
    root.set("siblings", std::move(siblings));
    return to_json(JsonValue(std::move(root)));
  }
};

class PullTest : public ::testing::Test {
 protected:
  PullTest() {
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("mlxcel-pull-{}-{}", ::getpid(),
                          ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    paths_.home = folder_.string();
    hub_.files = {{"config.json", "{\"model_type\":\"llama\"}"},
                  {"README.md", "read me"},
                  {"tokenizer.json", "{}"},
                  {"chat_template.jinja", "{{ x }}"},
                  {"onnx/model.onnx", "no"},
                  {"model.safetensors", weights_},
                  {"pytorch_model.bin", "no"}};
    options_.endpoint = server_.url();
    options_.sleep = [this](double seconds) { sleeps_.push_back(seconds); };
  }
  ~PullTest() override { std::filesystem::remove_all(folder_); }

  Result<PullResult> pull(const std::string& variant = "") {
    return pull_model({"o", "m", variant}, paths_, options_);
  }
  std::string path(const std::string& name) const { return (folder_ / "models/o/m" / name).string(); }
  std::string weights_path() const { return fmt::format("/o/m/resolve/{}/model.safetensors", kCommit); }
  TestResponse cut_at(size_t bytes) const {
    return {200, {{"ETag", "\"" + sha256_of(weights_) + "\""}}, weights_, bytes};
  }

  std::string weights_ = std::string(100000, 'w') + std::string(50000, 'z');
  FakeHub hub_;
  TestServer server_{[this](const TestRequest& request) { return hub_.answer(request); }};
  std::filesystem::path folder_;
  StorePaths paths_;
  PullOptions options_;
  std::vector<double> sleeps_;
};

TEST_F(PullTest, TakesWhatAModelNeedsAndNothingElse) {
  uint64_t last = 0;
  options_.on_progress = [&](const PullProgress& p) {
    if (p.file == "model.safetensors") last = p.done_bytes;
  };
  auto result = pull();
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(result->commit, kCommit);
  for (const char* name : {"config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"}) {
    EXPECT_EQ(*read_file(path(name)), hub_.files[name]) << name;
  }
  EXPECT_FALSE(file_exists(path("README.md")));
  EXPECT_FALSE(directory_exists(path("onnx")));
  EXPECT_FALSE(file_exists(path("model.safetensors.partial")));
  EXPECT_EQ(last, weights_.size());
  EXPECT_TRUE(is_complete_download(path("")));

  auto again = pull();
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->downloaded_bytes, 0u);
}

TEST_F(PullTest, ResumesWithinOneRunAfterACut) {
  hub_.scripted[weights_path()] = {cut_at(60000)};
  auto result = pull();
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(*read_file(path("model.safetensors")), weights_);
  EXPECT_EQ(sleeps_.size(), 1u);
  const auto requests = server_.requests();
  EXPECT_EQ(requests.back().headers.at("range"), "bytes=60000-");
  EXPECT_EQ(requests.back().headers.at("if-range"), "\"" + sha256_of(weights_) + "\"");
}

TEST_F(PullTest, ResumesInALaterRun) {
  options_.retries = 0;
  hub_.scripted[weights_path()] = {cut_at(60000)};
  ASSERT_FALSE(pull().ok());
  EXPECT_EQ(read_file(path("model.safetensors.partial"))->size(), 60000u);
  EXPECT_FALSE(is_complete_download(path("")));
  auto resolved = resolve_model("o/m", paths_);
  ASSERT_FALSE(resolved.ok());
  EXPECT_NE(resolved.error().to_string().find("incomplete"), std::string::npos);

  uint64_t resumed = 0;
  options_.on_progress = [&](const PullProgress& p) {
    resumed = std::max(resumed, p.file == "model.safetensors" ? p.resumed_bytes : 0);
  };
  auto result = pull();
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(resumed, 60000u);
  EXPECT_EQ(result->downloaded_bytes, weights_.size() - 60000);
  EXPECT_EQ(*read_file(path("model.safetensors")), weights_);
}

TEST_F(PullTest, StartsOverWhenTheServerKnowsNoRanges) {
  hub_.knows_ranges = false;
  hub_.scripted[weights_path()] = {cut_at(60000)};
  auto result = pull();
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(*read_file(path("model.safetensors")), weights_);
}

TEST_F(PullTest, StartsOverWhenTheFileChangedInBetween) {
  options_.retries = 0;
  hub_.scripted[weights_path()] = {cut_at(60000)};
  ASSERT_FALSE(pull().ok());
  hub_.files["model.safetensors"] = std::string(150000, 'n');
  auto result = pull();
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(*read_file(path("model.safetensors")), hub_.files["model.safetensors"]);
}

TEST_F(PullTest, AWrongChecksumIsAnErrorAndLeavesNothing) {
  hub_.wrong_digest["model.safetensors"] = std::string(64, 'a');
  auto result = pull();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, ErrorKind::kInvalidData);
  EXPECT_NE(result.error().to_string().find("checksum"), std::string::npos);
  EXPECT_FALSE(file_exists(path("model.safetensors")));
  EXPECT_FALSE(file_exists(path("model.safetensors.partial")));
}

TEST_F(PullTest, ADamagedFileIsFetchedAgain) {
  ASSERT_TRUE(pull().ok());
  std::string damaged = weights_;
  damaged[70000] = '?';
  ASSERT_TRUE(write_file_atomically(path("model.safetensors"), damaged).ok());
  ASSERT_TRUE(pull().ok());
  EXPECT_EQ(*read_file(path("model.safetensors")), weights_);
}

TEST_F(PullTest, SmallFilesAreCheckedByTheirGitDigest) {
  hub_.wrong_digest["config.json"] = std::string(40, '0');
  auto result = pull();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().where, "config.json");
}

TEST_F(PullTest, EscapingPathsAreRefusedBeforeAnythingIsWritten) {
  hub_.files = {{"model.safetensors", "x"}, {"additional_chat_templates/../../../evil.json", "{}"}};
  auto result = pull();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, ErrorKind::kInvalidData);
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(PullTest, TheTokenStaysWithTheEndpoint) {
  TestServer other([this](const TestRequest& request) { return hub_.file("model.safetensors", request); });
  hub_.redirect_weights_to = other.url();
  options_.token = "hf_secret";
  auto result = pull();
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  for (const TestRequest& request : server_.requests())
    EXPECT_EQ(request.headers.at("authorization"), "Bearer hf_secret");
  ASSERT_EQ(other.requests().size(), 1u);
  EXPECT_FALSE(other.requests()[0].headers.contains("authorization"));
}

TEST_F(PullTest, ARedirectLoopEnds) {
  hub_.redirect_weights_to = server_.url() + "/o/m/resolve/" + kCommit;
  hub_.scripted.clear();
  for (int i = 0; i < 20; ++i) {
    hub_.scripted["/loop"].push_back({302, {{"Location", "/loop"}}, ""});
  }
  hub_.scripted[weights_path()] = {{302, {{"Location", "/loop"}}, ""}};
  auto result = pull();
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().to_string().find("too many redirects"), std::string::npos);
}

TEST_F(PullTest, PassingFailuresAreRetriedWithGrowingPauses) {
  hub_.scripted[weights_path()] = {{503, {}, ""}, {502, {}, ""}, {429, {{"Retry-After", "7"}}, ""}};
  auto result = pull();
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(sleeps_, (std::vector<double>{1.0, 2.0, 7.0}));
}

TEST_F(PullTest, RetriesEnd) {
  for (int i = 0; i < 9; ++i) hub_.scripted[weights_path()].push_back({503, {}, ""});
  auto result = pull();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(sleeps_.size(), 4u);
}

TEST_F(PullTest, LongerThanStatedIsRefused) {
  hub_.scripted[weights_path()] = {{200, {}, weights_ + "more"}};
  auto result = pull();
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().to_string().find("more than the file's size"), std::string::npos);
}

TEST_F(PullTest, MissingForbiddenAndUnauthorisedSayWhatToDo) {
  const std::string api = "/api/models/o/m/revision/main?blobs=true";
  hub_.scripted[api] = {{404, {}, ""}};
  auto missing = pull();
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().kind, ErrorKind::kNotFound);
  hub_.scripted[api] = {{401, {}, ""}};
  EXPECT_NE(pull().error().to_string().find("HF_TOKEN"), std::string::npos);
  hub_.scripted[api] = {{403, {}, ""}};
  EXPECT_NE(pull().error().to_string().find("conditions"), std::string::npos);
  hub_.scripted[api] = {{200, {}, "<html>"}};
  EXPECT_EQ(pull().error().kind, ErrorKind::kInvalidData);
}

TEST_F(PullTest, NoServerIsAnErrorWithoutEndlessWaiting) {
  options_.endpoint = "http://127.0.0.1:1";
  auto result = pull();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, ErrorKind::kIo);
  EXPECT_EQ(sleeps_.size(), 4u);
}

TEST_F(PullTest, CancelEndsAtOnce) {
  options_.is_cancelled = [] { return true; };
  auto result = pull();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, ErrorKind::kCancelled);
}

TEST_F(PullTest, OneGgufFileByItsQuantisation) {
  hub_.files = {{"m-Q4_0.gguf", "four"}, {"m-Q8_0.gguf", "eight"}, {"config.json", "{}"}};
  EXPECT_EQ(pull().error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(pull("Q5").error().kind, ErrorKind::kInvalidArgument);
  auto result = pull("q8_0");
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(result->files, (std::vector<std::string>{"m-Q8_0.gguf"}));
  EXPECT_EQ(*read_file(path("m-Q8_0.gguf")), "eight");
  ASSERT_TRUE(pull("Q4_0").ok());
  EXPECT_TRUE(is_complete_download(path("")));
  EXPECT_EQ(resolve_model("o/m:Q4_0", paths_)->path, path("m-Q4_0.gguf"));
  EXPECT_FALSE(resolve_model("o/m", paths_).ok());  // which one?
}

TEST(Digest, KnownAnswers) {
  // FIPS 180-4 "abc"; `git hash-object` of an empty file and of "hello\n".
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(git_sha1_of(""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  EXPECT_EQ(git_sha1_of("hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
}

}  // namespace
}  // namespace mlxcel
