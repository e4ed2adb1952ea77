#include "serve/api/requests.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/environment.h"
#include "serve/api/field_table.h"

namespace mlxcel {

namespace {

constexpr size_t kMaxMessages = 20000, kMaxPrompts = 256;

std::optional<ApiError> read_part(const JsonValue& part, const std::string& path) {
  if (!part.is_object()) return field_error(path, fmt::format("must be an object, not {}", part.type_name()));
  const JsonValue* type = part.find("type");
  if (type == nullptr || !type->is_string()) return field_error(path + ".type", "must be a string");
  if (type->as_string() == "text") {
    const JsonValue* text = part.find("text");
    if (text == nullptr || !text->is_string()) return field_error(path + ".text", "must be a string");
    return std::nullopt;
  }
  if (type->as_string() == "image_url" || type->as_string() == "input_audio" || type->as_string() == "file" ||
      type->as_string() == "video_url") {
    return unsupported_field(path, fmt::format("this model reads text, not \"{}\" parts", type->as_string()));
  }
  return field_error(path + ".type",
                     fmt::format("unknown kind of part \"{}\"; use \"text\"", type->as_string()));
}

std::optional<ApiError> read_message(const JsonValue& message, const std::string& path) {
  if (!message.is_object())
    return field_error(path, fmt::format("must be an object, not {}", message.type_name()));
  const JsonValue* role = message.find("role");
  if (role == nullptr || !role->is_string()) return field_error(path + ".role", "must be a string");
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};
  if (std::find(std::begin(kRoles), std::end(kRoles), role->as_string()) == std::end(kRoles)) {
    return field_error(path + ".role", "must be one of system, developer, user, assistant, tool");
  }
  const JsonValue* content = message.find_set("content");
  if (content == nullptr) {
    const bool has_calls =
        message.find_set("tool_calls") != nullptr || message.find_set("function_call") != nullptr;
    if (role->as_string() == "assistant" && has_calls) return std::nullopt;
    return field_error(path + ".content", "must be a string or an array of parts");
  }
  if (content->is_string()) return std::nullopt;
  if (!content->is_array()) {
    return field_error(path + ".content",
                       fmt::format("must be a string or an array of parts, not {}", content->type_name()));
  }
  for (size_t i = 0; i < content->as_array().size(); ++i) {
    if (auto error = read_part(content->as_array()[i], fmt::format("{}.content[{}]", path, i))) return error;
  }
  return std::nullopt;
}

std::string new_id(std::string_view prefix) {
  return fmt::format("{}-{:016x}{:08x}", prefix, random_seed(), random_seed() >> 32);
}

void set_answer_basics(ParsedRequest& parsed, const TextModel& text, const RequestDefaults& defaults,
                       AnswerKind kind) {
  parsed.answer.kind = kind;
  parsed.answer.id = new_id(kind == AnswerKind::kChat ? "chatcmpl" : "cmpl");
  parsed.answer.model = defaults.model_id;
  parsed.answer.created = unix_time();
  parsed.answer.tokenizer = text.tokenizer;
}

std::optional<ApiError> check_body(const JsonValue& body, Route route, const RequestDefaults& defaults,
                                   int& unknown) {
  if (!body.is_object())
    return field_error("", fmt::format("the request body must be a JSON object, not {}", body.type_name()));
  return check_field_names(body, route, defaults.strict_fields, unknown);
}

}  // namespace

ApiResult<JsonValue> read_messages(const JsonValue& body) {
  const JsonValue* messages = body.find_set("messages");
  if (messages == nullptr) return field_error("messages", "is required");
  if (!messages->is_array())
    return field_error("messages", fmt::format("must be an array, not {}", messages->type_name()));
  if (messages->as_array().empty()) return field_error("messages", "must have at least one message");
  if (messages->as_array().size() > kMaxMessages)
    return field_error("messages", fmt::format("must have at most {} messages", kMaxMessages));
  JsonValue out = *messages;
  for (size_t i = 0; i < out.as_array().size(); ++i) {
    JsonValue& message = out.as_array()[i];
    if (auto error = read_message(message, fmt::format("messages[{}]", i))) return *std::move(error);
    if (message.find("role")->as_string() == "developer") message.as_object().set("role", "system");
  }
  return out;
}

