// Character properties and normalisation forms as the tokenizer formats mean them. The tables are utf8proc's
// (Unicode 15); what is a space or a word character follows the Unicode properties White_Space and the word
// class of UTS 18, which is what the reference tokenizers use.
//
// Pure functions; any thread. Text is valid UTF-8 everywhere in this folder (the pipeline repairs it once).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mlxcel::unicode {

bool is_white_space(char32_t code);      // the property White_Space
bool is_word_character(char32_t code);   // letters, marks, decimal digits, connectors, joiners
bool is_numeric(char32_t code);          // Nd, Nl, No
bool is_punctuation(char32_t code);      // P*, or ASCII punctuation and symbols
bool is_mark(char32_t code);             // M*
bool is_nonspacing_mark(char32_t code);  // Mn
bool is_control(char32_t code);          // C*, but not tab, line feed, carriage return
bool is_cjk_ideograph(char32_t code);    // the ranges BERT puts spaces around

// Appends the lower-case mapping: one character, two for U+0130.
void append_lower_case(std::string& out, char32_t code);
// The other case of a letter in simple case mapping, or the letter itself.
char32_t simple_other_case(char32_t code);

enum class Form { kNfc, kNfd, kNfkc, kNfkd };

// A stretch of text that normalises on its own: nothing in it interacts with what stands before or behind.
struct Segment {
  size_t begin = 0;
  size_t end = 0;
};
// The next segment from `begin` on. REQUIRES: begin < text.size().
Segment next_normalization_segment(std::string_view text, size_t begin, Form form);
// Appends the normalised segment. Near-linear in its length, also for runs of thousands of combining marks.
void append_normalized(std::string& out, std::string_view segment, Form form);

// End of the extended grapheme cluster that begins at `begin`. REQUIRES: begin < text.size().
size_t grapheme_end(std::string_view text, size_t begin);

}  // namespace mlxcel::unicode
