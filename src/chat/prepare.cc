#include "chat/prepare.h"

#include <algorithm>
#include <utility>

namespace mlxcel {
namespace {

bool has_tool_calls(const JsonObject& message) {
  const JsonValue* calls = message.find("tool_calls");
  return calls != nullptr && calls->is_array() && !calls->as_array().empty();
}

void drop_null_keys(JsonObject& message) {
  JsonObject kept;
  kept.reserve(message.size());
  for (auto& [key, value] : message) {
    if (!value.is_null()) kept.set(key, std::move(value));
  }
  message = std::move(kept);
}

// Templates disagree on the name of the reasoning; each gets it under its own.
void copy_reasoning(JsonObject& message) {
  static constexpr const char* kNames[] = {"reasoning_content", "thinking", "reasoning"};
  const JsonValue* source = nullptr;
  for (const char* name : kNames) {
    const JsonValue* value = message.find(name);
    if (source == nullptr && value != nullptr && !value->is_null()) source = value;
  }
  if (source == nullptr) return;
  const JsonValue copy = *source;
  for (const char* name : kNames) {
    if (message.find(name) == nullptr) message.set(name, copy);
  }
}

void parse_arguments(JsonObject& message) {
  JsonValue* calls = message.find("tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  for (JsonValue& call : calls->as_array()) {
    if (!call.is_object()) continue;
    JsonValue* function = call.as_object().find("function");
    JsonObject& holder =
        function != nullptr && function->is_object() ? function->as_object() : call.as_object();
    JsonValue* arguments = holder.find("arguments");
    if (arguments == nullptr || !arguments->is_string()) continue;
    const std::string text = arguments->as_string();
    if (text.empty()) {
      *arguments = JsonObject();
      continue;
    }
    Result<JsonValue> parsed = parse_json(text, "arguments", JsonLimits{.max_depth = 100});
    if (parsed.ok() && parsed->is_object()) *arguments = std::move(parsed).value();
  }
}

Status join_parts(JsonObject& message, size_t index) {
  JsonValue* content = message.find("content");
  std::string text;
  bool is_first = true;
  for (const JsonValue& part : content->as_array()) {
    const JsonValue* part_text = part.is_string() ? &part : part.find("text");
    if (part_text == nullptr || !part_text->is_string()) {
      const JsonValue* type = part.find("type");
      return make_error(ErrorKind::kInvalidArgument, "this model's chat template takes text only",
                        "messages[" + std::to_string(index) + "].content", "parts of type \"text\"",
                        type != nullptr && type->is_string() ? "type \"" + type->as_string() + "\""
                                                             : "a part without text");
    }
    if (!is_first) text += "\n";
    is_first = false;
    text += part_text->as_string();
  }
  *content = JsonValue(std::move(text));
  return ok_status();
}

Status adapt_content(JsonObject& message, size_t index, const ContentStyle& style) {
  JsonValue* content = message.find("content");
  if (content == nullptr) return ok_status();
  if (content->is_array() && !style.reads_parts) return join_parts(message, index);
  if (content->is_string() && !style.reads_text && style.reads_parts) {
    JsonObject part;
    part.set("type", "text");
    part.set("text", *content);
    JsonArray parts;
    parts.emplace_back(std::move(part));
    *content = JsonValue(std::move(parts));
  }
  return ok_status();
}

}  // namespace

Result<JsonValue> prepare_messages(const RenderRequest& request, const ContentStyle& style) {
  if (!request.messages.is_array()) {
    return make_error(ErrorKind::kInvalidArgument, "messages must be an array", "messages", "an array",
                      std::string(request.messages.type_name()));
  }
  JsonValue messages = request.messages;
  size_t index = 0;
  for (JsonValue& entry : messages.as_array()) {
    if (!entry.is_object()) {
      return make_error(ErrorKind::kInvalidArgument, "a message must be an object",
                        "messages[" + std::to_string(index) + "]", "an object",
                        std::string(entry.type_name()));
    }
    JsonObject& message = entry.as_object();
    if (request.null_content_is_empty) {
      JsonValue* content = message.find("content");
      if (content != nullptr && content->is_null()) *content = JsonValue("");
      if (content == nullptr && has_tool_calls(message)) message.set("content", "");
    }
    if (request.normalize_messages) {
      drop_null_keys(message);
      copy_reasoning(message);
    }
    if (request.parse_tool_arguments) parse_arguments(message);
    if (request.adapt_content_parts) {
      Status adapted = adapt_content(message, index, style);
      if (!adapted.ok()) return std::move(adapted).error();
    }
    ++index;
  }
  return messages;
}

Result<std::string> mark_final_message(JsonValue& messages, std::string_view template_source) {
  const auto failure = [](std::string what, std::string hint = {}) {
    return make_error(ErrorKind::kInvalidArgument, std::move(what), "continue_final_message", {}, {},
                      std::move(hint));
  };
  JsonArray& list = messages.as_array();
  if (list.empty()) return failure("continue_final_message is set but there is no message to continue");
  JsonValue* content = list.back().as_object().find("content");
  if (content == nullptr || content->is_null()) {
    return failure("continue_final_message is set but the final message has no \"content\" to continue");
  }
  if (template_source.find("content") == std::string_view::npos) {
    return failure(
        "continue_final_message is set to \"content\" but this is not an accepted field in the "
        "chat_template");
  }
  if (content->is_array()) {
    JsonArray& parts = content->as_array();
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      if (!part->is_object()) continue;
      JsonValue* text = part->as_object().find("text");
      if (text == nullptr || !text->is_string()) continue;
      std::string final_text = text->as_string();
      *text = JsonValue(final_text + std::string(kContinueTag));
      return final_text;
    }
    return failure(
        "continue_final_message is set but we could not find any text to continue in the final message");
  }
  if (!content->is_string())
    return failure("continue_final_message is set but the final message's content is no text");
  std::string final_text = content->as_string();
  *content = JsonValue(final_text + std::string(kContinueTag));
  return final_text;
}

}  // namespace mlxcel
