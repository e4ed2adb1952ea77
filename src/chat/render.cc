#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "chat/chat_template.h"
#include "chat/jinja/evaluator.h"
#include "chat/jinja/unicode.h"
#include "chat/prepare.h"

namespace mlxcel {

std::string RenderedPrompt::text() const {
  std::string result;
  for (const Piece& piece : pieces) result += piece.text;
  return result;
}

std::vector<TextSpan> RenderedPrompt::spans() const {
  std::vector<TextSpan> result;
  result.reserve(pieces.size());
  for (const Piece& piece : pieces) result.push_back({piece.text, piece.is_content});
  return result;
}

namespace {

Error to_error(const jinja::Failure& failure, int current_line) {
  const int line = failure.line != 0 ? failure.line : current_line;
  return make_error(failure.kind, failure.what,
                    line > 0 ? "chat template, line " + std::to_string(line) : "chat template");
}

// Cuts the prompt where the final message's text ends, by the tag that was put there.
Status cut_at_tag(jinja::Text& output, const std::string& final_text) {
  const auto trimmed = [](std::string_view text) {
    text.remove_prefix(jinja::leading_space(text));
    text.remove_suffix(jinja::trailing_space(text));
    return text;
  };
  const std::string_view tag = trimmed(kContinueTag);
  const std::string& text = output.bytes();
  const size_t at = text.rfind(tag);
  if (at == std::string::npos || text.find(trimmed(final_text)) == std::string::npos) {
    return make_error(
        ErrorKind::kInvalidArgument,
        "continue_final_message is set but the final message does not appear in the chat after applying "
        "the chat template",
        "continue_final_message", {}, {},
        "this template drops or rewrites parts of the final message; leave continue_final_message out");
  }
  const bool keeps_space = std::string_view(text).substr(at, kContinueTag.size()) == kContinueTag;
  size_t end = at;
  // A template that trims the message took the tag's space; the message's own is then dropped as well.
  if (!keeps_space) end -= jinja::trailing_space(std::string_view(text).substr(0, at));
  output.truncate(end);
  return ok_status();
}

class JinjaTemplate final : public ChatTemplate {
 public:
  JinjaTemplate(std::string source, const TemplateLimits& limits)
      : source_(std::move(source)), limits_(limits) {}

  void parse() { jinja::parse_template(source_, limits_, template_); }
  void detect_content_style();

  Result<RenderedPrompt> render(const RenderRequest& request) const override;
  const std::string& source() const override { return source_; }

 private:
  Result<RenderedPrompt> render_prepared(const RenderRequest& request, const JsonValue& messages,
                                         const std::string* final_text, const TemplateLimits& limits) const;
  void set_context(const RenderRequest& request, const JsonValue& messages, jinja::Runtime& runtime,
                   jinja::Scope& root) const;

