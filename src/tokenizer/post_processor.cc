#include "tokenizer/post_processor.h"

#include <limits>

namespace mlxcel {
namespace {

Result<TokenId> parse_id(const JsonValue& value, const std::string& where) {
  if (!value.is_int() || value.as_int() < 0 || value.as_int() > std::numeric_limits<TokenId>::max())
    return make_error(ErrorKind::kInvalidData, "token id is malformed", where, "an integer of at least 0",
                      std::string(value.type_name()));
  return static_cast<TokenId>(value.as_int());
}

Status append_special(const JsonValue& value, const std::string& name, const std::string& where,
                      std::vector<TokenId>& out) {
  const JsonValue* table = value.find_set("special_tokens");
  const JsonValue* entry = table != nullptr ? table->find_set(name) : nullptr;
  const JsonValue* ids = entry != nullptr ? entry->find_set("ids") : nullptr;
  if (ids == nullptr || !ids->is_array())
    return make_error(ErrorKind::kInvalidData, "template names a token without ids",
                      where + ".special_tokens", "an entry for every SpecialToken", name);
  for (const JsonValue& id : ids->as_array()) {
    MLXCEL_ASSIGN_OR_RETURN(const TokenId parsed,
                            parse_id(id, where + ".special_tokens[\"" + name + "\"].ids"));
    out.push_back(parsed);
  }
  return ok_status();
}

Result<Surround> parse_template(const JsonValue& value, const std::string& where) {
  const JsonValue* single = value.find_set("single");
  if (single == nullptr || !single->is_array())
    return make_error(ErrorKind::kInvalidData, "template is malformed", where + ".single",
                      "an array of SpecialToken and Sequence");
  Surround result;
  bool has_text = false;
  for (const JsonValue& item : single->as_array()) {
    if (item.find("Sequence") != nullptr) {
      if (has_text)
        return make_error(ErrorKind::kUnsupported, "template repeats the text", where + ".single",
                          "one Sequence");
      has_text = true;
      continue;
    }
    const JsonValue* special = item.find("SpecialToken");
    const JsonValue* id = special != nullptr ? special->find("id") : nullptr;
    if (id == nullptr || !id->is_string())
      return make_error(ErrorKind::kInvalidData, "template is malformed", where + ".single",
                        "objects with SpecialToken or Sequence");
    MLXCEL_RETURN_IF_ERROR(
        append_special(value, id->as_string(), where, has_text ? result.after : result.before));
  }
  if (!has_text)
    return make_error(ErrorKind::kInvalidData, "template has no place for the text", where + ".single",
                      "one Sequence");
  return result;
}

// BertProcessing and RobertaProcessing: ["[CLS]", 101] and ["[SEP]", 102].
Result<Surround> parse_pair(const JsonValue& value, const std::string& where) {
  Surround result;
  for (const auto& [key, out] : {std::pair{"cls", &result.before}, std::pair{"sep", &result.after}}) {
    const JsonValue* pair = value.find_set(key);
    if (pair == nullptr || !pair->is_array() || pair->as_array().size() != 2)
      return make_error(ErrorKind::kInvalidData, "post-processor is malformed", where + "." + key,
                        "[token, id]");
    MLXCEL_ASSIGN_OR_RETURN(const TokenId id, parse_id(pair->as_array()[1], where + "." + key));
    out->push_back(id);
  }
  return result;
}

Result<Surround> parse_sequence(const JsonValue& value, const std::string& where) {
  const JsonValue* list = value.find_set("processors");
  if (list == nullptr || !list->is_array())
    return make_error(ErrorKind::kInvalidData, "Sequence has no list of post-processors",
                      where + ".processors", "an array");
  Surround result;
  for (size_t i = 0; i < list->as_array().size(); ++i) {
    MLXCEL_ASSIGN_OR_RETURN(
        const Surround part,
        parse_post_processor(&list->as_array()[i], where + ".processors[" + std::to_string(i) + "]"));
    // Each processor wraps what the ones before it made.
    result.before.insert(result.before.begin(), part.before.begin(), part.before.end());
    result.after.insert(result.after.end(), part.after.begin(), part.after.end());
  }
  return result;
}

}  // namespace

Result<Surround> parse_post_processor(const JsonValue* value, const std::string& where) {
  if (value == nullptr || value->is_null()) return Surround{};
  const JsonReader reader(*value, where);
  MLXCEL_ASSIGN_OR_RETURN(const std::string type, reader.string("type"));
  if (type == "ByteLevel") return Surround{};  // trims offsets, which ids do not have
  if (type == "TemplateProcessing") return parse_template(*value, where);
  if (type == "BertProcessing" || type == "RobertaProcessing") return parse_pair(*value, where);
  if (type == "Sequence") return parse_sequence(*value, where);
  return make_error(ErrorKind::kUnsupported, "post-processor type is unknown", where + ".type",
                    "a post-processor of the tokenizers library", type);
}

}  // namespace mlxcel
