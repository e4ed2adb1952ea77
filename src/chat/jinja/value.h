// The values of a running template, with Python's semantics: numbers, strings, lists, tuples, ordered dicts,
// ranges, one-shot generators, namespaces, loops, macros and functions.
//
// Owner: strings and containers are shared and immutable once published, so they cannot form cycles;
// everything that can (namespaces, scopes, macros, loops) lives in the Runtime's arena and is referred to
// without owning it. Threads: constants of a compiled template are read by all threads; all else belongs to
// one render. Invariant: containers nest at most TemplateLimits::max_depth deep, so recursion over a value is
// bounded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "chat/jinja/text.h"

namespace mlxcel::jinja {

class Runtime;
struct MacroNode;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInteger,
  kBigInteger,  // a literal beyond 64 bits: can be printed, compared for equality and turned into a float
  kFloat,
  kString,
  kBytes,
  kList,
  kTuple,
  kDict,
  kView,  // dict.keys(), .values(), .items()
  kRange,
  kGenerator,
  kNamespace,
  kFunction,
  kMethod,
  kMacro,
  kLoop,
  kCycler,
  kJoiner,
  kBlocks,  // `self`
};

// Bytes that live values of one render hold; a Charge gives its share back when the value goes.
struct Memory {
  int64_t live_bytes = 0;
};
class Charge {
 public:
  Charge() = default;
  Charge(Memory* memory, size_t bytes) : memory_(memory), bytes_(static_cast<int64_t>(bytes)) {
    if (memory_ != nullptr) memory_->live_bytes += bytes_;
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  Charge(Charge&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Charge() {
    if (memory_ != nullptr) memory_->live_bytes -= bytes_;
  }

 private:
  Memory* memory_ = nullptr;
  int64_t bytes_ = 0;
};

struct UndefinedObject;
struct StringObject;
struct SequenceObject;
struct DictObject;
struct ViewObject;
struct RangeObject;
struct GeneratorObject;
struct NamespaceObject;
struct FunctionObject;
struct MethodObject;
struct MacroObject;
struct LoopObject;
struct CyclerObject;
struct JoinerObject;
struct BlocksObject;

class Value {
 public:
  Value() = default;  // none
  static Value none() { return Value(); }
  static Value boolean(bool b) {
    Value v;
    v.kind_ = Kind::kBool;
    v.integer_ = b ? 1 : 0;
    return v;
  }
  static Value integer(int64_t i) {
    Value v;
    v.kind_ = Kind::kInteger;
    v.integer_ = i;
    return v;
  }
  static Value floating(double d) {
    Value v;
    v.kind_ = Kind::kFloat;
    v.double_ = d;
    return v;
  }
  // A shared, owned object; `arena` objects are referred to only.
  static Value object(Kind kind, std::shared_ptr<void> shared) {
    Value v;
    v.kind_ = kind;
    v.object_ = std::move(shared);
    return v;
  }
  static Value arena(Kind kind, void* object) {
    return Value::object(kind, std::shared_ptr<void>(std::shared_ptr<void>(), object));
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_integral() const { return kind_ == Kind::kBool || kind_ == Kind::kInteger; }  // Python's int
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat || kind_ == Kind::kBigInteger; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool is_callable() const;

  // REQUIRES: the matching kind.
  bool as_bool() const { return integer_ != 0; }
  int64_t as_integer() const { return integer_; }
  double as_double() const { return double_; }
  const Text& text() const;  // kString, kBytes, kBigInteger
  const std::string& str() const { return text().bytes(); }
  const std::vector<Value>& items() const;  // kList, kTuple
  const DictObject& dict() const;
  const void* identity() const { return object_.get(); }
  template <typename T>
  T& as() const {
    return *static_cast<T*>(object_.get());
  }

 private:
  Kind kind_ = Kind::kNone;
  union {
    int64_t integer_ = 0;
    double double_;
  };
  std::shared_ptr<void> object_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;
};
// A filter, test or method with its subject, or a global function (the subject is then none).
using Builtin = Value (*)(Runtime&, const Value& subject, const Arguments& arguments);
struct BuiltinEntry {
  std::string_view name;
  Builtin function;
};

struct UndefinedObject {
  std::string message;  // what using it reports
};
struct StringObject {
  Text text;
  Charge charge;
};
struct SequenceObject {
  std::vector<Value> items;
  int depth = 1;
  int64_t weight = 1;     // see container_weight
  bool is_group = false;  // of groupby: a tuple whose two items are also named grouper and list
  Charge charge;
};

// Insertion-ordered. Filled by one owner before it is published as a Value.
struct DictObject {
  std::vector<std::pair<Value, Value>> items;
  int depth = 1;
  int64_t weight = 1;
  Charge charge;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  // Keeps the first key's place and the last value, as Python does.
  void set(Value key, Value value);

 private:
  const Value* find_hashed(const Value& key, size_t hash) const;
  std::unordered_multimap<size_t, uint32_t> index_;  // used from kIndexFrom items on
};

enum class ViewPart : uint8_t { kKeys, kValues, kItems };
struct ViewObject {
  Value dict;
  ViewPart part;
};
struct RangeObject {
  int64_t start = 0, stop = 0, step = 1, length = 0;
  int64_t at(int64_t i) const { return start + i * step; }
};
// Runs once, on first use, and is consumed by iteration like a Python generator.
struct GeneratorObject {
  std::string type_name;
  int depth = 1;  // a chain of generators runs, and is freed, by recursion
  std::function<std::vector<Value>()> produce;
  std::vector<Value> items;
  size_t position = 0;
};
struct NamespaceObject {
  DictObject attributes;
};
struct FunctionObject {
  std::string_view name;
  Builtin function;
};
struct MethodObject {
  Value self;
  const BuiltinEntry* entry;
};
struct CyclerObject {
  std::vector<Value> items;
  size_t position = 0;
};
struct JoinerObject {
  Value separator;
  bool used = false;
};

// Python's type name: "int", "str", "NoneType".
std::string_view type_name(const Value& value);
bool is_truthy(const Value& value);
// Equality and hashing as Python's ==; hash fails on a list or dict (TypeError).
bool equal(const Value& a, const Value& b);
size_t hash(const Value& value);
bool identical(const Value& a, const Value& b);
// a < b; fails where Python has no order.
bool less(const Value& a, const Value& b);
int container_depth(const Value& value);
// How much work walking a value is: all items of all levels, long strings counted by length. Runtime limits
// it, because lists that share their parts ([l, l] over and over) are exponentially larger than the memory
// they take.
int64_t container_weight(const Value& value);
// The number of a kBool, kInteger, kBigInteger or kFloat.
double number_of(const Value& value);

}  // namespace mlxcel::jinja
