#include "tokenizer/byte_alphabet.h"

#include <array>

#include "base/utf8.h"

namespace mlxcel {
namespace {

// 256 bytes, and the inverse: the highest character is U+0143.
struct Tables {
  std::array<uint16_t, 256> forward{};
  std::array<int16_t, 324> backward{};
};

constexpr Tables make_tables() {
  Tables tables;
  for (auto& entry : tables.backward) entry = -1;
  uint16_t next = 256;
  for (uint16_t byte = 0; byte < 256; ++byte) {
    const bool is_printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
    const uint16_t code = is_printable ? byte : next++;
    tables.forward[byte] = code;
    tables.backward[code] = static_cast<int16_t>(byte);
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

char32_t byte_to_alphabet(unsigned char byte) { return kTables.forward[byte]; }

std::optional<unsigned char> alphabet_to_byte(char32_t code) {
  if (code >= kTables.backward.size() || kTables.backward[code] < 0) return std::nullopt;
  return static_cast<unsigned char>(kTables.backward[code]);
}

std::string to_byte_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(out, byte_to_alphabet(static_cast<unsigned char>(byte)));
  return out;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const Utf8Char c = decode_utf8(text, position);
    const auto byte = alphabet_to_byte(c.code);
    if (!byte) return std::nullopt;
    out.push_back(static_cast<char>(*byte));
    position += c.size;
  }
  return out;
}

}  // namespace mlxcel
