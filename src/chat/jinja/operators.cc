// Python's arithmetic. Integers are 64-bit: a result beyond that is an error (kResourceExhausted), never a
// wrap.
#include <cmath>
#include <limits>

#include "chat/jinja/runtime.h"

namespace mlxcel::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void fail_types(BinaryOperator op, const Value& a, const Value& b) {
  fail("unsupported operand type(s) for " + std::string(kSymbols[static_cast<size_t>(op)]) + ": '" +
       std::string(type_name(a)) + "' and '" + std::string(type_name(b)) + "'");
}
[[noreturn]] void fail_overflow() { fail_limit("an integer of the template is beyond 64 bits"); }

// Python rounds the quotient down and gives the remainder the divisor's sign.
int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0);
}
int64_t floor_modulo(int64_t a, int64_t b) {
  const int64_t rest = a % b;
  return rest != 0 && ((rest < 0) != (b < 0)) ? rest + b : rest;
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("0.0 cannot be raised to a negative power");
    return Value::floating(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return Value::integer(result);
}

Value integer_binary(BinaryOperator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOperator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) fail_overflow();
      return Value::integer(result);
    case BinaryOperator::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) fail_overflow();
      return Value::integer(result);
    case BinaryOperator::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) fail_overflow();
      return Value::integer(result);
    case BinaryOperator::kDivide:
      if (b == 0) fail("division by zero");
      return Value::floating(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOperator::kPower:
      return integer_power(a, b);
    case BinaryOperator::kFloorDivide:
    case BinaryOperator::kModulo:
      if (b == 0) fail("integer division or modulo by zero");
      if (b == -1) {  // the one pair whose machine division traps
        if (op == BinaryOperator::kModulo) return Value::integer(0);
        if (a == std::numeric_limits<int64_t>::min()) fail_overflow();
      }
      return Value::integer(op == BinaryOperator::kModulo ? floor_modulo(a, b) : floor_divide(a, b));
  }
  return Value();
}

Value float_binary(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::kAdd:
      return Value::floating(a + b);
    case BinaryOperator::kSubtract:
      return Value::floating(a - b);
    case BinaryOperator::kMultiply:
      return Value::floating(a * b);
    case BinaryOperator::kDivide:
      if (b == 0) fail("float division by zero");
      return Value::floating(a / b);
    case BinaryOperator::kFloorDivide:
    case BinaryOperator::kModulo: {
      if (b == 0) fail("float floor division or modulo by zero");
      double rest = std::fmod(a, b);
      double quotient = (a - rest) / b;
      if (rest != 0 && (rest < 0) != (b < 0)) {
        rest += b;
        quotient -= 1;
      } else if (rest == 0) {
        rest = std::copysign(0.0, b);
      }
      if (op == BinaryOperator::kModulo) return Value::floating(rest);
      if (quotient == 0) return Value::floating(std::copysign(0.0, a / b));
      const double down = std::floor(quotient);
      return Value::floating(quotient - down > 0.5 ? down + 1 : down);
    }
    case BinaryOperator::kPower: {
      if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
      if (a < 0 && std::floor(b) != b && std::isfinite(b)) fail("a negative number has no such power");
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) fail("result of ** is too large");
      return Value::floating(result);
    }
  }
  return Value();
}

Value repeat(Runtime& runtime, const Value& sequence, int64_t count) {
  if (count < 0) count = 0;
  const auto times = static_cast<uint64_t>(count);
  if (sequence.is_string()) {
    const Text& text = sequence.text();
    if (!text.empty() && times > runtime.limits().max_value_bytes / text.size()) {
      fail_limit("a repeated string grew too long");
    }
    runtime.check_bytes(text.size() * times);
    Text result;
    for (uint64_t i = 0; i < times && !text.empty(); ++i) result.append(text);
    result.set_markup(text.is_markup());
    return runtime.string(std::move(result));
  }
  const std::vector<Value>& items = sequence.items();
  if (!items.empty() && times > runtime.limits().max_value_bytes / items.size()) {
    fail_limit("a repeated list grew too long");
  }
  runtime.check_items(items.size() * times);
  std::vector<Value> result;
  result.reserve(items.size() * times);
  for (uint64_t i = 0; i < times && !items.empty(); ++i)
    result.insert(result.end(), items.begin(), items.end());
  return sequence.is(Kind::kList) ? runtime.list(std::move(result)) : runtime.tuple(std::move(result));
}

Value add_strings(Runtime& runtime, const Value& a, const Value& b) {
  const bool is_markup = a.text().is_markup() || b.text().is_markup();
  Text result = is_markup ? escape_markup(runtime, a) : a.text();
  const Text right = is_markup ? escape_markup(runtime, b) : b.text();
  runtime.check_bytes(result.size() + right.size());
  result.append(right);
  result.set_markup(is_markup);
  return runtime.string(std::move(result));
}

Value add_sequences(Runtime& runtime, const Value& a, const Value& b) {
  runtime.check_items(a.items().size() + b.items().size());
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(Kind::kList) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}

}  // namespace

Value apply_binary(Runtime& runtime, BinaryOperator op, const Value& a, const Value& b) {
  if (op == BinaryOperator::kModulo && a.is_string()) return format_percent(runtime, a.text(), b);
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (a.is_integral() && b.is_integral()) return integer_binary(op, a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) {
    if (!a.is(Kind::kFloat) && !b.is(Kind::kFloat)) fail_overflow();
    return float_binary(op, number_of(a), number_of(b));
  }
  if (op == BinaryOperator::kAdd) {
    if (a.is_string() && b.is_string()) return add_strings(runtime, a, b);
    if (a.is_sequence() && a.kind() == b.kind()) return add_sequences(runtime, a, b);
    if (a.is_string()) {
      fail("can only concatenate str (not \"" + std::string(type_name(b)) + "\") to str");
    }
  }
  if (op == BinaryOperator::kMultiply) {
    const bool a_repeats = a.is_string() || a.is_sequence(), b_repeats = b.is_string() || b.is_sequence();
    if (a_repeats && b.is_integral()) return repeat(runtime, a, b.as_integer());
    if (b_repeats && a.is_integral()) return repeat(runtime, b, a.as_integer());
    if ((a_repeats && b.is(Kind::kBigInteger)) || (b_repeats && a.is(Kind::kBigInteger))) {
      fail_limit("a repeated value grew too long");
    }
  }
  fail_types(op, a, b);
}

Value apply_negate(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is(Kind::kFloat)) return Value::floating(-value.as_double());
  if (value.is(Kind::kBigInteger)) {
    // -9223372036854775808 is the one 64-bit integer whose digits alone are not.
    if (value.str() == "9223372036854775808") return Value::integer(std::numeric_limits<int64_t>::min());
    auto object = std::make_shared<StringObject>();
    object->text = Text(value.str().front() == '-' ? value.str().substr(1) : "-" + value.str());
    return Value::object(Kind::kBigInteger, std::move(object));
  }
  if (!value.is_integral()) fail("bad operand type for unary -: '" + std::string(type_name(value)) + "'");
  if (value.as_integer() == std::numeric_limits<int64_t>::min()) fail_overflow();
  return Value::integer(-value.as_integer());
}

Value apply_plus(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_number()) fail("bad operand type for unary +: '" + std::string(type_name(value)) + "'");
  return value.is(Kind::kBool) ? Value::integer(value.as_integer()) : value;
}

}  // namespace mlxcel::jinja
