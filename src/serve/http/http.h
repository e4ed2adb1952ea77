// HTTP as the rest of serve/ sees it: a request with its bytes read, and a writer that answers once or
// streams. No Boost type appears here; the server behind it is serve/http/server.cc.
//
// Owner: a ResponseWriter is shared by the connection and whoever answers; it may outlive the connection
// (is_open() then turns false and writes are dropped). Threads: handlers are called on the I/O thread and
// must not block; every method of ResponseWriter may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace mlxcel {

using HttpHeader = std::pair<std::string, std::string>;

struct HttpRequest {
  std::string method;               // "GET"
  std::string path;                 // decoded, without query: "/v1/models"
  std::string query;                // raw, without '?'
  std::vector<HttpHeader> headers;  // names in lower case
  std::string body;
  std::string remote;  // "127.0.0.1:1234" or "unix"
  uint64_t id = 0;     // number of the request in this process

  std::string_view header(std::string_view lower_case_name) const;  // empty when absent
  std::optional<std::string> query_value(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<HttpHeader> headers;
  std::string body;
};

class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  // The one answer of a request that does not stream.
  virtual void send(HttpResponse response) = 0;
  // Opens a stream (chunked); the status is final from here on. `ping`: a comment line is written when
  // nothing else was for `ping_seconds` (0: never).
  virtual void begin_stream(HttpResponse head, double ping_seconds) = 0;
  // Queues bytes. False: the client is gone, or its queue passed the limit and the connection was dropped.
  virtual bool write(std::string bytes) = 0;
  virtual void end_stream() = 0;
  virtual bool is_open() const = 0;
  // Called once, on the I/O thread, when the connection ends before the answer did. At once if it already
  // has.
  virtual void on_disconnect(std::function<void()> callback) = 0;
};

using HttpHandler = std::function<void(std::shared_ptr<const HttpRequest>, std::shared_ptr<ResponseWriter>)>;

struct HttpLimits {
  size_t max_header_bytes = 64 << 10;
  size_t max_body_bytes = size_t{32} << 20;
  double header_timeout_seconds = 15.0;  // from connection (or the last answer) to a whole header
  double body_timeout_seconds = 60.0;
  double write_timeout_seconds = 60.0;        // without progress
  size_t max_queued_bytes = size_t{1} << 20;  // per stream; a slower client is dropped
  int max_connections = 4096;
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;     // 0: the system picks one
  std::string unix_socket;  // instead of host and port
  HttpLimits limits;
};

class HttpServer {
 public:
  // Binds and listens; accepts once run() is called. `before_body` sees a request whose body has not been
  // read and may refuse it (authentication, unknown route, loading); nullopt lets it pass.
  using EarlyCheck = std::function<std::optional<HttpResponse>(const HttpRequest&)>;
  static Result<std::unique_ptr<HttpServer>> bind(const HttpServerOptions& options, EarlyCheck before_body,
                                                  HttpHandler handler);
  virtual ~HttpServer() = default;
  virtual std::string address() const = 0;  // "http://127.0.0.1:8080" or "unix:/path"
  virtual uint16_t port() const = 0;
  virtual int num_connections() const = 0;
  // Serves on the calling thread until stop() (any thread). Connections still open then are closed.
  virtual void run() = 0;
  virtual void stop_accepting() = 0;  // drain: no new connections, keep-alive ends after each answer
  virtual void stop() = 0;
  // Runs a task on the I/O thread, now or after a delay.
  virtual void post(std::function<void()> task) = 0;
  virtual void post_after(double seconds, std::function<void()> task) = 0;
};

// The reason phrase of a status.
std::string_view http_reason(int status);
// %XX decoding; invalid escapes are kept as they are. `plus_is_space` for query values.
std::string url_decode(std::string_view text, bool plus_is_space);

}  // namespace mlxcel
