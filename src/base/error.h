// Errors as values. Input from outside (files, HTTP, templates, flags) never aborts: a function that can fail
// returns Result<T>. A broken invariant of our own aborts at once, in every build type (MLXCEL_CHECK).
//
// Owner: whoever holds the Result. Threads: values, no shared state.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace mlxcel {

// What kind of failure it is; the CLI's exit code and the server's HTTP status follow from this alone.
enum class ErrorKind {
  kInvalidArgument,    // the caller's value is wrong (flag, request field): exit 2, HTTP 400
  kNotFound,           // no such file, model, route: exit 3, HTTP 404
  kInvalidData,        // a file or message is malformed: exit 3, HTTP 400
  kUnsupported,        // well-formed, but this build or model cannot do it: exit 3, HTTP 501
  kOutOfMemory,        // exit 4, HTTP 503
  kResourceExhausted,  // a limit of ours is reached (queue, blocks, template steps): HTTP 503 or 400
  kIo,                 // the operating system said no: exit 1
  kCancelled,          // exit 130
  kInternal,           // our own fault, contained to one request: exit 1, HTTP 500
};
std::string_view error_kind_name(ErrorKind kind);

// Three parts, as docs/adr/0002-errors.md says: what failed and where, expected against found, what to do.
struct Error {
  ErrorKind kind = ErrorKind::kInternal;
  std::string what;      // one sentence without full stop: "tensor is truncated"
  std::string where;     // file, tensor, key, field; may be empty
  std::string expected;  // may be empty
  std::string found;     // may be empty
  std::string hint;      // what the user can do; may be empty

  // "what: where" on line 1, "expected X, found Y" on line 2, the hint on line 3; empty parts are left out.
  std::string to_string() const;
  // The same on one line, for logs and JSON.
  std::string one_line() const;
};

inline Error make_error(ErrorKind kind, std::string what, std::string where = {}, std::string expected = {},
                        std::string found = {}, std::string hint = {}) {
  return Error{kind,           std::move(what), std::move(where), std::move(expected), std::move(found),
               std::move(hint)};
}

struct Unit {};

// A T or an Error. [[nodiscard]]: an ignored Result is a bug.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // REQUIRES: ok(). Asking a failed Result for its value is a broken invariant and aborts with the error's
  // text.
  T& value() & { return check_ok(), std::get<0>(state_); }
  const T& value() const& { return check_ok(), std::get<0>(state_); }
  T&& value() && { return check_ok(), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // REQUIRES: !ok().
  Error& error() & { return check_failed(), std::get<1>(state_); }
  const Error& error() const& { return check_failed(), std::get<1>(state_); }
  Error&& error() && { return check_failed(), std::get<1>(std::move(state_)); }

 private:
  void check_ok() const {
    if (ok()) return;
    std::fprintf(stderr, "Result::value() on an error: %s\n", std::get<1>(state_).one_line().c_str());
    std::abort();
  }
  void check_failed() const {
    if (!ok()) return;
    std::fputs("Result::error() on a value\n", stderr);
    std::abort();
  }
  std::variant<T, Error> state_;
};

using Status = Result<Unit>;
inline Status ok_status() { return Status(Unit{}); }

[[noreturn]] void check_failed(const char* condition, const char* file, int line, std::string_view message);

}  // namespace mlxcel

// A broken invariant of ours: prints and aborts, in release builds too.
#define MLXCEL_CHECK(condition)                                                   \
  do {                                                                            \
    if (!(condition)) [[unlikely]]                                                \
      ::mlxcel::check_failed(#condition, __FILE__, __LINE__, std::string_view()); \
  } while (false)
#define MLXCEL_CHECK_MSG(condition, message)                             \
  do {                                                                   \
    if (!(condition)) [[unlikely]]                                       \
      ::mlxcel::check_failed(#condition, __FILE__, __LINE__, (message)); \
  } while (false)

#define MLXCEL_CONCAT_INNER(a, b) a##b
#define MLXCEL_CONCAT(a, b) MLXCEL_CONCAT_INNER(a, b)
// Returns the error of a failed Status or Result from the calling function.
#define MLXCEL_RETURN_IF_ERROR(expression)                            \
  do {                                                                \
    auto mlxcel_status = (expression);                                \
    if (!mlxcel_status.ok()) return std::move(mlxcel_status).error(); \
  } while (false)
// MLXCEL_ASSIGN_OR_RETURN(auto x, f()): declares x from f()'s value, or returns f()'s error.
#define MLXCEL_ASSIGN_OR_RETURN(declaration, expression) \
  MLXCEL_ASSIGN_OR_RETURN_IMPL(MLXCEL_CONCAT(mlxcel_result_, __LINE__), declaration, expression)
#define MLXCEL_ASSIGN_OR_RETURN_IMPL(temporary, declaration, expression) \
  auto temporary = (expression);                                         \
  if (!temporary.ok()) return std::move(temporary).error();              \
  declaration = std::move(temporary).value()
