#include "base/utf8.h"

#include <utf8proc.h>

namespace mlxcel {

namespace {
// Allowed range of the second byte and the length, by lead byte (Unicode 15, table 3-7).
struct Lead {
  uint8_t size, low, high;
};
Lead lead_of(uint8_t b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xC2) return {0, 0, 0};
  if (b < 0xE0) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b < 0xF0) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}
uint8_t byte_at(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }
}  // namespace

Utf8Char decode_utf8(std::string_view text, size_t position) {
  const uint8_t b0 = byte_at(text, position);
  const Lead lead = lead_of(b0);
  if (lead.size == 1) return {b0, 1, true};
  if (lead.size == 0) return {0xFFFD, 1, false};
  char32_t code = b0 & (0x7F >> lead.size);
  for (uint8_t i = 1; i < lead.size; ++i) {
    if (position + i >= text.size()) return {0xFFFD, i, false};
    const uint8_t b = byte_at(text, position + i);
    const uint8_t low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (b < low || b > high) return {0xFFFD, i, false};
    code = (code << 6) | (b & 0x3F);
  }
  return {code, lead.size, true};
}

void append_utf8(std::string& out, char32_t code) {
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) code = 0xFFFD;
  const auto put = [&out](char32_t b) { out.push_back(static_cast<char>(b)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (byte_at(text, i) < 0x80) {
      ++i;
      continue;
    }
    const Utf8Char c = decode_utf8(text, i);
    if (!c.valid) return false;
    i += c.size;
  }
  return true;
}

std::string repair_utf8(std::string_view text) {
  if (is_valid_utf8(text)) return std::string(text);
  std::string out;
  out.reserve(text.size() + 8);
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text, i);
    if (c.valid) {
      out.append(text.substr(i, c.size));
    } else {
      out.append("\xEF\xBF\xBD");
    }
    i += c.size;
  }
  return out;
}

size_t incomplete_utf8_tail(std::string_view text) {
  const size_t reach = text.size() < 3 ? text.size() : 3;
  for (size_t back = reach; back >= 1; --back) {
    const size_t start = text.size() - back;
    const Lead lead = lead_of(byte_at(text, start));
    if (lead.size <= back) continue;
    // A start of a character that runs past the end: incomplete only if the bytes so far fit it.
    const Utf8Char c = decode_utf8(text, start);
    if (!c.valid && c.size == back) return back;
  }
  return 0;
}

size_t count_code_points(std::string_view text) {
  size_t n = 0;
  for (size_t i = 0; i < text.size(); ++n) i += decode_utf8(text, i).size;
  return n;
}

std::u32string to_utf32(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text, i);
    out.push_back(c.code);
    i += c.size;
  }
  return out;
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

int display_width(std::string_view text) {
  int width = 0;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text, i);
    width += utf8proc_charwidth(static_cast<utf8proc_int32_t>(c.code));
    i += c.size;
  }
  return width;
}

}  // namespace mlxcel
