#include "chat/jinja/runtime.h"

#include <algorithm>

#include "base/utf8.h"

namespace mlxcel::jinja {

void fail(std::string what) { throw Failure{ErrorKind::kInvalidArgument, std::move(what), 0}; }
void fail_limit(std::string what) { throw Failure{ErrorKind::kResourceExhausted, std::move(what), 0}; }
void fail_undefined(const Value& undefined) { fail(undefined.as<UndefinedObject>().message); }

void Runtime::check_bytes(size_t bytes) const {
  if (bytes > limits_.max_value_bytes) fail_limit("a string of the template grew too long");
  if (static_cast<uint64_t>(memory_.live_bytes) + bytes > limits_.max_live_bytes) {
    fail_limit("the template's values take too much memory");
  }
}

void Runtime::check_items(size_t items) const {
  // 16 bytes each is the documented unit of TemplateLimits; the live bytes count what an item really takes.
  if (items > limits_.max_value_bytes / 16) fail_limit("a list of the template grew too long");
  if (static_cast<uint64_t>(memory_.live_bytes) + items * sizeof(Value) > limits_.max_live_bytes) {
    fail_limit("the template's values take too much memory");
  }
}

Charge Runtime::charge(size_t bytes) {
  if (static_cast<uint64_t>(memory_.live_bytes) + bytes > limits_.max_live_bytes) {
    fail_limit("the template's values take too much memory");
  }
  return Charge(&memory_, bytes);
}

void Runtime::check_arena() {
  constexpr size_t kArenaObjectBytes = 512;  // a scope or namespace with a few names
  if (arena_.size() * kArenaObjectBytes > limits_.max_live_bytes) {
    fail_limit("the template made too many scopes and namespaces");
  }
}

Value Runtime::string(Text text) {
  check_bytes(text.size());
  step_bytes(text.size());
  auto object = std::make_shared<StringObject>();
  object->charge = charge(sizeof(StringObject) + text.size());
  object->text = std::move(text);
  return Value::object(Kind::kString, std::move(object));
}

Value Runtime::bytes(std::string text) {
  Value v = string(std::move(text));
  auto object = std::make_shared<StringObject>();
  object->text = v.text();
  object->charge = charge(sizeof(StringObject) + v.text().size());
  return Value::object(Kind::kBytes, std::move(object));
}

Value Runtime::sequence(Kind kind, std::vector<Value> items) {
  check_items(items.size());
  step(static_cast<int64_t>(items.size() / 4));
  auto object = std::make_shared<SequenceObject>();
  for (const Value& item : items) {
    object->depth = std::max(object->depth, 1 + container_depth(item));
    object->weight += container_weight(item);
  }
  check_items(static_cast<size_t>(object->weight));
  if (object->depth > limits_.max_depth) fail_limit("lists are nested too deep");
  object->charge = charge(sizeof(SequenceObject) + items.size() * sizeof(Value));
  object->items = std::move(items);
  return Value::object(kind, std::move(object));
}

Value Runtime::dict(DictObject contents) {
  check_items(contents.items.size());
  check_items(static_cast<size_t>(contents.weight));
  if (contents.depth > limits_.max_depth) fail_limit("dicts are nested too deep");
  auto object = std::make_shared<DictObject>(std::move(contents));
  object->charge = charge(sizeof(DictObject) + object->items.size() * (2 * sizeof(Value) + 32));
  return Value::object(Kind::kDict, std::move(object));
}

Value Runtime::undefined(std::string message) {
  return Value::object(Kind::kUndefined,
                       std::make_shared<UndefinedObject>(UndefinedObject{std::move(message)}));
}

Value Runtime::range(int64_t start, int64_t stop, int64_t step) {
  constexpr uint64_t kMaxRange = 100'000;  // Jinja's sandbox: MAX_RANGE
  if (step == 0) fail("range() arg 3 must not be zero");
  uint64_t length = 0;
  const auto distance = [](int64_t from, int64_t to) {
    return static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
  };
  if (step > 0 && start < stop) length = (distance(start, stop) - 1) / static_cast<uint64_t>(step) + 1;
  if (step < 0 && start > stop) length = (distance(stop, start) - 1) / (~static_cast<uint64_t>(step) + 1) + 1;
  if (length > kMaxRange) fail_limit("range() has more than 100000 items");
  return Value::object(Kind::kRange, std::make_shared<RangeObject>(
                                         RangeObject{start, stop, step, static_cast<int64_t>(length)}));
}

Value Runtime::generator(std::string type, const std::vector<Value>& held,
                         std::function<std::vector<Value>()> produce) {
  auto object = std::make_shared<GeneratorObject>();
  for (const Value& value : held) object->depth = std::max(object->depth, 1 + container_depth(value));
  if (object->depth > limits_.max_depth) fail_limit("generators are nested too deep");
  object->type_name = std::move(type);
  object->produce = std::move(produce);
  return Value::object(Kind::kGenerator, std::move(object));
}

Value Runtime::from_json(const JsonValue& json, int depth) {
  if (depth > limits_.max_depth) fail_limit("the request's values are nested too deep");
  if (json.is_null()) return Value::none();
  if (json.is_bool()) return Value::boolean(json.as_bool());
  if (json.is_int()) return Value::integer(json.as_int());
  if (json.is_double()) return Value::floating(json.as_double());
  if (json.is_string()) return string(repair_utf8(json.as_string()), true);
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.as_array().size());
    for (const JsonValue& item : json.as_array()) items.push_back(from_json(item, depth + 1));
    return list(std::move(items));
  }
  DictObject members;
  for (const auto& [key, value] : json.as_object()) {
    members.set(string(repair_utf8(key), true), from_json(value, depth + 1));
  }
  return dict(std::move(members));
}

