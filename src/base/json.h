// JSON as a value: objects keep the order of their keys (tool schemas are rendered into prompts), the last of
// two equal keys wins at the place of the first, lone surrogates become U+FFFD, integers stay integers.
//
// Reading is simdjson's; writing is ours (appends to a string, never throws, replaces invalid UTF-8).
// Threads: values; no shared state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"

namespace mlxcel {

struct JsonLimits {
  size_t max_bytes = size_t{1} << 30;  // of the text
  size_t max_depth = 512;              // of nested arrays and objects
  bool allow_non_finite = false;       // accept NaN, Infinity, -Infinity as Python writes them
};

class JsonValue;
using JsonArray = std::vector<JsonValue>;
using JsonMember = std::pair<std::string, JsonValue>;

// Ordered members. Lookup is linear below 16 members and by a sorted index above.
class JsonObject {
 public:
  JsonObject() = default;
  const JsonValue* find(std::string_view key) const;  // nullptr when absent
  JsonValue* find(std::string_view key);
  // Replaces in place when the key exists, appends otherwise.
  void set(std::string key, JsonValue value);
  bool erase(std::string_view key);
  size_t size() const;
  bool empty() const;
  std::vector<JsonMember>::const_iterator begin() const;
  std::vector<JsonMember>::const_iterator end() const;
  std::vector<JsonMember>::iterator begin();  // values may be changed, keys not
  std::vector<JsonMember>::iterator end();
  void reserve(size_t n);

 private:
  friend class JsonBuilder;
  void index_from(size_t first);
  std::vector<JsonMember> members_;
  // Member numbers sorted by key, kept up to date from kIndexFrom members on, so that reading never writes.
  std::vector<uint32_t> index_;
};

class JsonValue {
 public:
  JsonValue() = default;                   // null
  JsonValue(std::nullptr_t) {}             // NOLINT(google-explicit-constructor)
  JsonValue(bool v) : data_(v) {}          // NOLINT(google-explicit-constructor)
  JsonValue(int v) : data_(int64_t{v}) {}  // NOLINT(google-explicit-constructor)
  JsonValue(int64_t v) : data_(v) {}       // NOLINT(google-explicit-constructor)
  JsonValue(uint64_t v);                   // NOLINT(google-explicit-constructor) above int64: double
  JsonValue(double v) : data_(v) {}        // NOLINT(google-explicit-constructor)
  JsonValue(std::string v) : data_(std::move(v)) {}         // NOLINT(google-explicit-constructor)
  JsonValue(std::string_view v) : data_(std::string(v)) {}  // NOLINT(google-explicit-constructor)
  JsonValue(const char* v) : data_(std::string(v)) {}       // NOLINT(google-explicit-constructor)
  JsonValue(JsonArray v) : data_(std::move(v)) {}           // NOLINT(google-explicit-constructor)
  JsonValue(JsonObject v) : data_(std::move(v)) {}          // NOLINT(google-explicit-constructor)

  bool is_null() const { return data_.index() == 0; }
  bool is_bool() const { return data_.index() == 1; }
  bool is_int() const { return data_.index() == 2; }
  bool is_double() const { return data_.index() == 3; }
  bool is_number() const { return is_int() || is_double(); }
  bool is_string() const { return data_.index() == 4; }
  bool is_array() const { return data_.index() == 5; }
  bool is_object() const { return data_.index() == 6; }
  // "null", "a boolean", "an integer", "a number", "a string", "an array", "an object": for error messages.
  std::string_view type_name() const;

  // REQUIRES: the matching is_...(); as_double also takes an integer.
  bool as_bool() const { return std::get<1>(data_); }
  int64_t as_int() const { return std::get<2>(data_); }
  double as_double() const { return is_int() ? static_cast<double>(as_int()) : std::get<3>(data_); }
  const std::string& as_string() const { return std::get<4>(data_); }
  const JsonArray& as_array() const { return std::get<5>(data_); }
  JsonArray& as_array() { return std::get<5>(data_); }
  const JsonObject& as_object() const { return std::get<6>(data_); }
  JsonObject& as_object() { return std::get<6>(data_); }

  // Member of an object, or nullptr when this is no object or has no such key. A null member is returned as
  // such.
  const JsonValue* find(std::string_view key) const { return is_object() ? as_object().find(key) : nullptr; }
  // As find, but a null member counts as absent (config files write null for "not set").
  const JsonValue* find_set(std::string_view key) const {
    const JsonValue* v = find(key);
    return v == nullptr || v->is_null() ? nullptr : v;
  }

  // Structural equality; 1 and 1.0 differ; the order of members does not matter.
  friend bool operator==(const JsonValue& a, const JsonValue& b);

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, JsonArray, JsonObject> data_;
};

// Here because JsonMember is incomplete inside the class.
inline size_t JsonObject::size() const { return members_.size(); }
inline bool JsonObject::empty() const { return members_.empty(); }
inline std::vector<JsonMember>::const_iterator JsonObject::begin() const { return members_.begin(); }
inline std::vector<JsonMember>::const_iterator JsonObject::end() const { return members_.end(); }
inline std::vector<JsonMember>::iterator JsonObject::begin() { return members_.begin(); }
inline std::vector<JsonMember>::iterator JsonObject::end() { return members_.end(); }
inline void JsonObject::reserve(size_t n) { members_.reserve(n); }

// Parses one JSON document. Errors: kInvalidData with the byte offset where known; `where` names the source.
Result<JsonValue> parse_json(std::string_view text, std::string_view where, const JsonLimits& limits = {});
// Reads and parses a file; errors name the path.
Result<JsonValue> parse_json_file(const std::string& path, const JsonLimits& limits = {});

struct JsonWriteOptions {
  int indent = -1;          // below zero: compact, else spaces per level
  bool ascii_only = false;  // escape everything above U+007F
};
// Appends the text of `value`. Doubles are the shortest decimal that reads back to the same value; non-finite
// ones become null. Invalid UTF-8 becomes U+FFFD.
void write_json(std::string& out, const JsonValue& value, const JsonWriteOptions& options = {});
std::string to_json(const JsonValue& value, const JsonWriteOptions& options = {});
// Appends a quoted, escaped JSON string.
void write_json_string(std::string& out, std::string_view text, bool ascii_only = false);
// Appends a float (f32) as the shortest decimal that reads back to the same f32.
void write_json_float(std::string& out, float value);

// Typed reading of an object's keys for config files: each call names the key and the file in its error.
// A missing or null key gives the default; a wrong type is kInvalidData.
class JsonReader {
 public:
  JsonReader(const JsonValue& object, std::string where) : object_(object), where_(std::move(where)) {}
  const JsonValue& object() const { return object_; }
  const std::string& where() const { return where_; }
  bool has(std::string_view key) const { return object_.find_set(key) != nullptr; }
  Result<int64_t> integer(std::string_view key,
                          std::optional<int64_t> fallback = std::nullopt) const;  // 3.0 is an integer too
  Result<double> number(std::string_view key, std::optional<double> fallback = std::nullopt) const;
  Result<bool> boolean(std::string_view key, std::optional<bool> fallback = std::nullopt) const;
  Result<std::string> string(std::string_view key, std::optional<std::string> fallback = std::nullopt) const;
  Result<std::vector<double>> numbers(std::string_view key) const;  // an array of numbers; absent: empty
  Error type_error(std::string_view key, std::string_view expected) const;

 private:
  const JsonValue& object_;
  std::string where_;
};

}  // namespace mlxcel
