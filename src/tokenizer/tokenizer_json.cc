// tokenizer.json and tokenizer_config.json of Hugging Face folders.
#include <sys/stat.h>

#include <limits>

#include "base/utf8.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/tokenizer.h"

namespace mlxcel {
namespace {

constexpr int64_t kAddedTokenIdMax = (int64_t{1} << 24) - 1;

Result<AddedToken> parse_added_token(const JsonValue& value, const std::string& where,
                                     const Vocabulary& vocabulary) {
  const JsonReader reader(value, where);
  AddedToken token;
  MLXCEL_ASSIGN_OR_RETURN(token.content, reader.string("content"));
  MLXCEL_ASSIGN_OR_RETURN(const int64_t id, reader.integer("id"));
  if (id < 0 || id > kAddedTokenIdMax)
    return make_error(ErrorKind::kInvalidData, "token id is out of range", where + ".id",
                      "0.." + std::to_string(kAddedTokenIdMax), std::to_string(id));
  // A token that is in the vocabulary as well has the vocabulary's id, whatever stands here: so does the
  // library.
  token.id = vocabulary.find(token.content).value_or(static_cast<TokenId>(id));
  MLXCEL_ASSIGN_OR_RETURN(token.special, reader.boolean("special", false));
  MLXCEL_ASSIGN_OR_RETURN(token.single_word, reader.boolean("single_word", false));
  MLXCEL_ASSIGN_OR_RETURN(token.lstrip, reader.boolean("lstrip", false));
  MLXCEL_ASSIGN_OR_RETURN(token.rstrip, reader.boolean("rstrip", false));
  MLXCEL_ASSIGN_OR_RETURN(token.normalized, reader.boolean("normalized", !token.special));
  return token;
}

Result<std::vector<AddedToken>> parse_added_tokens(const JsonValue* value, const std::string& where,
                                                   const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  if (value == nullptr) return tokens;
  if (!value->is_array())
    return make_error(ErrorKind::kInvalidData, "added tokens are malformed", where, "an array",
                      std::string(value->type_name()));
  for (size_t i = 0; i < value->as_array().size(); ++i) {
    MLXCEL_ASSIGN_OR_RETURN(
        AddedToken token,
        parse_added_token(value->as_array()[i], where + "[" + std::to_string(i) + "]", vocabulary));
    if (!token.content.empty()) tokens.push_back(std::move(token));
  }
  return tokens;
}

// "bos_token": "<s>" or {"content": "<s>", ...}.
std::optional<TokenId> named_token(const JsonValue& config, std::string_view key,
                                   const Tokenizer& tokenizer) {
  const JsonValue* value = config.find_set(key);
  if (value != nullptr && value->is_object()) value = value->find_set("content");
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return tokenizer.token_to_id(value->as_string());
}

bool file_exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> load_tokenizer_json(const JsonValue& tokenizer,
                                                             const JsonValue& config,
                                                             const std::string& where) {
  if (!tokenizer.is_object())
    return make_error(ErrorKind::kInvalidData, "tokenizer is malformed", where, "an object",
                      std::string(tokenizer.type_name()));
  const std::string prefix = where.empty() ? std::string() : where + ": ";
  PipelineParts parts;
  MLXCEL_ASSIGN_OR_RETURN(parts.normalizer,
                          parse_normalizer(tokenizer.find("normalizer"), prefix + "normalizer"));
  MLXCEL_ASSIGN_OR_RETURN(parts.pre_tokenizer,
                          parse_pre_tokenizer(tokenizer.find("pre_tokenizer"), prefix + "pre_tokenizer"));
  MLXCEL_ASSIGN_OR_RETURN(
      parts.model, parse_model(tokenizer.find("model"), prefix + "model", parts.pre_tokenizer.ends_in_bytes));
  MLXCEL_ASSIGN_OR_RETURN(parts.surround,
                          parse_post_processor(tokenizer.find("post_processor"), prefix + "post_processor"));
  MLXCEL_ASSIGN_OR_RETURN(parts.decoder, DecoderChain::parse(tokenizer.find("decoder"), prefix + "decoder"));
  parts.batch_mode.waits_for_byte_runs = true;
  MLXCEL_ASSIGN_OR_RETURN(parts.added_tokens,
                          parse_added_tokens(tokenizer.find_set("added_tokens"), prefix + "added_tokens",
                                             parts.model->vocabulary()));
  const std::optional<TokenId> model_unknown = parts.model->unknown();
  auto result = std::make_shared<PipelineTokenizer>(std::move(parts));
  NamedTokens named{named_token(config, "bos_token", *result), named_token(config, "eos_token", *result),
                    named_token(config, "unk_token", *result), named_token(config, "pad_token", *result)};
  if (!named.unknown) named.unknown = model_unknown;
  result->set_named_tokens(named);
  return std::shared_ptr<const Tokenizer>(std::move(result));
}

Result<std::shared_ptr<const Tokenizer>> load_tokenizer_folder(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  if (!file_exists(path))
    return make_error(ErrorKind::kNotFound, "model folder has no tokenizer", path, "a tokenizer.json",
                      "no such file",
                      "download the model's tokenizer.json, or convert its tokenizer.model to one");
  MLXCEL_ASSIGN_OR_RETURN(const JsonValue tokenizer, parse_json_file(path));
  JsonValue config;
  const std::string config_path = folder + "/tokenizer_config.json";
  if (file_exists(config_path)) {
    MLXCEL_ASSIGN_OR_RETURN(config, parse_json_file(config_path));
  }
  return load_tokenizer_json(tokenizer, config, path);
}

}  // namespace mlxcel
