// Access to attributes and items of values, as Jinja's sandboxed environment allows it: obj.name looks for an
// attribute and then for an item, obj["name"] the other way round; private and mutating attributes are
// refused.
#include <algorithm>
#include <array>
#include <limits>

#include "base/utf8.h"
#include "chat/jinja/evaluator.h"
#include "chat/jinja/runtime.h"
#include "chat/jinja/unicode.h"

namespace mlxcel::jinja {
namespace {

// The attributes that every Python object has; they are refused rather than missing.
constexpr std::array<std::string_view, 24> kObjectAttributes = {"__class__",
                                                                "__delattr__",
                                                                "__dict__",
                                                                "__dir__",
                                                                "__doc__",
                                                                "__eq__",
                                                                "__format__",
                                                                "__ge__",
                                                                "__getattribute__",
                                                                "__gt__",
                                                                "__hash__",
                                                                "__init__",
                                                                "__init_subclass__",
                                                                "__le__",
                                                                "__lt__",
                                                                "__module__",
                                                                "__ne__",
                                                                "__new__",
                                                                "__reduce__",
                                                                "__reduce_ex__",
                                                                "__repr__",
                                                                "__setattr__",
                                                                "__sizeof__",
                                                                "__subclasshook__"};
constexpr std::array<std::string_view, 8> kListMutators = {"append", "clear",  "extend",  "insert",
                                                           "pop",    "remove", "reverse", "sort"};
constexpr std::array<std::string_view, 5> kDictMutators = {"clear", "pop", "popitem", "setdefault", "update"};

template <typename Names>
bool is_one_of(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value unsafe(Runtime& runtime, const Value& object, const std::string& name) {
  return runtime.undefined("access to attribute '" + name + "' of '" + std::string(type_name(object)) +
                           "' object is unsafe");
}

std::string object_description(const Value& object) {
  if (object.is_none()) return "'None'";
  if (object.is(Kind::kDict) || object.is_string()) return "'" + std::string(type_name(object)) + " object'";
  return std::string(type_name(object)) + " object";
}

Value missing(Runtime& runtime, const Value& object, const Value& key) {
  if (key.is_string()) {
    return runtime.undefined(object_description(object) + " has no attribute " + string_repr(key.str()));
  }
  return runtime.undefined(object_description(object) + " has no element " + to_repr(runtime, key).bytes());
}

bool loop_attribute(Runtime& runtime, const LoopObject& loop, std::string_view name, Value& result) {
  const int64_t length = loop.length;
  const auto at = static_cast<size_t>(std::max<int64_t>(loop.index0, 0));
  if (name == "index") return result = Value::integer(loop.index0 + 1), true;
  if (name == "index0") return result = Value::integer(loop.index0), true;
  if (name == "revindex") return result = Value::integer(length - loop.index0), true;
  if (name == "revindex0") return result = Value::integer(length - loop.index0 - 1), true;
  if (name == "first") return result = Value::boolean(loop.index0 == 0), true;
  if (name == "last") return result = Value::boolean(loop.index0 + 1 == length), true;
  if (name == "length") return result = Value::integer(length), true;
  if (name == "depth") return result = Value::integer(loop.depth0 + 1), true;
  if (name == "depth0") return result = Value::integer(loop.depth0), true;
  if (name == "previtem") {
    result = at > 0 && at <= loop.items.size() ? loop.items[at - 1]
                                               : runtime.undefined("there is no previous item");
    return true;
  }
  if (name == "nextitem") {
    result = at + 1 < loop.items.size() ? loop.items[at + 1] : runtime.undefined("there is no next item");
    return true;
  }
  return false;
}

bool macro_attribute(Runtime& runtime, const MacroNode& macro, std::string_view name, Value& result) {
  if (name == "name") return result = runtime.string(macro.name), true;
  if (name == "catch_kwargs") return result = Value::boolean(macro.uses_kwargs), true;
  if (name == "catch_varargs") return result = Value::boolean(macro.uses_varargs), true;
  if (name == "caller") return result = Value::boolean(macro.uses_caller), true;
  if (name != "arguments") return false;
  std::vector<Value> names;
  for (const std::string& parameter : macro.parameter_names) names.push_back(runtime.string(parameter));
  result = runtime.tuple(std::move(names));
  return true;
}

Value block_call(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (!arguments.positional.empty() || !arguments.keywords.empty()) fail("a block takes no arguments");
  return runtime.calls->call_block(self.str());
}
constexpr BuiltinEntry kBlockCall = {"block", block_call};

Value method(const Value& self, const BuiltinEntry* entry) {
  return Value::object(Kind::kMethod, std::make_shared<MethodObject>(MethodObject{self, entry}));
}

bool number_attribute(const Value& object, std::string_view name, Value& result) {
  if (name == "real") {
    result = object.is(Kind::kBool) ? Value::integer(object.as_integer()) : object;
  } else if (name == "imag") {
    result = object.is(Kind::kFloat) ? Value::floating(0) : Value::integer(0);
  } else if (name == "numerator" && !object.is(Kind::kFloat)) {
    result = object;
  } else if (name == "denominator" && !object.is(Kind::kFloat)) {
    result = Value::integer(1);
  } else {
    return false;
  }
  return true;
}

bool property(Runtime& runtime, const Value& object, const std::string& name, Value& result) {
  switch (object.kind()) {
    case Kind::kBool:
    case Kind::kInteger:
    case Kind::kFloat:
      return number_attribute(object, name, result);
    case Kind::kNamespace: {
      const Value* value = object.as<NamespaceObject>().attributes.find(name);
      if (value != nullptr) result = *value;
      return value != nullptr;
    }
    case Kind::kLoop:
      return loop_attribute(runtime, object.as<LoopObject>(), name, result);
    case Kind::kMacro:
      return macro_attribute(runtime, *object.as<MacroObject>().node, name, result);
    case Kind::kCycler: {
      const auto& cycler = object.as<CyclerObject>();
      if (name == "current") result = cycler.items[cycler.position];
      if (name == "pos") result = Value::integer(static_cast<int64_t>(cycler.position));
      return name == "current" || name == "pos";
    }
    case Kind::kTuple:
      if (!object.as<SequenceObject>().is_group || (name != "grouper" && name != "list")) return false;
      result = object.items()[name == "grouper" ? 0 : 1];
      return true;
    case Kind::kBlocks:
      result = method(runtime.string(name), &kBlockCall);
      return true;
    case Kind::kRange: {
      const auto& range = object.as<RangeObject>();
      if (name == "start") result = Value::integer(range.start);
      if (name == "stop") result = Value::integer(range.stop);
      if (name == "step") result = Value::integer(range.step);
      return name == "start" || name == "stop" || name == "step";
    }
    default:
      return false;
  }
}

// A Python index: an int or bool; a literal beyond 64 bits counts as the nearest one.
bool as_index(const Value& value, int64_t& index) {
  if (value.is_integral()) {
    index = value.as_integer();
    return true;
  }
  if (!value.is(Kind::kBigInteger)) return false;
  index =
      value.str().front() == '-' ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
  return true;
}

bool item_at(Runtime& runtime, const Value& object, int64_t index, Value& result) {
  const int64_t length = runtime.length(object);
  if (index < 0) {
    if (index < -length) return false;
    index += length;
  }
  if (index >= length) return false;
  if (object.is_sequence()) {
    result = object.items()[static_cast<size_t>(index)];
  } else if (object.is(Kind::kRange)) {
    result = Value::integer(object.as<RangeObject>().at(index));
  } else if (object.is(Kind::kBytes)) {
    result = Value::integer(static_cast<unsigned char>(object.str()[static_cast<size_t>(index)]));
  } else {
    const size_t begin = offset_of_character(object.str(), static_cast<size_t>(index));
    result = runtime.string(object.text().slice(begin, begin + decode_utf8(object.str(), begin).size));
  }
  return true;
}

struct Bounds {
  int64_t start = 0, step = 1, count = 0;
};

// Python's slice.indices and the number of items it selects.
Bounds slice_bounds(int64_t length, const int64_t* start, const int64_t* stop, int64_t step) {
  const auto clamp = [&](int64_t value) {
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
    if (value < 0) value = value < -length ? low : value + length;
    return std::clamp(value, low, high);
  };
  const int64_t first = start != nullptr ? clamp(*start) : (step < 0 ? length - 1 : 0);
  const int64_t last = stop != nullptr ? clamp(*stop) : (step < 0 ? -1 : length);
  Bounds bounds{first, step, 0};
  if (step > 0 && first < last) bounds.count = (last - first - 1) / step + 1;
  if (step < 0 && first > last) bounds.count = (first - last - 1) / -step + 1;
  return bounds;
}

Value slice_text(Runtime& runtime, const Text& text, const Bounds& bounds) {
  runtime.step_bytes(text.size());
  const std::string& bytes = text.bytes();
  if (bounds.step == 1) {
    const size_t begin = offset_of_character(bytes, static_cast<size_t>(bounds.start));
    const size_t size =
        offset_of_character(std::string_view(bytes).substr(begin), static_cast<size_t>(bounds.count));
    return runtime.string(text.slice(begin, begin + size));
  }
  std::vector<size_t> offsets;
  for (size_t at = 0; at < bytes.size(); at += decode_utf8(bytes, at).size) offsets.push_back(at);
  offsets.push_back(bytes.size());
  Text result;
  for (int64_t i = 0; i < bounds.count; ++i) {
    const auto at = static_cast<size_t>(bounds.start + i * bounds.step);
    result.append(text, offsets[at], offsets[at + 1]);
  }
  result.set_markup(text.is_markup());
  return runtime.string(std::move(result));
}

}  // namespace

bool find_attribute(Runtime& runtime, const Value& object, const std::string& name, Value& result) {
  if (object.is_undefined()) fail_undefined(object);
  if (name.starts_with('_')) {
    if (object.is(Kind::kFunction)) fail("access to attribute '" + name + "' of 'function' object is unsafe");
    if (!is_one_of(kObjectAttributes, name)) return false;
    result = unsafe(runtime, object, name);
    return true;
  }
  if ((object.is(Kind::kList) && is_one_of(kListMutators, name)) ||
      (object.is(Kind::kDict) && is_one_of(kDictMutators, name))) {
    result = unsafe(runtime, object, name);
    return true;
  }
  if (property(runtime, object, name, result)) return true;
  const BuiltinEntry* entry =
      object.is_string() ? find_string_method(name) : find_container_method(object.kind(), name);
  if (entry == nullptr) return false;
  result = method(object, entry);
  return true;
}

Value get_attribute(Runtime& runtime, const Value& object, const std::string& name) {
  Value result;
  if (find_attribute(runtime, object, name, result)) return result;
  if (object.is(Kind::kDict)) {
    if (const Value* value = object.dict().find(name)) return *value;
  }
  return runtime.undefined(object_description(object) + " has no attribute '" + name + "'");
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_undefined()) fail_undefined(object);
  Value result;
  switch (object.kind()) {
    case Kind::kDict: {
      runtime.step(container_weight(key) / 4);
      const bool is_hashable = !key.is(Kind::kList) && !key.is(Kind::kDict) && !key.is(Kind::kView);
      const Value* value = is_hashable ? object.dict().find(key) : nullptr;
      if (value != nullptr) return *value;
      break;
    }
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kString:
    case Kind::kBytes:
    case Kind::kRange: {
      int64_t index = 0;
      if (as_index(key, index) && item_at(runtime, object, index, result)) return result;
      break;
    }
    default:
      break;
  }
  if (key.is_string() && find_attribute(runtime, object, key.str(), result)) return result;
  return missing(runtime, object, key);
}

Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  if (object.is_undefined()) fail_undefined(object);
  int64_t from = 0, to = 0, by = 1;
  const bool is_sliceable =
      object.is_sequence() || object.is_string() || object.is(Kind::kRange) || object.is(Kind::kBytes);
  if (!is_sliceable || (!start.is_none() && !as_index(start, from)) ||
      (!stop.is_none() && !as_index(stop, to)) || (!step.is_none() && !as_index(step, by))) {
    return runtime.undefined(object_description(object) + " has no such slice");
  }
  if (by == 0) fail("slice step cannot be zero");
  const int64_t length = runtime.length(object);
  // A step longer than the sequence takes one item, whatever its size.
  by = std::clamp(by, -length - 1, length + 1);
  const Bounds bounds =
      slice_bounds(length, start.is_none() ? nullptr : &from, stop.is_none() ? nullptr : &to, by);
  if (object.is_string()) return slice_text(runtime, object.text(), bounds);
  if (object.is(Kind::kRange)) {
    const auto& range = object.as<RangeObject>();
    const int64_t new_step = bounds.step * range.step, first = range.at(bounds.start);
    return runtime.range(first, first + bounds.count * new_step, new_step);
  }
  if (object.is(Kind::kBytes)) {
    std::string bytes;
    for (int64_t i = 0; i < bounds.count; ++i) {
      bytes.push_back(object.str()[static_cast<size_t>(bounds.start + i * bounds.step)]);
    }
    return runtime.bytes(std::move(bytes));
  }
  std::vector<Value> items;
  runtime.check_items(static_cast<size_t>(bounds.count));
  items.reserve(static_cast<size_t>(bounds.count));
  for (int64_t i = 0; i < bounds.count; ++i) {
    items.push_back(object.items()[static_cast<size_t>(bounds.start + i * bounds.step)]);
  }
  return object.is(Kind::kList) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (item.is_undefined()) fail_undefined(item);
      if (!item.is_string()) {
        fail("'in <string>' requires string as left operand, not " + std::string(type_name(item)));
      }
      runtime.step_bytes(container.text().size());
      return container.str().find(item.str()) != std::string::npos;
    case Kind::kDict:
      runtime.step(container_weight(item) / 4);
      return container.dict().find(item) != nullptr;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
    case Kind::kRange:
    case Kind::kGenerator:
    case Kind::kBytes: {
      const std::vector<Value> items = runtime.collect(container);
      runtime.step(static_cast<int64_t>(items.size() / 16));
      return std::any_of(items.begin(), items.end(), [&](const Value& candidate) {
        runtime.step(std::min(container_weight(candidate), container_weight(item)) / 4);
        return identical(candidate, item) || equal(candidate, item);
      });
    }
    case Kind::kUndefined:
      return false;
    default:
      fail("argument of type '" + std::string(type_name(container)) + "' is not iterable");
  }
}

Value call_value(Runtime& runtime, const Value& callee, Arguments arguments) {
  switch (callee.kind()) {
    case Kind::kUndefined:
      fail_undefined(callee);
    case Kind::kFunction:
      return callee.as<FunctionObject>().function(runtime, Value::none(), arguments);
    case Kind::kMethod: {
      const auto& bound = callee.as<MethodObject>();
      return bound.entry->function(runtime, bound.self, arguments);
    }
    case Kind::kMacro:
      return runtime.calls->call_macro(callee.as<MacroObject>(), std::move(arguments));
    case Kind::kLoop: {
      const Parameters p("loop", arguments, {"iterable"}, 1);
      return runtime.calls->call_loop(callee.as<LoopObject>(), p[0]);
    }
    case Kind::kJoiner: {
      const Parameters p("joiner", arguments, {});
      auto& joiner = callee.as<JoinerObject>();
      if (std::exchange(joiner.used, true)) return joiner.separator;
      return runtime.string(std::string());
    }
    default:
      fail("'" + std::string(type_name(callee)) + "' object is not callable");
  }
}

}  // namespace mlxcel::jinja
