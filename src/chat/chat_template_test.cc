// The engine against goldens of transformers 5: whole templates, snippets, and templates that must end within
// limits.
#include "chat/chat_template.h"

#include <gtest/gtest.h>

#include <map>

#include "base/file.h"
#include "base/utf8.h"

namespace mlxcel {
namespace {

const std::string kOwnData = std::string(MLXCEL_SOURCE_DIR) + "/tests/data/chat";
const std::string kSharedData = std::string(MLXCEL_SHARED_DIR) + "/fixtures/chat";

JsonValue read_json(const std::string& path) {
  Result<JsonValue> value = parse_json_file(path);
  EXPECT_TRUE(value.ok()) << (value.ok() ? "" : value.error().to_string());
  return value.ok() ? std::move(value).value() : JsonValue();
}

// One request of a golden file, as transformers was given it: nothing is adapted for API clients.
RenderRequest golden_request(const JsonValue& golden, const JsonValue& conversations, const JsonValue& test) {
  RenderRequest request;
  request.messages = *conversations.find("conversations")->find(test.find("conversation")->as_string());
  request.add_generation_prompt = false;
  request.null_content_is_empty = false;
  request.parse_tool_arguments = false;
  request.adapt_content_parts = false;
  request.now = golden.find("now")->as_string();
  if (const JsonValue* tools = test.find("tools")) {
    request.tools = *conversations.find("tools")->find(tools->as_string());
  }
  if (const JsonValue* specials = golden.find("specials")) {
    for (const auto& [name, token] : specials->as_object()) request.special_tokens[name] = token.as_string();
  }
  const JsonValue* kwargs = test.find("kwargs");
  if (kwargs == nullptr) return request;
  for (const auto& [name, value] : kwargs->as_object()) {
    if (name == "add_generation_prompt") {
      request.add_generation_prompt = value.as_bool();
    } else if (name == "continue_final_message") {
      request.continue_final_message = value.as_bool();
    } else if (name == "documents") {
      request.documents = *conversations.find("documents");
    } else {
      request.extra.set(name, value);
    }
  }
  return request;
}

void expect_result(const JsonValue& expected, const Result<RenderedPrompt>& actual, const std::string& name) {
  if (const JsonValue* text = expected.find("text")) {
    ASSERT_TRUE(actual.ok()) << name << ": " << actual.error().to_string();
    EXPECT_EQ(actual->text(), text->as_string()) << name;
    return;
  }
  ASSERT_FALSE(actual.ok()) << name << " must fail, but gave:\n" << actual->text();
  const JsonValue& error = *expected.find("error");
  EXPECT_TRUE(actual.error().kind == ErrorKind::kInvalidArgument ||
              actual.error().kind == ErrorKind::kResourceExhausted)
      << name;
  if (error.find("kind")->as_string() == "raise_exception") {
    EXPECT_EQ(actual.error().what, error.find("message")->as_string()) << name;
  }
}

void expect_spans(const JsonValue& expected, const RenderedPrompt& prompt, const std::string& name) {
  const std::string text = prompt.text();
  ASSERT_EQ(prompt.assistant_spans.size(), expected.as_array().size()) << name;
  for (size_t i = 0; i < prompt.assistant_spans.size(); ++i) {
    const auto characters = [&](size_t end) {
      return static_cast<int64_t>(count_code_points(std::string_view(text).substr(0, end)));
    };
    EXPECT_EQ(characters(prompt.assistant_spans[i].begin), expected.as_array()[i].as_array()[0].as_int())
        << name;
    EXPECT_EQ(characters(prompt.assistant_spans[i].end), expected.as_array()[i].as_array()[1].as_int())
        << name;
  }
}

class Goldens {
 public:
  explicit Goldens(const std::string& folder)
      : folder_(folder),
        golden_(read_json(folder + "/golden.json")),
        conversations_(read_json(folder + "/conversations.json")) {}

  void check_all() {
    ASSERT_TRUE(golden_.find("cases") != nullptr);
    for (const JsonValue& test : golden_.find("cases")->as_array()) {
      const std::shared_ptr<const ChatTemplate> chat = load(test.find("template")->as_string());
      if (chat == nullptr) continue;
      check(test, *chat);
    }
  }

