// The global functions of a chat template: range, dict, namespace, lipsum, cycler, joiner, and transformers'
// raise_exception and strftime_now.
#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

#include "chat/jinja/runtime.h"

namespace mlxcel::jinja {
namespace {

Value range_function(Runtime& runtime, const Value&, const Arguments& arguments) {
  const Parameters p("range", arguments, {"start", "stop", "step"}, 1);
  if (!arguments.keywords.empty()) fail("range() takes no keyword arguments");
  const int64_t first = p.integer(0, 0);
  if (!p.given(1)) return runtime.range(0, first, 1);
  return runtime.range(first, p.integer(1, 0), p.integer(2, 1));
}

// dict(mapping or pairs, **keywords), also the start of a namespace.
DictObject make_dict(Runtime& runtime, std::string_view function, const Arguments& arguments) {
  DictObject result;
  if (arguments.positional.size() > 1) {
    fail(std::string(function) + " expected at most 1 argument, got " +
         std::to_string(arguments.positional.size()));
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Kind::kDict)) {
      for (const auto& [key, value] : source.dict().items) result.set(key, value);
    } else {
      for (const Value& pair : runtime.collect(source)) {
        const std::vector<Value> items = runtime.collect(pair);
        if (items.size() != 2) fail(std::string(function) + ": a pair of key and value is required");
        result.set(items[0], items[1]);
      }
    }
  }
  for (const auto& [key, value] : arguments.keywords) result.set(runtime.string(key), value);
  return result;
}

Value dict_function(Runtime& runtime, const Value&, const Arguments& arguments) {
  return runtime.dict(make_dict(runtime, "dict", arguments));
}

Value namespace_function(Runtime& runtime, const Value&, const Arguments& arguments) {
  auto object = std::make_unique<NamespaceObject>();
  object->attributes = make_dict(runtime, "namespace", arguments);
  for (const auto& [key, value] : object->attributes.items) {
    if (key.is_string() && key.str().starts_with('_')) {
      fail("chat templates cannot store underscore-prefixed attributes on a namespace, but got '" +
           key.str() + "'");
    }
  }
  return Value::arena(Kind::kNamespace, &runtime.keep(std::move(object)));
}

Value cycler_function(Runtime& runtime, const Value&, const Arguments& arguments) {
  if (arguments.positional.empty()) fail("at least one item has to be provided");
  if (!arguments.keywords.empty()) fail("cycler() takes no keyword arguments");
  auto object = std::make_unique<CyclerObject>();
  object->items = arguments.positional;
  return Value::arena(Kind::kCycler, &runtime.keep(std::move(object)));
}

Value joiner_function(Runtime& runtime, const Value&, const Arguments& arguments) {
  const Parameters p("joiner", arguments, {"sep"});
  auto object = std::make_unique<JoinerObject>();
  object->separator = p.given(0) ? p[0] : runtime.string(std::string(", "));
  return Value::arena(Kind::kJoiner, &runtime.keep(std::move(object)));
}

// Filler text. Jinja draws words at random; a prompt must not depend on chance, so these come in a fixed
// order.
Value lipsum_function(Runtime& runtime, const Value&, const Arguments& arguments) {
  static constexpr std::array<std::string_view, 16> kWords = {
      "lorem", "ipsum",   "dolor",  "sit",        "amet",   "consectetur", "adipiscing", "elit",
      "sed",   "eiusmod", "tempor", "incididunt", "labore", "dolore",      "magna",      "aliqua"};
  const Parameters p("lipsum", arguments, {"n", "html", "min", "max"});
  const int64_t paragraphs = std::max<int64_t>(p.integer(0, 5), 0);
  const bool html = p.flag(1, true);
  const int64_t words = std::max<int64_t>(p.integer(2, 20), 1);
  std::string out;
  for (int64_t i = 0; i < paragraphs; ++i) {
    if (i > 0) out += html ? "\n" : "\n\n";
    if (html) out += "<p>";
    for (int64_t j = 0; j < words; ++j) {
      runtime.step();
      std::string word(kWords[static_cast<size_t>((i * 7 + j) % 16)]);
      if (j == 0) word[0] = static_cast<char>(word[0] - 32);
      out += (j > 0 ? " " : "") + word;
      runtime.check_bytes(out.size());
    }
    out += html ? ".</p>" : ".";
  }
  Text text(std::move(out));
  text.set_markup(html);
  return runtime.string(std::move(text));
}

