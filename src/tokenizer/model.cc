#include "tokenizer/model.h"

namespace mlxcel {
namespace {

// The largest vocabularies in use have a quarter of a million tokens; an id far above that is a damaged file,
// and the table by id would be as large as the id.
constexpr int64_t kTokenIdMax = (int64_t{1} << 24) - 1;

Result<Vocabulary> parse_vocabulary_object(const JsonValue* value, const std::string& where) {
  if (value == nullptr || !value->is_object())
    return make_error(ErrorKind::kInvalidData, "vocabulary is malformed", where,
                      "an object of tokens and ids",
                      value == nullptr ? "nothing" : std::string(value->type_name()));
  Vocabulary vocabulary;
  vocabulary.reserve(value->as_object().size(), value->as_object().size() * 8);
  for (const JsonMember& member : value->as_object()) {
    if (!member.second.is_int())
      return make_error(ErrorKind::kInvalidData, "token id is malformed",
                        where + "[\"" + member.first + "\"]", "an integer",
                        std::string(member.second.type_name()));
    MLXCEL_RETURN_IF_ERROR(vocabulary.add(member.first, member.second.as_int(), where));
  }
  return vocabulary;
}

Result<std::optional<std::string>> optional_string(const JsonReader& reader, std::string_view key) {
  if (!reader.has(key)) return std::optional<std::string>();
  MLXCEL_ASSIGN_OR_RETURN(std::string text, reader.string(key));
  return std::optional<std::string>(std::move(text));
}

// "a b" or ["a", "b"].
Result<Merge> parse_merge(const JsonValue& value, const std::string& where) {
  if (value.is_string()) {
    const std::string_view text = value.as_string();
    const size_t space = text.find(' ');
    if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos)
      return Merge{text.substr(0, space), text.substr(space + 1)};
  } else if (value.is_array() && value.as_array().size() == 2 && value.as_array()[0].is_string() &&
             value.as_array()[1].is_string()) {
    return Merge{value.as_array()[0].as_string(), value.as_array()[1].as_string()};
  }
  return make_error(ErrorKind::kInvalidData, "merge is malformed", where, "\"a b\" or [\"a\", \"b\"]");
}

Result<std::vector<Merge>> parse_merges(const JsonValue* value, const std::string& where) {
  if (value == nullptr || !value->is_array())
    return make_error(ErrorKind::kInvalidData, "merges are missing or malformed", where, "an array",
                      value == nullptr ? "nothing" : std::string(value->type_name()));
  std::vector<Merge> merges;
  merges.reserve(value->as_array().size());
  bool is_first = true;
  for (const JsonValue& item : value->as_array()) {
    // Files made from merges.txt may keep its version line.
    const bool is_comment = is_first && item.is_string() && item.as_string().starts_with("#version");
    is_first = false;
    if (is_comment) continue;
    MLXCEL_ASSIGN_OR_RETURN(const Merge merge,
                            parse_merge(item, where + "[" + std::to_string(merges.size()) + "]"));
    merges.push_back(merge);
  }
  return merges;
}

Result<std::unique_ptr<Model>> parse_bpe(const JsonReader& reader, bool pieces_are_bytes) {
  const std::string& where = reader.where();
  MLXCEL_ASSIGN_OR_RETURN(const double dropout, reader.number("dropout", 0.0));
  if (dropout != 0)
    return make_error(ErrorKind::kUnsupported, "BPE dropout is a training device", where + ".dropout",
                      "null or 0", std::to_string(dropout));
  BpeOptions options;
  options.pieces_are_bytes = pieces_are_bytes;
  MLXCEL_ASSIGN_OR_RETURN(options.unknown_token, optional_string(reader, "unk_token"));
  MLXCEL_ASSIGN_OR_RETURN(options.continuing_prefix,
                          reader.string("continuing_subword_prefix", std::string()));
  MLXCEL_ASSIGN_OR_RETURN(options.end_suffix, reader.string("end_of_word_suffix", std::string()));
  MLXCEL_ASSIGN_OR_RETURN(options.fuse_unknown, reader.boolean("fuse_unk", false));
  MLXCEL_ASSIGN_OR_RETURN(options.byte_fallback, reader.boolean("byte_fallback", false));
  MLXCEL_ASSIGN_OR_RETURN(options.ignore_merges, reader.boolean("ignore_merges", false));
  MLXCEL_ASSIGN_OR_RETURN(Vocabulary vocabulary,
                          parse_vocabulary_object(reader.object().find_set("vocab"), where + ".vocab"));
  MLXCEL_ASSIGN_OR_RETURN(const std::vector<Merge> merges,
                          parse_merges(reader.object().find_set("merges"), where + ".merges"));
  return make_bpe_model(std::move(vocabulary), merges, std::move(options), where);
}

Result<std::unique_ptr<Model>> parse_unigram(const JsonReader& reader) {
  const std::string key = reader.where() + ".vocab";
  const JsonValue* list = reader.object().find_set("vocab");
  if (list == nullptr || !list->is_array())
    return make_error(ErrorKind::kInvalidData, "Unigram vocabulary is malformed", key,
                      "an array of [token, score]",
                      list == nullptr ? "nothing" : std::string(list->type_name()));
  Vocabulary vocabulary;
  const size_t count = list->as_array().size();
  vocabulary.reserve(count, count * 8);
  std::vector<double> scores;
  scores.reserve(count);
  for (const JsonValue& item : list->as_array()) {
    const std::string at = key + "[" + std::to_string(scores.size()) + "]";
    if (!item.is_array() || item.as_array().size() != 2 || !item.as_array()[0].is_string() ||
        !item.as_array()[1].is_number())
      return make_error(ErrorKind::kInvalidData, "Unigram piece is malformed", at, "[token, score]");
    MLXCEL_RETURN_IF_ERROR(
        vocabulary.add(item.as_array()[0].as_string(), static_cast<int64_t>(scores.size()), at));
    scores.push_back(item.as_array()[1].as_double());
  }
  UnigramOptions options;
  MLXCEL_ASSIGN_OR_RETURN(options.byte_fallback, reader.boolean("byte_fallback", false));
  if (reader.has("unk_id")) {
    MLXCEL_ASSIGN_OR_RETURN(const int64_t unknown, reader.integer("unk_id"));
    if (unknown < 0 || unknown >= vocabulary.size())
      return make_error(ErrorKind::kInvalidData, "unknown token is not in the vocabulary",
                        reader.where() + ".unk_id", "0.." + std::to_string(vocabulary.size() - 1),
                        std::to_string(unknown));
    options.unknown = static_cast<TokenId>(unknown);
  }
  const std::vector<bool> is_piece(count, true);
  const std::vector<bool> is_user_defined(count, false);
  return make_unigram_model(std::move(vocabulary), std::move(scores), is_piece, is_user_defined, options,
                            reader.where());
}

Result<std::unique_ptr<Model>> parse_wordpiece(const JsonReader& reader) {
  WordPieceOptions options;
  MLXCEL_ASSIGN_OR_RETURN(options.unknown_token, reader.string("unk_token", std::string("[UNK]")));
  MLXCEL_ASSIGN_OR_RETURN(options.continuing_prefix,
                          reader.string("continuing_subword_prefix", std::string("##")));
  MLXCEL_ASSIGN_OR_RETURN(options.word_characters_max, reader.integer("max_input_chars_per_word", 100));
  MLXCEL_ASSIGN_OR_RETURN(Vocabulary vocabulary, parse_vocabulary_object(reader.object().find_set("vocab"),
                                                                         reader.where() + ".vocab"));
  return make_wordpiece_model(std::move(vocabulary), options, reader.where());
}

// Each piece is one token or the unknown token.
class WordLevelModel : public Model {
 public:
  WordLevelModel(Vocabulary vocabulary, std::optional<TokenId> unknown)
      : Model(std::move(vocabulary)), unknown_(unknown) {}
  void encode(std::string_view piece, std::vector<TokenId>& out, ModelScratch& scratch) const override {
    const auto id = vocabulary_.find(piece);
    if (id && !is_forbidden(*id, scratch))
      out.push_back(*id);
    else if (unknown_)
      out.push_back(*unknown_);
  }
  std::string_view kind() const override { return "WordLevel"; }
  std::optional<TokenId> unknown() const override { return unknown_; }

