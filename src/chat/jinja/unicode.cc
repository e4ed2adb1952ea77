#include "chat/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/utf8.h"
#include "chat/jinja/unicode_special_case.h"

namespace mlxcel::jinja {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2, kCapitalDottedI = 0x130;

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

const SpecialCase* special_case(char32_t c) {
  if (c < kSpecialCases.front().code) return nullptr;
  const auto* it = std::lower_bound(kSpecialCases.begin(), kSpecialCases.end(), c,
                                    [](const SpecialCase& row, char32_t code) { return row.code < code; });
  return it != kSpecialCases.end() && it->code == c ? it : nullptr;
}

void append_all(std::string& out, std::u32string_view characters) {
  for (const char32_t c : characters) append_utf8(out, c);
}

void append_upper(std::string& out, char32_t c) {
  if (const SpecialCase* row = special_case(c)) return append_all(out, row->upper);
  append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_title(std::string& out, char32_t c) {
  if (const SpecialCase* row = special_case(c)) return append_all(out, row->title);
  append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

bool is_case_ignorable(char32_t c) {
  switch (c) {
    case '\'':
    case '.':
    case ':':
    case '^':
    case '`':
    case 0xA8:
    case 0xAD:
    case 0xAF:
    case 0xB4:
    case 0xB7:
    case 0xB8:
    case 0x2019:
      return true;
    default:
      break;
  }
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME || kind == UTF8PROC_CATEGORY_CF ||
         kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK;
}

// Unicode's Final_Sigma: a cased character before, none after, looking through case-ignorable ones.
bool is_final_sigma(const std::u32string& text, size_t at) {
  size_t before = at;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t after = at + 1;
  while (after < text.size() && is_case_ignorable(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

void append_lower(std::string& out, const std::u32string& text, size_t at) {
  const char32_t c = text[at];
  if (c == kCapitalSigma) return append_utf8(out, is_final_sigma(text, at) ? kFinalSigma : kSmallSigma);
  if (c == kCapitalDottedI) return append_all(out, U"i\u0307");
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}
bool is_alpha(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t c) {
  // Nd, and the superscript, subscript and circled digits that Unicode gives the type "digit".
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) ||
         (c >= 0x2474 && c <= 0x247C) || (c >= 0x2488 && c <= 0x2490) || c == 0x24EA ||
         (c >= 0x24F5 && c <= 0x24FD) || c == 0x24FF || (c >= 0x2776 && c <= 0x277E) ||
         (c >= 0x2780 && c <= 0x2788) || (c >= 0x278A && c <= 0x2792);
}
bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}
bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }
bool is_upper(char32_t c) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_lower(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }
bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }
bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}
bool is_identifier_start(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
}
bool is_identifier_part(char32_t c) {
  if (is_identifier_start(c) || (c >= '0' && c <= '9')) return true;
  if (c < 0x80) return false;
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC || kind == UTF8PROC_CATEGORY_ND ||
         kind == UTF8PROC_CATEGORY_PC;
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (is_ascii(text)) {
    for (const char c : text) out.push_back(c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c);
    return out;
  }
  for (const char32_t c : to_utf32(text)) append_upper(out, c);
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (is_ascii(text)) {
    for (const char c : text) out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
    return out;
  }
  const std::u32string characters = to_utf32(text);
  for (size_t i = 0; i < characters.size(); ++i) append_lower(out, characters, i);
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  const std::u32string characters = to_utf32(text);
  bool after_cased = false;
  for (size_t i = 0; i < characters.size(); ++i) {
    if (after_cased) {
      append_lower(out, characters, i);
    } else {
      append_title(out, characters[i]);
    }
    after_cased = is_cased(characters[i]);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  const std::u32string characters = to_utf32(text);
  for (size_t i = 0; i < characters.size(); ++i) {
    if (i == 0) {
      append_title(out, characters[i]);
    } else {
      append_lower(out, characters, i);
    }
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  const std::u32string characters = to_utf32(text);
  for (size_t i = 0; i < characters.size(); ++i) {
    if (is_upper(characters[i])) {
      append_lower(out, characters, i);
    } else if (is_lower(characters[i])) {
      append_upper(out, characters[i]);
    } else {
      append_utf8(out, characters[i]);
    }
  }
  return out;
}

std::string case_fold(std::string_view text) {
  std::string out;
  for (const char32_t c : to_utf32(text)) {
    utf8proc_int32_t folded[8];
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8, UTF8PROC_CASEFOLD, &boundary);
    if (count < 0 || count > 8) {
      append_utf8(out, c);
      continue;
    }
    for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(out, static_cast<char32_t>(folded[i]));
  }
  return out;
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Char c = decode_utf8(text, at);
    if (!is_space(c.code)) break;
    at += c.size;
  }
  return at;
}

size_t previous_character(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

size_t trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t begin = previous_character(text, end);
    if (!is_space(decode_utf8(text, begin).code)) break;
    end = begin;
  }
  return text.size() - end;
}

size_t offset_of_character(std::string_view text, size_t index) {
  size_t at = 0;
  while (index > 0 && at < text.size()) {
    at += decode_utf8(text, at).size;
    --index;
  }
  return at;
}

}  // namespace mlxcel::jinja
