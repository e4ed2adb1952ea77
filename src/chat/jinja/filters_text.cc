#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/utf8.h"
#include "chat/jinja/filters.h"
#include "chat/jinja/text_operations.h"
#include "chat/jinja/unicode.h"

namespace mlxcel::jinja {
namespace {

// soft_str: markup stays markup.
Text soft_text(Runtime& runtime, const Value& value) {
  return value.is_string() ? value.text() : to_text(runtime, value);
}

const Text& require_text(const Value& value, std::string_view filter) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_string())
    fail(std::string(filter) + ": expected a string, got " + std::string(type_name(value)));
  return value.text();
}

template <std::string (*Map)(std::string_view)>
Value mapped(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("filter", arguments, {});
  const Text text = soft_text(runtime, subject);
  runtime.step_bytes(4 * text.size());
  return runtime.string(derived_like(Map(text.bytes()), text));
}

// |title: a letter after white space, '-', or an opening bracket is a capital, all others are small.
std::string title(std::string_view text) {
  std::string out;
  size_t begin = 0;
  const auto add_word = [&](size_t end) {
    if (end == begin) return;
    const size_t first = decode_utf8(text, begin).size;
    out += to_upper(text.substr(begin, first)) + to_lower(text.substr(begin + first, end - begin - first));
  };
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (is_space(c.code) || std::u32string_view(U"-({[<").find(c.code) != std::u32string_view::npos) {
      add_word(at);
      out.append(text.substr(at, c.size));
      begin = at + c.size;
    }
    at += c.size;
  }
  add_word(text.size());
  return out;
}

Value trim(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("trim", arguments, {"chars"});
  std::optional<std::string> characters;
  if (p.set(0)) characters = require_text(p[0], "trim").bytes();
  return runtime.string(strip(soft_text(runtime, subject), characters, Side::kBoth));
}

Value replace_filter(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("replace", arguments, {"old", "new", "count"}, 2);
  const int64_t count = p.set(2) ? p.integer(2, -1) : -1;
  return runtime.string(
      replace(runtime, to_text(runtime, subject), to_text(runtime, p[0]), to_text(runtime, p[1]), count));
}

Value string_filter(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("string", arguments, {});
  return runtime.string(soft_text(runtime, subject));
}

Value safe(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("safe", arguments, {});
  Text text = to_text(runtime, subject);
  text.set_markup(true);
  return runtime.string(std::move(text));
}

Value escape_filter(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("escape", arguments, {});
  return runtime.string(escape_markup(runtime, subject));
}

Value force_escape(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("forceescape", arguments, {});
  return runtime.string(escape_markup(runtime, runtime.string(to_text(runtime, subject))));
}

Value center_filter(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("center", arguments, {"width"});
  return runtime.string(center(runtime, soft_text(runtime, subject), p.integer(0, 80), " "));
}

Value indent(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("indent", arguments, {"width", "first", "blank"});
  const Text& text = require_text(subject, "indent");
  Text indentation;
  if (p.given(0) && p[0].is_string()) {
    indentation = p[0].text();
  } else {
    const int64_t width = std::max<int64_t>(p.integer(0, 4), 0);
    runtime.check_bytes(static_cast<size_t>(width));
    indentation = Text(std::string(static_cast<size_t>(width), ' '));
  }
  const bool first = p.flag(1, false), blank = p.flag(2, false);
  Text source = text;
  source.append("\n", false);
  const std::vector<Text> lines = split_lines(source, false);
  Text result;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result.append("\n", false);
    const bool is_indented = i == 0 ? first : blank || !lines[i].empty();
    runtime.check_bytes(result.size() + lines[i].size() + indentation.size());
    if (is_indented) result.append(indentation);
    result.append(lines[i]);
  }
  result.set_markup(text.is_markup());
  return runtime.string(std::move(result));
}

Value truncate(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const Text& text = require_text(subject, "truncate");
  const int64_t length = p.integer(0, 255);
  const Text end = p.given(2) ? require_text(p[2], "truncate") : Text("...");
  const int64_t leeway = p.set(3) ? p.integer(3, 5) : 5;
  const auto end_length = static_cast<int64_t>(count_code_points(end.bytes()));
  if (length < end_length) fail("truncate: the length is shorter than the end mark");
  if (leeway < 0) fail("truncate: the leeway is negative");
  const auto characters = static_cast<int64_t>(count_code_points(text.bytes()));
  if (characters - leeway <= length) return subject;
  Text result = text.slice(0, offset_of_character(text.bytes(), static_cast<size_t>(length - end_length)));
  if (!p.flag(1, false)) {
    if (const size_t space = result.bytes().rfind(' '); space != std::string::npos) result.truncate(space);
  }
  result.append(end);
  return runtime.string(std::move(result));
}

