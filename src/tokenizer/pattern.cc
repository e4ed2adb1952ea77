#include "tokenizer/pattern.h"

#include "base/utf8.h"

namespace mlxcel {

Result<Pattern> Pattern::parse(const JsonValue* value, const std::string& where) {
  const JsonValue* text = value != nullptr ? value->find("String") : nullptr;
  if (text != nullptr && text->is_string()) return literal(text->as_string());
  const JsonValue* expression = value != nullptr ? value->find("Regex") : nullptr;
  if (expression != nullptr && expression->is_string()) return regex(expression->as_string(), where);
  return make_error(ErrorKind::kInvalidData, "pattern is malformed", where,
                    "an object with a string under \"String\" or \"Regex\"",
                    value == nullptr ? "nothing" : std::string(value->type_name()));
}

Pattern Pattern::literal(std::string text) {
  Pattern pattern;
  pattern.literal_ = std::move(text);
  return pattern;
}

Result<Pattern> Pattern::regex(std::string_view pattern, const std::string& where) {
  MLXCEL_ASSIGN_OR_RETURN(Regex compiled, Regex::compile(pattern, where));
  Pattern result;
  result.regex_ = std::make_unique<const Regex>(std::move(compiled));
  return result;
}

std::optional<RegexMatch> Pattern::find(std::string_view text, size_t offset, RegexScratch& scratch) const {
  if (regex_) return regex_->find(text, offset, scratch);
  if (literal_.empty()) return std::nullopt;
  const size_t begin = text.find(literal_, offset);
  if (begin == std::string_view::npos) return std::nullopt;
  return RegexMatch{begin, begin + literal_.size()};
}

size_t Pattern::next_character(std::string_view text, size_t at) {
  return at >= text.size() ? text.size() + 1 : at + decode_utf8(text, at).size;
}

}  // namespace mlxcel
