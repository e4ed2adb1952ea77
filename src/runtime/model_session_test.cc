#include "runtime/model_session.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "runtime/gguf_vocabulary.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;

std::string fixture(const std::string& name) {
  return std::string(MLXCEL_SOURCE_DIR) + "/tests/data/models/" + name;
}
std::string tiny_chat() { return std::string(MLXCEL_SOURCE_DIR) + "/assets/mlxcel-tiny-chat-4bit"; }

// A copy of a fixture whose JSON files a test may change.
class ModelCopy {
 public:
  explicit ModelCopy(const std::string& name) {
    folder_ = fs::temp_directory_path() / ("mlxcel-session-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::copy(fixture(name), folder_);
  }
  ~ModelCopy() { fs::remove_all(folder_); }
  ModelCopy(const ModelCopy&) = delete;
  ModelCopy& operator=(const ModelCopy&) = delete;
  std::string path() const { return folder_.string(); }
  void set(const std::string& file, const std::string& key, JsonValue value) const {
    const std::string full = (folder_ / file).string();
    JsonValue json = file_exists(full) ? *parse_json_file(full) : JsonValue(JsonObject());
    json.as_object().set(key, std::move(value));
    ASSERT_TRUE(write_file_atomically(full, to_json(json)).ok());
  }
  void remove(const std::string& file) const { fs::remove(folder_ / file); }

 private:
  fs::path folder_;
};

TEST(TextModel, FolderHasTokenizerTemplateAndEndTokens) {
  auto text = load_text_model(fixture("llama"));
  ASSERT_TRUE(text.ok()) << text.error().to_string();
  EXPECT_NE(text->chat_template, nullptr);
  EXPECT_EQ(text->special_tokens.at("eos_token"), "<eos>");
  EXPECT_TRUE(
      std::count(text->eos_ids.begin(), text->eos_ids.end(), *text->tokenizer->token_to_id("<eos>")) == 1);
  EXPECT_EQ(text->tokenizer->decode(text->tokenizer->encode("hello")), "hello");
}

// B-LD-10: the end tokens are those of every file together.
TEST(TextModel, EndTokensAreTheUnionOfAllFiles) {
  const ModelCopy model("llama");
  model.set("config.json", "eos_token_id", JsonArray{JsonValue(7), JsonValue(9)});
  model.set("generation_config.json", "eos_token_id", 11);
  auto text = load_text_model(model.path());
  ASSERT_TRUE(text.ok()) << text.error().to_string();
  std::vector<TokenId> expected = {7, 9, 11, *text->tokenizer->eos()};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(text->eos_ids, expected);
  model.set("config.json", "eos_token_id", "seven");
  auto wrong = load_text_model(model.path());
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().one_line().find("eos_token_id"), std::string::npos);
}

TEST(TextModel, GenerationConfigIsReadAsItIs) {
  const ModelCopy model("llama");
  model.set("generation_config.json", "do_sample", true);
  model.set("generation_config.json", "temperature", 0.5);
  model.set("generation_config.json", "top_k", 20);
  auto text = load_text_model(model.path());
  ASSERT_TRUE(text.ok()) << text.error().to_string();
  EXPECT_EQ(text->defaults.do_sample, true);
  EXPECT_EQ(text->defaults.temperature, 0.5f);
  EXPECT_EQ(text->defaults.top_k, 20);
  EXPECT_EQ(text->defaults.top_p, std::nullopt);
  model.set("generation_config.json", "top_k", "many");
  EXPECT_FALSE(load_text_model(model.path()).ok());
}

TEST(TextModel, WhatIsMissingIsNamed) {
  const ModelCopy model("llama");
  model.remove("tokenizer.json");
  auto text = load_text_model(model.path());
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().kind, ErrorKind::kNotFound);
  EXPECT_NE(text.error().to_string().find("tokenizer.json"), std::string::npos);
}

TEST(TextModel, ATemplateGivenByTheUserWins) {
  auto text = load_text_model(fixture("llama"), "{{ messages[0]['content'] }}!");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->chat_template->source(), "{{ messages[0]['content'] }}!");
  EXPECT_FALSE(load_text_model(fixture("llama"), "{% if %}").ok());
}

TEST(TextModel, GgufBringsItsOwnVocabulary) {
  auto text = load_text_model(fixture("gguf-llama-q4_0"));
  ASSERT_TRUE(text.ok()) << text.error().to_string();
  EXPECT_FALSE(text->eos_ids.empty());
  EXPECT_EQ(text->tokenizer->decode(text->tokenizer->encode("hello world")), "hello world");
  auto vocabulary = read_gguf_vocabulary(*text->checkpoint);
  ASSERT_TRUE(vocabulary.ok());
  EXPECT_EQ(static_cast<int64_t>(vocabulary->tokens.size()), text->tokenizer->vocab_size());
}

