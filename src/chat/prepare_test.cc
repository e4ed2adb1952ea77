// What messages go through before a template sees them, limits and errors, and where templates are found.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "chat/chat_template.h"

namespace mlxcel {
namespace {

std::shared_ptr<const ChatTemplate> compile(const std::string& source, const TemplateLimits& limits = {}) {
  Result<std::shared_ptr<const ChatTemplate>> chat = compile_chat_template(source, limits);
  EXPECT_TRUE(chat.ok()) << (chat.ok() ? "" : chat.error().to_string());
  return chat.ok() ? *chat : nullptr;
}

RenderRequest request_of(const char* messages) {
  RenderRequest request;
  request.messages = *parse_json(messages, "test");
  return request;
}

std::string text_of(const Result<RenderedPrompt>& prompt) {
  return prompt.ok() ? prompt->text() : "error: " + prompt.error().one_line();
}

TEST(ChatPrepare, ToolArgumentsBecomeObjects) {
  const auto chat =
      compile("{% for c in messages[0].tool_calls %}{{ c.function.arguments | tojson }};{% endfor %}");
  RenderRequest request = request_of(
      R"([{"role": "assistant", "tool_calls": [{"function": {"arguments": "{\"q\": \"x\"}"}},
          {"function": {"arguments": ""}}, {"function": {"arguments": "[1]"}}, {"function": {"arguments": "{\"q\":"}},
          {"function": {"arguments": {"a": 1}}}]}])");
  EXPECT_EQ(text_of(chat->render(request)), R"({"q": "x"};{};"[1]";"{\"q\":";{"a": 1};)");
  request.parse_tool_arguments = false;
  EXPECT_EQ(text_of(chat->render(request)), R"("{\"q\": \"x\"}";"";"[1]";"{\"q\":";{"a": 1};)");
}

TEST(ChatPrepare, NullContentBecomesEmptyOrIsDropped) {
  const auto chat = compile("{% for m in messages %}[{{ m.content is defined }}{{ m.content }}]{% endfor %}");
  RenderRequest request = request_of(
      R"([{"role": "assistant", "content": null, "tool_calls": [{}]}, {"role": "assistant", "tool_calls": [{}]},
          {"role": "user"}])");
  EXPECT_EQ(text_of(chat->render(request)), "[True][True][False]");
  request.null_content_is_empty = false;
  EXPECT_EQ(text_of(chat->render(request)), "[False][False][False]");
  request.normalize_messages = false;
  EXPECT_EQ(text_of(chat->render(request)), "[TrueNone][False][False]");
}

TEST(ChatPrepare, ReasoningHasAllItsNames) {
  const auto chat =
      compile("{{ messages[0].reasoning_content }}{{ messages[0].thinking }}{{ messages[0].reasoning }}");
  EXPECT_EQ(text_of(chat->render(request_of(R"([{"role": "assistant", "content": "", "thinking": "t"}])"))),
            "ttt");
}

TEST(ChatPrepare, PartsAreKeptOrJoinedByWhatTheTemplateReads) {
  const char* const parts =
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])";
  const auto text_only = compile("{% for m in messages %}{{ '<u>' + m.content }}{% endfor %}");
  EXPECT_EQ(text_of(text_only->render(request_of(parts))), "<u>a\nb");
  const auto prints = compile("{% for m in messages %}<u>{{ m.content }}{% endfor %}");
  EXPECT_EQ(text_of(prints->render(request_of(parts))), "<u>a\nb");
  const auto both = compile(
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endif %}{% endfor %}");
  EXPECT_EQ(text_of(both->render(request_of(parts))), "<a><b>");
  const auto parts_only =
      compile("{% for m in messages %}{% for p in m.content %}<{{ p['text'] }}>{% endfor %}{% endfor %}");
  EXPECT_EQ(text_of(parts_only->render(request_of(R"([{"role": "user", "content": "hi"}])"))), "<hi>");
  const auto image =
      text_only->render(request_of(R"([{"role": "user", "content": [{"type": "image", "image": "x"}]}])"));
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(image.error().where, "messages[0].content");
}

TEST(ChatPrepare, MalformedMessagesAreErrors) {
  const auto chat = compile("{{ messages | length }}");
  EXPECT_FALSE(chat->render(request_of("{}")).ok());
  EXPECT_FALSE(chat->render(request_of("[1]")).ok());
  RenderRequest both = request_of(R"([{"role": "user", "content": "x"}])");
  both.continue_final_message = true;
  EXPECT_FALSE(chat->render(both).ok());
}

