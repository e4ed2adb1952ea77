// Jinja's tests: `value is name`.
#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "chat/jinja/runtime.h"
#include "chat/jinja/unicode.h"

namespace mlxcel::jinja {
namespace {

template <bool (*Test)(const Value&)>
Value plain(Runtime&, const Value& subject, const Arguments& arguments) {
  const Parameters p("test", arguments, {});
  return Value::boolean(Test(subject));
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is(Kind::kBool); }
bool is_true(const Value& v) { return v.is(Kind::kBool) && v.as_bool(); }
bool is_false(const Value& v) { return v.is(Kind::kBool) && !v.as_bool(); }
bool is_integer(const Value& v) { return v.is(Kind::kInteger) || v.is(Kind::kBigInteger); }
bool is_float(const Value& v) { return v.is(Kind::kFloat); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is(Kind::kDict); }
bool is_callable(const Value& v) { return v.is_callable(); }
bool is_escaped(const Value& v) { return v.is_string() && v.text().is_markup(); }
bool is_sequence(const Value& v) {
  return v.is_sequence() || v.is_string() || v.is(Kind::kDict) || v.is(Kind::kRange) || v.is(Kind::kBytes);
}
bool is_iterable(const Value& v) {
  return is_sequence(v) || v.is_undefined() || v.is(Kind::kGenerator) || v.is(Kind::kView) ||
         v.is(Kind::kLoop);
}

// str(value).islower() and isupper().
template <bool (*Wanted)(char32_t), bool (*Other)(char32_t)>
Value has_case(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("test", arguments, {});
  bool found = false;
  for (const char32_t c : to_utf32(to_text(runtime, subject).bytes())) {
    if (Other(c) || is_title(c)) return Value::boolean(false);
    found |= Wanted(c);
  }
  return Value::boolean(found);
}

Value modulo_is(Runtime& runtime, const Value& subject, const Value& divisor, int64_t rest) {
  return Value::boolean(
      equal(apply_binary(runtime, BinaryOperator::kModulo, subject, divisor), Value::integer(rest)));
}
Value is_odd(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("odd", arguments, {});
  return modulo_is(runtime, subject, Value::integer(2), 1);
}
Value is_even(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("even", arguments, {});
  return modulo_is(runtime, subject, Value::integer(2), 0);
}
Value is_divisible_by(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("divisibleby", arguments, {"num"}, 1);
  return modulo_is(runtime, subject, p[0], 0);
}

Value is_filter(Runtime&, const Value& subject, const Arguments& arguments) {
  const Parameters p("filter", arguments, {});
  return Value::boolean(subject.is_string() && find_filter(subject.str()) != nullptr);
}
Value is_test(Runtime&, const Value& subject, const Arguments& arguments) {
  const Parameters p("test", arguments, {});
  return Value::boolean(subject.is_string() && find_test(subject.str()) != nullptr);
}
Value is_same_as(Runtime&, const Value& subject, const Arguments& arguments) {
  const Parameters p("sameas", arguments, {"other"}, 1);
  return Value::boolean(identical(subject, p[0]));
}
Value is_in(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("in", arguments, {"seq"}, 1);
  return Value::boolean(contains(runtime, p[0], subject));
}

template <bool negated>
Value is_equal(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("eq", arguments, {"other"}, 1);
  runtime.step(std::min(container_weight(subject), container_weight(p[0])) / 4);
  return Value::boolean(equal(subject, p[0]) != negated);
}
template <bool swapped, bool negated>
Value is_ordered(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("comparison", arguments, {"other"}, 1);
  runtime.step(std::min(container_weight(subject), container_weight(p[0])) / 4);
  return Value::boolean((swapped ? less(p[0], subject) : less(subject, p[0])) != negated);
}
constexpr Builtin kLess = is_ordered<false, false>, kGreater = is_ordered<true, false>;
constexpr Builtin kLessEqual = is_ordered<true, true>, kGreaterEqual = is_ordered<false, true>;

constexpr std::array<BuiltinEntry, 39> kTests = {{
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible_by},
    {"defined", plain<is_defined>},
    {"undefined", plain<is_undefined>},
    {"filter", is_filter},
    {"test", is_test},
    {"none", plain<is_none>},
    {"boolean", plain<is_boolean>},
    {"false", plain<is_false>},
    {"true", plain<is_true>},
    {"integer", plain<is_integer>},
    {"float", plain<is_float>},
    {"lower", has_case<is_lower, is_upper>},
    {"upper", has_case<is_upper, is_lower>},
    {"string", plain<is_string>},
    {"mapping", plain<is_mapping>},
    {"number", plain<is_number>},
    {"sequence", plain<is_sequence>},
    {"iterable", plain<is_iterable>},
    {"callable", plain<is_callable>},
    {"sameas", is_same_as},
    {"escaped", plain<is_escaped>},
    {"in", is_in},
    {"==", is_equal<false>},
    {"eq", is_equal<false>},
    {"equalto", is_equal<false>},
    {"!=", is_equal<true>},
    {"ne", is_equal<true>},
    {">", kGreater},
    {"gt", kGreater},
    {"greaterthan", kGreater},
    {"ge", kGreaterEqual},
    {">=", kGreaterEqual},
    {"<", kLess},
    {"lt", kLess},
    {"lessthan", kLess},
    {"<=", kLessEqual},
    {"le", kLessEqual},
}};

}  // namespace

const BuiltinEntry* find_test(std::string_view name) {
  const auto* it = std::find_if(kTests.begin(), kTests.end(),
                                [&](const BuiltinEntry& entry) { return entry.name == name; });
  return it == kTests.end() ? nullptr : it;
}

}  // namespace mlxcel::jinja
