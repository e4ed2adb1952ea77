// Methods of lists, tuples, dicts, numbers, ranges, loops and cyclers. Those that change a value are not
// here: the sandbox refuses them (attributes.cc).
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "chat/jinja/evaluator.h"
#include "chat/jinja/runtime.h"

namespace mlxcel::jinja {
namespace {

Value sequence_count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("count", arguments, {"value"}, 1);
  int64_t count = 0;
  for (const Value& item : runtime.collect(self)) {
    runtime.step(std::min(container_weight(item), container_weight(p[0])) / 4);
    if (identical(item, p[0]) || equal(item, p[0])) ++count;
  }
  return Value::integer(count);
}

Value sequence_index(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("index", arguments, {"value", "start", "stop"}, 1);
  const std::vector<Value> items = runtime.collect(self);
  const auto length = static_cast<int64_t>(items.size());
  const auto resolve = [&](int64_t i) {
    return i < 0 ? std::max<int64_t>(i + length, 0) : std::min(i, length);
  };
  const int64_t stop = resolve(p.integer(2, length));
  for (int64_t i = resolve(p.integer(1, 0)); i < stop; ++i) {
    const Value& item = items[static_cast<size_t>(i)];
    runtime.step(std::min(container_weight(item), container_weight(p[0])) / 4);
    if (identical(item, p[0]) || equal(item, p[0])) return Value::integer(i);
  }
  fail(to_repr(runtime, p[0]).bytes() + " is not in " + std::string(type_name(self)));
}

Value list_copy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("copy", arguments, {});
  return runtime.list(self.items());
}

template <ViewPart part>
Value dict_view(Runtime&, const Value& self, const Arguments& arguments) {
  const Parameters p("dict view", arguments, {});
  return Value::object(Kind::kView, std::make_shared<ViewObject>(ViewObject{self, part}));
}

Value dict_get(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("get", arguments, {"key", "default"}, 1);
  runtime.step(container_weight(p[0]) / 4);
  if (const Value* value = self.dict().find(p[0])) return *value;
  return p.given(1) ? p[1] : Value::none();
}

Value dict_copy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters p("copy", arguments, {});
  DictObject copy;
  for (const auto& [key, value] : self.dict().items) copy.set(key, value);
  return runtime.dict(std::move(copy));
}

Value bit_length(Runtime&, const Value& self, const Arguments& arguments) {
  const Parameters p("bit_length", arguments, {});
  const int64_t value = self.as_integer();
  uint64_t magnitude = value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  int64_t bits = 0;
  for (; magnitude != 0; magnitude >>= 1) ++bits;
  return Value::integer(bits);
}

Value itself(Runtime&, const Value& self, const Arguments& arguments) {
  const Parameters p("conjugate", arguments, {});
  return self;
}

Value is_integer(Runtime&, const Value& self, const Arguments& arguments) {
  const Parameters p("is_integer", arguments, {});
  return Value::boolean(std::isfinite(self.as_double()) && std::floor(self.as_double()) == self.as_double());
}

Value loop_cycle(Runtime&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) fail("no items for cycling given");
  const auto& loop = self.as<LoopObject>();
  const auto count = static_cast<int64_t>(arguments.positional.size());
  return arguments.positional[static_cast<size_t>(std::max<int64_t>(loop.index0, 0) % count)];
}

Value loop_changed(Runtime& runtime, const Value& self, const Arguments& arguments) {
  auto& loop = self.as<LoopObject>();
  const Value now = runtime.tuple(arguments.positional);
  runtime.step(container_weight(now) / 4);
  if (equal(loop.last_changed, now)) return Value::boolean(false);
  if (loop.is_active) loop.last_changed = now;
  return Value::boolean(true);
}

Value cycler_next(Runtime&, const Value& self, const Arguments& arguments) {
  const Parameters p("next", arguments, {});
  auto& cycler = self.as<CyclerObject>();
  const Value current = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return current;
}

Value cycler_reset(Runtime&, const Value& self, const Arguments& arguments) {
  const Parameters p("reset", arguments, {});
  self.as<CyclerObject>().position = 0;
  return Value::none();
}

constexpr std::array<BuiltinEntry, 3> kListMethods = {
    {{"copy", list_copy}, {"count", sequence_count}, {"index", sequence_index}}};
constexpr std::array<BuiltinEntry, 2> kTupleMethods = {
    {{"count", sequence_count}, {"index", sequence_index}}};
constexpr std::array<BuiltinEntry, 5> kDictMethods = {{{"copy", dict_copy},
                                                       {"get", dict_get},
                                                       {"items", dict_view<ViewPart::kItems>},
                                                       {"keys", dict_view<ViewPart::kKeys>},
                                                       {"values", dict_view<ViewPart::kValues>}}};
constexpr std::array<BuiltinEntry, 2> kIntegerMethods = {{{"bit_length", bit_length}, {"conjugate", itself}}};
constexpr std::array<BuiltinEntry, 2> kFloatMethods = {{{"conjugate", itself}, {"is_integer", is_integer}}};
constexpr std::array<BuiltinEntry, 2> kLoopMethods = {{{"changed", loop_changed}, {"cycle", loop_cycle}}};
constexpr std::array<BuiltinEntry, 2> kCyclerMethods = {{{"next", cycler_next}, {"reset", cycler_reset}}};

std::span<const BuiltinEntry> methods_of(Kind kind) {
  switch (kind) {
    case Kind::kList:
      return kListMethods;
    case Kind::kTuple:
    case Kind::kRange:
      return kTupleMethods;
    case Kind::kDict:
      return kDictMethods;
    case Kind::kBool:
    case Kind::kInteger:
      return kIntegerMethods;
    case Kind::kFloat:
      return kFloatMethods;
    case Kind::kLoop:
      return kLoopMethods;
    case Kind::kCycler:
      return kCyclerMethods;
    default:
      return {};
  }
}

}  // namespace

const BuiltinEntry* find_container_method(Kind kind, std::string_view name) {
  for (const BuiltinEntry& entry : methods_of(kind)) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace mlxcel::jinja
