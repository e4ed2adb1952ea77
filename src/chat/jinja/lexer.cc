#include "chat/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/utf8.h"
#include "chat/jinja/runtime.h"
#include "chat/jinja/unicode.h"

namespace mlxcel::jinja {
namespace {

[[noreturn]] void fail_syntax(std::string what, int line) {
  throw Failure{ErrorKind::kInvalidData, std::move(what), line};
}

// \r\n and \r become \n; one newline at the end is dropped.
std::string normalize_newlines(std::string_view source, bool drop_last) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (drop_last && !out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// \N{...}: the names that prompts use. Any other name is a syntax error that says so.
struct NamedCharacter {
  std::string_view name;
  char32_t code;
};
constexpr std::array<NamedCharacter, 24> kNamedCharacters = {{
    {"BULLET", 0x2022},
    {"CHECK MARK", 0x2713},
    {"COPYRIGHT SIGN", 0xA9},
    {"DEGREE SIGN", 0xB0},
    {"EM DASH", 0x2014},
    {"EN DASH", 0x2013},
    {"EURO SIGN", 0x20AC},
    {"FULLWIDTH VERTICAL LINE", 0xFF5C},
    {"HORIZONTAL ELLIPSIS", 0x2026},
    {"LEFT DOUBLE QUOTATION MARK", 0x201C},
    {"LEFT SINGLE QUOTATION MARK", 0x2018},
    {"LEFTWARDS ARROW", 0x2190},
    {"LOWER ONE EIGHTH BLOCK", 0x2581},
    {"MIDDLE DOT", 0xB7},
    {"MULTIPLICATION SIGN", 0xD7},
    {"NO-BREAK SPACE", 0xA0},
    {"REGISTERED SIGN", 0xAE},
    {"REPLACEMENT CHARACTER", 0xFFFD},
    {"RIGHT DOUBLE QUOTATION MARK", 0x201D},
    {"RIGHT SINGLE QUOTATION MARK", 0x2019},
    {"RIGHTWARDS ARROW", 0x2192},
    {"SPACE", 0x20},
    {"ZERO WIDTH NO-BREAK SPACE", 0xFEFF},
    {"ZERO WIDTH SPACE", 0x200B},
}};

bool is_octal(char c) { return c >= '0' && c <= '7'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source, true)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_root();
    add(TokenKind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool starts(std::string_view prefix) const { return rest().substr(0, prefix.size()) == prefix; }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void advance(size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes), '\n'));
    at_ += bytes;
  }

