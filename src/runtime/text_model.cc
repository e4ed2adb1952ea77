// The part of a model that needs no weights: tokenizer, chat template, end tokens, sampling defaults.
#include <algorithm>

#include "base/file.h"
#include "runtime/gguf_vocabulary.h"
#include "runtime/model_session.h"

namespace mlxcel {
namespace {

void add_unique(std::vector<TokenId>& ids, TokenId id) {
  if (id >= 0 && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

// "eos_token_id": an integer, an array of integers, or null.
Status add_eos_of(const JsonValue& config, const std::string& where, std::vector<TokenId>& ids) {
  const JsonValue* value = config.find_set("eos_token_id");
  if (value == nullptr) return ok_status();
  const JsonReader reader(config, where);
  const auto add = [&](const JsonValue& id) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > INT32_MAX) return false;
    add_unique(ids, static_cast<TokenId>(id.as_int()));
    return true;
  };
  if (!value->is_array())
    return add(*value) ? ok_status()
                       : Status(reader.type_error("eos_token_id", "a token id or an array of them"));
  for (const JsonValue& id : value->as_array()) {
    if (!add(id)) return reader.type_error("eos_token_id", "a token id or an array of them");
  }
  return ok_status();
}

template <typename T, typename Source>
Status read_optional(const JsonReader& reader, std::string_view key, std::optional<T>& out,
                     Result<Source> (*read)(const JsonReader&, std::string_view)) {
  if (!reader.has(key)) return ok_status();
  MLXCEL_ASSIGN_OR_RETURN(const Source value, read(reader, key));
  out = static_cast<T>(value);
  return ok_status();
}
Result<double> read_number(const JsonReader& reader, std::string_view key) { return reader.number(key); }
Result<int64_t> read_integer(const JsonReader& reader, std::string_view key) { return reader.integer(key); }
Result<bool> read_boolean(const JsonReader& reader, std::string_view key) { return reader.boolean(key); }

Status read_defaults(const JsonValue& config, const std::string& where, TextModel::Defaults& out) {
  const JsonReader reader(config, where);
  MLXCEL_RETURN_IF_ERROR(read_optional(reader, "temperature", out.temperature, read_number));
  MLXCEL_RETURN_IF_ERROR(read_optional(reader, "top_p", out.top_p, read_number));
  MLXCEL_RETURN_IF_ERROR(read_optional(reader, "min_p", out.min_p, read_number));
  MLXCEL_RETURN_IF_ERROR(read_optional(reader, "repetition_penalty", out.repetition_penalty, read_number));
  MLXCEL_RETURN_IF_ERROR(read_optional(reader, "top_k", out.top_k, read_integer));
  MLXCEL_RETURN_IF_ERROR(read_optional(reader, "do_sample", out.do_sample, read_boolean));
  MLXCEL_RETURN_IF_ERROR(read_optional(reader, "max_new_tokens", out.max_new_tokens, read_integer));
  return ok_status();
}

struct TemplateSources {
  std::optional<std::string> chat, tools;
};

Status load_hugging_face_text(const Checkpoint& checkpoint, TextModel& text, TemplateSources& sources) {
  const std::string& folder = checkpoint.path;
  MLXCEL_ASSIGN_OR_RETURN(text.tokenizer, load_tokenizer_folder(folder));
  const std::string config_path = path_join(folder, "tokenizer_config.json");
  JsonValue tokenizer_config;
  if (file_exists(config_path)) {
    MLXCEL_ASSIGN_OR_RETURN(tokenizer_config, parse_json_file(config_path));
  }
  text.special_tokens = special_tokens_of(tokenizer_config);
  // Older checkpoints keep the names in a file of their own; tokenizer_config.json wins where both have one.
  const std::string map_path = path_join(folder, "special_tokens_map.json");
  if (file_exists(map_path)) {
    MLXCEL_ASSIGN_OR_RETURN(const JsonValue map, parse_json_file(map_path));
    for (auto& [name, token] : special_tokens_of(map)) text.special_tokens.emplace(name, token);
  }
  const std::string model_config = path_join(folder, "config.json");
  MLXCEL_RETURN_IF_ERROR(add_eos_of(checkpoint.config, model_config, text.eos_ids));
  if (const JsonValue* nested = checkpoint.config.find_set("text_config")) {
    MLXCEL_RETURN_IF_ERROR(add_eos_of(*nested, model_config, text.eos_ids));
  }
  const std::string generation_config = path_join(folder, "generation_config.json");
  MLXCEL_RETURN_IF_ERROR(add_eos_of(checkpoint.generation_config, generation_config, text.eos_ids));
  MLXCEL_RETURN_IF_ERROR(read_defaults(checkpoint.generation_config, generation_config, text.defaults));
  MLXCEL_ASSIGN_OR_RETURN(sources.chat, find_chat_template(folder));
  MLXCEL_ASSIGN_OR_RETURN(sources.tools, find_chat_template(folder, true));
  return ok_status();
}

Status load_gguf_text(const Checkpoint& checkpoint, TextModel& text, TemplateSources& sources) {
  MLXCEL_ASSIGN_OR_RETURN(const GgufVocabulary vocabulary, read_gguf_vocabulary(checkpoint));
  MLXCEL_ASSIGN_OR_RETURN(text.tokenizer, load_tokenizer_gguf(vocabulary, checkpoint.path));
  const auto name_token = [&](const char* name, std::optional<TokenId> id) {
    if (id) text.special_tokens[name] = vocabulary.tokens[static_cast<size_t>(*id)];
  };
  name_token("bos_token", vocabulary.bos);
  name_token("eos_token", vocabulary.eos);
  name_token("unk_token", vocabulary.unknown);
  name_token("pad_token", vocabulary.padding);
  name_token("sep_token", vocabulary.separator);
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const GgufValue* value = checkpoint.meta(key);
    const int64_t* id = value == nullptr ? nullptr : value->integer();
    if (id != nullptr && *id >= 0 && *id < text.tokenizer->vocab_size())
      add_unique(text.eos_ids, static_cast<TokenId>(*id));
  }
  if (checkpoint.meta("tokenizer.chat_template") != nullptr) {
    MLXCEL_ASSIGN_OR_RETURN(sources.chat, checkpoint.meta_string("tokenizer.chat_template"));
  }
  if (checkpoint.meta("tokenizer.chat_template.tool_use") != nullptr) {
    MLXCEL_ASSIGN_OR_RETURN(sources.tools, checkpoint.meta_string("tokenizer.chat_template.tool_use"));
  }
  return ok_status();
}

}  // namespace

