// UTF-8: decoding, validation, repair, and the "incomplete tail" rule every streaming decoder needs.
// Pure functions; any thread. Ill-formed input follows the Unicode recommendation: each maximal ill-formed
// subpart becomes one U+FFFD (Unicode 15, section 3.9, "U+FFFD Substitution of Maximal Subparts").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mlxcel {

struct Utf8Char {
  char32_t code = 0xFFFD;  // U+FFFD when ill-formed
  uint8_t size = 0;        // bytes consumed, 1..4; of an ill-formed sequence: its maximal subpart
  bool valid = false;
};
// Decodes the character at `position`. REQUIRES: position < text.size().
Utf8Char decode_utf8(std::string_view text, size_t position);
void append_utf8(std::string& out, char32_t code);  // surrogates and values above U+10FFFF append U+FFFD
bool is_valid_utf8(std::string_view text);
std::string repair_utf8(std::string_view text);  // the same bytes when valid
// How many bytes at the end of `text` are the start of a character that more bytes could complete (0..3).
size_t incomplete_utf8_tail(std::string_view text);
// Number of code points (ill-formed subparts count one each).
size_t count_code_points(std::string_view text);
std::u32string to_utf32(std::string_view text);
std::string to_utf8(std::u32string_view text);
// Display columns in a terminal (wcwidth-like: combining 0, East Asian wide 2).
int display_width(std::string_view text);

}  // namespace mlxcel
