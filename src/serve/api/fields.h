// Typed reading of a request body. The first fault is kept with its JSON path; reading goes on with defaults,
// so callers check once at the end. A null member counts as absent, as OpenAI's clients send it.
//
// Owner: the handler, for one request. Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "serve/api/api_error.h"

namespace mlxcel {

class Fields {
 public:
  // `path` is prefixed to names in errors ("stream_options").
  Fields(const JsonValue& object, std::string path, std::optional<ApiError>& error)
      : object_(object), path_(std::move(path)), error_(error) {}

  const JsonValue* find(std::string_view name) const { return object_.find_set(name); }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  std::optional<bool> boolean(std::string_view name);
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high);  // 3.0 counts
  std::optional<double> number(std::string_view name, double low, double high);
  std::optional<std::string> string(std::string_view name);
  // A string or an array of strings.
  std::vector<std::string> strings(std::string_view name, size_t max_items, size_t max_bytes_each);
  std::vector<int64_t> integers(std::string_view name, size_t max_items, int64_t low, int64_t high);
  std::optional<Fields> object(std::string_view name);

  void fail(std::string_view name, std::string message);
  std::string path(std::string_view name) const;
  bool failed() const { return error_.has_value(); }

 private:
  const JsonValue& object_;
  std::string path_;
  std::optional<ApiError>& error_;
};

}  // namespace mlxcel