 private:
  std::optional<TokenId> unknown_;
};

Result<std::unique_ptr<Model>> parse_word_level(const JsonReader& reader) {
  MLXCEL_ASSIGN_OR_RETURN(Vocabulary vocabulary, parse_vocabulary_object(reader.object().find_set("vocab"),
                                                                         reader.where() + ".vocab"));
  MLXCEL_ASSIGN_OR_RETURN(const std::string unknown_token, reader.string("unk_token", std::string("<unk>")));
  const auto unknown = vocabulary.find(unknown_token);
  return std::unique_ptr<Model>(std::make_unique<WordLevelModel>(std::move(vocabulary), unknown));
}

}  // namespace

std::string byte_token_name(unsigned char byte) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">";
}

Status Vocabulary::add(std::string_view token, int64_t id, const std::string& where) {
  if (id < 0 || id > kTokenIdMax)
    return make_error(ErrorKind::kInvalidData, "token id is out of range",
                      where + " (\"" + std::string(token) + "\")", "0.." + std::to_string(kTokenIdMax),
                      std::to_string(id));
  const auto index = static_cast<size_t>(id);
  if (index >= tokens_.size()) {
    tokens_.resize(index + 1);
    is_used_.resize(index + 1);
  }
  tokens_[index] = std::string(token);
  is_used_[index] = true;
  ids_.set(token, static_cast<TokenId>(id));
  return ok_status();
}