  // Adds template text up to the tag at `end`, cut as the tag's sign and lstrip_blocks ask.
  void add_data(size_t end, char sign, bool may_lstrip) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      text.remove_suffix(trailing_space(text));
    } else if (sign != '+' && may_lstrip) {
      const size_t newline = text.rfind('\n');
      const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      const std::string_view tail = text.substr(line_begin);
      if ((line_begin > 0 || line_starting_) && !tail.empty() && leading_space(tail) == tail.size()) {
        text = text.substr(0, line_begin);
      }
    }
    if (!text.empty()) add(TokenKind::kData, std::string(text));
    advance(end - at_);
  }

  static size_t find_tag(std::string_view text, size_t from) {
    for (size_t i = text.find('{', from); i != std::string_view::npos; i = text.find('{', i + 1)) {
      if (i + 1 < text.size() && (text[i + 1] == '%' || text[i + 1] == '{' || text[i + 1] == '#')) return i;
    }
    return std::string_view::npos;
  }

  void lex_root() {
    const size_t tag = find_tag(source_, at_);
    if (tag == std::string::npos) {
      add(TokenKind::kData, source_.substr(at_));
      advance(source_.size() - at_);
      return;
    }
    const char type = source_[tag + 1];
    const size_t after = tag + 2;
    const char sign =
        after < source_.size() && (source_[after] == '-' || source_[after] == '+') ? source_[after] : ' ';
    add_data(tag, sign, type != '{');
    const size_t opening = sign == ' ' ? 2 : 3;
    if (type == '#') return lex_comment(opening);
    if (type == '%') {
      if (const size_t raw = raw_opening(opening)) return lex_raw(raw);
    }
    advance(opening);
    add(type == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, {});
    lex_tag(type == '%');
  }

  void skip_space_after_minus() { advance(leading_space(rest())); }

  void end_block(std::string_view closing) {
    advance(closing.size());
    if (closing.front() == '-') {
      skip_space_after_minus();
    } else if (closing.front() != '+' && starts("\n")) {
      advance(1);  // trim_blocks
    }
    line_starting_ = source_[at_ - 1] == '\n';
  }

  void lex_comment(size_t opening) {
    const int first_line = line_;
    const size_t end = source_.find("#}", at_ + opening);
    if (end == std::string::npos) fail_syntax("missing end of comment tag", first_line);
    const bool has_sign = end > at_ + opening && (source_[end - 1] == '-' || source_[end - 1] == '+');
    const std::string closing = has_sign ? source_.substr(end - 1, 3) : "#}";
    advance(end - at_ - (has_sign ? 1 : 0));
    end_block(closing);
  }

  // The size of a whole {% raw %} tag here, or 0.
  size_t raw_opening(size_t opening) const {
    size_t i = at_ + opening;
    const std::string_view text = source_;
    i += leading_space(text.substr(i));
    if (text.substr(i, 3) != "raw") return 0;
    i += 3;
    i += leading_space(text.substr(i));
    if (text.substr(i, 3) == "-%}") {
      i += 3;
      i += leading_space(text.substr(i));
    } else if (text.substr(i, 2) == "%}") {
      i += 2;
    } else {
      return 0;
    }
    return i - at_;
  }

  void lex_raw(size_t opening) {
    const int first_line = line_;
    advance(opening);
    line_starting_ = source_[at_ - 1] == '\n';
    for (size_t i = source_.find("{%", at_); i != std::string::npos; i = source_.find("{%", i + 1)) {
      const std::string_view text = source_;
      size_t j = i + 2;
      const char sign = j < text.size() && (text[j] == '-' || text[j] == '+') ? text[j] : ' ';
      if (sign != ' ') ++j;
      j += leading_space(text.substr(j));
      if (text.substr(j, 6) != "endraw") continue;
      j += 6;
      j += leading_space(text.substr(j));
      for (const std::string_view closing : {"-%}", "+%}", "%}"}) {
        if (text.substr(j, closing.size()) != closing) continue;
        add_data(i, sign, true);
        advance(j - at_);
        end_block(closing);
        return;
      }
    }
    fail_syntax("missing end of raw directive", first_line);
  }

  // Inside {{ }} or {% %}, up to its end.
  void lex_tag(bool is_block) {
    std::string open_brackets;
    while (true) {
      if (at_ >= source_.size()) return;  // the parser reports what it misses
      if (open_brackets.empty() && lex_tag_end(is_block)) return;
      if (const size_t space = leading_space(rest())) {
        advance(space);
        continue;
      }
      if (lex_number() || lex_name() || lex_string() || lex_operator(open_brackets)) continue;
      fail_syntax("unexpected character " + string_repr(rest().substr(0, decode_utf8(source_, at_).size)),
                  line_);
    }
  }

  bool lex_tag_end(bool is_block) {
    if (!is_block) {
      if (starts("-}}")) {
        add(TokenKind::kVariableEnd, {});
        advance(3);
        skip_space_after_minus();
      } else if (starts("}}")) {
        add(TokenKind::kVariableEnd, {});
        advance(2);
      } else {
        return false;
      }
      line_starting_ = source_[at_ - 1] == '\n';
      return true;
    }
    for (const std::string_view closing : {"-%}", "+%}", "%}"}) {
      if (!starts(closing)) continue;
      add(TokenKind::kBlockEnd, {});
      end_block(closing);
      return true;
    }
    return false;
  }

  // Digits with single underscores between them, from `i`; the position after them, or `i` when there are
  // none.
  size_t digits(size_t i) const {
    size_t end = i;
    while (i < source_.size()) {
      if (source_[i] >= '0' && source_[i] <= '9') {
        end = ++i;
      } else if (source_[i] == '_' && end == i && end > at_ && source_[i - 1] != '_') {
        ++i;
      } else {
        break;
      }
    }
    return end;
  }

  bool lex_number() {
    if (source_[at_] < '0' || source_[at_] > '9') return false;
    const size_t whole = digits(at_);
    size_t end = whole;
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot) {
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit_at(end + 1)) end = digits(end + 1);
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        if (exponent < source_.size() && is_digit_at(exponent)) end = digits(exponent);
      }
    }
    if (end > whole) return add_number(TokenKind::kFloat, end);
    return add_number(TokenKind::kInteger, integer_end(whole));
  }
  bool is_digit_at(size_t i) const { return i < source_.size() && source_[i] >= '0' && source_[i] <= '9'; }

  size_t integer_end(size_t whole) const {
    if (source_[at_] != '0') return whole;
    const char prefix = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : ' ';
    const auto is_base_digit = [&](char c) {
      if (prefix == 'b') return c == '0' || c == '1';
      if (prefix == 'o') return is_octal(c);
      return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
    };
    if (prefix == 'b' || prefix == 'o' || prefix == 'x') {
      size_t end = at_ + 2;
      for (size_t i = end; i < source_.size(); ++i) {
        if (is_base_digit(source_[i])) {
          end = i + 1;
        } else if (source_[i] != '_' || (i > end)) {
          break;
        }
      }
      if (end > at_ + 2) return end;
    }
    size_t end = at_ + 1;  // zeros only: "007" is 00 and then 7, as in Jinja
    while (end < whole &&
           (source_[end] == '0' || (source_[end] == '_' && end + 1 < whole && source_[end + 1] == '0'))) {
      ++end;
    }
    return end;
  }

  bool add_number(TokenKind kind, size_t end) {
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    add(kind, std::move(text));
    advance(end - at_);
    return true;
  }

  bool lex_name() {
    size_t end = at_;
    bool valid_start = true;
    while (end < source_.size()) {
      const Utf8Char c = decode_utf8(source_, end);
      if (!c.valid || !is_identifier_part(c.code)) break;
      if (end == at_) valid_start = is_identifier_start(c.code);
      end += c.size;
    }
    if (end == at_) return false;
    if (!valid_start) fail_syntax("invalid character in identifier", line_);
    add(TokenKind::kName, source_.substr(at_, end - at_));
    advance(end - at_);
    return true;
  }

  bool lex_string() {
    const char quote = source_[at_];
    if (quote != '\'' && quote != '"') return false;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return false;  // "unexpected character": the quote has no partner
    add(TokenKind::kString, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    advance(end + 1 - at_);
    return true;
  }

  // Python's string escapes. An escape that is none stays as written.
  std::string unescape(std::string_view text) const {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
      if (text[i] != '\\' || i + 1 >= text.size()) {
        out.push_back(text[i++]);
        continue;
      }
      i += unescape_one(text.substr(i), out);
    }
    return out;
  }

  size_t unescape_one(std::string_view text, std::string& out) const {
    static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    const char c = text[1];
    if (c == '\n') return 2;
    if (const size_t simple = kFrom.find(c); simple != std::string_view::npos) {
      out.push_back(kTo[simple]);
      return 2;
    }
    if (is_octal(c)) {
      char32_t code = 0;
      size_t used = 1;
      while (used < 4 && used < text.size() && is_octal(text[used])) {
        code = code * 8 + static_cast<char32_t>(text[used++] - '0');
      }
      append_utf8(out, code);
      return used;
    }
    if (c == 'x') return unescape_hex(text, 2, out);
    if (c == 'u') return unescape_hex(text, 4, out);
    if (c == 'U') return unescape_hex(text, 8, out);
    if (c == 'N') return unescape_name(text, out);
    out.append(text.substr(0, 2));
    return 2;
  }

  size_t unescape_hex(std::string_view text, size_t count, std::string& out) const {
    char32_t code = 0;
    for (size_t i = 0; i < count; ++i) {
      const char c = i + 2 < text.size() ? static_cast<char>(text[i + 2] | 0x20) : ' ';
      const bool is_number = i + 2 < text.size() && text[i + 2] >= '0' && text[i + 2] <= '9';
      if (!is_number && (c < 'a' || c > 'f'))
        fail_syntax("truncated \\x, \\u or \\U escape in a string", line_);
      code = code * 16 + static_cast<char32_t>(is_number ? text[i + 2] - '0' : c - 'a' + 10);
    }
    if (code > 0x10FFFF) fail_syntax("illegal Unicode character in a \\U escape", line_);
    append_utf8(out, code);
    return count + 2;
  }

  size_t unescape_name(std::string_view text, std::string& out) const {
    const size_t end = text.find('}');
    if (text.size() < 3 || text[2] != '{' || end == std::string_view::npos) {
      fail_syntax("malformed \\N character escape", line_);
    }
    const std::string_view name = text.substr(3, end - 3);
    for (const NamedCharacter& row : kNamedCharacters) {
      if (row.name == name) {
        append_utf8(out, row.code);
        return end + 1;
      }
    }
    fail_syntax("unknown Unicode character name '" + std::string(name) + "' (write it as \\uXXXX)", line_);
  }

  bool lex_operator(std::string& open_brackets) {
    for (const std::string_view op : {"//", "**", "==", "!=", ">=", "<="}) {
      if (!starts(op)) continue;
      add(TokenKind::kOperator, std::string(op));
      advance(op.size());
      return true;
    }
    const char c = source_[at_];
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) return false;
    if (c == '(' || c == '[' || c == '{') {
      open_brackets.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty()) fail_syntax(std::string("unexpected '") + c + "'", line_);
      if (open_brackets.back() != c) {
        fail_syntax(std::string("unexpected '") + c + "', expected '" + open_brackets.back() + "'", line_);
      }
      open_brackets.pop_back();
    }
    add(TokenKind::kOperator, std::string(1, c));
    advance(1);
    return true;
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string Token::description() const {
  switch (kind) {
    case TokenKind::kData:
      return "template text";
    case TokenKind::kVariableBegin:
      return "begin of print statement";
    case TokenKind::kVariableEnd:
      return "end of print statement";
    case TokenKind::kBlockBegin:
      return "begin of statement block";
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kEnd:
      return "end of template";
    default:
      return text;
  }
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace mlxcel::jinja