Value raise_exception(Runtime& runtime, const Value&, const Arguments& arguments) {
  const Parameters p("raise_exception", arguments, {"message"}, 1);
  fail(to_text(runtime, p[0]).bytes());
}

// ---- strftime_now ----

std::tm parse_now(const std::string& now) {
  std::tm time{};
  if (now.empty()) {
    const std::time_t seconds = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    localtime_r(&seconds, &time);
    return time;
  }
  // "YYYY-MM-DD HH:MM:SS", 'T' for the space too
  const auto number = [&](size_t at, size_t size) {
    int value = 0;
    for (size_t i = at; i < at + size; ++i) {
      if (i >= now.size() || now[i] < '0' || now[i] > '9')
        fail("the request's \"now\" is not YYYY-MM-DD HH:MM:SS");
      value = value * 10 + (now[i] - '0');
    }
    return value;
  };
  time.tm_year = number(0, 4) - 1900;
  time.tm_mon = number(5, 2) - 1;
  time.tm_mday = number(8, 2);
  time.tm_hour = number(11, 2);
  time.tm_min = number(14, 2);
  time.tm_sec = number(17, 2);
  const auto date = std::chrono::year_month_day(std::chrono::year(time.tm_year + 1900),
                                                std::chrono::month(static_cast<unsigned>(time.tm_mon + 1)),
                                                std::chrono::day(static_cast<unsigned>(time.tm_mday)));
  if (!date.ok() || time.tm_hour > 23 || time.tm_min > 59 || time.tm_sec > 60) {
    fail("the request's \"now\" is no valid time");
  }
  const std::chrono::sys_days days = date;
  time.tm_wday = static_cast<int>(std::chrono::weekday(days).c_encoding());
  time.tm_yday = static_cast<int>((days - std::chrono::sys_days(date.year() / 1 / 1)).count());
  return time;
}

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};

std::string padded(int value, size_t width, char flag, char fill = '0') {
  std::string digits = std::to_string(value);
  if (flag == '-') return digits;
  if (flag == '_') fill = ' ';
  if (flag == '0') fill = '0';
  if (digits.size() < width) digits.insert(0, width - digits.size(), fill);
  return digits;
}

// ISO 8601: weeks start on Monday, week 1 holds the year's first Thursday.
std::pair<int, int> iso_week(const std::tm& time) {
  const int weekday = (time.tm_wday + 6) % 7;
  int year = time.tm_year + 1900;
  const auto is_leap = [](int y) { return (y % 4 == 0 && y % 100 != 0) || y % 400 == 0; };
  int week = (time.tm_yday - weekday + 10) / 7;
  const auto weeks_of = [&](int y) {
    const auto first = std::chrono::weekday(std::chrono::sys_days(std::chrono::year(y) / 1 / 1)).c_encoding();
    return first == 4 || (first == 3 && is_leap(y)) ? 53 : 52;
  };
  if (week < 1) return {year - 1, weeks_of(year - 1)};
  if (week > weeks_of(year)) return {year + 1, 1};
  return {year, week};
}

// One directive in the C locale; an unknown one stays as written, as in the C library.
std::string directive(const std::tm& t, char code, char flag);

std::string composed(const std::tm& t, std::string_view codes) {
  std::string out;
  for (const char c : codes) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      out += directive(t, c, 0);
    } else {
      out.push_back(c);
    }
  }
  return out;
}