Result<TextModel> load_text_model(const std::string& path, const std::optional<std::string>& chat_template) {
  TextModel text;
  TemplateSources sources;
  MLXCEL_ASSIGN_OR_RETURN(text.checkpoint, open_checkpoint(path));
  const Checkpoint& checkpoint = *text.checkpoint;
  if (checkpoint.kind == CheckpointKind::kGguf) {
    MLXCEL_RETURN_IF_ERROR(load_gguf_text(checkpoint, text, sources));
  } else {
    MLXCEL_RETURN_IF_ERROR(load_hugging_face_text(checkpoint, text, sources));
  }
  if (text.tokenizer->eos()) add_unique(text.eos_ids, *text.tokenizer->eos());
  // An id that the tokenizer cannot have is left out: the head may be padded, but it never names a real end
  // token.
  std::erase_if(text.eos_ids, [&](TokenId id) { return id >= text.tokenizer->vocab_size(); });
  std::sort(text.eos_ids.begin(), text.eos_ids.end());
  if (chat_template) sources = {chat_template, std::nullopt};
  if (sources.chat) {
    MLXCEL_ASSIGN_OR_RETURN(text.chat_template, compile_chat_template(*sources.chat));
  }
  if (sources.tools && sources.tools != sources.chat) {
    MLXCEL_ASSIGN_OR_RETURN(text.tool_template, compile_chat_template(*sources.tools));
  }
  return text;
}

}  // namespace mlxcel