ApiResult<RenderedPrompt> render_chat(const JsonValue& body, const TextModel& text) {
  std::optional<ApiError> error;
  Fields fields(body, "", error);
  if (text.chat_template == nullptr) {
    ApiError none = field_error(
        "messages",
        "this model has no chat template; use /v1/completions, or start the server with --chat-template");
    none.code = "no_chat_template";
    return none;
  }
  ApiResult<JsonValue> messages = read_messages(body);
  if (auto* failed = std::get_if<ApiError>(&messages)) return std::move(*failed);
  RenderRequest request;
  request.messages = std::get<JsonValue>(std::move(messages));
  request.special_tokens = text.special_tokens;
  request.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
  request.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  if (request.continue_final_message && !fields.has("add_generation_prompt"))
    request.add_generation_prompt = false;
  if (fields.object("chat_template_kwargs")) request.extra = fields.find("chat_template_kwargs")->as_object();
  if (auto effort = fields.string("reasoning_effort"))
    request.extra.set("reasoning_effort", *std::move(effort));
  if (const JsonValue* documents = fields.find("documents")) {
    if (!documents->is_array()) fields.fail("documents", "must be an array");
    request.documents = *documents;
  }
  if (request.continue_final_message && request.add_generation_prompt) {
    fields.fail("continue_final_message", "excludes add_generation_prompt");
  }
  if (error) return *std::move(error);
  auto rendered = text.chat_template->render(request);
  if (!rendered.ok()) {
    ApiError failed = api_error_from(rendered.error());
    failed.status = 400;  // the request's content made the template fail
    failed.type = "invalid_request_error";
    failed.param = "messages";
    failed.code = "template_error";
    failed.message = "the chat template refused these messages: " + failed.message;
    return failed;
  }
  return *std::move(rendered);
}

ApiResult<ParsedRequest> parse_chat_request(const JsonValue& body, const TextModel& text,
                                            const RequestDefaults& defaults) {
  ParsedRequest parsed;
  if (auto error = check_body(body, Route::kChat, defaults, parsed.num_unknown_fields))
    return *std::move(error);
  std::optional<ApiError> error;
  Fields fields(body, "", error);
  if (auto wrong = check_model_name(fields, defaults)) return *std::move(wrong);
  GenerationRequest request;
  read_generation_fields(fields, text, defaults, request);
  set_answer_basics(parsed, text, defaults, AnswerKind::kChat);
  parsed.answer.stream = read_stream_options(fields);
  parsed.answer.num_choices = request.num_choices;
  parsed.answer.wants_logprobs = fields.boolean("logprobs").value_or(false);
  if (const auto top = fields.integer("top_logprobs", 0, 20)) {
    if (!parsed.answer.wants_logprobs) fields.fail("top_logprobs", "needs logprobs: true");
    parsed.answer.top_logprobs = static_cast<int>(*top);
  }
  if (parsed.answer.wants_logprobs) request.num_logprobs = parsed.answer.top_logprobs;
  if (error) return *std::move(error);
  ApiResult<RenderedPrompt> rendered = render_chat(body, text);
  if (auto* failed = std::get_if<ApiError>(&rendered)) return std::move(*failed);
  request.prompt = encode_prompt(*text.tokenizer, std::get<RenderedPrompt>(rendered));
  if (request.prompt.empty()) return field_error("messages", "the rendered prompt is empty");
  request.client_id = parsed.answer.id;
  parsed.requests.push_back(std::move(request));
  return parsed;
}