std::string name_of(std::string_view name, bool is_short, char flag) {
  std::string out(is_short ? name.substr(0, 3) : name);
  if (flag == '^') {
    for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return out;
}

std::string directive(const std::tm& t, char code, char flag) {
  const int hour12 = t.tm_hour % 12 == 0 ? 12 : t.tm_hour % 12;
  const int year = t.tm_year + 1900;
  switch (code) {
    case 'a':
    case 'A':
      return name_of(kDays[static_cast<size_t>(t.tm_wday)], code == 'a', flag);
    case 'b':
    case 'h':
    case 'B':
      return name_of(kMonths[static_cast<size_t>(t.tm_mon)], code != 'B', flag);
    case 'c':
      return composed(t, "a b e H:M:S Y");
    case 'C':
      return padded(year / 100, 2, flag);
    case 'd':
      return padded(t.tm_mday, 2, flag);
    case 'D':
    case 'x':
      return composed(t, "m/d/y");
    case 'e':
      return padded(t.tm_mday, 2, flag, ' ');
    case 'f':
      return "000000";
    case 'F':
      return composed(t, "Y-m-d");
    case 'G':
      return padded(iso_week(t).first, 4, flag);
    case 'H':
      return padded(t.tm_hour, 2, flag);
    case 'I':
      return padded(hour12, 2, flag);
    case 'j':
      return padded(t.tm_yday + 1, 3, flag);
    case 'k':
      return padded(t.tm_hour, 2, flag, ' ');
    case 'l':
      return padded(hour12, 2, flag, ' ');
    case 'm':
      return padded(t.tm_mon + 1, 2, flag);
    case 'M':
      return padded(t.tm_min, 2, flag);
    case 'n':
      return "\n";
    case 'p':
      return t.tm_hour < 12 ? "AM" : "PM";
    case 'P':
      return t.tm_hour < 12 ? "am" : "pm";
    case 'r':
      return composed(t, "I:M:S p");
    case 'R':
      return composed(t, "H:M");
    case 'S':
      return padded(t.tm_sec, 2, flag);
    case 't':
      return "\t";
    case 'T':
    case 'X':
      return composed(t, "H:M:S");
    case 'u':
      return std::to_string(t.tm_wday == 0 ? 7 : t.tm_wday);
    case 'U':
      return padded((t.tm_yday + 7 - t.tm_wday) / 7, 2, flag);
    case 'V':
      return padded(iso_week(t).second, 2, flag);
    case 'w':
      return std::to_string(t.tm_wday);
    case 'W':
      return padded((t.tm_yday + 7 - (t.tm_wday + 6) % 7) / 7, 2, flag);
    case 'y':
      return padded(year % 100, 2, flag);
    case 'Y':
      return padded(year, 4, flag);
    case 'z':
    case 'Z':
      return "";  // Python's naive datetime has no zone
    case '%':
      return "%";
    default:
      return std::string("%") + (flag != 0 ? std::string(1, flag) : "") + code;
  }
}

Value strftime_now(Runtime& runtime, const Value&, const Arguments& arguments) {
  const Parameters p("strftime_now", arguments, {"format"}, 1);
  if (!p[0].is_string()) fail("strftime_now needs a format string");
  const std::tm time = parse_now(runtime.now);
  const Text& format = p[0].text();
  const std::string& bytes = format.bytes();
  Text out;
  for (size_t at = 0; at < bytes.size();) {
    const size_t percent = std::min(bytes.find('%', at), bytes.size());
    out.append(format, at, percent);
    at = percent;
    if (at + 1 >= bytes.size()) {
      out.append(format, at, bytes.size());
      break;
    }
    const bool is_content = format.is_content_at(at++);
    char flag = 0;
    if (std::string_view("-_0^#").find(bytes[at]) != std::string_view::npos && at + 1 < bytes.size())
      flag = bytes[at++];
    out.append(directive(time, bytes[at++], flag), is_content);
    runtime.check_bytes(out.size());
  }
  return runtime.string(std::move(out));
}

}  // namespace

std::span<const FunctionObject> global_functions() {
  static constexpr std::array<FunctionObject, 8> kFunctions = {{{"range", range_function},
                                                                {"dict", dict_function},
                                                                {"namespace", namespace_function},
                                                                {"cycler", cycler_function},
                                                                {"joiner", joiner_function},
                                                                {"lipsum", lipsum_function},
                                                                {"raise_exception", raise_exception},
                                                                {"strftime_now", strftime_now}}};
  return kFunctions;
}

}  // namespace mlxcel::jinja
