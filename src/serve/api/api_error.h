// The error object of the OpenAI wire format and how our own errors become one.
// Values; any thread.
#pragma once

#include <string>
#include <variant>

#include "base/error.h"
#include "base/json.h"
#include "serve/http/http.h"

namespace mlxcel {

struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string code;  // machine-readable; empty: null
  std::string message;
  std::string param;  // JSON path of the field; empty: null

  JsonValue to_json() const;         // {"error": {...}}
  HttpResponse to_response() const;  // with Retry-After where it is due
};

// Never contains a path of this machine: `where` is used only when it names a field.
ApiError api_error_from(const Error& error);

template <typename T>
using ApiResult = std::variant<T, ApiError>;

ApiError field_error(std::string param, std::string message);
ApiError unsupported_field(std::string param, std::string reason);

}  // namespace mlxcel
