// "%" formatting and str.format. Pieces of the format keep its origin byte by byte, an inserted string keeps
// its own.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

#include "base/utf8.h"
#include "chat/jinja/runtime.h"

namespace mlxcel::jinja {
namespace {

constexpr int64_t kMaxPrecision = 400;  // digits of a number; no double has more that matter

struct Specification {
  std::string fill = " ";
  char align = 0;   // '<' '>' '^' '='
  char sign = '-';  // '+', ' '
  bool alternate = false;
  bool zero = false;
  char grouping = 0;  // ',' or '_'
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

std::string format_double(double value, char type, int64_t precision, bool alternate) {
  if (!std::isfinite(value)) {
    std::string word = std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
    if (type == 'E' || type == 'F' || type == 'G') {
      for (char& c : word) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    return word;
  }
  const int digits = static_cast<int>(precision < 0 ? 6 : std::min(precision, kMaxPrecision));
  std::array<char, 1024> buffer;
  int size = 0;
  switch (type) {
    case 'e':
      size = std::snprintf(buffer.data(), buffer.size(), alternate ? "%#.*e" : "%.*e", digits, value);
      break;
    case 'E':
      size = std::snprintf(buffer.data(), buffer.size(), alternate ? "%#.*E" : "%.*E", digits, value);
      break;
    case 'g':
      size = std::snprintf(buffer.data(), buffer.size(), alternate ? "%#.*g" : "%.*g", digits, value);
      break;
    case 'G':
      size = std::snprintf(buffer.data(), buffer.size(), alternate ? "%#.*G" : "%.*G", digits, value);
      break;
    default:
      size = std::snprintf(buffer.data(), buffer.size(), alternate ? "%#.*f" : "%.*f", digits, value);
      break;
  }
  return std::string(buffer.data(), static_cast<size_t>(size));
}

std::string format_magnitude(uint64_t value, int base, bool upper) {
  std::string out;
  do {
    const auto digit = static_cast<char>(value % static_cast<uint64_t>(base));
    out.push_back(static_cast<char>(digit < 10 ? '0' + digit : (upper ? 'A' : 'a') + digit - 10));
    value /= static_cast<uint64_t>(base);
  } while (value > 0);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string format_integer(int64_t value, const Specification& spec) {
  const uint64_t magnitude = value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  const int base = spec.type == 'x' || spec.type == 'X' ? 16
                   : spec.type == 'o'                   ? 8
                   : spec.type == 'b'                   ? 2
                                                        : 10;
  std::string digits = format_magnitude(magnitude, base, spec.type == 'X');
  if (spec.alternate && base != 10) {
    digits = std::string("0") + (spec.type == 'X' ? 'X' : base == 16 ? 'x' : base == 8 ? 'o' : 'b') + digits;
  }
  return (value < 0 ? "-" : "") + digits;
}

// Puts a sign and the padding round the digits.
Text pad(Runtime& runtime, Text body, const Specification& spec, bool is_number) {
  if (is_number && !body.bytes().starts_with('-') && (spec.sign == '+' || spec.sign == ' ')) {
    Text with_sign(std::string(1, spec.sign));
    with_sign.append(body);
    body = std::move(with_sign);
  }
  const auto length = static_cast<int64_t>(count_code_points(body.bytes()));
  if (spec.width <= length) return body;
  const auto missing = static_cast<uint64_t>(spec.width - length);
  if (missing > runtime.limits().max_value_bytes / spec.fill.size())
    fail_limit("a format's width is too large");
  runtime.check_bytes(body.size() + missing * spec.fill.size());
  const auto fill = [&](uint64_t count) {
    std::string out;
    for (uint64_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  const char align = spec.align != 0 ? spec.align : is_number ? '>' : '<';
  const uint64_t before = align == '<' || align == '=' ? 0 : align == '^' ? missing / 2 : missing;
  Text out;
  out.append(fill(before), false);
  size_t head = 0;
  if (align == '=') {  // the padding goes between the sign or prefix and the digits
    const std::string& bytes = body.bytes();
    if (!bytes.empty() && (bytes[0] == '-' || bytes[0] == '+' || bytes[0] == ' ')) head = 1;
    if (bytes.size() > head + 1 && bytes[head] == '0' &&
        std::isalpha(static_cast<unsigned char>(bytes[head + 1])) != 0) {
      head += 2;
    }
    out.append(body, 0, head);
    out.append(fill(missing), false);
  }
  out.append(body, head, body.size());
  if (align != '=') out.append(fill(missing - before), false);
  return out;
}

int64_t read_number(std::string_view text, size_t& at) {
  constexpr int64_t kLimit = int64_t{1} << 40;
  int64_t value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9')
    value = std::min(value * 10 + (text[at++] - '0'), kLimit);
  return value;
}

Text truncated(const Text& text, int64_t characters) {
  if (characters < 0) return text;
  size_t at = 0;
  for (int64_t i = 0; i < characters && at < text.size(); ++i) at += decode_utf8(text.bytes(), at).size;
  return text.slice(0, at);
}

std::string group_digits(const std::string& number, char separator, size_t group) {
  size_t begin = number.starts_with('-') ? 1 : 0;
  size_t end = begin;
  while (end < number.size() && std::isxdigit(static_cast<unsigned char>(number[end])) != 0 &&
         number[end] != 'e')
    ++end;
  std::string out = number.substr(0, begin);
  for (size_t i = begin; i < end; ++i) {
    if (i > begin && (end - i) % group == 0) out.push_back(separator);
    out.push_back(number[i]);
  }
  return out + number.substr(end);
}

// ---- "%" ----

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Text& format, const Value& arguments)
      : runtime_(runtime), format_(format), arguments_(arguments) {}

  Text run() {
    const std::string_view text = format_.bytes();
    for (size_t at = 0; at < text.size();) {
      const size_t percent = std::min(text.find('%', at), text.size());
      append(format_.slice(at, percent));
      at = percent;
      if (at < text.size()) conversion(text, at);
    }
    if (!used_mapping_ && next_ < count() && !arguments_.is(Kind::kDict) && !arguments_.is(Kind::kList)) {
      fail("not all arguments converted during string formatting");
    }
    out_.set_markup(format_.is_markup());
    return std::move(out_);
  }

 private:
  size_t count() const { return arguments_.is(Kind::kTuple) ? arguments_.items().size() : 1; }

  void append(const Text& piece) {
    runtime_.check_bytes(out_.size() + piece.size());
    out_.append(piece);
  }

  Value next_argument() {
    if (next_ >= count()) fail("not enough arguments for format string");
    const size_t at = next_++;
    return arguments_.is(Kind::kTuple) ? arguments_.items()[at] : arguments_;
  }

  int64_t star(std::string_view text, size_t& at) {
    if (at >= text.size() || text[at] != '*') return read_number(text, at);
    ++at;
    const Value value = next_argument();
    if (!value.is_integral()) fail("* wants int");
    return value.as_integer();
  }

  Value mapped(std::string_view text, size_t& at) {
    if (!arguments_.is(Kind::kDict)) fail("format requires a mapping");
    used_mapping_ = true;
    size_t end = at + 1;
    for (int depth = 1; end < text.size(); ++end) {
      if (text[end] == '(') ++depth;
      if (text[end] == ')' && --depth == 0) break;
    }
    if (end >= text.size()) fail("incomplete format key");
    const std::string_view key = text.substr(at + 1, end - at - 1);
    at = end + 1;
    const Value* value = arguments_.dict().find(key);
    if (value == nullptr) fail("the format's key '" + std::string(key) + "' is missing");
    return *value;
  }

  void conversion(std::string_view text, size_t& at) {
    Specification spec;
    spec.align = '>';
    ++at;
    std::optional<Value> value;
    if (at < text.size() && text[at] == '(') value = mapped(text, at);
    for (; at < text.size() && std::string_view("-+ #0").find(text[at]) != std::string_view::npos; ++at) {
      if (text[at] == '-') spec.align = '<';
      if (text[at] == '+') spec.sign = '+';
      if (text[at] == ' ' && spec.sign != '+') spec.sign = ' ';
      if (text[at] == '#') spec.alternate = true;
      if (text[at] == '0') spec.zero = true;
    }
    spec.width = star(text, at);
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = spec.width < -(int64_t{1} << 40) ? int64_t{1} << 40 : -spec.width;
    }
    if (at < text.size() && text[at] == '.') {
      ++at;
      spec.precision = std::max<int64_t>(star(text, at), 0);
    }
    while (at < text.size() && (text[at] == 'l' || text[at] == 'h' || text[at] == 'L')) ++at;
    if (at >= text.size()) fail("incomplete format");
    spec.type = text[at++];
    if (spec.type == '%') return append(format_.slice(at - 1, at));
    if (!value.has_value()) value = next_argument();
    append(converted(*value, spec));
  }

  Text converted(const Value& value, Specification& spec) {
    switch (spec.type) {
      case 's': {
        const Text text = format_.is_markup() ? escape_markup(runtime_, value) : to_text(runtime_, value);
        return pad(runtime_, truncated(text, spec.precision), spec, false);
      }
      case 'r':
      case 'a':
        return pad(runtime_, truncated(to_repr(runtime_, value), spec.precision), spec, false);
      case 'c':
        return pad(runtime_, character(value), spec, false);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return pad(runtime_, Text(integer(value, spec)), with_zero(spec), true);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (value.is_undefined()) fail_undefined(value);
        if (!value.is_number()) fail("must be real number, not " + std::string(type_name(value)));
        return pad(runtime_, Text(format_double(number_of(value), spec.type, spec.precision, spec.alternate)),
                   with_zero(spec), true);
      default:
        fail(std::string("unsupported format character '") + spec.type + "'");
    }
  }

  static Specification with_zero(Specification spec) {
    if (spec.zero && spec.align != '<') {
      spec.align = '=';
      spec.fill = "0";
    }
    return spec;
  }

  Text character(const Value& value) {
    if (value.is_string() && count_code_points(value.str()) == 1) return value.text();
    if (!value.is_integral() || value.as_integer() < 0 || value.as_integer() > 0x10FFFF) {
      fail("%c requires an int below 0x110000 or a single character");
    }
    std::string out;
    append_utf8(out, static_cast<char32_t>(value.as_integer()));
    return Text(std::move(out));
  }

  std::string integer(const Value& value, const Specification& spec) {
    if (value.is_undefined()) fail_undefined(value);
    const bool is_decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (value.is(Kind::kBigInteger) && is_decimal) return value.str();
    int64_t number = 0;
    if (value.is_integral()) {
      number = value.as_integer();
    } else if (value.is(Kind::kFloat) && is_decimal) {
      if (!(std::fabs(value.as_double()) < 9.2e18)) fail("%d format: the float has no 64-bit integer value");
      number = static_cast<int64_t>(value.as_double());
    } else {
      fail(std::string("%") + spec.type + " format: a number is required, not " +
           std::string(type_name(value)));
    }
    std::string out = format_integer(number, spec);
    const size_t sign = out.starts_with('-') ? 1 : 0;
    if (spec.precision > kMaxPrecision) fail_limit("a format's precision is too large");
    if (spec.precision > static_cast<int64_t>(out.size() - sign)) {
      out.insert(sign, static_cast<size_t>(spec.precision) - (out.size() - sign), '0');
    }
    return out;
  }

  Runtime& runtime_;
  const Text& format_;
  const Value& arguments_;
  Text out_;
  size_t next_ = 0;
  bool used_mapping_ = false;
};

// ---- str.format ----

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Text& format, const Arguments& arguments, bool strict)
      : runtime_(runtime), format_(format), arguments_(arguments), strict_(strict) {}

