#include "chat/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "chat/jinja/runtime.h"

namespace mlxcel::jinja {
namespace {

constexpr size_t kIndexFrom = 9;  // below, a linear look is cheaper than hashing

size_t combine(size_t seed, size_t value) {
  return seed ^ (value + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2));
}

int compare_numbers(const Value& a, const Value& b, bool& ordered) {
  ordered = true;
  if (a.is_integral() && b.is_integral()) {
    return a.as_integer() < b.as_integer() ? -1 : a.as_integer() > b.as_integer() ? 1 : 0;
  }
  if (a.is(Kind::kBigInteger) && b.is(Kind::kBigInteger))
    return a.str() == b.str() ? 0 : a.str() < b.str() ? -1 : 1;
  const long double x = a.is_integral() ? static_cast<long double>(a.as_integer()) : number_of(a);
  const long double y = b.is_integral() ? static_cast<long double>(b.as_integer()) : number_of(b);
  if (std::isnan(x) || std::isnan(y)) ordered = false;
  return x < y ? -1 : x > y ? 1 : 0;
}

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Value& x, const Value& y) { return equal(x, y); });
}

bool equal_dicts(const DictObject& a, const DictObject& b) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(value, *other)) return false;
  }
  return true;
}

bool equal_ranges(const RangeObject& a, const RangeObject& b) {
  if (a.length != b.length) return false;
  if (a.length == 0) return true;
  return a.start == b.start && (a.length == 1 || a.step == b.step);
}

}  // namespace

bool Value::is_callable() const {
  switch (kind_) {
    case Kind::kFunction:
    case Kind::kMethod:
    case Kind::kMacro:
    case Kind::kLoop:
    case Kind::kJoiner:
    case Kind::kUndefined:  // Undefined has __call__, which raises
      return true;
    default:
      return false;
  }
}

const Text& Value::text() const { return as<StringObject>().text; }
const std::vector<Value>& Value::items() const { return as<SequenceObject>().items; }
const DictObject& Value::dict() const { return as<DictObject>(); }

const Value* DictObject::find_hashed(const Value& key, size_t key_hash) const {
  if (items.size() < kIndexFrom) {
    for (const auto& [k, v] : items) {
      if (equal(k, key)) return &v;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(key_hash);
  for (auto it = begin; it != end; ++it) {
    const auto& [k, v] = items[it->second];
    if (equal(k, key)) return &v;
  }
  return nullptr;
}

const Value* DictObject::find(const Value& key) const { return find_hashed(key, hash(key)); }

const Value* DictObject::find(std::string_view key) const {
  if (items.size() < kIndexFrom) {
    for (const auto& [k, v] : items) {
      if (k.is_string() && k.str() == key) return &v;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(std::hash<std::string_view>()(key));
  for (auto it = begin; it != end; ++it) {
    const auto& [k, v] = items[it->second];
    if (k.is_string() && k.str() == key) return &v;
  }
  return nullptr;
}

void DictObject::set(Value key, Value value) {
  depth = std::max(depth, 1 + std::max(container_depth(key), container_depth(value)));
  weight += container_weight(key) + container_weight(value);
  const size_t key_hash = hash(key);
  if (const Value* existing = find_hashed(key, key_hash)) {
    *const_cast<Value*>(existing) = std::move(value);
    return;
  }
  items.emplace_back(std::move(key), std::move(value));
  if (items.size() == kIndexFrom) {
    index_.clear();
    for (size_t i = 0; i < items.size(); ++i) index_.emplace(hash(items[i].first), static_cast<uint32_t>(i));
  } else if (items.size() > kIndexFrom) {
    index_.emplace(key_hash, static_cast<uint32_t>(items.size() - 1));
  }
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInteger:
    case Kind::kBigInteger:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.text().is_markup() ? "Markup" : "str";
    case Kind::kBytes:
      return "bytes";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kView: {
      const ViewPart part = value.as<ViewObject>().part;
      return part == ViewPart::kKeys ? "dict_keys" : part == ViewPart::kValues ? "dict_values" : "dict_items";
    }
    case Kind::kRange:
      return "range";
    case Kind::kGenerator:
      return value.as<GeneratorObject>().type_name;
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "builtin_function_or_method";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
    case Kind::kBlocks:
      return "TemplateReference";
  }
  return "object";
}

bool is_truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInteger:
      return value.as_integer() != 0;
    case Kind::kFloat:
      return value.as_double() != 0;
    case Kind::kString:
    case Kind::kBytes:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return !value.dict().items.empty();
    case Kind::kView:
      return !value.as<ViewObject>().dict.dict().items.empty();
    case Kind::kRange:
      return value.as<RangeObject>().length != 0;
    default:
      return true;
  }
}

double number_of(const Value& value) {
  if (value.is(Kind::kFloat)) return value.as_double();
  if (value.is_integral()) return static_cast<double>(value.as_integer());
  double result = 0;
  parse_python_float(value.str(), result);
  return result;
}

int container_depth(const Value& value) {
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kTuple:
      return value.as<SequenceObject>().depth;
    case Kind::kDict:
      return value.dict().depth;
    case Kind::kView:
      return value.as<ViewObject>().dict.dict().depth + 1;
    case Kind::kGenerator:
      return value.as<GeneratorObject>().depth;
    case Kind::kMethod:
      return container_depth(value.as<MethodObject>().self) + 1;
    default:
      return 0;
  }
}

