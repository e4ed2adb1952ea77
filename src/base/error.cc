#include "base/error.h"

#include <fmt/format.h>

namespace mlxcel {

std::string_view error_kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      return "invalid argument";
    case ErrorKind::kNotFound:
      return "not found";
    case ErrorKind::kInvalidData:
      return "invalid data";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kOutOfMemory:
      return "out of memory";
    case ErrorKind::kResourceExhausted:
      return "limit reached";
    case ErrorKind::kIo:
      return "input/output error";
    case ErrorKind::kCancelled:
      return "cancelled";
    case ErrorKind::kInternal:
      return "internal error";
  }
  return "unknown";
}

namespace {
std::string expected_and_found(const Error& e) {
  if (!e.expected.empty() && !e.found.empty())
    return fmt::format("expected {}, found {}", e.expected, e.found);
  if (!e.expected.empty()) return fmt::format("expected {}", e.expected);
  if (!e.found.empty()) return fmt::format("found {}", e.found);
  return {};
}
}  // namespace

std::string Error::to_string() const {
  std::string text = where.empty() ? what : fmt::format("{}: {}", what, where);
  if (const std::string detail = expected_and_found(*this); !detail.empty()) text += "\n  " + detail;
  if (!hint.empty()) text += "\n  " + hint;
  return text;
}

std::string Error::one_line() const {
  std::string text = where.empty() ? what : fmt::format("{}: {}", what, where);
  if (const std::string detail = expected_and_found(*this); !detail.empty()) text += " (" + detail + ")";
  if (!hint.empty()) text += "; " + hint;
  return text;
}

void check_failed(const char* condition, const char* file, int line, std::string_view message) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s%s%.*s\n", file, line, condition,
               message.empty() ? "" : ": ", static_cast<int>(message.size()), message.data());
  std::abort();
}

}  // namespace mlxcel
