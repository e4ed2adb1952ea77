#include "serve/api/api_error.h"

#include <fmt/format.h>

namespace mlxcel {

JsonValue ApiError::to_json() const {
  JsonObject inner;
  inner.set("message", message);
  inner.set("type", type);
  inner.set("param", param.empty() ? JsonValue() : JsonValue(param));
  inner.set("code", code.empty() ? JsonValue() : JsonValue(code));
  JsonObject outer;
  outer.set("error", std::move(inner));
  return JsonValue(std::move(outer));
}

HttpResponse ApiError::to_response() const {
  HttpResponse response;
  response.status = status;
  response.body = mlxcel::to_json(to_json());
  if (status == 503) response.headers.emplace_back("Retry-After", "1");
  if (status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

namespace {
std::string message_of(const Error& error) {
  std::string text = error.what;
  if (!error.expected.empty() && !error.found.empty()) {
    text += fmt::format(": expected {}, found {}", error.expected, error.found);
  } else if (!error.found.empty()) {
    text += ": " + error.found;
  }
  if (!error.hint.empty()) text += "; " + error.hint;
  return text;
}
}  // namespace

ApiError api_error_from(const Error& error) {
  ApiError out;
  out.message = message_of(error);
  switch (error.kind) {
    case ErrorKind::kInvalidArgument:
    case ErrorKind::kInvalidData:
      out.status = 400;
      if (error.what.find("context_length_exceeded") != std::string::npos ||
          error.where == "context_length_exceeded") {
        out.code = "context_length_exceeded";
      }
      break;
    case ErrorKind::kNotFound:
      out.status = 404;
      out.code = "not_found";
      break;
    case ErrorKind::kUnsupported:
      out.status = 501;
      out.type = "not_implemented_error";
      break;
    case ErrorKind::kResourceExhausted:
    case ErrorKind::kOutOfMemory:
      out.status = 503;
      out.type = "server_busy";
      out.code = "server_busy";
      break;
    case ErrorKind::kCancelled:
      out.status = 499;
      out.type = "cancelled";
      break;
    case ErrorKind::kIo:
    case ErrorKind::kInternal:
      out.status = 500;
      out.type = "server_error";
      break;
  }
  return out;
}

ApiError field_error(std::string param, std::string message) {
  ApiError error;
  error.param = std::move(param);
  error.message = error.param.empty() ? std::move(message) : fmt::format("{}: {}", error.param, message);
  return error;
}

ApiError unsupported_field(std::string param, std::string reason) {
  ApiError error = field_error(std::move(param), std::move(reason));
  error.status = 501;
  error.type = "not_implemented_error";
  error.code = "unsupported_field";
  return error;
}

}  // namespace mlxcel