TEST(ContextLength, ModelLimitDefaultAndRefusal) {
  ModelSpec spec;
  spec.max_position = 131072;
  SessionOptions options;
  EXPECT_EQ(*choose_context_length(spec, options), kDefaultContextLength);
  options.context_length = 0;
  EXPECT_EQ(*choose_context_length(spec, options), 131072);
  options.context_length = 20000;
  EXPECT_EQ(*choose_context_length(spec, options), 20000);
  options.context_length = 131073;
  EXPECT_EQ(choose_context_length(spec, options).error().kind, ErrorKind::kInvalidArgument);
  spec.max_position = 2048;
  options.context_length.reset();
  EXPECT_EQ(*choose_context_length(spec, options), 2048);
  options.engine.context_length = 100;
  EXPECT_EQ(*choose_context_length(spec, options), 100);
}

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SessionOptions options;
    options.model_path = tiny_chat();
    options.engine.storage = KvStorageKind::kDense;
    options.context_length = 256;
    auto opened = open_session(options);
    ASSERT_TRUE(opened.ok()) << opened.error().to_string();
    session_ = std::make_unique<ModelSession>(std::move(*opened));
    RenderRequest request;
    request.messages = *parse_json(R"([{"role":"user","content":"What is the capital of France?"}])", "");
    prompt_ = encode_prompt(*session_->text.tokenizer, *session_->text.chat_template->render(request));
    options_.stop.eos_ids = session_->text.eos_ids;
  }
  GenerateResult answer(const std::function<bool(std::string_view)>& on_text) {
    auto id = start_sequence(*session_, prompt_, options_);
    EXPECT_TRUE(id.ok());
    auto result = generate(*session_, *id, options_, on_text);
    EXPECT_TRUE(result.ok());
    EXPECT_TRUE(session_->engine->check_integrity().ok());
    session_->engine->remove(*id);
    return std::move(*result);
  }

  std::unique_ptr<ModelSession> session_;
  std::vector<TokenId> prompt_;
  GenerateOptions options_;
};

TEST_F(SessionTest, PiecesAreTheText) {
  std::string pieces;
  const GenerateResult result = answer([&](std::string_view piece) {
    pieces += piece;
    return true;
  });
  EXPECT_EQ(result.text, "The capital of France is Paris.");
  EXPECT_EQ(pieces, result.text);
  EXPECT_EQ(result.finish, FinishReason::kEos);
  EXPECT_EQ(result.tokens.size(), 8u);  // the end token is one of them
  EXPECT_EQ(result.prompt_tokens, static_cast<int64_t>(prompt_.size()));
  EXPECT_EQ(result.cached_tokens, 0);
}

TEST_F(SessionTest, AStopStringAcrossTokensIsNeverGivenOut) {
  options_.stop_strings = {"ance is P"};
  std::string pieces;
  const GenerateResult result = answer([&](std::string_view piece) {
    pieces += piece;
    return true;
  });
  EXPECT_EQ(result.text, "The capital of Fr");
  EXPECT_EQ(pieces, result.text);
  EXPECT_EQ(result.finish, FinishReason::kStopString);
  EXPECT_EQ(result.matched_stop, "ance is P");
}

TEST_F(SessionTest, AnAlmostMatchComesOutInTheEnd) {
  options_.stop_strings = {" Paris.\n"};
  const GenerateResult result = answer([](std::string_view) { return true; });
  EXPECT_EQ(result.text, "The capital of France is Paris.");
  EXPECT_EQ(result.finish, FinishReason::kEos);
}

TEST_F(SessionTest, TheReceiverCanStopAtAnyPiece) {
  std::string pieces;
  const GenerateResult result = answer([&](std::string_view piece) {
    pieces += piece;
    return !pieces.ends_with("capital");
  });
  EXPECT_EQ(pieces, "The capital");
  EXPECT_EQ(result.text, "The capital");
  EXPECT_EQ(result.finish, FinishReason::kCancelled);

  options_.prefill_chunk = 4;  // and while the prompt is still being read
  int calls = 0;
  const GenerateResult early = answer([&](std::string_view) { return ++calls < 3; });
  EXPECT_EQ(early.finish, FinishReason::kCancelled);
  EXPECT_TRUE(early.tokens.empty());
}

TEST_F(SessionTest, TokensOutsideTheModelAreRefused) {
  EXPECT_FALSE(start_sequence(*session_, {1, 49152}, options_).ok());
  EXPECT_FALSE(start_sequence(*session_, {-1}, options_).ok());
  EXPECT_FALSE(start_sequence(*session_, {}, options_).ok());
  EXPECT_FALSE(
      start_sequence(*session_, std::vector<TokenId>(256, 5), options_).ok());  // no room for an answer
}

}  // namespace
}  // namespace mlxcel
