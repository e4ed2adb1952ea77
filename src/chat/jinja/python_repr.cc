// Python's str() and repr() of values, and reading of numbers as int() and float() do.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/utf8.h"
#include "chat/jinja/runtime.h"
#include "chat/jinja/unicode.h"

namespace mlxcel::jinja {
namespace {

// Builds a repr; its size is checked as it grows, so a value that shares its parts cannot blow up.
class ReprWriter {
 public:
  explicit ReprWriter(Runtime& runtime) : runtime_(runtime) {}

  void write(const Value& value) {
    runtime_.step();
    // Namespaces may hold themselves; everything else nests at most max_depth deep.
    if (++depth_ > 2 * runtime_.limits().max_depth) fail_limit("a value is nested too deep to be printed");
    switch (value.kind()) {
      case Kind::kString:
        // repr of markup shows its class
        if (value.text().is_markup()) add("Markup(");
        add_string(value.text());
        if (value.text().is_markup()) add(")");
        break;
      case Kind::kBytes:
        add_bytes(value.text());
        break;
      case Kind::kList:
        add("[");
        write_items(value.items());
        add("]");
        break;
      case Kind::kTuple:
        add("(");
        write_items(value.items());
        add(value.items().size() == 1 ? ",)" : ")");
        break;
      case Kind::kDict:
        write_dict(value.dict());
        break;
      case Kind::kView:
        add(type_name(value));
        add("([");
        write_items(runtime_.collect(value));
        add("])");
        break;
      case Kind::kNamespace:
        add("<Namespace ");
        write_dict(value.as<NamespaceObject>().attributes);
        add(">");
        break;
      default:
        write_simple(value);
    }
    --depth_;
  }

  Text take() { return Text(std::move(text_), has_content_); }

 private:
  void add(std::string_view piece) {
    runtime_.check_bytes(text_.size() + piece.size());
    text_.append(piece);
  }
  void add_string(const Text& text) {
    has_content_ |= text.has_content();
    runtime_.step_bytes(text.size());
    add(string_repr(text.bytes()));
  }
  void add_bytes(const Text& text) {
    has_content_ |= text.has_content();
    static constexpr char kHex[] = "0123456789abcdef";
    std::string out = "b'";
    for (const char c : text.bytes()) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte >= 0x20 && byte < 0x7F && c != '\'' && c != '\\') {
        out.push_back(c);
      } else {
        out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
      }
    }
    add(out + "'");
  }
  void write_items(const std::vector<Value>& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) add(", ");
      write(items[i]);
    }
  }
  void write_dict(const DictObject& dict) {
    add("{");
    bool is_first = true;
    for (const auto& [key, value] : dict.items) {
      if (!is_first) add(", ");
      is_first = false;
      write(key);
      add(": ");
      write(value);
    }
    add("}");
  }
  void write_simple(const Value& value) {
    switch (value.kind()) {
      case Kind::kUndefined:
        return add("Undefined");
      case Kind::kNone:
        return add("None");
      case Kind::kBool:
        return add(value.as_bool() ? "True" : "False");
      case Kind::kInteger:
        return add(std::to_string(value.as_integer()));
      case Kind::kBigInteger:
        return add(value.str());
      case Kind::kFloat:
        return add(float_repr(value.as_double()));
      case Kind::kRange: {
        const auto& range = value.as<RangeObject>();
        add("range(" + std::to_string(range.start) + ", " + std::to_string(range.stop));
        return add(range.step == 1 ? ")" : ", " + std::to_string(range.step) + ")");
      }
      case Kind::kGenerator:
        // Python prints an address here; ours would differ from run to run.
        return add("<" + std::string(type_name(value)) + " object>");
      default:
        return add("<" + std::string(type_name(value)) + ">");
    }
  }

  Runtime& runtime_;
  std::string text_;
  bool has_content_ = false;
  int depth_ = 0;
};

// Strips white space and single underscores between digits; false where Python refuses the placing of one.
bool strip_number(std::string_view text, std::string& out) {
  text.remove_prefix(leading_space(text));
  text.remove_suffix(trailing_space(text));
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
      continue;
    }
    const auto is_digit_at = [&](size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1)) return false;
  }
  return !out.empty();
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // The shortest digits that read back, laid out as Python does: exponent form below 1e-4 and from 1e16 on.
  std::array<char, 64> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  const std::string_view written(buffer.data(), static_cast<size_t>(end - buffer.data()));
  const size_t e = written.find('e');
  std::string digits;
  std::string sign;
  for (const char c : written.substr(0, e)) {
    if (c == '-') sign = "-";
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  int exponent = 0;
  std::string_view exponent_text = written.substr(e + 1);
  if (exponent_text.front() == '+') exponent_text.remove_prefix(1);
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    std::string out = sign + digits.substr(0, 1);
    if (digits.size() > 1) out += "." + digits.substr(1);
    const std::string magnitude = std::to_string(std::abs(exponent));
    return out + (exponent < 0 ? "e-" : "e+") + (magnitude.size() < 2 ? "0" : "") + magnitude;
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string string_repr(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const char32_t code = c.code;
    if (code == static_cast<char32_t>(quote) || code == '\\') {
      out += {'\\', static_cast<char>(code)};
    } else if (code == '\n' || code == '\r' || code == '\t') {
      out += {'\\', code == '\n' ? 'n' : code == '\r' ? 'r' : 't'};
    } else if (is_printable(code)) {
      out.append(text.substr(at, c.size));
    } else {
      const int width = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
      out += {'\\', width == 2 ? 'x' : width == 4 ? 'u' : 'U'};
      for (int i = width - 1; i >= 0; --i) out.push_back(kHex[(code >> (4 * i)) & 15]);
    }
    at += c.size;
  }
  out.push_back(quote);
  return out;
}