  Text run() {
    const std::string_view text = format_.bytes();
    Text out;
    for (size_t at = 0; at < text.size();) {
      const size_t brace = std::min(text.find_first_of("{}", at), text.size());
      append(out, format_.slice(at, brace));
      at = brace;
      if (at >= text.size()) break;
      if (at + 1 < text.size() && text[at + 1] == text[at]) {
        append(out, format_.slice(at, at + 1));
        at += 2;
        continue;
      }
      if (text[at] == '}') fail("single '}' encountered in format string");
      append(out, field(text, at));
    }
    out.set_markup(format_.is_markup());
    return out;
  }

 private:
  void append(Text& out, const Text& piece) {
    runtime_.check_bytes(out.size() + piece.size());
    out.append(piece);
  }

  // The field that starts at the '{' at `at`; moves `at` past its '}'.
  Text field(std::string_view text, size_t& at) {
    size_t end = at + 1;
    for (int depth = 1; end < text.size(); ++end) {
      if (text[end] == '{') ++depth;
      if (text[end] == '}' && --depth == 0) break;
    }
    if (end >= text.size()) fail("expected '}' before end of string");
    const std::string_view inside = text.substr(at + 1, end - at - 1);
    at = end + 1;
    const size_t colon = inside.find(':');
    std::string_view name = inside.substr(0, colon);
    std::string specification(colon == std::string_view::npos ? std::string_view()
                                                              : inside.substr(colon + 1));
    char conversion = 0;
    if (const size_t mark = name.find('!'); mark != std::string_view::npos) {
      if (mark + 2 != name.size()) fail("expected a conversion of one character after '!'");
      conversion = name[mark + 1];
      name = name.substr(0, mark);
    }
    Value value = lookup(name);
    if (specification.find('{') != std::string::npos) specification = nested(specification);
    if (conversion == 'r' || conversion == 'a') {
      value = runtime_.string(to_repr(runtime_, value));
    } else if (conversion == 's') {
      value = runtime_.string(to_text(runtime_, value));
    } else if (conversion != 0) {
      fail(std::string("unknown conversion specifier '") + conversion + "'");
    }
    return formatted(value, specification);
  }

