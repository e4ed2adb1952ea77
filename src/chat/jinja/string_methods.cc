// The methods of Python's str.
#include <algorithm>
#include <array>
#include <optional>

#include "base/utf8.h"
#include "chat/jinja/runtime.h"
#include "chat/jinja/text_operations.h"
#include "chat/jinja/unicode.h"

namespace mlxcel::jinja {
namespace {

const Text& text_of(const Value& value, std::string_view function) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_string())
    fail(std::string(function) + ": expected str, got " + std::string(type_name(value)));
  return value.text();
}

template <std::string (*Map)(std::string_view)>
Value mapped(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("str method", arguments, {});
  runtime.step_bytes(4 * self.text().size());
  return runtime.string(derived_like(Map(self.str()), self.text()));
}

template <bool (*Test)(char32_t)>
Value all_are(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("str method", arguments, {});
  runtime.step_bytes(self.text().size());
  const std::u32string characters = to_utf32(self.str());
  return Value::boolean(!characters.empty() && std::all_of(characters.begin(), characters.end(), Test));
}

bool is_ascii_character(char32_t c) { return c < 0x80; }

Value is_ascii(Runtime&, const Value& self, const Arguments& arguments) {
  const Parameters p("isascii", arguments, {});
  const std::u32string characters = to_utf32(self.str());
  return Value::boolean(std::all_of(characters.begin(), characters.end(), is_ascii_character));
}

Value is_printable_text(Runtime&, const Value& self, const Arguments& arguments) {
  const Parameters p("isprintable", arguments, {});
  const std::u32string characters = to_utf32(self.str());
  return Value::boolean(std::all_of(characters.begin(), characters.end(), is_printable));
}

// At least one cased character, and none of the other case.
template <bool (*Wanted)(char32_t), bool (*Other)(char32_t)>
Value is_case(Runtime&, const Value& self, const Arguments& arguments) {
  const Parameters p("str method", arguments, {});
  bool found = false;
  for (const char32_t c : to_utf32(self.str())) {
    if (Other(c) || is_title(c)) return Value::boolean(false);
    found |= Wanted(c);
  }
  return Value::boolean(found);
}

Value is_title_text(Runtime&, const Value& self, const Arguments& arguments) {
  const Parameters p("istitle", arguments, {});
  bool found = false, after_cased = false;
  for (const char32_t c : to_utf32(self.str())) {
    const bool is_capital = is_upper(c) || is_title(c);
    if (is_capital && after_cased) return Value::boolean(false);
    if (is_lower(c) && !after_cased) return Value::boolean(false);
    after_cased = is_cased(c);
    found |= after_cased;
  }
  return Value::boolean(found);
}

Value is_identifier(Runtime&, const Value& self, const Arguments& arguments) {
  const Parameters p("isidentifier", arguments, {});
  const std::u32string characters = to_utf32(self.str());
  return Value::boolean(!characters.empty() && is_identifier_start(characters.front()) &&
                        std::all_of(characters.begin(), characters.end(), is_identifier_part));
}

template <Side side>
Value stripped(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("strip", arguments, {"chars"});
  std::optional<std::string> characters;
  if (p.set(0)) characters = text_of(p[0], "strip").bytes();
  return runtime.string(strip(self.text(), characters, side));
}

template <bool from_right>
Value split_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p(from_right ? "rsplit" : "split", arguments, {"sep", "maxsplit"});
  const int64_t limit = p.integer(1, -1);
  runtime.step_bytes(self.text().size());
  if (!p.set(0)) {
    return texts(runtime,
                 from_right ? split_space_from_right(self.text(), limit) : split_space(self.text(), limit));
  }
  const std::string& separator = text_of(p[0], "split").bytes();
  return texts(runtime, from_right ? split_from_right(self.text(), separator, limit)
                                   : split(self.text(), separator, limit));
}

Value split_lines_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("splitlines", arguments, {"keepends"});
  return texts(runtime, split_lines(self.text(), p.flag(0, false)));
}

Value replace_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("replace", arguments, {"old", "new", "count"}, 2);
  const bool is_markup = self.text().is_markup();
  text_of(p[0], "replace");
  text_of(p[1], "replace");
  const Text from = is_markup ? escape_markup(runtime, p[0]) : p[0].text();
  const Text to = is_markup ? escape_markup(runtime, p[1]) : p[1].text();
  return runtime.string(replace(runtime, self.text(), from, to, p.integer(2, -1)));
}

Value join_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("join", arguments, {"iterable"}, 1);
  const bool is_markup = self.text().is_markup();
  std::vector<Text> pieces;
  for (const Value& item : runtime.collect(p[0])) {
    if (!item.is_string()) {
      fail("sequence item " + std::to_string(pieces.size()) + ": expected str instance, " +
           std::string(type_name(item)) + " found");
    }
    pieces.push_back(is_markup ? escape_markup(runtime, item) : item.text());
  }
  Text result = join(runtime, self.text(), pieces);
  result.set_markup(is_markup);
  return runtime.string(std::move(result));
}