// Words of textwrap: runs of white space, and words that may end after a hyphen between letters.
std::vector<std::u32string> wrap_chunks(const std::u32string& line, bool break_on_hyphens) {
  std::vector<std::u32string> chunks;
  std::u32string chunk;
  for (size_t i = 0; i < line.size(); ++i) {
    if (!chunk.empty() && is_space(chunk.back()) != is_space(line[i])) {
      chunks.push_back(std::move(chunk));
      chunk.clear();
    }
    chunk.push_back(line[i]);
    const bool may_break = break_on_hyphens && line[i] == U'-' && i >= 1 && is_alpha(line[i - 1]) &&
                           i + 1 < line.size() && is_alpha(line[i + 1]);
    if (may_break) {
      chunks.push_back(std::move(chunk));
      chunk.clear();
    }
  }
  if (!chunk.empty()) chunks.push_back(std::move(chunk));
  return chunks;
}

bool is_blank(const std::u32string& chunk) { return is_space(chunk.front()); }

// textwrap.wrap with white space kept and dropped at the ends of lines.
std::vector<std::u32string> wrap_line(const std::u32string& line, size_t width, bool break_long,
                                      bool break_hyphens) {
  std::vector<std::u32string> chunks = wrap_chunks(line, break_hyphens);
  std::vector<std::u32string> lines;
  size_t at = 0;
  while (at < chunks.size()) {
    if (!lines.empty() && is_blank(chunks[at])) {
      ++at;
      continue;
    }
    std::vector<std::u32string> row;
    size_t length = 0;
    while (at < chunks.size() && length + chunks[at].size() <= width) {
      length += chunks[at].size();
      row.push_back(chunks[at++]);
    }
    if (at < chunks.size() && chunks[at].size() > width) {
      if (break_long) {
        const size_t room = std::max<size_t>(width - length, 1);
        row.push_back(chunks[at].substr(0, room));
        chunks[at].erase(0, room);
      } else if (row.empty()) {
        row.push_back(chunks[at++]);
      }
    }
    if (!row.empty() && is_blank(row.back())) row.pop_back();
    std::u32string joined;
    for (const std::u32string& chunk : row) joined += chunk;
    if (!row.empty()) lines.push_back(std::move(joined));
  }
  return lines;
}

