#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "base/utf8.h"

namespace mlxcel::unicode {
namespace {

utf8proc_category_t category(char32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

bool is_between(char32_t code, char32_t low, char32_t high) { return code >= low && code <= high; }

// Hangul vowels and final consonants have combining class 0 and yet compose with what stands before them.
bool is_trailing_jamo(char32_t code) {
  return is_between(code, 0x1160, 0x11A7) || is_between(code, 0x11A8, 0x11FF) ||
         is_between(code, 0xD7B0, 0xD7FF);
}

bool interacts_backwards(char32_t code) { return is_mark(code) || is_trailing_jamo(code); }

utf8proc_option_t decompose_options(Form form) {
  const bool is_compatible = form == Form::kNfkc || form == Form::kNfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (is_compatible ? UTF8PROC_COMPAT : 0));
}

// Longest full decomposition in Unicode is 18 characters (U+FDFA).
constexpr int kDecompositionMax = 32;

int decompose(char32_t code, Form form, std::array<utf8proc_int32_t, kDecompositionMax>& out) {
  int last_bound_class = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), out.data(),
                                             kDecompositionMax, decompose_options(form), &last_bound_class);
  if (count <= 0 || count > kDecompositionMax) {
    out[0] = static_cast<utf8proc_int32_t>(code);
    return 1;
  }
  return static_cast<int>(count);
}

bool starts_segment(char32_t code, Form form) {
  if (code < 0x300) return true;
  if (interacts_backwards(code)) return false;
  std::array<utf8proc_int32_t, kDecompositionMax> parts{};
  decompose(code, form, parts);
  return !interacts_backwards(static_cast<char32_t>(parts[0]));
}

}  // namespace

bool is_white_space(char32_t code) {
  if (code < 0x80) return code == ' ' || is_between(code, 0x09, 0x0D);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || is_between(code, 0x2000, 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_word_character(char32_t code) {
  if (code < 0x80)
    return is_between(code, 'a', 'z') || is_between(code, 'A', 'Z') || is_between(code, '0', '9') ||
           code == '_';
  switch (category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      // Other_Alphabetic symbols (circled and squared letters) and Join_Control.
      return is_between(code, 0x24B6, 0x24E9) || is_between(code, 0x1F130, 0x1F149) ||
             is_between(code, 0x1F150, 0x1F169) || is_between(code, 0x1F170, 0x1F189) || code == 0x200C ||
             code == 0x200D;
  }
}

bool is_numeric(char32_t code) {
  if (code < 0x80) return is_between(code, '0', '9');
  const auto c = category(code);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t code) {
  if (code < 0x80)
    return is_between(code, 0x21, 0x2F) || is_between(code, 0x3A, 0x40) || is_between(code, 0x5B, 0x60) ||
           is_between(code, 0x7B, 0x7E);
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t code) {
  if (code < 0x300) return false;
  const auto c = category(code);
  return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t code) { return code >= 0x300 && category(code) == UTF8PROC_CATEGORY_MN; }

bool is_control(char32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  const auto c = category(code);
  return c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO ||
         c == UTF8PROC_CATEGORY_CN || c == UTF8PROC_CATEGORY_CS;
}

bool is_cjk_ideograph(char32_t code) {
  // The blocks that the BERT reference implementation lists: CJK, extensions A to E, compatibility
  // ideographs.
  return is_between(code, 0x4E00, 0x9FFF) || is_between(code, 0x3400, 0x4DBF) ||
         is_between(code, 0x20000, 0x2A6DF) || is_between(code, 0x2A700, 0x2B73F) ||
         is_between(code, 0x2B740, 0x2B81F) || is_between(code, 0x2B920, 0x2CEAF) ||
         is_between(code, 0xF900, 0xFAFF) || is_between(code, 0x2F800, 0x2FA1F);
}

void append_lower_case(std::string& out, char32_t code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(is_between(code, 'A', 'Z') ? code + 32 : code));
  } else if (code == 0x130) {  // the one character whose full lower-case mapping is longer than one
    out.push_back('i');
    append_utf8(out, 0x307);
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
  }
}

char32_t simple_other_case(char32_t code) {
  const auto value = static_cast<utf8proc_int32_t>(code);
  const auto lower = utf8proc_tolower(value);
  if (lower != value) return static_cast<char32_t>(lower);
  return static_cast<char32_t>(utf8proc_toupper(value));
}

Segment next_normalization_segment(std::string_view text, size_t begin, Form form) {
  Utf8Char first = decode_utf8(text, begin);
  size_t end = begin + first.size;
  while (end < text.size()) {
    if (static_cast<unsigned char>(text[end]) < 0x80) break;
    const Utf8Char next = decode_utf8(text, end);
    if (starts_segment(next.code, form)) break;
    end += next.size;
  }
  return {begin, end};
}

void append_normalized(std::string& out, std::string_view segment, Form form) {
  if (segment.size() == 1) {
    out.append(segment);
    return;
  }
  std::vector<utf8proc_int32_t> codes;
  std::array<utf8proc_int32_t, kDecompositionMax> parts{};
  for (size_t position = 0; position < segment.size();) {
    const Utf8Char c = decode_utf8(segment, position);
    position += c.size;
    const int count = decompose(c.code, form, parts);
    codes.insert(codes.end(), parts.begin(), parts.begin() + count);
  }
  // Canonical ordering: marks between two starters sort by combining class, equal classes keep their order.
  const auto combining_class = [](utf8proc_int32_t code) {
    return utf8proc_get_property(code)->combining_class;
  };
  for (size_t i = 0; i < codes.size();) {
    if (combining_class(codes[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < codes.size() && combining_class(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + static_cast<std::ptrdiff_t>(i),
                     codes.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
  size_t count = codes.size();
  if (form == Form::kNfc || form == Form::kNfkc) {
    const auto composed =
        utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                                 static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    if (composed >= 0) count = static_cast<size_t>(composed);
  }
  for (size_t i = 0; i < count; ++i) append_utf8(out, static_cast<char32_t>(codes[i]));
}

size_t grapheme_end(std::string_view text, size_t begin) {
  Utf8Char previous = decode_utf8(text, begin);
  size_t end = begin + previous.size;
  utf8proc_int32_t state = 0;
  while (end < text.size()) {
    const Utf8Char next = decode_utf8(text, end);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous.code),
                                         static_cast<utf8proc_int32_t>(next.code), &state))
      break;
    previous = next;
    end += next.size;
  }
  return end;
}

}  // namespace mlxcel::unicode
