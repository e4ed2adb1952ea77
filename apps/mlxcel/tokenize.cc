// mlxcel tokenize: text to ids and back.
#include <fmt/format.h>

#include "base/file.h"
#include "commands.h"
#include "options/values.h"

namespace mlxcel {
namespace {

Error wrong_input(std::string expected, std::string found) {
  return make_error(ErrorKind::kInvalidArgument, "wrong input", "", std::move(expected), std::move(found));
}

// A folder needs no weights for this: tokenizer.json is enough.
Result<std::shared_ptr<const Tokenizer>> tokenizer_at(const std::string& path) {
  if (directory_exists(path) && file_exists(path_join(path, "tokenizer.json")))
    return load_tokenizer_folder(path);
  MLXCEL_ASSIGN_OR_RETURN(TextModel text, load_text_model(path));
  return std::move(text.tokenizer);
}

Result<TokenId> checked_id(int64_t id, const Tokenizer& tokenizer) {
  if (id >= 0 && id < tokenizer.vocab_size()) return static_cast<TokenId>(id);
  return wrong_input(fmt::format("token ids from 0 to {}", tokenizer.vocab_size() - 1),
                     fmt::format("{}", id));
}

Result<JsonArray> json_array_from_stdin() {
  MLXCEL_ASSIGN_OR_RETURN(JsonValue value, read_json("-"));
  if (!value.is_array()) return wrong_input("a JSON array on standard input", std::string(value.type_name()));
  return std::move(value.as_array());
}

Result<std::vector<TokenId>> ids_of(const JsonValue& value, const Tokenizer& tokenizer) {
  if (!value.is_array()) {
    return wrong_input("a JSON array of arrays of token ids, as [[1, 2], [3]]",
                       fmt::format("{} in it", value.type_name()));
  }
  std::vector<TokenId> ids;
  for (const JsonValue& id : value.as_array()) {
    if (!id.is_int()) return wrong_input("token ids", std::string(id.type_name()));
    MLXCEL_ASSIGN_OR_RETURN(const TokenId checked, checked_id(id.as_int(), tokenizer));
    ids.push_back(checked);
  }
  return ids;
}

// Ids as words, or one word "1,2,3".
Result<std::vector<TokenId>> ids_of_words(const std::vector<std::string>& words, const Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  for (const std::string& word : words) {
    for (size_t begin = 0; begin <= word.size();) {
      const size_t end = std::min(word.find(',', begin), word.size());
      const auto id = parse_integer(std::string_view(word).substr(begin, end - begin));
      if (!id) return wrong_input("token ids", fmt::format("'{}'", word));
      MLXCEL_ASSIGN_OR_RETURN(const TokenId checked, checked_id(*id, tokenizer));
      ids.push_back(checked);
      begin = end + 1;
    }
  }
  return ids;
}

// What `tokenize` prints, or a JSON array: ids between blanks, commas and brackets.
std::vector<std::string> words_of(std::string text) {
  for (char& c : text) {
    if (c == ',' || c == '[' || c == ']' || c == '\n' || c == '\t' || c == '\r') c = ' ';
  }
  std::vector<std::string> words;
  for (const std::string_view word : split_words(text)) words.emplace_back(word);
  return words;
}

Result<int> decode_texts(Context& context, const Tokenizer& tokenizer) {
  const bool skip_special = !context.settings.flag("parse-special");
  if (!context.settings.flag("json")) {
    std::vector<std::string> words = context.arguments;
    if (words.empty()) {
      MLXCEL_ASSIGN_OR_RETURN(std::string input, read_text("-"));
      words = words_of(std::move(input));
    }
    MLXCEL_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, ids_of_words(words, tokenizer));
    context.terminal.print(tokenizer.decode(ids, skip_special) + "\n");
    return 0;
  }
  MLXCEL_ASSIGN_OR_RETURN(const JsonArray lists, json_array_from_stdin());
  JsonArray out;
  for (const JsonValue& list : lists) {
    MLXCEL_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, ids_of(list, tokenizer));
    out.emplace_back(tokenizer.decode(ids, skip_special));
  }
  context.terminal.print(to_json(JsonValue(std::move(out))) + "\n");
  return 0;
}

}  // namespace

Result<int> tokenize_command(Context& context) {
  MLXCEL_ASSIGN_OR_RETURN(const ResolvedModel model, find_model(context, context.settings.text("model")));
  MLXCEL_ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> loaded, tokenizer_at(model.path));
  const Tokenizer& tokenizer = *loaded;
  if (context.settings.flag("decode")) return decode_texts(context, tokenizer);
  const EncodeOptions options{context.settings.flag("add-special"), context.settings.flag("parse-special")};
  if (!context.settings.flag("json")) {
    std::vector<std::string> inputs = context.arguments;
    if (inputs.empty()) {
      MLXCEL_ASSIGN_OR_RETURN(std::string input, read_text("-"));
      inputs.push_back(std::move(input));
    }
    for (const std::string& input : inputs) {
      context.terminal.print(fmt::format("{}\n", fmt::join(tokenizer.encode(input, options), " ")));
    }
    return 0;
  }
  JsonArray inputs;
  for (const std::string& word : context.arguments) inputs.emplace_back(word);
  if (inputs.empty()) {
    MLXCEL_ASSIGN_OR_RETURN(inputs, json_array_from_stdin());
  }
  JsonArray out;
  for (const JsonValue& input : inputs) {
    if (!input.is_string())
      return wrong_input("a JSON array of strings", fmt::format("{} in it", input.type_name()));
    JsonArray ids;
    for (const TokenId id : tokenizer.encode(input.as_string(), options)) ids.emplace_back(int64_t{id});
    out.emplace_back(std::move(ids));
  }
  context.terminal.print(to_json(JsonValue(std::move(out))) + "\n");
  return 0;
}

}  // namespace mlxcel