  std::string nested(const std::string& specification) {
    std::string out;
    for (size_t at = 0; at < specification.size();) {
      if (specification[at] != '{') {
        out.push_back(specification[at++]);
        continue;
      }
      const size_t end = specification.find('}', at);
      if (end == std::string::npos) fail("expected '}' before end of string");
      out += to_text(runtime_, lookup(std::string_view(specification).substr(at + 1, end - at - 1))).bytes();
      at = end + 1;
    }
    return out;
  }

  Value first_value(std::string_view first) {
    int64_t index = 0;
    const bool is_index = !first.empty() && std::all_of(first.begin(), first.end(),
                                                        [](char c) { return c >= '0' && c <= '9'; });
    if (first.empty()) {
      index = next_++;
    } else if (!is_index || !parse_python_integer(first, 10, index)) {
      for (const auto& [key, value] : arguments_.keywords) {
        if (key == first) return value;
      }
      fail("the format's key '" + std::string(first) + "' is missing");
    }
    if (index >= static_cast<int64_t>(arguments_.positional.size())) {
      fail("replacement index " + std::to_string(index) + " out of range for positional args");
    }
    return arguments_.positional[static_cast<size_t>(index)];
  }

  Value lookup(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first_value(name.substr(0, end));
    for (size_t at = end; at < name.size();) {
      runtime_.step();
      if (name[at] == '.') {
        const size_t stop = std::min(name.find_first_of(".[", at + 1), name.size());
        const std::string attribute(name.substr(at + 1, stop - at - 1));
        if (strict_ && attribute.starts_with('_')) fail("access to attribute '" + attribute + "' is unsafe");
        value = get_attribute(runtime_, value, attribute);
        at = stop;
      } else {
        const size_t stop = name.find(']', at);
        if (stop == std::string_view::npos) fail("missing ']' in format string");
        const std::string_view key = name.substr(at + 1, stop - at - 1);
        int64_t index = 0;
        const bool is_index =
            parse_python_integer(key, 10, index) && key.find_first_not_of("0123456789") == key.npos;
        value =
            get_item(runtime_, value, is_index ? Value::integer(index) : runtime_.string(std::string(key)));
        at = stop + 1;
      }
    }
    return value;
  }