int64_t container_weight(const Value& value) {
  constexpr size_t kBytesPerUnit = 256;
  switch (value.kind()) {
    case Kind::kString:
    case Kind::kBytes:
      return 1 + static_cast<int64_t>(value.text().size() / kBytesPerUnit);
    case Kind::kList:
    case Kind::kTuple:
      return value.as<SequenceObject>().weight;
    case Kind::kDict:
      return value.dict().weight;
    case Kind::kView:
      return value.as<ViewObject>().dict.dict().weight;
    case Kind::kRange:
      return 1 + value.as<RangeObject>().length;
    case Kind::kMethod:
      return container_weight(value.as<MethodObject>().self);
    default:
      return 1;
  }
}

bool identical(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kNone:
      return true;
    case Kind::kBool:
    case Kind::kInteger:
      return a.as_integer() == b.as_integer();
    case Kind::kFloat: {
      const double x = a.as_double(), y = b.as_double();
      return std::memcmp(&x, &y, sizeof(double)) == 0;
    }
    case Kind::kString:
      return a.identity() == b.identity() || (a.text().size() <= 1 && a.str() == b.str());
    default:
      return a.identity() == b.identity();
  }
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    bool ordered = true;
    return compare_numbers(a, b, ordered) == 0 && ordered;
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
    case Kind::kBytes:
      return a.identity() == b.identity() || a.str() == b.str();
    case Kind::kList:
    case Kind::kTuple:
      return a.identity() == b.identity() || equal_items(a.items(), b.items());
    case Kind::kDict:
      return a.identity() == b.identity() || equal_dicts(a.dict(), b.dict());
    case Kind::kRange:
      return equal_ranges(a.as<RangeObject>(), b.as<RangeObject>());
    default:
      return identical(a, b);
  }
}

size_t hash(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kUndefined:
      return 0x6e6f6e65;
    case Kind::kBool:
    case Kind::kInteger:
      return std::hash<int64_t>()(value.as_integer());
    case Kind::kFloat: {
      const double d = value.as_double();
      if (std::nearbyint(d) == d && std::fabs(d) < 9.2e18)
        return std::hash<int64_t>()(static_cast<int64_t>(d));
      return std::hash<double>()(d);
    }
    case Kind::kBigInteger:
      return std::hash<double>()(number_of(value));
    case Kind::kString:
    case Kind::kBytes:
      return std::hash<std::string_view>()(value.str());
    case Kind::kTuple: {
      size_t result = 0x7475706c;
      for (const Value& item : value.items()) result = combine(result, hash(item));
      return result;
    }
    case Kind::kList:
    case Kind::kDict:
    case Kind::kView:
      fail("unhashable type: '" + std::string(type_name(value)) + "'");
    default:
      return std::hash<const void*>()(value.identity());
  }
}

bool less(const Value& a, const Value& b) {
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (a.is_number() && b.is_number()) {
    bool ordered = true;
    return compare_numbers(a, b, ordered) < 0 && ordered;
  }
  if (a.kind() == b.kind()) {
    if (a.is_string() || a.is(Kind::kBytes)) return a.str() < b.str();  // UTF-8 sorts as code points do
    if (a.is_sequence()) {
      const auto& x = a.items();
      const auto& y = b.items();
      for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
        if (!equal(x[i], y[i])) return less(x[i], y[i]);
      }
      return x.size() < y.size();
    }
  }
  fail("'<' not supported between instances of '" + std::string(type_name(a)) + "' and '" +
       std::string(type_name(b)) + "'");
}

}  // namespace mlxcel::jinja
