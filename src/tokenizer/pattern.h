// {"String": "..."} or {"Regex": "..."}: the pattern of Split and Replace.
//
// Owner: the component that holds it. Threads: immutable, find() with the caller's scratch.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/regex.h"

namespace mlxcel {

class Pattern {
 public:
  static Result<Pattern> parse(const JsonValue* value, const std::string& where);
  static Pattern literal(std::string text);
  static Result<Pattern> regex(std::string_view pattern, const std::string& where);

  // An empty literal never matches. A regex may match nothing: begin == end.
  std::optional<RegexMatch> find(std::string_view text, size_t offset, RegexScratch& scratch) const;
  // The literal, or nothing for a regex.
  const std::string* literal_text() const { return regex_ ? nullptr : &literal_; }

  // Calls visit(begin, end) for each match from the left, none overlapping.
  template <typename Visitor>
  void for_each(std::string_view text, RegexScratch& scratch, Visitor&& visit) const {
    for (size_t offset = 0; offset <= text.size();) {
      const auto match = find(text, offset, scratch);
      if (!match) return;
      visit(match->begin, match->end);
      offset = match->end > match->begin ? match->end : next_character(text, match->end);
    }
  }

 private:
  static size_t next_character(std::string_view text, size_t at);
  std::string literal_;
  std::unique_ptr<const Regex> regex_;
};

}  // namespace mlxcel