void Vocabulary::reserve(size_t count, size_t bytes) {
  tokens_.reserve(count);
  ids_.reserve(count, bytes);
}

const std::string* Vocabulary::token(TokenId id) const {
  if (id < 0 || static_cast<size_t>(id) >= tokens_.size() || !is_used_[static_cast<size_t>(id)])
    return nullptr;
  return &tokens_[static_cast<size_t>(id)];
}

std::optional<TokenId> Vocabulary::byte_token(unsigned char byte) const {
  return find(byte_token_name(byte));
}

Result<std::unique_ptr<Model>> parse_model(const JsonValue* value, const std::string& where,
                                           bool pieces_are_bytes) {
  if (value == nullptr || !value->is_object())
    return make_error(ErrorKind::kInvalidData, "model is missing or malformed", where, "an object",
                      value == nullptr ? "nothing" : std::string(value->type_name()));
  const JsonReader reader(*value, where);
  std::string fallback;
  // Files older than the key: a list of merges means BPE, a list of pieces Unigram, a prefix WordPiece.
  if (!reader.has("type")) {
    const JsonValue* vocabulary = value->find_set("vocab");
    if (value->find_set("merges") != nullptr)
      fallback = "BPE";
    else if (vocabulary != nullptr && vocabulary->is_array())
      fallback = "Unigram";
    else
      fallback = value->find_set("continuing_subword_prefix") != nullptr ? "WordPiece" : "WordLevel";
  }
  MLXCEL_ASSIGN_OR_RETURN(const std::string type, reader.string("type", fallback));
  if (type == "BPE") return parse_bpe(reader, pieces_are_bytes);
  if (pieces_are_bytes && type != "WordLevel" && type != "WordPiece" && type != "Unigram")
    return make_error(ErrorKind::kUnsupported, "model type is unknown", where + ".type",
                      "BPE, Unigram, WordPiece or WordLevel", type);
  if (type == "Unigram") return parse_unigram(reader);
  if (type == "WordPiece") return parse_wordpiece(reader);
  if (type == "WordLevel") return parse_word_level(reader);
  return make_error(ErrorKind::kUnsupported, "model type is unknown", where + ".type",
                    "BPE, Unigram, WordPiece or WordLevel", type);
}

}  // namespace mlxcel
