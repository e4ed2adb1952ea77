// Character classes and case mapping as Python's str has them, over UTF-8.
// Pure functions; any thread. Simple mappings and categories come from utf8proc; the mappings of one
// character to several are Unicode's SpecialCasing.txt.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mlxcel::jinja {

bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_alnum(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_cased(char32_t c);
bool is_printable(char32_t c);
bool is_identifier_start(char32_t c);
bool is_identifier_part(char32_t c);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);  // str.title(): every run of cased characters
std::string capitalize(std::string_view text);
std::string swap_case(std::string_view text);
std::string case_fold(std::string_view text);

// Bytes of white space at either end (all of it when the text is nothing else).
size_t leading_space(std::string_view text);
size_t trailing_space(std::string_view text);
// The start of the character that ends at `end`. REQUIRES: 0 < end <= text.size().
size_t previous_character(std::string_view text, size_t end);
// The byte offset of character `index`, or text.size() when there are fewer.
size_t offset_of_character(std::string_view text, size_t index);

}  // namespace mlxcel::jinja
