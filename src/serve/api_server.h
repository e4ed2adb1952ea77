// The server: routes, keys, CORS, loading and draining over an HttpServer and a ServingLoop. One table of
// routes makes the dispatch, the aliases without /v1 and /openapi.json.
//
// Owner: apps/. Threads: run() on the caller's thread (the I/O thread); begin_drain() from any thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/serving.h"
#include "serve/api/generation_fields.h"
#include "serve/api/metric_aliases.h"
#include "serve/http/http.h"

namespace mlxcel {

struct ApiServerOptions {
  HttpServerOptions http;
  std::vector<std::string> api_keys;         // empty: no key needed
  std::vector<std::string> allowed_origins;  // for browsers; "*" allows all (without credentials)
  double ping_seconds = 10.0;                // SSE comments on silent streams
  double drain_seconds = 30.0;               // after SIGTERM, for streams to finish
  double request_timeout_seconds = 0.0;      // deadline of each request; 0: none
  bool metrics = true, slots = true, props = true;
  std::vector<MetricDialect> metric_aliases;  // names besides our own
  int num_workers = 2;
  std::string version;
  RequestDefaults defaults;  // sampling as given by flags; the model's own are merged when it is loaded
  // Merges generation_config.json's values with the flags' (called once, when the model is ready).
  std::function<RequestDefaults(const TextModel&, const ModelInfo&)> resolve_defaults;
};

class ApiServer {
 public:
  static Result<std::unique_ptr<ApiServer>> create(ApiServerOptions options,
                                                   std::shared_ptr<ServingLoop> loop);
  virtual ~ApiServer() = default;
  virtual std::string address() const = 0;
  virtual void run() = 0;          // until drained or stopped
  virtual void begin_drain() = 0;  // new requests get 503; returns from run() when idle or time is up
  virtual void stop() = 0;
};

struct RouteRow {
  std::string_view method, path;  // path "/v1/models/*" matches one more segment
  std::string_view help;
  bool needs_model = false;  // 503 while loading
  bool is_public = false;    // no key needed
};
std::span<const RouteRow> route_table();

}  // namespace mlxcel
