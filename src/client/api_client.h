// A client of an OpenAI-compatible server: plain requests, and any number of streamed answers at once on the
// calling thread (libcurl's multi interface). `mlxcel bench serve` and chats with a running server use it.
//
// Owner: a command. Threads: one; callbacks run inside poll(). Never logs a key; redirects are not followed,
// so a key goes to the named host alone.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace mlxcel {

struct ApiClientOptions {
  std::string base_url;  // "http://127.0.0.1:8080", with or without "/v1" at its end
  std::string api_key;   // empty: none
  double connect_timeout_seconds = 10.0;
  double silence_timeout_seconds = 600.0;  // without a byte from the server
};

struct ApiStreamEnd {
  int status = 0;              // of the response; 0: there was none
  std::optional<Error> error;  // connection failure, a status other than 200, an error event in mid-stream
  bool is_complete = false;    // "data: [DONE]" was seen
};

struct ApiStreamCallbacks {
  std::function<void(const JsonValue& chunk)> on_chunk;
  std::function<void(const ApiStreamEnd&)> on_end;  // exactly once, also after cancel(); the last call
};

class ApiClient {
 public:
  using StreamId = uint64_t;
  // kInvalidArgument: the address is no http:// or https:// URL.
  static Result<std::unique_ptr<ApiClient>> create(ApiClientOptions options);
  ~ApiClient();
  ApiClient(const ApiClient&) = delete;
  ApiClient& operator=(const ApiClient&) = delete;

  // `path`: below the base ("/v1/models", "/health"). The error holds the server's message and status.
  Result<JsonValue> get(const std::string& path);
  Result<JsonValue> post(const std::string& path, const JsonValue& body);

  StreamId start_stream(const std::string& path, const JsonValue& body, ApiStreamCallbacks callbacks);
  // Closes the connection; on_end comes from the next poll() with kCancelled.
  void cancel(StreamId id);
  size_t num_streams() const;
  // Moves all streams on and returns after `seconds` or sooner, when something happened.
  void poll(double seconds);

 private:
  struct State;
  explicit ApiClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace mlxcel