  static Specification parse(std::string_view text) {
    Specification spec;
    size_t at = 0;
    const auto is_align = [&](size_t i) {
      return i < text.size() && std::string_view("<>^=").find(text[i]) != std::string_view::npos;
    };
    const size_t fill_size = text.empty() ? 0 : decode_utf8(text, 0).size;
    if (fill_size > 0 && is_align(fill_size)) {
      spec.fill = text.substr(0, fill_size);
      spec.align = text[fill_size];
      at = fill_size + 1;
    } else if (is_align(0)) {
      spec.align = text[at++];
    }
    const auto take = [&](std::string_view set) {
      return at < text.size() && set.find(text[at]) != std::string_view::npos ? text[at++] : '\0';
    };
    if (const char sign = take("+- ")) spec.sign = sign;
    spec.alternate = take("#") != 0;
    spec.zero = take("0") != 0;
    spec.width = read_number(text, at);
    spec.grouping = take(",_");
    if (take(".") != 0) {
      if (at >= text.size() || text[at] < '0' || text[at] > '9') fail("format specifier missing precision");
      spec.precision = read_number(text, at);
    }
    spec.type = take("bcdeEfFgGnosxX%");
    if (at != text.size()) fail("invalid format specifier '" + std::string(text) + "'");
    if (spec.zero && spec.align == 0) {
      spec.align = '=';
      spec.fill = "0";
    }
    return spec;
  }