// [start, end) of the arguments as byte offsets; false when the range is empty beyond the text.
struct Window {
  size_t begin = 0, end = 0;
  bool is_valid = true;
};
Window window(Runtime& runtime, const Value& self, const Parameters& p, size_t first) {
  if (!p.set(first) && !p.set(first + 1)) return {0, self.text().size(), true};
  const int64_t length = runtime.length(self);
  const auto resolve = [&](int64_t i) { return i < 0 ? std::max<int64_t>(i + length, 0) : i; };
  const int64_t begin = resolve(p.set(first) ? p.integer(first, 0) : 0);
  const int64_t end = std::min(resolve(p.set(first + 1) ? p.integer(first + 1, 0) : length), length);
  if (begin > end) return {0, 0, false};
  return {offset_of_character(self.str(), static_cast<size_t>(begin)),
          offset_of_character(self.str(), static_cast<size_t>(end)), true};
}

template <bool at_start>
Value starts_or_ends(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p(at_start ? "startswith" : "endswith", arguments, {"prefix", "start", "end"}, 1);
  const Window range = window(runtime, self, p, 1);
  const std::string_view text = std::string_view(self.str()).substr(range.begin, range.end - range.begin);
  const auto matches = [&](const Value& affix) {
    const std::string& bytes = text_of(affix, at_start ? "startswith" : "endswith").bytes();
    return range.is_valid && (at_start ? text.starts_with(bytes) : text.ends_with(bytes));
  };
  if (!p[0].is(Kind::kTuple)) return Value::boolean(matches(p[0]));
  return Value::boolean(std::any_of(p[0].items().begin(), p[0].items().end(), matches));
}

template <bool from_right, bool must_exist>
Value find_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("find", arguments, {"sub", "start", "end"}, 1);
  const std::string& needle = text_of(p[0], "find").bytes();
  const Window range = window(runtime, self, p, 1);
  runtime.step_bytes(2 * self.text().size());
  const std::string_view text = std::string_view(self.str()).substr(range.begin, range.end - range.begin);
  const size_t hit = !range.is_valid ? std::string_view::npos
                     : from_right    ? text.rfind(needle)
                                     : text.find(needle);
  if (hit != std::string_view::npos) {
    return Value::integer(
        static_cast<int64_t>(count_code_points(std::string_view(self.str()).substr(0, range.begin + hit))));
  }
  if (must_exist) fail("substring not found");
  return Value::integer(-1);
}

Value count_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("count", arguments, {"sub", "start", "end"}, 1);
  const std::string& needle = text_of(p[0], "count").bytes();
  const Window range = window(runtime, self, p, 1);
  if (!range.is_valid) return Value::integer(0);
  runtime.step_bytes(self.text().size());
  const std::string_view text = std::string_view(self.str()).substr(range.begin, range.end - range.begin);
  if (needle.empty()) return Value::integer(static_cast<int64_t>(count_code_points(text)) + 1);
  int64_t count = 0;
  for (size_t at = text.find(needle); at != std::string_view::npos;
       at = text.find(needle, at + needle.size()))
    ++count;
  return Value::integer(count);
}

template <bool from_right>
Value partition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("partition", arguments, {"sep"}, 1);
  const std::string& separator = text_of(p[0], "partition").bytes();
  if (separator.empty()) fail("empty separator");
  const Text& text = self.text();
  const size_t hit = from_right ? text.bytes().rfind(separator) : text.bytes().find(separator);
  const Value nothing = runtime.string(std::string());
  if (hit == std::string::npos) {
    return from_right ? runtime.tuple({nothing, nothing, self}) : runtime.tuple({self, nothing, nothing});
  }
  return runtime.tuple({runtime.string(text.slice(0, hit)),
                        runtime.string(text.slice(hit, hit + separator.size())),
                        runtime.string(text.slice(hit + separator.size(), text.size()))});
}

std::string fill_of(const Parameters& p) {
  if (!p.given(1)) return " ";
  const std::string& fill = text_of(p[1], "fillchar").bytes();
  if (count_code_points(fill) != 1) fail("the fill character must be exactly one character long");
  return fill;
}

Value center_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("center", arguments, {"width", "fillchar"}, 1);
  return runtime.string(center(runtime, self.text(), p.integer(0, 0), fill_of(p)));
}

template <bool to_left>
Value justify_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p(to_left ? "ljust" : "rjust", arguments, {"width", "fillchar"}, 1);
  return runtime.string(justify(runtime, self.text(), p.integer(0, 0), fill_of(p), to_left));
}

Value zero_fill(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("zfill", arguments, {"width"}, 1);
  const Text& text = self.text();
  const size_t sign = text.bytes().starts_with('-') || text.bytes().starts_with('+') ? 1 : 0;
  const int64_t width = p.integer(0, 0);
  const Text digits = text.slice(sign, text.size());
  const Text padded = justify(runtime, digits, width - static_cast<int64_t>(sign), "0", false);
  Text result = text.slice(0, sign);
  result.append(padded);
  return runtime.string(std::move(result));
}

