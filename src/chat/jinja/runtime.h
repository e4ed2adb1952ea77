// One render: its limits, memory, arena and clock, and how every part of the engine makes values and reports
// errors.
//
// Owner: the render() call. Threads: one. Inside the engine an error is a Failure, thrown;
// compile_chat_template and ChatTemplate::render catch it and hand out an Error, so no exception leaves this
// module.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "chat/chat_template.h"
#include "chat/jinja/value.h"

namespace mlxcel::jinja {

struct Failure {
  ErrorKind kind = ErrorKind::kInvalidArgument;
  std::string what;
  int line = 0;  // 0: the line being evaluated
};
[[noreturn]] void fail(std::string what);                  // Python's TypeError, ValueError and the like
[[noreturn]] void fail_limit(std::string what);            // a limit of ours
[[noreturn]] void fail_undefined(const Value& undefined);  // use of an undefined value

class Runtime {
 public:
  // Evaluates what only the evaluator can: calls of macros, loops and blocks.
  class Calls {
   public:
    virtual ~Calls() = default;
    virtual Value call_macro(MacroObject& macro, Arguments arguments) = 0;
    virtual Value call_loop(LoopObject& loop, const Value& items) = 0;
    virtual Value call_block(const std::string& name) = 0;
  };

  explicit Runtime(const TemplateLimits& limits) : limits_(limits) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const TemplateLimits& limits() const { return limits_; }
  // Counts work; fails at the limit.
  void step(int64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.max_steps) fail_limit("the template took too many steps");
  }
  void step_bytes(size_t bytes) { step(static_cast<int64_t>(bytes / kBytesPerStep)); }
  // Fails unless a string of `bytes`, a container of `items`, fits. Called before allocating.
  void check_bytes(size_t bytes) const;
  void check_items(size_t items) const;

  Value string(Text text);
  Value string(std::string text, bool is_content = false) {
    return string(Text(std::move(text), is_content));
  }
  Value list(std::vector<Value> items) { return sequence(Kind::kList, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Kind::kTuple, std::move(items)); }
  Value dict(DictObject dict);
  Value bytes(std::string text);
  Value undefined(std::string message);
  Value range(int64_t start, int64_t stop, int64_t step);
  // `held`: the values that `produce` keeps.
  Value generator(std::string type, const std::vector<Value>& held,
                  std::function<std::vector<Value>()> produce);
  Value from_json(const JsonValue& json, int depth = 0);  // strings become content

  // All items that iterating `value` yields; consumes a generator. Fails for what is not iterable.
  std::vector<Value> collect(const Value& value);
  int64_t length(const Value& value);

  // Keeps an object that may take part in cycles until the render ends.
  template <typename T>
  T& keep(std::unique_ptr<T> object) {
    check_arena();
    T& reference = *object;
    adopt(std::move(object));
    return reference;
  }
  template <typename T>
  void adopt(std::unique_ptr<T> object) {
    arena_.push_back(std::shared_ptr<void>(std::move(object)));
  }
  // Counts `bytes` as live while the Charge lives.
  Charge charge(size_t bytes);

  Calls* calls = nullptr;
  int line = 0;
  bool autoescape = false;
  std::string now;  // for strftime_now
  uint64_t random_state =
      1;  // |random and lipsum: a fixed sequence, so that equal requests give equal prompts

 private:
  static constexpr size_t kBytesPerStep = 256;
  Value sequence(Kind kind, std::vector<Value> items);
  void check_arena();

  TemplateLimits limits_;
  int64_t steps_ = 0;
  Memory memory_;  // outlives the arena: declared before it
  std::vector<std::shared_ptr<void>> arena_;
};

// Binds call arguments to named parameters, as a Python function does; fails on missing, surplus or unknown
// ones.
class Parameters {
 public:
  Parameters(std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> names, size_t required = 0);
  // nullptr: not given.
  const Value* get(size_t i) const { return values_[i]; }
  const Value& operator[](size_t i) const { return *values_[i]; }  // REQUIRES: given (required or checked)
  bool flag(size_t i, bool fallback) const;
  int64_t integer(size_t i, int64_t fallback) const;
  bool given(size_t i) const { return values_[i] != nullptr; }
  bool set(size_t i) const { return values_[i] != nullptr && !values_[i]->is_none(); }

 private:
  std::string_view function_;
  std::vector<const Value*> values_;
};

// obj.name and obj[key] with Jinja's fallbacks from one to the other, sandboxed.
Value get_attribute(Runtime& runtime, const Value& object, const std::string& name);
Value get_item(Runtime& runtime, const Value& object, const Value& key);
Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                const Value& step);
// The attribute only, no item; false when there is none.
bool find_attribute(Runtime& runtime, const Value& object, const std::string& name, Value& result);
Value call_value(Runtime& runtime, const Value& callee, Arguments arguments);
bool contains(Runtime& runtime, const Value& container, const Value& item);

// Binary operators and unary minus/plus of Python.
enum class BinaryOperator : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
Value apply_binary(Runtime& runtime, BinaryOperator op, const Value& a, const Value& b);
Value apply_negate(const Value& value);
Value apply_plus(const Value& value);

// Python's str() and repr(). The text is content as soon as any string inside is.
Text to_text(Runtime& runtime, const Value& value);
Text to_repr(Runtime& runtime, const Value& value);
std::string float_repr(double value);
std::string string_repr(std::string_view text);
// HTML-escapes a value unless it is markup; the result is markup.
Text escape_markup(Runtime& runtime, const Value& value);

// "%" formatting and str.format.
Value format_percent(Runtime& runtime, const Text& format, const Value& arguments);
Value format_braces(Runtime& runtime, const Text& format, const Arguments& arguments, bool strict);
// The integer that text spells in `base`, as Python's int(text, base); false when it does not.
bool parse_python_integer(std::string_view text, int base, int64_t& result);
bool parse_python_float(std::string_view text, double& result);
double round_half_even(double value, int64_t digits);

const BuiltinEntry* find_filter(std::string_view name);
const BuiltinEntry* find_test(std::string_view name);
const BuiltinEntry* find_string_method(std::string_view name);
const BuiltinEntry* find_container_method(Kind kind, std::string_view name);
std::span<const FunctionObject> global_functions();
// tojson as transformers sets it up (options: ensure_ascii, indent, separators, sort_keys).
Value filter_tojson(Runtime& runtime, const Value& subject, const Arguments& arguments);

// A shorthand for rewriting functions: `bytes` with the origin "content if any of `source` was".
inline Text derived_like(std::string bytes, const Text& source) {
  Text result(std::move(bytes), source.has_content());
  result.set_markup(source.is_markup());
  return result;
}

}  // namespace mlxcel::jinja