  Text formatted(const Value& value, const std::string& specification) {
    if (specification.empty()) {
      return format_.is_markup() ? escape_markup(runtime_, value) : to_text(runtime_, value);
    }
    Specification spec = parse(specification);
    if (value.is_integral() && !(value.is(Kind::kBool) && spec.type == 's')) {
      const bool is_float_type =
          std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos && spec.type != 0;
      if (!is_float_type) return formatted_integer(value, spec);
    }
    if (value.is_number() && !value.is(Kind::kBigInteger)) return formatted_double(number_of(value), spec);
    if (value.is_string() || value.is_undefined() || value.is(Kind::kBigInteger)) {
      if (spec.type != 0 && spec.type != 's' && !value.is(Kind::kBigInteger)) {
        fail(std::string("unknown format code '") + spec.type + "' for object of type 'str'");
      }
      const Text text = to_text(runtime_, value);
      return pad(runtime_, truncated(text, spec.precision), spec, value.is(Kind::kBigInteger));
    }
    fail("unsupported format string passed to " + std::string(type_name(value)) + ".__format__");
  }

  Text formatted_integer(const Value& value, const Specification& spec) {
    if (spec.precision >= 0) fail("precision not allowed in integer format specifier");
    if (spec.type == 's') fail("unknown format code 's' for object of type 'int'");
    if (spec.type == 'c') {
      std::string out;
      if (value.as_integer() < 0 || value.as_integer() > 0x10FFFF) fail("%c arg not in range(0x110000)");
      append_utf8(out, static_cast<char32_t>(value.as_integer()));
      return pad(runtime_, Text(std::move(out)), spec, true);
    }
    std::string out = format_integer(value.as_integer(), spec);
    const bool is_decimal = spec.type == 0 || spec.type == 'd' || spec.type == 'n';
    if (spec.grouping == ',' && !is_decimal) fail("cannot specify ',' with this format code");
    if (spec.grouping != 0) out = group_digits(out, spec.grouping, is_decimal ? 3 : 4);
    return pad(runtime_, Text(std::move(out)), spec, true);
  }

  Text formatted_double(double value, const Specification& spec) {
    if (spec.type != 0 && std::string_view("eEfFgGn%").find(spec.type) == std::string_view::npos) {
      fail(std::string("unknown format code '") + spec.type + "' for object of type 'float'");
    }
    std::string out;
    if (spec.type == '%') {
      out = format_double(value * 100, 'f', spec.precision, spec.alternate) + "%";
    } else if (spec.type == 0 && spec.precision < 0) {
      out = float_repr(value);
    } else if (spec.type == 0) {
      out = format_double(value, 'g', std::max<int64_t>(spec.precision, 1), spec.alternate);
      if (out.find_first_of(".en") == std::string::npos) out += ".0";
    } else {
      out = format_double(value, spec.type == 'n' ? 'g' : spec.type, spec.precision, spec.alternate);
    }
    if (spec.grouping != 0 && std::isfinite(value)) out = group_digits(out, spec.grouping, 3);
    return pad(runtime_, Text(std::move(out)), spec, true);
  }

  Runtime& runtime_;
  const Text& format_;
  const Arguments& arguments_;
  const bool strict_;
  int64_t next_ = 0;
};

}  // namespace

Value format_percent(Runtime& runtime, const Text& format, const Value& arguments) {
  return runtime.string(PercentFormatter(runtime, format, arguments).run());
}

Value format_braces(Runtime& runtime, const Text& format, const Arguments& arguments, bool strict) {
  return runtime.string(BraceFormatter(runtime, format, arguments, strict).run());
}

}  // namespace mlxcel::jinja