Value wordwrap(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("wordwrap", arguments, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  const Text& text = require_text(subject, "wordwrap");
  const int64_t width = p.integer(0, 79);
  if (width <= 0) fail("wordwrap: invalid width");
  const std::string newline = p.set(2) ? require_text(p[2], "wordwrap").bytes() : "\n";
  const bool has_content = text.has_content() || (p.set(2) && p[2].text().has_content());
  std::string out;
  bool is_first_line = true;
  for (const Text& line : split_lines(text, false)) {
    if (!is_first_line) out += newline;
    is_first_line = false;
    bool is_first_row = true;
    for (const std::u32string& row :
         wrap_line(to_utf32(line.bytes()), static_cast<size_t>(width), p.flag(1, true), p.flag(3, true))) {
      runtime.step();
      runtime.check_bytes(out.size() + 4 * row.size() + newline.size());
      if (!is_first_row) out += newline;
      is_first_row = false;
      out += to_utf8(row);
    }
  }
  return runtime.string(Text(std::move(out), has_content));
}

Value wordcount(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("wordcount", arguments, {});
  int64_t words = 0;
  bool in_word = false;
  for (const char32_t c : to_utf32(soft_text(runtime, subject).bytes())) {
    const bool is_word = is_alnum(c) || c == '_';
    if (is_word && !in_word) ++words;
    in_word = is_word;
  }
  return Value::integer(words);
}

Value format_filter(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Text text = soft_text(runtime, subject);
  if (!arguments.positional.empty() && !arguments.keywords.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  if (arguments.keywords.empty()) return format_percent(runtime, text, runtime.tuple(arguments.positional));
  DictObject values;
  for (const auto& [key, value] : arguments.keywords) values.set(runtime.string(key), value);
  return format_percent(runtime, text, runtime.dict(std::move(values)));
}

Value striptags(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("striptags", arguments, {});
  const Text text = to_text(runtime, subject);
  std::string out;
  const std::string_view bytes = text.bytes();
  for (size_t at = 0; at < bytes.size();) {
    if (bytes.substr(at, 4) == "<!--") {
      const size_t end = bytes.find("-->", at);
      if (end == std::string_view::npos) break;
      at = end + 3;
    } else if (bytes[at] == '<' && bytes.find('>', at) != std::string_view::npos) {
      at = bytes.find('>', at) + 1;
    } else {
      out.push_back(bytes[at++]);
    }
  }
  // White space collapses to single spaces, and the five entities that escape writes are resolved.
  std::string collapsed;
  for (const Text& word : split_space(Text(out), -1))
    collapsed += (collapsed.empty() ? "" : " ") + word.bytes();
  Text result(collapsed);
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kEntities = {
      {{"&lt;", "<"}, {"&gt;", ">"}, {"&#34;", "\""}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}}};
  for (const auto& [entity, character] : kEntities) {
    result = replace(runtime, result, Text(std::string(entity)), Text(std::string(character)), -1);
  }
  return runtime.string(Text(result.bytes(), text.has_content()));
}

std::string url_quote(std::string_view text, bool is_query) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = byte < 0x80 && (std::isalnum(byte) != 0 || c == '_' || c == '.' || c == '-' ||
                                          c == '~' || (c == '/' && !is_query));
    if (is_plain) {
      out.push_back(c);
    } else if (c == ' ' && is_query) {
      out.push_back('+');
    } else {
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

Value urlencode(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("urlencode", arguments, {});
  const bool is_iterable = subject.is_sequence() || subject.is(Kind::kDict) || subject.is(Kind::kView) ||
                           subject.is(Kind::kGenerator);
  if (!is_iterable) {
    const Text text = to_text(runtime, subject);
    return runtime.string(derived_like(url_quote(text.bytes(), false), text));
  }
  const Value pairs =
      subject.is(Kind::kDict)
          ? Value::object(Kind::kView, std::make_shared<ViewObject>(ViewObject{subject, ViewPart::kItems}))
          : subject;
  std::string out;
  bool has_content = false;
  for (const Value& pair : runtime.collect(pairs)) {
    const std::vector<Value> items = runtime.collect(pair);
    if (items.size() != 2) fail("urlencode needs pairs");
    const Text key = to_text(runtime, items[0]), value = to_text(runtime, items[1]);
    has_content |= key.has_content() || value.has_content();
    out += (out.empty() ? "" : "&") + url_quote(key.bytes(), true) + "=" + url_quote(value.bytes(), true);
    runtime.check_bytes(out.size());
  }
  return runtime.string(Text(std::move(out), has_content));
}

Value xmlattr(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("xmlattr", arguments, {"autospace"});
  if (subject.is_undefined()) fail_undefined(subject);
  if (!subject.is(Kind::kDict)) fail("xmlattr needs a mapping");
  Text result;
  for (const auto& [key, value] : subject.dict().items) {
    if (value.is_none() || value.is_undefined()) continue;
    const Text name = require_text(key, "xmlattr");
    if (name.bytes().find_first_of(" \t\n\v\f\r/>=") != std::string::npos) {
      fail("invalid character in attribute name: " + string_repr(name.bytes()));
    }
    if (!result.empty() || p.flag(0, true)) result.append(" ", false);
    result.append(escape_markup(runtime, key));
    result.append("=\"", false);
    result.append(escape_markup(runtime, value));
    result.append("\"", false);
    runtime.check_bytes(result.size());
  }
  result.set_markup(runtime.autoescape);
  return runtime.string(std::move(result));
}

Value filesizeformat(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("filesizeformat", arguments, {"binary"});
  double size = 0;
  if (subject.is_number()) {
    size = number_of(subject);
  } else if (!subject.is_string() || !parse_python_float(subject.str(), size)) {
    fail("filesizeformat needs a number");
  }
  const bool binary = p.flag(0, false);
  const double base = binary ? 1024 : 1000;
  if (size == 1) return runtime.string(std::string("1 Byte"));
  if (size < base)
    return runtime.string(std::to_string(static_cast<int64_t>(std::max(size, -9e18))) + " Bytes");
  static constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  size_t i = 0;
  while (i + 1 < kPrefixes.size() && size >= unit * base) {
    unit *= base;
    ++i;
  }
  std::array<char, 400> buffer;
  const int written = std::snprintf(buffer.data(), buffer.size(), "%.1f ", size / unit);
  std::string out(buffer.data(), static_cast<size_t>(written));
  out.push_back(binary ? static_cast<char>(std::toupper(static_cast<unsigned char>(kPrefixes[i])))
                       : kPrefixes[i]);
  return runtime.string(out + (binary ? "iB" : "B"));
}

Value pprint(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("pprint", arguments, {});
  return runtime.string(to_repr(runtime, subject));
}

Value to_integer(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("int", arguments, {"default", "base"});
  const Value fallback = p.given(0) ? p[0] : Value::integer(0);
  double number = 0;
  if (subject.is_integral()) return Value::integer(subject.as_integer());
  if (subject.is(Kind::kBigInteger)) return subject;
  if (subject.is_undefined()) fail_undefined(subject);
  if (subject.is_string()) {
    int64_t result = 0;
    runtime.step_bytes(subject.text().size());
    if (parse_python_integer(subject.str(), static_cast<int>(std::clamp<int64_t>(p.integer(1, 10), -1, 99)),
                             result)) {
      return Value::integer(result);
    }
    if (!parse_python_float(subject.str(), number)) return fallback;
  } else if (subject.is(Kind::kFloat)) {
    number = subject.as_double();
  } else {
    return fallback;
  }
  if (!std::isfinite(number)) return fallback;
  if (std::fabs(number) >= 9.2233720368547758e18) fail_limit("an integer of the template is beyond 64 bits");
  return Value::integer(static_cast<int64_t>(number));
}

Value to_float(Runtime&, const Value& subject, const Arguments& arguments) {
  const Parameters p("float", arguments, {"default"});
  double number = 0;
  if (subject.is_number()) return Value::floating(number_of(subject));
  if (subject.is_undefined()) fail_undefined(subject);
  if (subject.is_string() && parse_python_float(subject.str(), number)) return Value::floating(number);
  return p.given(0) ? p[0] : Value::floating(0);
}

Value absolute(Runtime&, const Value& subject, const Arguments& arguments) {
  const Parameters p("abs", arguments, {});
  if (subject.is_undefined()) fail_undefined(subject);
  if (subject.is(Kind::kFloat)) return Value::floating(std::fabs(subject.as_double()));
  if (subject.is(Kind::kBigInteger)) return subject.str().front() == '-' ? apply_negate(subject) : subject;
  if (!subject.is_integral()) fail("bad operand type for abs(): '" + std::string(type_name(subject)) + "'");
  return subject.as_integer() < 0 ? apply_negate(subject) : apply_plus(subject);
}

Value round_integer(int64_t value, int64_t digits) {
  if (digits >= 0) return Value::integer(value);
  if (digits < -18) return Value::integer(0);
  int64_t power = 1;
  for (int64_t i = 0; i < -digits; ++i) power *= 10;
  int64_t rest = value % power;
  int64_t base = value - rest;
  if (rest < 0) {
    rest += power;
    if (__builtin_sub_overflow(base, power, &base))
      fail_limit("an integer of the template is beyond 64 bits");
  }
  const bool is_up = rest > power - rest || (rest == power - rest && (base / power) % 2 != 0);
  if (is_up && __builtin_add_overflow(base, power, &base))
    fail_limit("an integer of the template is beyond 64 bits");
  return Value::integer(base);
}

Value round_filter(Runtime&, const Value& subject, const Arguments& arguments) {
  const Parameters p("round", arguments, {"precision", "method"});
  const int64_t digits = p.integer(0, 0);
  const std::string how = p.given(1) ? require_text(p[1], "round").bytes() : "common";
  if (how != "common" && how != "ceil" && how != "floor") fail("method must be common, ceil or floor");
  if (subject.is_undefined()) fail_undefined(subject);
  if (!subject.is_number() || subject.is(Kind::kBigInteger)) {
    fail("type " + std::string(type_name(subject)) + " doesn't define __round__ method");
  }
  if (how == "common") {
    if (subject.is_integral()) return round_integer(subject.as_integer(), digits);
    return Value::floating(round_half_even(subject.as_double(), digits));
  }
  const double power = std::pow(10.0, static_cast<double>(digits));
  const double scaled = number_of(subject) * power;
  if (power == 0 || !std::isfinite(power) || !std::isfinite(scaled))
    fail("round: the precision is out of range");
  return Value::floating((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / power);
}

constexpr std::array<BuiltinEntry, 27> kFilters = {{
    {"abs", absolute},
    {"capitalize", mapped<capitalize>},
    {"center", center_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"filesizeformat", filesizeformat},
    {"float", to_float},
    {"forceescape", force_escape},
    {"format", format_filter},
    {"indent", indent},
    {"int", to_integer},
    {"lower", mapped<to_lower>},
    {"pprint", pprint},
    {"replace", replace_filter},
    {"round", round_filter},
    {"safe", safe},
    {"string", string_filter},
    {"striptags", striptags},
    {"title", mapped<title>},
    {"tojson", filter_tojson},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", mapped<to_upper>},
    {"urlencode", urlencode},
    {"wordcount", wordcount},
    {"wordwrap", wordwrap},
    {"xmlattr", xmlattr},
}};

}  // namespace

std::span<const BuiltinEntry> text_filters() { return kFilters; }

}  // namespace mlxcel::jinja