template <bool is_prefix>
Value remove_affix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p(is_prefix ? "removeprefix" : "removesuffix", arguments, {"affix"}, 1);
  const std::string& affix = text_of(p[0], "removeprefix").bytes();
  const Text& text = self.text();
  if (is_prefix && text.bytes().starts_with(affix))
    return runtime.string(text.slice(affix.size(), text.size()));
  if (!is_prefix && text.bytes().ends_with(affix))
    return runtime.string(text.slice(0, text.size() - affix.size()));
  return self;
}

Value expand_tabs(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("expandtabs", arguments, {"tabsize"});
  const int64_t size = std::max<int64_t>(p.integer(0, 8), 0);
  const Text& text = self.text();
  Text result;
  int64_t column = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text.bytes(), at);
    if (c.code == '\t') {
      const int64_t spaces = size == 0 ? 0 : size - column % size;
      runtime.check_bytes(result.size() + static_cast<size_t>(spaces));
      result.append(std::string(static_cast<size_t>(spaces), ' '), text.is_content_at(at));
      column += spaces;
    } else {
      result.append(text, at, at + c.size);
      column = c.code == '\n' || c.code == '\r' ? 0 : column + 1;
    }
    at += c.size;
  }
  return runtime.string(std::move(result));
}

Value translate(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("translate", arguments, {"table"}, 1);
  const Text& text = self.text();
  Text result;
  for (size_t at = 0; at < text.size();) {
    runtime.step();
    const Utf8Char c = decode_utf8(text.bytes(), at);
    const Value* to =
        p[0].is(Kind::kDict) ? p[0].dict().find(Value::integer(static_cast<int64_t>(c.code))) : nullptr;
    if (!p[0].is(Kind::kDict)) fail("translate needs a dict");
    if (to == nullptr) {
      result.append(text, at, at + c.size);
    } else if (to->is_string()) {
      runtime.check_bytes(result.size() + to->text().size());
      result.append(to->text());
    } else if (to->is_integral()) {
      std::string out;
      if (to->as_integer() < 0 || to->as_integer() > 0x10FFFF)
        fail("character mapping must be in range(0x110000)");
      append_utf8(out, static_cast<char32_t>(to->as_integer()));
      result.append(out, false);
    } else if (!to->is_none()) {
      fail("character mapping must return integer, None or str");
    }
    at += c.size;
  }
  return runtime.string(std::move(result));
}

Value encode(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("encode", arguments, {"encoding", "errors"});
  if (p.given(0)) {
    std::string name = to_lower(text_of(p[0], "encode").bytes());
    std::erase(name, '-');
    std::erase(name, '_');
    if (name != "utf8") fail("encode: only the encoding utf-8 is supported");
  }
  return runtime.bytes(self.str());
}

Value format_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return format_braces(runtime, self.text(), arguments, false);
}

Value format_map(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("format_map", arguments, {"mapping"}, 1);
  if (!p[0].is(Kind::kDict)) fail("format_map needs a dict");
  Arguments fields;
  for (const auto& [key, value] : p[0].dict().items) {
    if (key.is_string()) fields.keywords.emplace_back(key.str(), value);
  }
  return format_braces(runtime, self.text(), fields, true);
}

constexpr std::array<BuiltinEntry, 46> kMethods = {{
    {"capitalize", mapped<capitalize>},
    {"casefold", mapped<case_fold>},
    {"center", center_method},
    {"count", count_method},
    {"encode", encode},
    {"endswith", starts_or_ends<false>},
    {"expandtabs", expand_tabs},
    {"find", find_method<false, false>},
    {"format", format_method},
    {"format_map", format_map},
    {"index", find_method<false, true>},
    {"isalnum", all_are<is_alnum>},
    {"isalpha", all_are<is_alpha>},
    {"isascii", is_ascii},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_digit>},
    {"isidentifier", is_identifier},
    {"islower", is_case<is_lower, is_upper>},
    {"isnumeric", all_are<is_numeric>},
    {"isprintable", is_printable_text},
    {"isspace", all_are<is_space>},
    {"istitle", is_title_text},
    {"isupper", is_case<is_upper, is_lower>},
    {"join", join_method},
    {"ljust", justify_method<true>},
    {"lower", mapped<to_lower>},
    {"lstrip", stripped<Side::kLeft>},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"replace", replace_method},
    {"rfind", find_method<true, false>},
    {"rindex", find_method<true, true>},
    {"rjust", justify_method<false>},
    {"rpartition", partition<true>},
    {"rsplit", split_method<true>},
    {"rstrip", stripped<Side::kRight>},
    {"split", split_method<false>},
    {"splitlines", split_lines_method},
    {"startswith", starts_or_ends<true>},
    {"strip", stripped<Side::kBoth>},
    {"swapcase", mapped<swap_case>},
    {"title", mapped<to_title>},
    {"translate", translate},
    {"upper", mapped<to_upper>},
    {"zfill", zero_fill},
}};

}  // namespace

const BuiltinEntry* find_string_method(std::string_view name) {
  const auto* it = std::find_if(kMethods.begin(), kMethods.end(),
                                [&](const BuiltinEntry& entry) { return entry.name == name; });
  return it == kMethods.end() ? nullptr : it;
}

}  // namespace mlxcel::jinja