namespace {

std::vector<Value> characters(Runtime& runtime, const Text& text) {
  std::vector<Value> result;
  for (size_t at = 0; at < text.size();) {
    const size_t size = decode_utf8(text.bytes(), at).size;
    result.push_back(runtime.string(text.slice(at, at + size)));
    at += size;
  }
  return result;
}

std::vector<Value> view_items(Runtime& runtime, const ViewObject& view) {
  std::vector<Value> result;
  for (const auto& [key, value] : view.dict.dict().items) {
    if (view.part == ViewPart::kKeys) {
      result.push_back(key);
    } else if (view.part == ViewPart::kValues) {
      result.push_back(value);
    } else {
      result.push_back(runtime.tuple({key, value}));
    }
  }
  return result;
}

std::vector<Value> drain(GeneratorObject& generator) {
  if (generator.produce) {
    // Taken out first, so that a generator which iterates itself ends at once.
    const auto produce = std::exchange(generator.produce, nullptr);
    generator.items = produce();
  }
  std::vector<Value> rest(generator.items.begin() + static_cast<std::ptrdiff_t>(generator.position),
                          generator.items.end());
  generator.items.clear();
  generator.position = 0;
  return rest;
}

}  // namespace

std::vector<Value> Runtime::collect(const Value& value) {
  std::vector<Value> result;
  switch (value.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kList:
    case Kind::kTuple:
      result = value.items();
      break;
    case Kind::kString:
      check_items(value.text().size() / 4);
      result = characters(*this, value.text());
      break;
    case Kind::kDict:
      result.reserve(value.dict().items.size());
      for (const auto& [key, unused] : value.dict().items) result.push_back(key);
      break;
    case Kind::kView:
      result = view_items(*this, value.as<ViewObject>());
      break;
    case Kind::kRange: {
      const auto& range = value.as<RangeObject>();
      for (int64_t i = 0; i < range.length; ++i) result.push_back(Value::integer(range.at(i)));
      break;
    }
    case Kind::kGenerator:
      result = drain(value.as<GeneratorObject>());
      break;
    case Kind::kBytes:
      for (const char c : value.str()) result.push_back(Value::integer(static_cast<unsigned char>(c)));
      break;
    default:
      fail("'" + std::string(type_name(value)) + "' object is not iterable");
  }
  check_items(result.size());
  step(static_cast<int64_t>(result.size() / 4));
  return result;
}

int64_t Runtime::length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      step_bytes(value.text().size());
      return static_cast<int64_t>(count_code_points(value.str()));
    case Kind::kBytes:
      return static_cast<int64_t>(value.text().size());
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().items.size());
    case Kind::kView:
      return static_cast<int64_t>(value.as<ViewObject>().dict.dict().items.size());
    case Kind::kRange:
      return value.as<RangeObject>().length;
    default:
      fail("object of type '" + std::string(type_name(value)) + "' has no len()");
  }
}

Parameters::Parameters(std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names, size_t required)
    : function_(function), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names.size()) {
    fail(std::string(function) + "() takes at most " + std::to_string(names.size()) + " arguments, got " +
         std::to_string(arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [key, value] : arguments.keywords) {
    const auto* it = std::find(names.begin(), names.end(), key);
    if (it == names.end())
      fail(std::string(function) + "() got an unexpected keyword argument '" + key + "'");
    const Value*& slot = values_[static_cast<size_t>(it - names.begin())];
    if (slot != nullptr) fail(std::string(function) + "() got multiple values for argument '" + key + "'");
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) {
      fail(std::string(function) + "() is missing its argument '" + std::string(names.begin()[i]) + "'");
    }
  }
}

bool Parameters::flag(size_t i, bool fallback) const {
  return values_[i] == nullptr ? fallback : is_truthy(*values_[i]);
}

int64_t Parameters::integer(size_t i, int64_t fallback) const {
  if (values_[i] == nullptr) return fallback;
  if (values_[i]->is_undefined()) fail_undefined(*values_[i]);
  if (!values_[i]->is_integral()) {
    fail(std::string(function_) + "(): '" + std::string(type_name(*values_[i])) +
         "' object cannot be interpreted as an integer");
  }
  return values_[i]->as_integer();
}

}  // namespace mlxcel::jinja