  std::string source_;
  TemplateLimits limits_;
  jinja::Template template_;
  ContentStyle style_;
};

Result<RenderedPrompt> JinjaTemplate::render(const RenderRequest& request) const {
  if (request.continue_final_message && request.add_generation_prompt) {
    return make_error(
        ErrorKind::kInvalidArgument,
        "continue_final_message and add_generation_prompt exclude each other: one goes on with the last "
        "message, the other starts a new one",
        "continue_final_message");
  }
  Result<JsonValue> messages = prepare_messages(request, style_);
  if (!messages.ok()) return std::move(messages).error();
  if (!request.continue_final_message) return render_prepared(request, *messages, nullptr, limits_);
  Result<std::string> final_text = mark_final_message(*messages, source_);
  if (!final_text.ok()) return std::move(final_text).error();
  return render_prepared(request, *messages, &*final_text, limits_);
}

// Only what the template names is converted: a large set of tools costs nothing where it is not read.
void JinjaTemplate::set_context(const RenderRequest& request, const JsonValue& messages,
                                jinja::Runtime& runtime, jinja::Scope& root) const {
  const auto set = [&](std::string_view name, const JsonValue& value) {
    const jinja::NameId id = template_.find_name(name);
    if (id >= 0) root.set(id, runtime.from_json(value));
  };
  for (const auto& [name, token] : request.special_tokens) {
    const jinja::NameId id = template_.find_name(name);
    if (id >= 0) root.set(id, runtime.string(token));
  }
  for (const auto& [name, value] : request.extra) set(name, value);
  set("messages", messages);
  set("tools", request.tools);
  set("documents", request.documents);
  const jinja::NameId generation = template_.find_name("add_generation_prompt");
  if (generation >= 0) root.set(generation, jinja::Value::boolean(request.add_generation_prompt));
}

Result<RenderedPrompt> JinjaTemplate::render_prepared(const RenderRequest& request, const JsonValue& messages,
                                                      const std::string* final_text,
                                                      const TemplateLimits& limits) const {
  jinja::Runtime runtime(limits);
  runtime.now = request.now;
  RenderedPrompt prompt;
  jinja::Text output;
  try {
    jinja::Evaluator evaluator(template_, runtime);
    set_context(request, messages, runtime, evaluator.root());
    evaluator.run(output, prompt.assistant_spans);
  } catch (const jinja::Failure& failure) {
    return to_error(failure, runtime.line);
  }
  if (final_text != nullptr) {
    Status cut = cut_at_tag(output, *final_text);
    if (!cut.ok()) return std::move(cut).error();
  }
  output.for_each_piece(0, output.size(), [&](size_t begin, size_t end, bool is_content) {
    prompt.pieces.push_back({output.bytes().substr(begin, end - begin), is_content});
  });
  for (RenderedPrompt::Span& span : prompt.assistant_spans) {
    span.begin = std::min(span.begin, output.size());
    span.end = std::min(span.end, output.size());
  }
  return prompt;
}

// Renders one user message as text and as a list of one part. A template reads a form when its text arrives
// and the list did not arrive as a dump of itself.
void JinjaTemplate::detect_content_style() {
  static constexpr std::string_view kNeedle = "mlxcel-content-probe";
  // One short message: a template that needs more than this for it is not worth waiting for at start-up.
  TemplateLimits limits = limits_;
  limits.max_steps = std::min<int64_t>(limits.max_steps, 100'000);
  const auto arrives = [&](JsonValue content) {
    JsonObject message;
    message.set("role", "user");
    message.set("content", std::move(content));
    JsonArray messages;
    messages.emplace_back(std::move(message));
    RenderRequest request;
    request.now = "2026-01-01 00:00:00";
    const Result<RenderedPrompt> prompt =
        render_prepared(request, JsonValue(std::move(messages)), nullptr, limits);
    if (!prompt.ok()) return false;
    const std::string text = prompt->text();
    return text.find(kNeedle) != std::string::npos && text.find("'type': 'text'") == std::string::npos &&
           text.find("\"type\": \"text\"") == std::string::npos;
  };
  JsonObject part;
  part.set("type", "text");
  part.set("text", kNeedle);
  JsonArray parts;
  parts.emplace_back(std::move(part));
  style_.reads_text = arrives(JsonValue(kNeedle));
  style_.reads_parts = arrives(JsonValue(std::move(parts)));
  // A template that takes neither (it wants a system message first, say) gets the messages as they are.
  if (!style_.reads_text && !style_.reads_parts) style_ = ContentStyle{};
}

}  // namespace

Result<std::shared_ptr<const ChatTemplate>> compile_chat_template(std::string source,
                                                                  const TemplateLimits& limits) {
  auto result = std::make_shared<JinjaTemplate>(repair_utf8(source), limits);
  try {
    result->parse();
  } catch (const jinja::Failure& failure) {
    return to_error(failure, 0);
  }
  result->detect_content_style();
  return std::shared_ptr<const ChatTemplate>(std::move(result));
}

}  // namespace mlxcel
