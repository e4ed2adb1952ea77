// Where a Hugging Face folder keeps its chat template and the names of its special tokens.
#include <array>

#include "base/file.h"
#include "chat/chat_template.h"

namespace mlxcel {
namespace {

constexpr uint64_t kMaxTemplateBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxConfigBytes = uint64_t{64} << 20;

// "chat_template" of a parsed config: a string, or a list of {"name", "template"}.
Result<std::optional<std::string>> template_of(const JsonValue& config, const std::string& path,
                                               bool with_tools) {
  const JsonValue* value = config.find_set("chat_template");
  if (value == nullptr) return std::optional<std::string>();
  if (value->is_string()) return std::optional<std::string>(value->as_string());
  if (!value->is_array()) {
    return make_error(ErrorKind::kInvalidData, "\"chat_template\" has the wrong type", path,
                      "a string or an array of named templates", std::string(value->type_name()));
  }
  const std::string* fallback = nullptr;
  const std::string* for_tools = nullptr;
  for (const JsonValue& entry : value->as_array()) {
    const JsonValue* name = entry.find("name");
    const JsonValue* text = entry.find("template");
    if (name == nullptr || text == nullptr || !name->is_string() || !text->is_string()) {
      return make_error(ErrorKind::kInvalidData, "a named chat template is malformed", path,
                        "\"name\" and \"template\", both strings");
    }
    if (name->as_string() == "default") fallback = &text->as_string();
    if (name->as_string() == "tool_use") for_tools = &text->as_string();
  }
  const std::string* chosen = with_tools && for_tools != nullptr ? for_tools : fallback;
  if (chosen == nullptr) {
    return make_error(ErrorKind::kInvalidData, "there is no chat template named \"default\"", path);
  }
  return std::optional<std::string>(*chosen);
}

}  // namespace

Result<std::optional<std::string>> find_chat_template(const std::string& folder, bool with_tools) {
  const std::string jinja_path = path_join(folder, "chat_template.jinja");
  if (file_exists(jinja_path)) {
    Result<std::string> text = read_file(jinja_path, kMaxTemplateBytes);
    if (!text.ok()) return std::move(text).error();
    return std::optional<std::string>(std::move(text).value());
  }
  for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
    const std::string path = path_join(folder, name);
    if (!file_exists(path)) continue;
    Result<JsonValue> config = parse_json_file(path, JsonLimits{.max_bytes = kMaxConfigBytes});
    if (!config.ok()) return std::move(config).error();
    Result<std::optional<std::string>> found = template_of(*config, path, with_tools);
    if (!found.ok() || found->has_value()) return found;
  }
  return std::optional<std::string>();
}

std::map<std::string, std::string> special_tokens_of(const JsonValue& tokenizer_config) {
  static constexpr std::array<const char*, 7> kNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                        "pad_token", "cls_token", "mask_token"};
  std::map<std::string, std::string> tokens;
  for (const char* name : kNames) {
    const JsonValue* value = tokenizer_config.find_set(name);
    // Either the text or an added-token object that holds it.
    if (value != nullptr && value->is_object()) value = value->find_set("content");
    if (value != nullptr && value->is_string()) tokens.emplace(name, value->as_string());
  }
  return tokens;
}

}  // namespace mlxcel
