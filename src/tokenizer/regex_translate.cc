// Oniguruma (Ruby syntax) to PCRE2. What differs and is rewritten here:
//   \s \S \w \W \h \H       Unicode properties, spelt out: PCRE2's \s has U+180E, its \w has no marks
//   before 10.43 \p{Han}                 the property Script; PCRE2 would take Script_Extensions
//   (?i)                    ASCII letters match their two cases only (no U+017F for s, no U+212A for k)
//   (?m)                    dot matches newline: PCRE2's (?s)
//   \uHHHH                  \x{HHHH}
//   x{n,m}+                 in Ruby a repeated group, in PCRE2 a possessive quantifier
//   [a&&[^b]]               look-ahead over two classes; PCRE2 10.42 has no set operations
// Sources: doc/RE of Oniguruma 6.9, pcre2pattern(3) of 10.42.
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace mlxcel {
namespace {

constexpr size_t kPatternBytesMax = 64 * 1024;
constexpr int kNestingMax = 100;

Error unsupported(std::string what, std::string_view pattern) {
  return make_error(ErrorKind::kUnsupported, "regular expression uses " + std::move(what),
                    std::string(pattern), "constructs of Oniguruma that PCRE2 can express");
}

bool is_ascii_alpha(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

void append_hex(std::string& out, char32_t code) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string digits;
  for (uint32_t v = code; v != 0 || digits.empty(); v >>= 4) digits.insert(digits.begin(), kDigits[v & 15]);
  out += "\\x{" + digits + "}";
}

struct Property {
  std::string_view name;      // lower case, without space, hyphen and underscore
  std::string_view in_class;  // how it is written inside a class
};
// POSIX-like and long names that Oniguruma takes for properties.
constexpr Property kProperties[] = {
    {"letter", "\\p{L}"},
    {"uppercaseletter", "\\p{Lu}"},
    {"lowercaseletter", "\\p{Ll}"},
    {"titlecaseletter", "\\p{Lt}"},
    {"modifierletter", "\\p{Lm}"},
    {"otherletter", "\\p{Lo}"},
    {"mark", "\\p{M}"},
    {"nonspacingmark", "\\p{Mn}"},
    {"spacingmark", "\\p{Mc}"},
    {"enclosingmark", "\\p{Me}"},
    {"number", "\\p{N}"},
    {"decimalnumber", "\\p{Nd}"},
    {"letternumber", "\\p{Nl}"},
    {"othernumber", "\\p{No}"},
    {"punctuation", "\\p{P}"},
    {"connectorpunctuation", "\\p{Pc}"},
    {"dashpunctuation", "\\p{Pd}"},
    {"openpunctuation", "\\p{Ps}"},
    {"closepunctuation", "\\p{Pe}"},
    {"initialpunctuation", "\\p{Pi}"},
    {"finalpunctuation", "\\p{Pf}"},
    {"otherpunctuation", "\\p{Po}"},
    {"symbol", "\\p{S}"},
    {"mathsymbol", "\\p{Sm}"},
    {"currencysymbol", "\\p{Sc}"},
    {"modifiersymbol", "\\p{Sk}"},
    {"othersymbol", "\\p{So}"},
    {"separator", "\\p{Z}"},
    {"spaceseparator", "\\p{Zs}"},
    {"lineseparator", "\\p{Zl}"},
    {"paragraphseparator", "\\p{Zp}"},
    {"other", "\\p{C}"},
    {"control", "\\p{Cc}"},
    {"format", "\\p{Cf}"},
    {"privateuse", "\\p{Co}"},
    {"unassigned", "\\p{Cn}"},
    {"alpha", "\\p{Alphabetic}"},
    {"alphabetic", "\\p{Alphabetic}"},
    {"upper", "\\p{Uppercase}"},
    {"uppercase", "\\p{Uppercase}"},
    {"lower", "\\p{Lowercase}"},
    {"lowercase", "\\p{Lowercase}"},
    {"digit", "\\p{Nd}"},
    {"space", "\\p{White_Space}"},
    {"whitespace", "\\p{White_Space}"},
    {"emoji", "\\p{Emoji}"},
    {"ideographic", "\\p{Ideographic}"},
    {"any", "\\p{Any}"},
};
constexpr std::string_view kWordClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    if (pattern_.size() > kPatternBytesMax)
      return make_error(ErrorKind::kInvalidData, "regular expression is too long", "",
                        "at most " + std::to_string(kPatternBytesMax) + " bytes",
                        std::to_string(pattern_.size()));
    if (!is_valid_utf8(pattern_))
      return make_error(ErrorKind::kInvalidData, "regular expression is not valid UTF-8");
    std::vector<GroupState> groups;
    while (!at_end()) {
      const char c = pattern_[position_];
      if (c == '(') {
        MLXCEL_RETURN_IF_ERROR(open_group(groups));
      } else if (c == ')') {
        ++position_;
        out_.push_back(')');
        if (groups.empty()) return unsupported("an unmatched ')'", pattern_);
        ignore_case_ = groups.back().outer_ignore_case;
        atom_begin_ = groups.back().begin;
        groups.pop_back();
      } else if (c == '|') {
        ++position_;
        out_.push_back('|');
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        quantifier();
      } else {
        atom_begin_ = out_.size();
        MLXCEL_RETURN_IF_ERROR(atom());
      }
    }
    return std::move(out_);
  }

 private:
  struct GroupState {
    bool outer_ignore_case;
    size_t begin;
  };
  struct Class {
    std::string items;                // inside the brackets, not negated
    std::vector<std::string> others;  // negated nested classes, whole
    bool is_negated = false;
    std::vector<std::string> intersections;  // whole classes that must match as well
    bool is_empty() const { return items.empty() && others.empty(); }
  };

  bool at_end() const { return position_ >= pattern_.size(); }
  char peek(size_t ahead = 0) const {
    return position_ + ahead < pattern_.size() ? pattern_[position_ + ahead] : '\0';
  }
  bool starts_with(std::string_view text) const { return pattern_.substr(position_).starts_with(text); }
  char32_t next_code() {
    const Utf8Char c = decode_utf8(pattern_, position_);
    position_ += c.size;
    return c.code;
  }

  void quantifier() {
    const char c = peek();
    if (c != '{') {
      out_.push_back(c);
      ++position_;
      return;
    }
    size_t end = position_ + 1;
    while (end < pattern_.size() &&
           (std::isdigit(static_cast<unsigned char>(pattern_[end])) != 0 || pattern_[end] == ','))
      ++end;
    const std::string_view inner = pattern_.substr(position_ + 1, end - position_ - 1);
    if (end >= pattern_.size() || pattern_[end] != '}' || inner.empty() || inner == ",") {
      atom_begin_ = out_.size();
      out_ += "\\{";  // a brace that starts no interval is itself
      ++position_;
      return;
    }
    std::string interval = "{";
    if (inner[0] == ',') interval += '0';
    interval.append(inner).push_back('}');
    position_ = end + 1;
    out_ += interval;
    if (peek() == '+') {
      out_.insert(atom_begin_, "(?:");
      out_.push_back(')');
    }
  }

  Status open_group(std::vector<GroupState>& groups) {
    if (groups.size() >= static_cast<size_t>(kNestingMax)) return unsupported("too deep nesting", pattern_);
    const GroupState state{ignore_case_, out_.size()};
    if (peek(1) != '?') {
      // A plain group captures; nothing here reads captures, and without names Oniguruma counts them the
      // same.
      out_.push_back('(');
      ++position_;
      groups.push_back(state);
      return ok_status();
    }
    for (const std::string_view prefix : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (!starts_with(prefix)) continue;
      out_.append(prefix);
      position_ += prefix.size();
      groups.push_back(state);
      return ok_status();
    }
    if (starts_with("(?#")) {
      const size_t end = pattern_.find(')', position_);
      if (end == std::string_view::npos) return unsupported("an unclosed comment", pattern_);
      position_ = end + 1;
      return ok_status();
    }
    return option_group(groups, state);
  }

  Status option_group(std::vector<GroupState>& groups, const GroupState& state) {
    position_ += 2;
    bool on = true;
    std::string options;
    while (peek() != ')' && peek() != ':') {
      const char c = peek();
      if (c == '-') {
        on = false;
        options.push_back('-');
      } else if (c == 'i') {
        ignore_case_ = on;
      } else if (c == 'm') {
        options.push_back('s');
      } else {
        return unsupported("the group '(?" + std::string(1, c) + "'", pattern_);
      }
      ++position_;
    }
    if (options == "-") options.clear();
    const bool is_isolated = peek() == ')';
    ++position_;
    if (is_isolated) {  // holds to the end; in Ruby it also groups what follows, so only the start of the
                        // pattern is safe
      if (!out_.empty() || !groups.empty())
        return unsupported("an option that is not at its start", pattern_);
      if (!options.empty()) out_ += "(?" + options + ")";
      return ok_status();
    }
    out_ += "(?" + options + ":";
    groups.push_back(state);
    return ok_status();
  }

  Status atom() {
    const char c = peek();
    if (c == '[') return class_atom();
    if (c == '\\') {
      std::string item;
      bool needs_brackets = false;
      MLXCEL_RETURN_IF_ERROR(escape(item, false, needs_brackets));
      out_ += item;
      return ok_status();
    }
    if (c == '.' || c == '^' || c == '$') {
      out_.push_back(c);
      ++position_;
      return ok_status();
    }
    literal(next_code());
    return ok_status();
  }

  void append_literal_code(std::string& out, char32_t code) {
    if (code < 0x80 && std::isalnum(static_cast<int>(code)) == 0 && code > 0x20 && code != 0x7F) {
      out.push_back('\\');
      out.push_back(static_cast<char>(code));
    } else if (code < 0x20 || code == 0x7F) {
      append_hex(out, code);
    } else {
      append_utf8(out, code);
    }
  }

  void literal(char32_t code) {
    const char32_t other = ignore_case_ ? other_case(code) : code;
    if (other != code) {
      out_.push_back('[');
      append_literal_code(out_, code);
      append_literal_code(out_, other);
      out_.push_back(']');
    } else {
      append_literal_code(out_, code);
    }
  }

  static char32_t other_case(char32_t code) {
    if (code < 0x80) return is_ascii_alpha(code) ? code ^ 0x20 : code;
    const char32_t other = unicode::simple_other_case(code);
    return other < 0x80 ? code : other;
  }

  // An escape sequence, as an item inside or outside a class.
  Status escape(std::string& item, bool in_class, bool& is_set) {
    ++position_;
    if (at_end()) return unsupported("a pattern that ends in a backslash", pattern_);
    const char c = peek();
    is_set = true;
    const auto set = [&](std::string_view inside, bool negated) {
      if (negated)
        item = "[^" + std::string(inside) + "]";
      else
        item = in_class ? std::string(inside) : "[" + std::string(inside) + "]";
    };
    switch (c) {
      case 's':
        ++position_;
        item = "\\p{White_Space}";
        return ok_status();
      case 'S':
        ++position_;
        item = "\\P{White_Space}";
        return ok_status();
      case 'd':
        ++position_;
        item = "\\p{Nd}";
        return ok_status();
      case 'D':
        ++position_;
        item = "\\P{Nd}";
        return ok_status();
      case 'w':
      case 'W':
        ++position_;
        set(kWordClass, c == 'W');
        return ok_status();
      case 'h':
      case 'H':
        ++position_;
        set("0-9a-fA-F", c == 'H');
        return ok_status();
      case 'p':
      case 'P':
        return property(item, c == 'P');
      default:
        break;
    }
    if (!in_class && std::string_view("AzZbBGKXR").find(c) != std::string_view::npos) {
      ++position_;
      item = c == 'Z' ? "(?=\\n?\\z)" : std::string("\\") + c;
      if (c == 'b' || c == 'B') item = word_boundary(c == 'B');
      return ok_status();
    }
    is_set = false;
    MLXCEL_ASSIGN_OR_RETURN(const char32_t code, escaped_code(in_class));
    if (in_class) {
      append_literal_code(item, code);
      pending_code_ = code;
    } else {
      const size_t begin = out_.size();
      literal(code);
      item = out_.substr(begin);
      out_.resize(begin);
    }
    return ok_status();
  }

  static std::string word_boundary(bool negated) {
    const std::string word = "[" + std::string(kWordClass) + "]";
    const std::string boundary = "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))";
    return negated ? "(?!" + boundary + ")" : boundary;
  }

  Result<char32_t> escaped_code(bool in_class) {
    const char c = peek();
    switch (c) {
      case 't':
        ++position_;
        return char32_t{'\t'};
      case 'n':
        ++position_;
        return char32_t{'\n'};
      case 'r':
        ++position_;
        return char32_t{'\r'};
      case 'f':
        ++position_;
        return char32_t{'\f'};
      case 'v':
        ++position_;
        return char32_t{'\v'};
      case 'a':
        ++position_;
        return char32_t{7};
      case 'e':
        ++position_;
        return char32_t{27};
      case 'b':
        if (in_class) return ++position_, char32_t{8};
        break;
      case '0':
        ++position_;
        return char32_t{0};
      case 'x':
        if (peek(1) == '{') {
          const size_t end = pattern_.find('}', position_);
          if (end == std::string_view::npos) return unsupported("an unclosed \\x{", pattern_);
          const std::string_view digits = pattern_.substr(position_ + 2, end - position_ - 2);
          position_ = end + 1;
          return hex(digits, 1, 6);
        } else {
          size_t count = 0;
          while (count < 2 && std::isxdigit(static_cast<unsigned char>(peek(1 + count))) != 0) ++count;
          const std::string_view digits = pattern_.substr(position_ + 1, count);
          position_ += 1 + count;
          return hex(digits, 1, 2);
        }
      case 'u': {
        const std::string_view digits = pattern_.substr(position_ + 1, 4);
        position_ += 1 + digits.size();
        return hex(digits, 4, 4);
      }
      default:
        break;
    }
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      return unsupported("the escape '\\" + std::string(1, c) + "'", pattern_);
    return next_code();
  }

  Result<char32_t> hex(std::string_view digits, size_t digits_min, size_t digits_max) {
    uint32_t value = 0;
    bool is_good = digits.size() >= digits_min && digits.size() <= digits_max;
    for (const char d : digits) {
      const auto u = static_cast<unsigned char>(d);
      if (std::isxdigit(u) == 0) {
        is_good = false;
        break;
      }
      value = value * 16 + static_cast<uint32_t>(std::isdigit(u) != 0 ? d - '0' : std::tolower(u) - 'a' + 10);
    }
    if (!is_good || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
      return unsupported("the code point '" + std::string(digits) + "'", pattern_);
    return char32_t{value};
  }

  Status property(std::string& item, bool negated) {
    ++position_;
    std::string name;
    if (peek() == '{') {
      const size_t end = pattern_.find('}', position_);
      if (end == std::string_view::npos) return unsupported("an unclosed \\p{", pattern_);
      name = std::string(pattern_.substr(position_ + 1, end - position_ - 1));
      position_ = end + 1;
    } else {
      name = std::string(1, peek());
      ++position_;
    }
    if (name.starts_with('^')) {
      negated = !negated;
      name.erase(0, 1);
    }
    std::string plain;
    for (const char c : name) {
      if (c == ' ' || c == '-' || c == '_') continue;
      if (std::isalpha(static_cast<unsigned char>(c)) == 0)
        return unsupported("the property '" + name + "'", pattern_);
      plain.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    }
    if (plain.empty()) return unsupported("a property without name", pattern_);
    if (plain == "alnum" || plain == "word") {
      if (negated) return unsupported("the negated property '" + name + "'", pattern_);
      item = plain == "word" ? std::string(kWordClass) : "\\p{Alphabetic}\\p{Nd}";
      item = "[" + item + "]";
      return ok_status();
    }
    std::string positive;
    for (const Property& known : kProperties)
      if (known.name == plain) positive = known.in_class;
    if (positive.empty() && plain.size() <= 2) {
      plain[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(plain[0])));
      positive = "\\p{" + plain + "}";
    }
    if (positive.empty()) positive = "\\p{sc:" + name + "}";
    if (negated) positive[1] = 'P';
    item = positive;
    return ok_status();
  }

  // ---- classes
  Status class_atom() {
    MLXCEL_ASSIGN_OR_RETURN(const std::string whole, parse_class(0));
    out_ += whole;
    return ok_status();
  }

  static std::string one_operand(const Class& c) {
    std::string whole;
    if (c.others.empty()) return "[" + c.items + "]";
    whole = "(?:";
    if (!c.items.empty()) whole += "[" + c.items + "]|";
    for (size_t i = 0; i < c.others.size(); ++i) whole += (i == 0 ? "" : "|") + c.others[i];
    return whole + ")";
  }

  // REQUIRES: at '['. ENSURES: a pattern that consumes exactly one character.
  Result<std::string> parse_class(int depth) {
    if (depth > kNestingMax) return unsupported("too deep nesting of classes", pattern_);
    ++position_;
    Class current;
    if (peek() == '^') {
      current.is_negated = true;
      ++position_;
    }
    bool is_first = true;
    while (true) {
      if (at_end()) return unsupported("an unclosed '['", pattern_);
      if (peek() == ']' && !is_first) break;
      is_first = false;
      if (starts_with("&&")) {
        position_ += 2;
        if (current.is_empty()) return unsupported("an empty operand of '&&'", pattern_);
        current.intersections.push_back(one_operand(current));
        current.items.clear();
        current.others.clear();
      } else if (starts_with("[:")) {
        MLXCEL_RETURN_IF_ERROR(posix_class(current));
      } else if (peek() == '[') {
        MLXCEL_ASSIGN_OR_RETURN(std::string nested, parse_class(depth + 1));
        // A plain class joins its parent's items; a negated or composed one stays whole.
        if (nested.starts_with("[") && !nested.starts_with("[^"))
          current.items += nested.substr(1, nested.size() - 2);
        else
          current.others.push_back(std::move(nested));
      } else {
        MLXCEL_RETURN_IF_ERROR(class_item(current));
      }
    }
    ++position_;
    return finish_class(current);
  }

  static Result<std::string> finish_class(const Class& c) {
    if (c.intersections.empty() && c.others.empty()) return (c.is_negated ? "[^" : "[") + c.items + "]";
    std::string whole = "(?:";
    const std::string last = c.is_empty() ? std::string() : one_operand(c);
    std::string all;
    for (const std::string& operand : c.intersections) all += "(?=" + operand + ")";
    if (c.is_negated) return "(?:(?!" + all + last + ")[\\x{0}-\\x{10ffff}])";
    whole += all + (last.empty() ? "[\\x{0}-\\x{10ffff}]" : last) + ")";
    return whole;
  }

  Status posix_class(Class& current) {
    const size_t end = pattern_.find(":]", position_);
    if (end == std::string_view::npos) return unsupported("an unclosed '[:'", pattern_);
    std::string name(pattern_.substr(position_ + 2, end - position_ - 2));
    const bool negated = name.starts_with('^');
    if (negated) name.erase(0, 1);
    position_ = end + 2;
    std::string items;
    if (name == "alpha") items = "\\p{Alphabetic}";
    if (name == "upper") items = "\\p{Uppercase}";
    if (name == "lower") items = "\\p{Lowercase}";
    if (name == "digit") items = "\\p{Nd}";
    if (name == "alnum") items = "\\p{Alphabetic}\\p{Nd}";
    if (name == "space") items = "\\p{White_Space}";
    if (name == "punct") items = "\\p{P}$+<=>^`|~";
    if (name == "word") items = std::string(kWordClass);
    if (name == "xdigit") items = "0-9a-fA-F";
    if (items.empty()) return unsupported("the class '[:" + name + ":]'", pattern_);
    if (negated)
      current.others.push_back("[^" + items + "]");
    else
      current.items += items;
    return ok_status();
  }

  // One character, range, or escape inside a class.
  Status class_item(Class& current) {
    std::string item;
    bool is_set = false;
    char32_t low = 0;
    if (peek() == '\\') {
      MLXCEL_RETURN_IF_ERROR(escape(item, true, is_set));
      low = pending_code_;
    } else {
      low = next_code();
      append_literal_code(item, low);
    }
    if (is_set) {
      if (item.starts_with("[^"))
        current.others.push_back(item);
      else
        current.items += item.starts_with("[") ? item.substr(1, item.size() - 2) : item;
      return ok_status();
    }
    char32_t high = low;
    if (peek() == '-' && peek(1) != ']' && peek(1) != '\0' && peek(1) != '[') {
      ++position_;
      std::string last;
      if (peek() == '\\') {
        bool is_last_set = false;
        MLXCEL_RETURN_IF_ERROR(escape(last, true, is_last_set));
        if (is_last_set) return unsupported("a range that ends in a set", pattern_);
        high = pending_code_;
      } else {
        high = next_code();
        append_literal_code(last, high);
      }
      if (high < low) return unsupported("a range that runs backwards", pattern_);
      item += "-" + last;
    }
    current.items += item;
    if (ignore_case_) add_other_cases(current, low, high);
    return ok_status();
  }

  void add_other_cases(Class& current, char32_t low, char32_t high) {
    if (low == high) {
      const char32_t other = other_case(low);
      if (other != low) append_literal_code(current.items, other);
      return;
    }
    // Of a range only the ASCII letters get their other case, as far as they lie in it.
    for (const char32_t base : {char32_t{'a'}, char32_t{'A'}}) {
      const char32_t from = std::max(low, base);
      const char32_t to = std::min<char32_t>(high, base + 25);
      if (from > to) continue;
      append_literal_code(current.items, from ^ 0x20);
      current.items.push_back('-');
      append_literal_code(current.items, to ^ 0x20);
    }
  }

  std::string_view pattern_;
  size_t position_ = 0;
  std::string out_;
  size_t atom_begin_ = 0;
  bool ignore_case_ = false;
  char32_t pending_code_ = 0;
};

}  // namespace

Result<std::string> translate_oniguruma(std::string_view pattern) { return Translator(pattern).run(); }

std::string quote_for_regex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x80 && std::isalnum(u) == 0 && u > 0x20 && u != 0x7F) out.push_back('\\');
    if (u < 0x20 || u == 0x7F)
      append_hex(out, u);
    else
      out.push_back(c);
  }
  return out;
}

}  // namespace mlxcel
