// mlxcel template: what the model's chat template makes of a conversation.
#include <fmt/format.h>

#include "commands.h"

namespace mlxcel {
namespace {

Result<JsonValue> optional_array(const Settings& settings, std::string_view name) {
  const auto path = settings.text(name);
  if (!path) return JsonValue();
  MLXCEL_ASSIGN_OR_RETURN(JsonValue value, read_json(*path));
  if (!value.is_array()) {
    return make_error(ErrorKind::kInvalidArgument, "wrong input", fmt::format("--{}", name), "a JSON array",
                      std::string(value.type_name()));
  }
  return value;
}

std::string pieces_json(const TextModel& text, const RenderedPrompt& prompt) {
  JsonArray pieces;
  for (const RenderedPrompt::Piece& piece : prompt.pieces) {
    JsonObject entry;
    entry.set("text", piece.text);
    entry.set("is_content", piece.is_content);
    pieces.emplace_back(std::move(entry));
  }
  JsonArray spans;
  for (const RenderedPrompt::Span& span : prompt.assistant_spans) {
    spans.emplace_back(
        JsonArray{JsonValue(static_cast<int64_t>(span.begin)), JsonValue(static_cast<int64_t>(span.end))});
  }
  JsonArray ids;
  for (const TokenId id : encode_prompt(*text.tokenizer, prompt)) ids.emplace_back(int64_t{id});
  JsonObject out;
  out.set("text", prompt.text());
  out.set("pieces", std::move(pieces));
  out.set("assistant_spans", std::move(spans));
  out.set("tokens", std::move(ids));
  return to_json(JsonValue(std::move(out))) + "\n";
}

}  // namespace

Result<int> template_command(Context& context) {
  const Settings& settings = context.settings;
  MLXCEL_ASSIGN_OR_RETURN(const ResolvedModel model, find_model(context, settings.text("model")));
  if (!settings.text("messages")) {
    return make_error(ErrorKind::kInvalidArgument, "there is no conversation", "", "--messages FILE",
                      "nothing", "the file holds [{\"role\": \"user\", \"content\": \"...\"}]");
  }
  RenderRequest request;
  MLXCEL_ASSIGN_OR_RETURN(request.messages, optional_array(settings, "messages"));
  MLXCEL_ASSIGN_OR_RETURN(request.tools, optional_array(settings, "tools"));
  MLXCEL_ASSIGN_OR_RETURN(request.documents, optional_array(settings, "documents"));
  MLXCEL_ASSIGN_OR_RETURN(request.extra, template_variables(settings));
  request.add_generation_prompt = settings.flag("generation-prompt");
  request.now = settings.text("now").value_or("");
  MLXCEL_ASSIGN_OR_RETURN(const std::optional<std::string> override_text, chat_template_override(settings));
  MLXCEL_ASSIGN_OR_RETURN(const TextModel text, load_text_model(model.path, override_text));
  request.special_tokens = text.special_tokens;
  const bool has_own = text.tool_template != nullptr && request.tools.is_array();
  const std::shared_ptr<const ChatTemplate>& source = has_own ? text.tool_template : text.chat_template;
  if (source == nullptr) {
    return make_error(
        ErrorKind::kNotFound, "the model has no chat template", model.path,
        "chat_template.jinja, or chat_template in tokenizer_config.json or in the GGUF metadata", "none",
        "give one with --chat-template-file");
  }
  MLXCEL_ASSIGN_OR_RETURN(const RenderedPrompt prompt, source->render(request));
  context.terminal.print(settings.flag("json") ? pieces_json(text, prompt) : prompt.text());
  return 0;
}

}  // namespace mlxcel
