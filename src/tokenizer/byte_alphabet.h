// GPT-2's byte alphabet: each byte as one printable character, so that a vocabulary of byte strings is text.
// Printable Latin-1 bytes stand for themselves, the others are U+0100 and on in their order. Source:
// bytes_to_unicode in the published GPT-2 encoder.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mlxcel {

char32_t byte_to_alphabet(unsigned char byte);
std::optional<unsigned char> alphabet_to_byte(char32_t code);
std::string to_byte_alphabet(std::string_view bytes);
// Nothing when a character is not of the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace mlxcel