 private:
  void check(const JsonValue& test, const ChatTemplate& chat) {
    const std::string kwargs = test.find("kwargs") != nullptr ? to_json(*test.find("kwargs")) : "";
    const std::string name =
        test.find("template")->as_string() + "/" + test.find("conversation")->as_string() + kwargs;
    RenderRequest request = golden_request(golden_, conversations_, test);
    const Result<RenderedPrompt> prompt = chat.render(request);
    expect_result(test, prompt, name);
    if (const JsonValue* spans = test.find("assistant_spans"); spans != nullptr && prompt.ok()) {
      expect_spans(*spans, *prompt, name);
    }
    if (const JsonValue* raw = test.find("without_none_dropping")) {
      request.normalize_messages = false;
      expect_result(*raw, chat.render(request), name + " without dropping nulls");
      check_null_is_empty(test, chat, name);
    }
  }

  // A null beside tool calls, turned into "", gives what the same conversation with "" gives.
  void check_null_is_empty(const JsonValue& test, const ChatTemplate& chat, const std::string& name) {
    RenderRequest with_null = golden_request(golden_, conversations_, test);
    with_null.null_content_is_empty = true;
    RenderRequest with_empty = golden_request(golden_, conversations_, test);
    with_empty.messages = *conversations_.find("conversations")->find("tool_call_parallel_empty");
    const Result<RenderedPrompt> expected = chat.render(with_empty), actual = chat.render(with_null);
    ASSERT_EQ(expected.ok(), actual.ok()) << name;
    if (expected.ok()) {
      EXPECT_EQ(expected->text(), actual->text()) << name;
    }
  }

  std::shared_ptr<const ChatTemplate> load(const std::string& name) {
    const auto known = templates_.find(name);
    if (known != templates_.end()) return known->second;
    Result<std::string> source = read_file(folder_ + "/templates/" + name + ".jinja");
    EXPECT_TRUE(source.ok()) << name;
    if (!source.ok()) return nullptr;
    Result<std::shared_ptr<const ChatTemplate>> chat = compile_chat_template(std::move(source).value());
    EXPECT_TRUE(chat.ok()) << name << ": " << (chat.ok() ? "" : chat.error().to_string());
    return templates_[name] = chat.ok() ? *chat : nullptr;
  }

  std::string folder_;
  JsonValue golden_, conversations_;
  std::map<std::string, std::shared_ptr<const ChatTemplate>> templates_;
};

TEST(ChatTemplate, OwnTemplatesEqualTransformers) { Goldens(kOwnData).check_all(); }

TEST(ChatTemplate, RealTemplatesEqualTransformers) {
  if (!directory_exists(kSharedData)) GTEST_SKIP() << "not run: ../shared is absent";
  Goldens(kSharedData).check_all();
}

TEST(ChatTemplate, SnippetsEqualJinja) {
  const JsonValue file = read_json(kOwnData + "/snippets.json");
  for (const JsonValue& test : file.find("cases")->as_array()) {
    const std::string name = test.find("name")->as_string() + ": " + test.find("template")->as_string();
    const Result<std::shared_ptr<const ChatTemplate>> chat =
        compile_chat_template(test.find("template")->as_string());
    const JsonValue* error = test.find("error");
    if (!chat.ok()) {
      EXPECT_TRUE(error != nullptr || test.find("unspecified_output") != nullptr)
          << name << ": " << chat.error().to_string();
      continue;
    }
    RenderRequest request;
    request.messages = JsonArray();
    request.add_generation_prompt = false;
    request.now = file.find("now")->as_string();
    for (const auto& [key, value] : file.find("context")->as_object()) request.extra.set(key, value);
    const Result<RenderedPrompt> prompt = (*chat)->render(request);
    if (test.find("unspecified_output") == nullptr) expect_result(test, prompt, name);
  }
}

TEST(ChatTemplate, MaliciousTemplatesEndWithinLimits) {
  const JsonValue file = read_json(kOwnData + "/malicious.json");
  for (const JsonValue& test : file.find("cases")->as_array()) {
    const std::string name = test.find("name")->as_string();
    std::string source;
    if (const JsonValue* parts = test.find("parts")) {
      for (const JsonValue& part : parts->as_array()) {
        for (int64_t i = 0; i < part.as_array()[1].as_int(); ++i) source += part.as_array()[0].as_string();
      }
    } else {
      source = test.find("template")->as_string();
    }
    const Result<std::shared_ptr<const ChatTemplate>> chat = compile_chat_template(source);
    bool failed = !chat.ok();
    if (chat.ok()) {
      RenderRequest request;
      request.messages = *file.find("messages");
      const Result<RenderedPrompt> prompt = (*chat)->render(request);
      failed = !prompt.ok();
      if (prompt.ok()) {
        EXPECT_LE(prompt->text().size(), size_t{64} << 20) << name;
      }
    }
    if (test.find("expect")->as_string() == "error") {
      EXPECT_TRUE(failed) << name;
    }
  }
}

}  // namespace
}  // namespace mlxcel