Text to_repr(Runtime& runtime, const Value& value) {
  ReprWriter writer(runtime);
  writer.write(value);
  return writer.take();
}

Text to_text(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) return Text();
  if (!value.is_string()) return to_repr(runtime, value);
  Text text = value.text();
  text.set_markup(false);
  return text;
}

Text escape_markup(Runtime& runtime, const Value& value) {
  if (value.is_string() && value.text().is_markup()) return value.text();
  const Text text = to_text(runtime, value);
  Text result;
  text.for_each_piece(0, text.size(), [&](size_t begin, size_t end, bool is_content) {
    std::string escaped;
    for (const char c : std::string_view(text.bytes()).substr(begin, end - begin)) {
      switch (c) {
        case '&':
          escaped += "&amp;";
          break;
        case '<':
          escaped += "&lt;";
          break;
        case '>':
          escaped += "&gt;";
          break;
        case '\'':
          escaped += "&#39;";
          break;
        case '"':
          escaped += "&#34;";
          break;
        default:
          escaped.push_back(c);
      }
    }
    runtime.check_bytes(result.size() + escaped.size());
    result.append(escaped, is_content);
  });
  result.set_markup(true);
  return result;
}

bool parse_python_integer(std::string_view text, int base, int64_t& result) {
  std::string stripped;
  if (!strip_number(text, stripped)) return false;
  std::string_view digits = stripped;
  const bool is_negative = digits.front() == '-';
  if (digits.front() == '-' || digits.front() == '+') digits.remove_prefix(1);
  if (digits.size() > 1 && digits[0] == '0') {
    const char prefix = static_cast<char>(digits[1] | 0x20);
    const int prefix_base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
    if (prefix_base != 0 && (base == 0 || base == prefix_base)) {
      base = prefix_base;
      digits.remove_prefix(2);
    }
  }
  if (base == 0) base = 10;
  if (digits.empty() || digits.front() == '-' || base < 2 || base > 36) return false;
  uint64_t magnitude = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, base);
  if (error != std::errc() || end != digits.data() + digits.size()) return false;
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (magnitude > kMax + (is_negative ? 1 : 0)) return false;
  result = is_negative ? static_cast<int64_t>(~magnitude + 1) : static_cast<int64_t>(magnitude);
  return true;
}

bool parse_python_float(std::string_view text, double& result) {
  std::string stripped;
  if (!strip_number(text, stripped)) return false;
  std::string_view digits = stripped;
  const bool is_negative = digits.front() == '-';
  if (digits.front() == '-' || digits.front() == '+') digits.remove_prefix(1);
  std::string word;
  for (const char c : digits.substr(0, 9))
    word.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  if (digits.size() <= 8 && (word == "inf" || word == "infinity")) {
    result = std::numeric_limits<double>::infinity();
  } else if (digits.size() == 3 && word == "nan") {
    result = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (digits.empty() ||
        (digits.front() != '.' && std::isdigit(static_cast<unsigned char>(digits.front())) == 0)) {
      return false;
    }
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), result);
    if (end != digits.data() + digits.size()) return false;
    if (error == std::errc::result_out_of_range) {
      // from_chars does not say which side; a positive exponent, or many digits before it, means infinity.
      const size_t e = digits.find_first_of("eE");
      const bool is_small = e != std::string_view::npos && e + 1 < digits.size() && digits[e + 1] == '-';
      result = is_small || digits.starts_with("0.0") ? 0.0 : std::numeric_limits<double>::infinity();
    }
  }
  if (is_negative) result = -result;
  return true;
}

double round_half_even(double value, int64_t digits) {
  constexpr int64_t kMaxDecimals = 323, kMaxWhole = 308;
  if (!std::isfinite(value) || digits > kMaxDecimals) return value;
  if (digits < -kMaxWhole) return std::copysign(0.0, value);
  if (digits < 0) {
    const double power = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / power) * power;
  }
  // printf rounds the exact binary value correctly, which is what Python's round() does.
  std::array<char, 700> buffer;
  const int size = std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(digits), value);
  double result = value;
  parse_python_float(std::string_view(buffer.data(), static_cast<size_t>(size)), result);
  return result;
}

}  // namespace mlxcel::jinja
