// One HTTP GET over libcurl, redirects followed by us: a bearer token goes to the endpoint's own scheme, host
// and port and to no other, and https never falls back to http.
//
// Owner: one download. Threads: one request at a time per client. Never logs a token.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace mlxcel {

struct HttpOptions {
  std::string token;         // empty: none
  std::string token_origin;  // any URL of the host that may see it
  double connect_timeout_seconds = 30.0;
  double stall_timeout_seconds = 60.0;  // without a byte
  int max_redirects = 10;
  std::function<bool()> is_cancelled;  // asked several times a second; may be empty
};

struct FetchRequest {
  std::string url;
  std::map<std::string, std::string> headers;
};

struct FetchResponse {
  int status = 0;
  std::map<std::string, std::string> headers;        // names in lower case, of the last response
  std::map<std::string, std::string> first_headers;  // of the endpoint's own answer, before redirects
  std::string body;                                  // of a status other than 200 and 206: at most 64 KiB
  // Set when the transfer broke: the status is that of the response so far, or 0.
  std::optional<Error> failure;
  bool is_transient = false;  // worth another attempt
  std::optional<double> retry_after_seconds;
};

class HttpClient {
 public:
  explicit HttpClient(HttpOptions options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // on_start sees status 200 or 206 with its headers before the body and may refuse it; on_body takes each
  // piece and returns false to stop. What they refuse becomes `failure` (kIo, "stopped by the receiver")
  // unless they keep the reason themselves.
  FetchResponse get(const FetchRequest& request, const std::function<bool(const FetchResponse&)>& on_start,
                    const std::function<bool(std::string_view)>& on_body);

 private:
  struct State;
  FetchResponse get_once(const std::string& url, const FetchRequest& request, bool with_token,
                         const std::function<bool(const FetchResponse&)>& on_start,
                         const std::function<bool(std::string_view)>& on_body);
  HttpOptions options_;
  std::unique_ptr<State> state_;
};

// Percent-encodes everything but unreserved characters and '/'.
std::string encode_url_path(std::string_view path);

}  // namespace mlxcel