namespace {

// The prompt field's four shapes: "text", ["text", ...], [ids], [[ids], ...].
struct Prompts {
  std::vector<std::vector<TokenId>> ids;
  std::vector<std::string> texts;
};

std::optional<ApiError> read_ids(const JsonValue& value, const std::string& path, const TextModel& text,
                                 Prompts& out) {
  std::vector<TokenId> ids;
  for (const JsonValue& v : value.as_array()) {
    if (!v.is_int() || v.as_int() < 0 || v.as_int() >= text.tokenizer->vocab_size()) {
      return field_error(
          path, fmt::format("token ids are integers between 0 and {}", text.tokenizer->vocab_size() - 1));
    }
    ids.push_back(static_cast<TokenId>(v.as_int()));
  }
  out.texts.push_back(text.tokenizer->decode(ids, false));
  out.ids.push_back(std::move(ids));
  return std::nullopt;
}

std::optional<ApiError> read_one_prompt(const JsonValue& value, const std::string& path, bool add_special,
                                        const TextModel& text, Prompts& out) {
  if (value.is_string()) {
    out.ids.push_back(text.tokenizer->encode(value.as_string(), {add_special, true}));
    out.texts.push_back(value.as_string());
    return std::nullopt;
  }
  if (value.is_array()) return read_ids(value, path, text, out);
  return field_error(path,
                     fmt::format("must be a string or an array of token ids, not {}", value.type_name()));
}

ApiResult<Prompts> read_prompts(Fields& fields, const TextModel& text) {
  const JsonValue* prompt = fields.find("prompt");
  if (prompt == nullptr) return field_error("prompt", "is required");
  const bool add_special = fields.boolean("add_special_tokens").value_or(true);
  Prompts out;
  std::optional<ApiError> error;
  const bool is_list = prompt->is_array() && !prompt->as_array().empty() &&
                       (prompt->as_array()[0].is_string() || prompt->as_array()[0].is_array());
  if (!is_list) {
    error = read_one_prompt(*prompt, "prompt", add_special, text, out);
  } else {
    if (prompt->as_array().size() > kMaxPrompts)
      return field_error("prompt", fmt::format("must have at most {} prompts", kMaxPrompts));
    for (size_t i = 0; i < prompt->as_array().size() && !error; ++i) {
      error = read_one_prompt(prompt->as_array()[i], fmt::format("prompt[{}]", i), add_special, text, out);
    }
  }
  if (error) return *std::move(error);
  for (size_t i = 0; i < out.ids.size(); ++i) {
    if (out.ids[i].empty())
      return field_error(out.ids.size() == 1 ? "prompt" : fmt::format("prompt[{}]", i),
                         "encodes to no token");
  }
  return out;
}

}  // namespace

ApiResult<ParsedRequest> parse_completion_request(const JsonValue& body, const TextModel& text,
                                                  const RequestDefaults& defaults) {
  ParsedRequest parsed;
  if (auto error = check_body(body, Route::kCompletion, defaults, parsed.num_unknown_fields))
    return *std::move(error);
  std::optional<ApiError> error;
  Fields fields(body, "", error);
  if (auto wrong = check_model_name(fields, defaults)) return *std::move(wrong);
  GenerationRequest request;
  read_generation_fields(fields, text, defaults, request);
  set_answer_basics(parsed, text, defaults, AnswerKind::kCompletion);
  AnswerOptions& answer = parsed.answer;
  answer.stream = read_stream_options(fields);
  answer.num_choices = request.num_choices;
  answer.echo = fields.boolean("echo").value_or(false);
  if (const auto top = fields.integer("logprobs", 0, 20)) {
    answer.wants_logprobs = true;
    answer.top_logprobs = static_cast<int>(*top);
    request.num_logprobs = answer.top_logprobs;
    request.wants_prompt_logprobs = answer.echo;
  }
  ApiResult<Prompts> prompts = read_prompts(fields, text);
  if (error) return *std::move(error);
  if (auto* failed = std::get_if<ApiError>(&prompts)) return std::move(*failed);
  Prompts& read = std::get<Prompts>(prompts);
  if (read.ids.size() * static_cast<size_t>(request.num_choices) > kMaxPrompts) {
    return field_error("n", fmt::format("prompts times n must be at most {}", kMaxPrompts));
  }
  request.client_id = answer.id;
  for (const std::vector<TokenId>& ids : read.ids) {
    request.prompt = ids;
    parsed.requests.push_back(request);
  }
  answer.prompt_tokens = std::move(read.ids);
  answer.prompt_texts = std::move(read.texts);
  return parsed;
}

}  // namespace mlxcel
