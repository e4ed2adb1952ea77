#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace mlxcel {
namespace {

// Elements of HTML that vocabularies hold as plain tokens; text that shows markup must encode as the model
// learnt it.
constexpr std::array<std::string_view, 53> kMarkup = {
    "a",      "abbr", "article", "b",   "blockquote", "body",   "br",    "button", "caption",
    "center", "code", "dd",      "del", "div",        "dl",     "dt",    "em",     "font",
    "footer", "form", "h1",      "h2",  "h3",         "h4",     "h5",    "h6",     "head",
    "header", "hr",   "html",    "i",   "iframe",     "img",    "input", "li",     "ol",
    "option", "p",    "pre",     "s",   "span",       "strong", "sub",   "sup",    "table",
    "tbody",  "td",   "tfoot",   "th",  "thead",      "tr",     "u",     "ul"};

bool is_markup(std::string_view name) {
  if (name.starts_with('/')) name.remove_prefix(1);
  return std::find(kMarkup.begin(), kMarkup.end(), name) != kMarkup.end();
}

bool has_word_character_before(std::string_view text, size_t end) {
  if (end == 0) return false;
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return unicode::is_word_character(decode_utf8(text, begin).code);
}

bool has_word_character_at(std::string_view text, size_t begin) {
  return begin < text.size() && unicode::is_word_character(decode_utf8(text, begin).code);
}

size_t skip_spaces_left(std::string_view text, size_t end, size_t stop) {
  while (end > stop) {
    size_t begin = end - 1;
    while (begin > stop && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!unicode::is_white_space(decode_utf8(text, begin).code)) break;
    end = begin;
  }
  return end;
}

size_t skip_spaces_right(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const Utf8Char c = decode_utf8(text, begin);
    if (!unicode::is_white_space(c.code)) break;
    begin += c.size;
  }
  return begin;
}

}  // namespace

bool is_marker(const AddedToken& token) {
  if (token.special) return true;
  std::string_view text = token.content;
  const bool is_bracketed =
      (text.starts_with('<') && text.ends_with('>')) || (text.starts_with('[') && text.ends_with(']'));
  if (!is_bracketed || text.size() < 3) return false;
  text = text.substr(1, text.size() - 2);
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; };
  return std::none_of(text.begin(), text.end(), is_space) && !is_markup(text);
}

void AddedTokenMatcher::build(std::vector<AddedToken> tokens, const std::vector<std::string>& patterns) {
  MLXCEL_CHECK(tokens.size() == patterns.size());
  tokens_ = std::move(tokens);
  is_marker_.assign(tokens_.size(), false);
  std::vector<std::pair<std::string, int32_t>> keys;
  // Of equal patterns the first one counts; the trie keeps the last it is given.
  for (size_t i = tokens_.size(); i-- > 0;) {
    is_marker_[i] = is_marker(tokens_[i]);
    keys.emplace_back(patterns[i], static_cast<int32_t>(i));
  }
  trie_.build(std::move(keys));
}

template <typename Allow, typename Judge>
std::vector<AddedMatch> AddedTokenMatcher::search(std::string_view text, Allow&& allow, Judge&& judge) const {
  std::vector<AddedMatch> matches;
  size_t done = 0;  // end of the last match, with the space it took
  size_t spaces_begin = 1;
  size_t spaces_end = 0;
  for (size_t position = 0; position < text.size();) {
    if (!trie_.can_start(static_cast<unsigned char>(text[position]))) {
      ++position;
      continue;
    }
    Found found;
    trie_.for_each_prefix(text.substr(position), [&](size_t length, int32_t number) {
      if (allow(number, position, position + length)) found = {length, number};
    });
    if (found.number < 0) {
      ++position;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found.number)];
    size_t begin = position;
    size_t end = position + found.length;
    position = end;
    if (judge(found.number) == Verdict::kPassOver) continue;
    if (token.single_word && (has_word_character_before(text, begin) || has_word_character_at(text, end)))
      continue;
    // What an earlier token took stays taken.
    if (token.lstrip) begin = skip_spaces_left(text, begin, std::min(done, begin));
    if (token.rstrip) {
      // A run of space that was measured before is not walked again: tokens made of space would make that
      // quadratic.
      if (end < spaces_begin || end > spaces_end) {
        spaces_begin = end;
        spaces_end = skip_spaces_right(text, end);
      }
      end = spaces_end;
    }
    matches.push_back({begin, end, token.id});
    done = end;
  }
  return matches;
}

std::vector<AddedMatch> AddedTokenMatcher::find_all(std::string_view text, bool parse_special) const {
  return search(
      text, [](int32_t, size_t, size_t) { return true; },
      [&](int32_t number) {
        return !parse_special && tokens_[static_cast<size_t>(number)].special ? Verdict::kPassOver
                                                                              : Verdict::kTake;
      });
}

std::vector<AddedMatch> AddedTokenMatcher::find_all(std::string_view text,
                                                    const TemplateTest& is_template) const {
  return search(
      text,
      [&](int32_t number, size_t begin, size_t end) {
        return !is_marker_[static_cast<size_t>(number)] || is_template(begin, end);
      },
      [](int32_t) { return Verdict::kTake; });
}

}  // namespace mlxcel