TEST(ChatErrors, SayWhatAndWhere) {
  const auto syntax = compile_chat_template("a\n{% if %}");
  ASSERT_FALSE(syntax.ok());
  EXPECT_EQ(syntax.error().kind, ErrorKind::kInvalidData);
  EXPECT_EQ(syntax.error().where, "chat template, line 2");
  const auto raised = compile("x\n\n{{ raise_exception('boom') }}")->render(request_of("[]"));
  ASSERT_FALSE(raised.ok());
  EXPECT_EQ(raised.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(raised.error().what, "boom");
  EXPECT_EQ(raised.error().where, "chat template, line 3");
}

TEST(ChatLimits, EachIsReached) {
  const auto kind_of = [](const std::string& source, const TemplateLimits& limits) {
    const auto chat = compile_chat_template(source, limits);
    if (!chat.ok()) return chat.error().kind;
    const auto prompt = (*chat)->render(request_of("[]"));
    EXPECT_FALSE(prompt.ok()) << source;
    return prompt.ok() ? ErrorKind::kInternal : prompt.error().kind;
  };
  TemplateLimits steps;
  steps.max_steps = 1000;
  EXPECT_EQ(kind_of("{% for i in range(5000) %}x{% endfor %}", steps), ErrorKind::kResourceExhausted);
  TemplateLimits depth;
  depth.max_depth = 20;
  EXPECT_EQ(kind_of("{{ " + std::string(30, '(') + "1" + std::string(30, ')') + " }}", depth),
            ErrorKind::kResourceExhausted);
  EXPECT_EQ(kind_of("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", depth),
            ErrorKind::kResourceExhausted);
  TemplateLimits output;
  output.max_output_bytes = 100;
  EXPECT_EQ(kind_of("{% for i in range(50) %}xxx{% endfor %}", output), ErrorKind::kResourceExhausted);
  TemplateLimits value;
  value.max_value_bytes = 1000;
  EXPECT_EQ(kind_of("{{ ('x' * 2000) | length }}", value), ErrorKind::kResourceExhausted);
  EXPECT_EQ(kind_of("{{ (range(100) | list) | length }}", value), ErrorKind::kResourceExhausted);
  TemplateLimits live;
  live.max_live_bytes = 10000;
  EXPECT_EQ(kind_of("{% set a = 'x' * 6000 %}{% set b = 'y' * 6000 %}{{ a ~ b }}", live),
            ErrorKind::kResourceExhausted);
  TemplateLimits source;
  source.max_source_bytes = 10;
  EXPECT_EQ(kind_of("more than ten bytes", source), ErrorKind::kResourceExhausted);
  // Lists that share their parts are larger than the memory they take.
  EXPECT_EQ(
      kind_of(
          "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
          "{{ ns.l == ns.l }}",
          TemplateLimits{}),
      ErrorKind::kResourceExhausted);
}

TEST(ChatTemplateFiles, FoundByPriority) {
  const std::string folder = (std::filesystem::temp_directory_path() / "mlxcel_chat_template_test").string();
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(make_directories(folder).ok());
  const auto found = [&](bool with_tools) {
    const auto result = find_chat_template(folder, with_tools);
    if (!result.ok()) return "error: " + result.error().one_line();
    return result->value_or("none");
  };
  EXPECT_EQ(found(false), "none");
  const std::string config = R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null,
      "chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]})";
  ASSERT_TRUE(write_file_atomically(path_join(folder, "tokenizer_config.json"), config).ok());
  EXPECT_EQ(found(false), "d");
  EXPECT_EQ(found(true), "t");
  ASSERT_TRUE(
      write_file_atomically(path_join(folder, "chat_template.json"), R"({"chat_template": "j"})").ok());
  EXPECT_EQ(found(true), "j");
  ASSERT_TRUE(write_file_atomically(path_join(folder, "chat_template.jinja"), "file").ok());
  EXPECT_EQ(found(true), "file");
  const auto tokens = special_tokens_of(*parse_json(config, "test"));
  EXPECT_EQ(tokens, (std::map<std::string, std::string>{{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace mlxcel
