#include "serve/api/fields.h"

#include <fmt/format.h>

#include <cmath>

namespace mlxcel {

std::string Fields::path(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void Fields::fail(std::string_view name, std::string message) {
  if (!error_) error_ = field_error(path(name), std::move(message));
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const JsonValue* v = find(name);
  if (v == nullptr) return std::nullopt;
  if (v->is_bool()) return v->as_bool();
  fail(name, fmt::format("must be a boolean, not {}", v->type_name()));
  return std::nullopt;
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t low, int64_t high) {
  const JsonValue* v = find(name);
  if (v == nullptr) return std::nullopt;
  std::optional<int64_t> value;
  if (v->is_int()) value = v->as_int();
  if (v->is_double() && std::floor(v->as_double()) == v->as_double() && std::fabs(v->as_double()) < 9e15) {
    value = static_cast<int64_t>(v->as_double());
  }
  if (!value) {
    fail(name, fmt::format("must be an integer, not {}", v->type_name()));
    return std::nullopt;
  }
  if (*value < low || *value > high) {
    fail(name, fmt::format("must be between {} and {}, not {}", low, high, *value));
    return std::nullopt;
  }
  return value;
}

std::optional<double> Fields::number(std::string_view name, double low, double high) {
  const JsonValue* v = find(name);
  if (v == nullptr) return std::nullopt;
  if (!v->is_number()) {
    fail(name, fmt::format("must be a number, not {}", v->type_name()));
    return std::nullopt;
  }
  const double value = v->as_double();
  if (!(value >= low && value <= high)) {
    fail(name, fmt::format("must be between {} and {}, not {}", low, high, value));
    return std::nullopt;
  }
  return value;
}

std::optional<std::string> Fields::string(std::string_view name) {
  const JsonValue* v = find(name);
  if (v == nullptr) return std::nullopt;
  if (v->is_string()) return v->as_string();
  fail(name, fmt::format("must be a string, not {}", v->type_name()));
  return std::nullopt;
}

std::vector<std::string> Fields::strings(std::string_view name, size_t max_items, size_t max_bytes_each) {
  std::vector<std::string> out;
  const JsonValue* v = find(name);
  if (v == nullptr) return out;
  const auto take = [&](const JsonValue& item, const std::string& item_name) {
    if (!item.is_string()) return fail(item_name, fmt::format("must be a string, not {}", item.type_name()));
    if (item.as_string().size() > max_bytes_each) {
      return fail(item_name, fmt::format("must have at most {} bytes", max_bytes_each));
    }
    out.push_back(item.as_string());
  };
  if (v->is_string()) {
    take(*v, std::string(name));
  } else if (v->is_array()) {
    if (v->as_array().size() > max_items) fail(name, fmt::format("must have at most {} items", max_items));
    for (size_t i = 0; i < v->as_array().size() && !failed(); ++i) {
      take(v->as_array()[i], fmt::format("{}[{}]", name, i));
    }
  } else {
    fail(name, fmt::format("must be a string or an array of strings, not {}", v->type_name()));
  }
  return out;
}

std::vector<int64_t> Fields::integers(std::string_view name, size_t max_items, int64_t low, int64_t high) {
  std::vector<int64_t> out;
  const JsonValue* v = find(name);
  if (v == nullptr) return out;
  if (!v->is_array()) {
    fail(name, fmt::format("must be an array of integers, not {}", v->type_name()));
    return out;
  }
  if (v->as_array().size() > max_items) fail(name, fmt::format("must have at most {} items", max_items));
  for (size_t i = 0; i < v->as_array().size() && !failed(); ++i) {
    const JsonValue& item = v->as_array()[i];
    if (!item.is_int() || item.as_int() < low || item.as_int() > high) {
      fail(fmt::format("{}[{}]", name, i), fmt::format("must be an integer between {} and {}", low, high));
    } else {
      out.push_back(item.as_int());
    }
  }
  return out;
}

std::optional<Fields> Fields::object(std::string_view name) {
  const JsonValue* v = find(name);
  if (v == nullptr) return std::nullopt;
  if (!v->is_object()) {
    fail(name, fmt::format("must be an object, not {}", v->type_name()));
    return std::nullopt;
  }
  return Fields(*v, path(name), error_);
}

}  // namespace mlxcel
