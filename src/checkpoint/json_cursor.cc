#include "checkpoint/json_cursor.h"

#include "base/utf8.h"

namespace mlxcel {
namespace {

constexpr int kDepthMax = 64;
constexpr size_t kKeyBytesMax = 1024;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

Error JsonCursor::error_here(std::string_view expected) const {
  std::string found = "the end of the text";
  if (position_ < text_.size()) {
    const char c = text_[position_];
    found = c > 0x20 && c < 0x7F ? "'" + std::string(1, c) + "'"
                                 : "byte " + std::to_string(static_cast<unsigned char>(c));
  }
  return make_error(ErrorKind::kInvalidData, "malformed JSON", where_ + ", byte " + std::to_string(position_),
                    std::string(expected), std::move(found));
}

void JsonCursor::skip_space() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return;
    ++position_;
  }
}

bool JsonCursor::consume(char c) {
  skip_space();
  if (position_ >= text_.size() || text_[position_] != c) return false;
  ++position_;
  return true;
}

Status JsonCursor::object(const std::function<Status(std::string key)>& visit) {
  if (!consume('{')) return error_here("an object");
  if (consume('}')) return ok_status();
  do {
    MLXCEL_ASSIGN_OR_RETURN(std::string key, string(kKeyBytesMax));
    if (!consume(':')) return error_here("':'");
    MLXCEL_RETURN_IF_ERROR(visit(std::move(key)));
  } while (consume(','));
  if (!consume('}')) return error_here("',' or '}'");
  return ok_status();
}

Status JsonCursor::array(const std::function<Status()>& visit) {
  if (!consume('[')) return error_here("an array");
  if (consume(']')) return ok_status();
  do {
    MLXCEL_RETURN_IF_ERROR(visit());
  } while (consume(','));
  if (!consume(']')) return error_here("',' or ']'");
  return ok_status();
}

Result<uint32_t> JsonCursor::hex4() {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i, ++position_) {
    const char c = position_ < text_.size() ? text_[position_] : '\0';
    uint32_t digit = 0;
    if (is_digit(c)) {
      digit = static_cast<uint32_t>(c - '0');
    } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
      digit = static_cast<uint32_t>((c | 0x20) - 'a') + 10;
    } else {
      return error_here("four hexadecimal digits");
    }
    value = value << 4 | digit;
  }
  return value;
}

// After the backslash.
Status JsonCursor::append_escape(std::string& out) {
  if (position_ >= text_.size()) return error_here("an escape sequence");
  const char c = text_[position_];
  constexpr std::string_view kShort = "\"\\/bfnrt", kMeaning = "\"\\/\b\f\n\r\t";
  if (const size_t index = kShort.find(c); index != std::string_view::npos) {
    ++position_;
    out.push_back(kMeaning[index]);
    return ok_status();
  }
  if (c != 'u') return error_here("an escape sequence");
  ++position_;
  MLXCEL_ASSIGN_OR_RETURN(uint32_t code, hex4());
  if (code >= 0xD800 && code < 0xDC00 && text_.substr(position_, 2) == "\\u") {
    position_ += 2;
    MLXCEL_ASSIGN_OR_RETURN(const uint32_t low, hex4());
    if (low < 0xDC00 || low > 0xDFFF) return error_here("the second half of a surrogate pair");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  append_utf8(out, code);
  return ok_status();
}

Result<std::string> JsonCursor::string(size_t bytes_max) {
  if (!consume('"')) return error_here("a string");
  std::string out;
  while (position_ < text_.size() && text_[position_] != '"') {
    const char c = text_[position_];
    if (static_cast<unsigned char>(c) < 0x20) return error_here("a string without control characters");
    if (out.size() >= bytes_max)
      return error_here("a string of at most " + std::to_string(bytes_max) + " bytes");
    ++position_;
    if (c == '\\') {
      MLXCEL_RETURN_IF_ERROR(append_escape(out));
    } else {
      out.push_back(c);
    }
  }
  if (position_ >= text_.size()) return error_here("'\"'");
  ++position_;
  if (!is_valid_utf8(out)) return error_here("a string in UTF-8");
  return out;
}

Result<uint64_t> JsonCursor::unsigned_integer() {
  skip_space();
  const size_t first = position_;
  uint64_t value = 0;
  for (; position_ < text_.size() && is_digit(text_[position_]); ++position_) {
    const auto digit = static_cast<uint64_t>(text_[position_] - '0');
    if (__builtin_mul_overflow(value, uint64_t{10}, &value) || __builtin_add_overflow(value, digit, &value)) {
      return error_here("an integer below 2^64");
    }
  }
  const bool has_leading_zero = position_ - first > 1 && text_[first] == '0';
  const char next = position_ < text_.size() ? text_[position_] : ' ';
  if (position_ == first || has_leading_zero || next == '.' || next == 'e' || next == 'E') {
    return error_here("a whole number without sign");
  }
  return value;
}

Status JsonCursor::skip_string() {
  if (!consume('"')) return error_here("a string");
  while (position_ < text_.size() && text_[position_] != '"') {
    if (static_cast<unsigned char>(text_[position_]) < 0x20)
      return error_here("a string without control characters");
    if (text_[position_] == '\\') ++position_;
    ++position_;
  }
  if (position_ >= text_.size()) return error_here("'\"'");
  ++position_;
  return ok_status();
}

Status JsonCursor::skip_number() {
  if (position_ < text_.size() && text_[position_] == '-') ++position_;
  const size_t first = position_;
  while (position_ < text_.size() &&
         (is_digit(text_[position_]) ||
          std::string_view(".eE+-").find(text_[position_]) != std::string_view::npos)) {
    ++position_;
  }
  if (position_ == first || !is_digit(text_[first])) return error_here("a value");
  return ok_status();
}

Status JsonCursor::skip_nested(int depth) {
  if (depth > kDepthMax) return error_here("at most " + std::to_string(kDepthMax) + " levels of nesting");
  skip_space();
  const char c = position_ < text_.size() ? text_[position_] : '\0';
  if (c == '{') {
    return object([this, depth](const std::string&) { return skip_nested(depth + 1); });
  }
  if (c == '[') {
    return array([this, depth] { return skip_nested(depth + 1); });
  }
  if (c == '"') return skip_string();
  for (const std::string_view literal : {"true", "false", "null"}) {
    if (text_.substr(position_, literal.size()) == literal) {
      position_ += literal.size();
      return ok_status();
    }
  }
  return skip_number();
}

Status JsonCursor::skip_value() { return skip_nested(1); }

Status JsonCursor::end() {
  skip_space();
  if (position_ != text_.size()) return error_here("the end of the text");
  return ok_status();
}

}  // namespace mlxcel
