#include "serve/api_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <span>

#include "base/environment.h"
#include "base/log.h"
#include "serve/api/api_error.h"
#include "serve/api/metrics.h"
#include "serve/api/requests.h"
#include "serve/openapi.h"
#include "serve/worker_pool.h"

namespace mlxcel {

namespace {

constexpr RouteRow kRoutes[] = {
    {"GET", "/health", "whether the model is ready", false, true},
    {"GET", "/v1/health", "whether the model is ready", false, true},
    {"GET", "/v1/models", "the loaded model", true, false},
    {"GET", "/v1/models/*", "one model", true, false},
    {"POST", "/v1/chat/completions", "answer a conversation", true, false},
    {"POST", "/v1/chat/completions/input_tokens", "count the tokens of a conversation", true, false},
    {"POST", "/v1/completions", "continue a text", true, false},
    {"POST", "/tokenize", "text to token ids", true, false},
    {"POST", "/detokenize", "token ids to text", true, false},
    {"POST", "/apply-template", "the prompt that a conversation becomes", true, false},
    {"GET", "/props", "the model and the server's settings", true, false},
    {"GET", "/slots", "the running and waiting requests", true, false},
    {"GET", "/metrics", "Prometheus text", true, false},
    {"GET", "/v1/cache/stats", "KV blocks and prefix cache", true, false},
    {"POST", "/v1/cache/reset", "forget the prefix cache", true, false},
    {"GET", "/version", "the program's version", false, true},
    {"GET", "/openapi.json", "this interface", false, true},
    {"GET", "/", "a page that says what runs here", false, true},
};

// All "/v1/x" routes answer at "/x" too, and the native ones at "/v1/x".
std::string canonical_path(std::string_view path) {
  std::string p(path);
  while (p.size() > 1 && p.back() == '/') p.pop_back();
  const auto known = [](std::string_view q) {
    return std::any_of(std::begin(kRoutes), std::end(kRoutes), [&](const RouteRow& r) {
      return r.path == q || (r.path.ends_with("/*") && q.starts_with(r.path.substr(0, r.path.size() - 1)));
    });
  };
  if (known(p)) return p;
  if (known("/v1" + p)) return "/v1" + p;
  if (p.starts_with("/v1/") && known(p.substr(3))) return p.substr(3);
  return p;
}

const RouteRow* find_route(std::string_view method, std::string_view path, bool& path_exists) {
  path_exists = false;
  for (const RouteRow& r : kRoutes) {
    const bool matches = r.path.ends_with("/*") ? path.starts_with(r.path.substr(0, r.path.size() - 1)) &&
                                                      path.size() > r.path.size() - 1
                                                : path == r.path;
    if (!matches) continue;
    path_exists = true;
    if (r.method == method || (method == "HEAD" && r.method == "GET")) return &r;
  }
  return nullptr;
}

// Time does not depend on where two keys of the same length differ.
bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0u : 1u;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^
                  static_cast<unsigned>(static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]));
  }
  return difference == 0;
}

HttpResponse json_response(const JsonValue& value, int status = 200) {
  HttpResponse r;
  r.status = status;
  r.body = to_json(value);
  return r;
}

class Server final : public ApiServer, public std::enable_shared_from_this<Server> {
 public:
  Server(ApiServerOptions options, std::shared_ptr<ServingLoop> loop)
      : options_(std::move(options)), loop_(std::move(loop)), workers_(options_.num_workers, 1024) {}

  Status bind() {
    auto http = HttpServer::bind(
        options_.http, [this](const HttpRequest& r) { return early_check(r); },
        [this](std::shared_ptr<const HttpRequest> r, std::shared_ptr<ResponseWriter> w) {
          handle(std::move(r), std::move(w));
        });
    if (!http.ok()) return std::move(http).error();
    http_ = *std::move(http);
    return ok_status();
  }

  std::string address() const override { return http_->address(); }
  void run() override { http_->run(); }
  void stop() override { http_->stop(); }
  void begin_drain() override {
    if (draining_.exchange(true)) return;
    http_->stop_accepting();
    loop_->drain();
    http_->post([this] { wait_for_idle(monotonic_seconds() + options_.drain_seconds); });
  }

 private:
  void wait_for_idle(double deadline) {
    const bool failed =
        loop_->state() == ServingLoop::State::kFailed || loop_->state() == ServingLoop::State::kLoading;
    if ((loop_->is_idle() || failed) && open_answers_ == 0) return http_->stop();
    if (monotonic_seconds() > deadline) {
      log_warning("draining took longer than {} s: {} answers are cut off", options_.drain_seconds,
                  open_answers_);
      return http_->stop();
    }
    http_->post_after(0.02, [this, deadline] { wait_for_idle(deadline); });
  }

  // ---- before the body ----

  std::string allowed_origin(const HttpRequest& r) const {
    const std::string_view origin = r.header("origin");
    if (origin.empty()) return {};
    for (const std::string& allowed : options_.allowed_origins) {
      if (allowed == "*") return "*";
      if (allowed == origin) return std::string(origin);
    }
    return {};
  }
  void add_cors(const HttpRequest& r, HttpResponse& response) const {
    const std::string origin = allowed_origin(r);
    if (origin.empty()) return;
    response.headers.emplace_back("Access-Control-Allow-Origin", origin);
    if (origin != "*") response.headers.emplace_back("Vary", "Origin");
    response.headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id");
  }
  bool has_key(const HttpRequest& r) const {
    if (options_.api_keys.empty()) return true;
    std::string_view given = r.header("authorization");
    if (given.size() > 7 && (given.starts_with("Bearer ") || given.starts_with("bearer "))) {
      given.remove_prefix(7);
    } else {
      given = r.header("x-api-key");
    }
    bool ok = false;
    for (const std::string& key : options_.api_keys) ok |= equal_in_constant_time(given, key);
    return ok && !given.empty();
  }

  std::optional<HttpResponse> refuse(const HttpRequest& r, HttpResponse response) {
    add_cors(r, response);
    count(r, response.status);
    return response;
  }

  std::optional<HttpResponse> early_check(const HttpRequest& r) {
    if (r.method == "OPTIONS") return refuse(r, preflight());
    const std::string path = canonical_path(r.path);
    bool path_exists = false;
    const RouteRow* route = find_route(r.method, path, path_exists);
    // A stranger learns nothing, not even which routes exist.
    if ((route == nullptr || !route->is_public) && !has_key(r)) {
      ApiError error = field_error("", "a valid API key is needed: send \"Authorization: Bearer KEY\"");
      error.status = 401;
      error.code = "invalid_api_key";
      return refuse(r, error.to_response());
    }
    if (route == nullptr) {
      ApiError error = field_error("", path_exists ? fmt::format("{} is not offered here", r.method)
                                                   : "no such route; see /openapi.json");
      error.status = path_exists ? 405 : 404;
      error.code = path_exists ? "method_not_allowed" : "not_found";
      return refuse(r, error.to_response());
    }
    if (route->needs_model) {
      if (auto error = not_ready()) return refuse(r, error->to_response());
    }
    return std::nullopt;
  }

  static HttpResponse preflight() {
    HttpResponse r;
    r.status = 204;
    r.content_type.clear();
    r.headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                 {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key, X-Request-Id"},
                 {"Access-Control-Max-Age", "86400"}};
    return r;
  }

  std::optional<ApiError> not_ready() const {
    ApiError error;
    error.status = 503;
    error.type = "unavailable_error";
    switch (loop_->state()) {
      case ServingLoop::State::kReady:
        return std::nullopt;
      case ServingLoop::State::kLoading:
        error.code = "loading";
        error.message = fmt::format("Loading model ({:.0f} %)", loop_->load_progress() * 100.0);
        return error;
      case ServingLoop::State::kDraining:
        error.code = "draining";
        error.message = "the server is shutting down";
        return error;
      case ServingLoop::State::kFailed:
        error.code = "load_failed";
        error.message = "the model could not be loaded; the server's log says why";
        return error;
    }
    return error;
  }

  // ---- after the body ----

  using Request = std::shared_ptr<const HttpRequest>;
  using WriterPtr = std::shared_ptr<ResponseWriter>;

  // Counts and logs an answer (of a stream: its beginning).
  void count(const HttpRequest& r, int status) {
    const std::string path = canonical_path(r.path);
    // Labels come from the closed set of routes, never from what a client typed.
    bool exists = false;
    find_route("GET", path, exists);
    const bool known = exists || find_route("POST", path, exists) != nullptr;
    const bool model = path.starts_with("/v1/models/");
    const std::string label = model ? "/v1/models/*" : known ? path : "other";
    ++http_counts_[{label, status}];
    log_info("{} {} {} {}", r.remote, r.method, label, status);
  }
  void reply(const Request& r, const WriterPtr& w, HttpResponse response) {
    add_cors(*r, response);
    response.headers.emplace_back("X-Request-Id", request_id(*r));
    count(*r, response.status);
    w->send(std::move(response));
  }
  static std::string request_id(const HttpRequest& r) {
    const std::string_view given = r.header("x-request-id");
    const bool plain = !given.empty() && given.size() <= 128 &&
                       std::all_of(given.begin(), given.end(), [](char c) { return c > 0x20 && c < 0x7F; });
    return plain ? std::string(given) : fmt::format("req-{}", r.id);
  }
  void reply_from_worker(Request r, WriterPtr w, HttpResponse response) {
    http_->post([self = shared_from_this(), r = std::move(r), w = std::move(w),
                 response = std::move(response)]() mutable { self->reply(r, w, std::move(response)); });
  }

  void handle(Request r, WriterPtr w) {
    const std::string path = canonical_path(r->path);
    if (r->method == "POST") {
      const bool taken =
          workers_.submit([self = shared_from_this(), r, w, path] { self->handle_post(r, w, path); });
      if (!taken) {
        ApiError busy;
        busy.status = 503;
        busy.type = busy.code = "server_busy";
        busy.message = "too many requests are being read";
        reply(r, w, busy.to_response());
      }
      return;
    }
    reply(r, w, answer_get(path));
  }

  HttpResponse answer_get(const std::string& path) {
    if (path == "/health" || path == "/v1/health") return health();
    if (path == "/version") return json_response(object({{"version", options_.version}}));
    if (path == "/openapi.json") return json_response(openapi_document(options_.version));
    if (path == "/") return status_page();
    if (path == "/v1/models") {
      JsonObject list;
      list.set("object", "list");
      list.set("data", JsonArray{model_object()});
      return json_response(list);
    }
    if (path.starts_with("/v1/models/")) return one_model(path.substr(11));
    if (path == "/metrics") return metrics();
    if (path == "/slots") return slots();
    if (path == "/props") return props();
    if (path == "/v1/cache/stats") return cache_stats();
    return json_response(JsonObject());
  }

  static JsonValue object(std::initializer_list<JsonMember> members) {
    JsonObject o;
    for (const JsonMember& m : members) o.set(m.first, m.second);
    return JsonValue(std::move(o));
  }

  HttpResponse health() const {
    if (auto error = not_ready()) return error->to_response();
    return json_response(object({{"status", "ok"}}));
  }
  HttpResponse status_page() const {
    HttpResponse page;
    page.content_type = "text/html; charset=utf-8";
    page.headers = {{"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"}};
    page.body =
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>mlxcel</title>"
        "<style>body{font:16px/1.5 system-ui;max-width:40em;margin:4em auto;padding:0 1em}</style>"
        "<h1>mlxcel is running</h1><p>The OpenAI-compatible interface is at <code>/v1</code>; <a "
        "href=\"/openapi.json\">/openapi.json</a> "
        "describes it, <a href=\"/health\">/health</a> and <a href=\"/metrics\">/metrics</a> say how it "
        "is.</p></html>";
    return page;
  }

  JsonValue model_object() const {
    const ModelInfo& m = loop_->info();
    JsonObject meta;
    meta.set("n_vocab", m.vocab_size);
    meta.set("n_ctx", m.context_length);
    meta.set("n_ctx_train", m.context_length);
    meta.set("n_params", m.parameters);
    meta.set("size", static_cast<int64_t>(m.weight_bytes));
    meta.set("quantisation", m.quantisation);
    return object({{"id", m.id},
                   {"object", "model"},
                   {"created", m.created},
                   {"owned_by", "mlxcel"},
                   {"max_model_len", m.context_length},
                   {"meta", JsonValue(std::move(meta))}});
  }
  HttpResponse one_model(const std::string& id) const {
    if (id == loop_->info().id) return json_response(model_object());
    ApiError error = field_error("model", "no such model here; see /v1/models");
    error.status = 404;
    error.code = "model_not_found";
    return error.to_response();
  }
  HttpResponse disabled(std::string_view flag) const {
    ApiError error = field_error("", fmt::format("switched off; start the server with {}", flag));
    error.status = 501;
    error.type = "not_implemented_error";
    return error.to_response();
  }
  HttpResponse metrics() const {
    if (!options_.metrics) return disabled("--metrics");
    HttpResponse r;
    r.content_type = "text/plain; version=0.0.4; charset=utf-8";
    r.body = render_metrics(
        {loop_->snapshot(), loop_->info(), http_counts_, options_.version, unknown_fields_.load()});
    std::string aliases;
    for (const MetricDialect dialect : options_.metric_aliases)
      aliases += alias_metrics(r.body, dialect, loop_->info().id);
    r.body += aliases;
    return r;
  }
  HttpResponse slots() const {
    if (!options_.slots) return disabled("--slots");
    const ServingSnapshot s = loop_->snapshot();
    JsonArray list;
    int64_t id = 0;
    for (const RequestView& v : s.requests) {
      list.push_back(object({{"id", id++},
                             {"id_task", static_cast<int64_t>(v.id)},
                             {"request", v.client_id},
                             {"state", v.phase},
                             {"is_processing", v.phase != "queued"},
                             {"n_ctx", loop_->info().context_length},
                             {"n_prompt_tokens", v.prompt_tokens},
                             {"n_computed_tokens", v.computed_tokens},
                             {"n_cached_tokens", v.cached_tokens},
                             {"n_decoded", v.generated_tokens},
                             {"kv_blocks", v.kv_blocks},
                             {"age_seconds", v.age_seconds}}));
    }
    return json_response(JsonValue(std::move(list)));
  }
  HttpResponse props() const {
    if (!options_.props) return disabled("--props");
    const ModelInfo& m = loop_->info();
    const SamplingParams& s = defaults().sampling;
    const auto number = [](float f) {
      std::string text;
      write_json_float(text, f);
      return JsonValue(std::strtod(text.c_str(), nullptr));
    };
    JsonValue params = object({{"temperature", number(s.temperature)},
                               {"top_k", s.top_k},
                               {"top_p", number(s.top_p)},
                               {"min_p", number(s.min_p)},
                               {"repeat_penalty", number(s.repetition_penalty)},
                               {"n_predict", defaults().max_tokens}});
    JsonValue generation = object({{"n_ctx", m.context_length}, {"params", std::move(params)}});
    const TextModel& text = loop_->text();
    return json_response(object(
        {{"default_generation_settings", std::move(generation)},
         {"total_slots", m.max_rows},
         {"model_alias", m.id},
         {"model_family", m.family},
         {"quantisation", m.quantisation},
         {"device", m.device},
         {"kv_type", m.kv_type},
         {"kv_storage", m.storage},
         {"activation_precision", m.precision},
         {"build_info", "mlxcel " + options_.version},
         {"chat_template", text.chat_template ? JsonValue(text.chat_template->source()) : JsonValue()}}));
  }
  HttpResponse cache_stats() const {
    const ServingSnapshot s = loop_->snapshot();
    JsonObject counters;
    for (const auto& [name, value] : s.counters) {
      if (name.starts_with("mlxcel_prefix_cache") || name.starts_with("mlxcel_kv"))
        counters.set(name, static_cast<int64_t>(value));
    }
    return json_response(object({{"blocks_total", s.kv_blocks_total},
                                 {"blocks_free", s.kv_blocks_free},
                                 {"blocks_held", s.kv_blocks_held},
                                 {"blocks_cached", s.kv_blocks_cached},
                                 {"block_size", s.kv_block_size},
                                 {"bytes", s.kv_bytes},
                                 {"counters", JsonValue(std::move(counters))}}));
  }

  const RequestDefaults& defaults() const {
    std::call_once(defaults_once_, [this] {
      defaults_ = options_.resolve_defaults ? options_.resolve_defaults(loop_->text(), loop_->info())
                                            : options_.defaults;
    });
    return defaults_;
  }

  // ---- POST, on a worker thread ----

  void handle_post(Request r, WriterPtr w, const std::string& path) {
    if (path == "/v1/cache/reset") {
      const Status done = loop_->reset_prefix_cache();
      return reply_from_worker(
          r, w,
          done.ok() ? json_response(object({{"status", "ok"}})) : api_error_from(done.error()).to_response());
    }
    JsonLimits limits;
    limits.max_depth = 128;
    auto body = parse_json(r->body, "request body", limits);
    if (!body.ok()) {
      ApiError error = field_error("", "the request body is not valid JSON: " + body.error().found);
      error.code = "invalid_json";
      return reply_from_worker(r, w, error.to_response());
    }
    if (path == "/v1/chat/completions")
      return start_answer(r, w, parse_chat_request(*body, loop_->text(), defaults()));
    if (path == "/v1/completions")
      return start_answer(r, w, parse_completion_request(*body, loop_->text(), defaults()));
    reply_from_worker(r, w, answer_text_route(path, *body));
  }

  HttpResponse answer_text_route(const std::string& path, const JsonValue& body) const {
    if (!body.is_object()) return field_error("", "the request body must be a JSON object").to_response();
    std::optional<ApiError> error;
    Fields fields(body, "", error);
    JsonValue out;
    if (path == "/tokenize") {
      out = tokenize(fields, error);
    } else if (path == "/detokenize") {
      out = detokenize(fields, error);
    } else {
      auto rendered = render_chat(body, loop_->text());
      if (auto* failed = std::get_if<ApiError>(&rendered)) return failed->to_response();
      const RenderedPrompt& prompt = std::get<RenderedPrompt>(rendered);
      if (path == "/apply-template") {
        out = object({{"prompt", prompt.text()}});
      } else {
        const auto ids = encode_prompt(*loop_->text().tokenizer, prompt);
        out =
            object({{"object", "response.input_tokens"}, {"input_tokens", static_cast<int64_t>(ids.size())}});
      }
    }
    return error ? error->to_response() : json_response(out);
  }

  JsonValue tokenize(Fields& fields, std::optional<ApiError>& error) const {
    const Tokenizer& tokenizer = *loop_->text().tokenizer;
    const bool has_prompt = fields.has("prompt");
    const auto content = fields.string(has_prompt ? "prompt" : "content");
    if (!content && !error) error = field_error("content", "is required");
    EncodeOptions options;
    options.add_special = fields.boolean(has_prompt ? "add_special_tokens" : "add_special").value_or(false);
    options.parse_special = fields.boolean("parse_special").value_or(true);
    const bool pieces = fields.boolean("with_pieces").value_or(false);
    if (error) return {};
    JsonArray tokens;
    for (const TokenId id : tokenizer.encode(*content, options)) {
      if (pieces) {
        tokens.push_back(object({{"id", int64_t{id}}, {"piece", tokenizer.id_to_token(id)}}));
      } else {
        tokens.emplace_back(int64_t{id});
      }
    }
    const auto n = static_cast<int64_t>(tokens.size());
    return object({{"tokens", JsonValue(std::move(tokens))},
                   {"count", n},
                   {"max_model_len", loop_->info().context_length}});
  }
  JsonValue detokenize(Fields& fields, std::optional<ApiError>& error) const {
    const Tokenizer& tokenizer = *loop_->text().tokenizer;
    if (!fields.has("tokens") && !error) error = field_error("tokens", "is required");
    std::vector<TokenId> ids;
    for (const int64_t id : fields.integers("tokens", size_t{1} << 24, 0, tokenizer.vocab_size() - 1))
      ids.push_back(static_cast<TokenId>(id));
    if (error) return {};
    const std::string text = tokenizer.decode(ids, false);
    return object({{"content", text}, {"prompt", text}});
  }

  // ---- generation ----

  // One HTTP request in progress. Lives on the I/O thread; the loop's sinks reach it through post().
  struct Session {
    Request request;
    WriterPtr writer;
    std::unique_ptr<Answer> answer;
    std::vector<RequestId> ids;
    size_t num_ended = 0;  // prompts whose last event was seen
    bool stream = false, done = false;
  };

  void start_answer(Request r, WriterPtr w, ApiResult<ParsedRequest> result) {
    if (auto* error = std::get_if<ApiError>(&result)) return reply_from_worker(r, w, error->to_response());
    ParsedRequest& parsed = std::get<ParsedRequest>(result);
    unknown_fields_ += static_cast<uint64_t>(parsed.num_unknown_fields);
    auto session = std::make_shared<Session>();
    session->request = r;
    session->writer = w;
    session->stream = parsed.answer.stream.stream;
    session->answer = std::make_unique<Answer>(std::move(parsed.answer));
    http_->post([self = shared_from_this(), session, requests = std::move(parsed.requests)]() mutable {
      self->submit_all(session, std::move(requests));
    });
  }

  void submit_all(const std::shared_ptr<Session>& session, std::vector<GenerationRequest> requests) {
    if (!session->writer->is_open()) return;
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].deadline_seconds = options_.request_timeout_seconds;
      auto id = loop_->submit(std::move(requests[i]),
                              [self = shared_from_this(), session, i](GenerationEvent&& event) {
                                self->http_->post([self, session, i, event = std::move(event)]() mutable {
                                  self->on_event(session, static_cast<int>(i), event);
                                });
                              });
      if (!id.ok()) {
        for (const RequestId submitted : session->ids) loop_->cancel(submitted);
        session->done = true;
        return reply(session->request, session->writer, api_error_from(id.error()).to_response());
      }
      session->ids.push_back(*id);
    }
    ++open_answers_;
    session->writer->on_disconnect([self = shared_from_this(), session] {
      if (session->done) return;
      self->finish(session);
      for (const RequestId id : session->ids) self->loop_->cancel(id);
    });
    if (!session->stream) return;
    HttpResponse head;
    head.content_type = "text/event-stream";
    head.headers.emplace_back("X-Request-Id", request_id(*session->request));
    add_cors(*session->request, head);
    count(*session->request, 200);
    session->writer->begin_stream(std::move(head), options_.ping_seconds);
  }

  void finish(const std::shared_ptr<Session>& session) {
    session->done = true;
    --open_answers_;
  }

  void on_event(const std::shared_ptr<Session>& session, int prompt, const GenerationEvent& event) {
    if (session->done) return;
    if (session->stream) {
      session->writer->write(session->answer->on_stream_event(prompt, event));
      if (event.is_last) ++session->num_ended;
      if (session->num_ended == session->ids.size() || session->answer->error()) {
        finish(session);
        session->writer->end_stream();
        if (session->answer->error()) {
          for (const RequestId id : session->ids) loop_->cancel(id);
        }
      }
      return;
    }
    const bool complete = session->answer->on_event(prompt, event);
    if (session->answer->error()) {
      finish(session);
      for (const RequestId id : session->ids) loop_->cancel(id);
      return reply(session->request, session->writer,
                   api_error_from(*session->answer->error()).to_response());
    }
    if (!complete) return;
    finish(session);
    reply(session->request, session->writer, json_response(session->answer->response()));
  }

  ApiServerOptions options_;
  std::shared_ptr<ServingLoop> loop_;
  std::unique_ptr<HttpServer> http_;
  HttpCounts http_counts_;  // I/O thread
  int open_answers_ = 0;    // I/O thread
  std::atomic<bool> draining_{false};
  std::atomic<uint64_t> unknown_fields_{0};
  mutable std::once_flag defaults_once_;
  mutable RequestDefaults defaults_;
  WorkerPool workers_;  // last: its tasks use everything above
};

}  // namespace

std::span<const RouteRow> route_table() { return kRoutes; }

Result<std::unique_ptr<ApiServer>> ApiServer::create(ApiServerOptions options,
                                                     std::shared_ptr<ServingLoop> loop) {
  // Handlers keep the server alive through shared_from_this while they run; the caller's handle forwards to
  // it.
  class Handle final : public ApiServer {
   public:
    explicit Handle(std::shared_ptr<Server> server) : server_(std::move(server)) {}
    std::string address() const override { return server_->address(); }
    void run() override { server_->run(); }
    void begin_drain() override { server_->begin_drain(); }
    void stop() override { server_->stop(); }

   private:
    std::shared_ptr<Server> server_;
  };
  auto server = std::make_shared<Server>(std::move(options), std::move(loop));
  MLXCEL_RETURN_IF_ERROR(server->bind());
  return std::unique_ptr<ApiServer>(std::make_unique<Handle>(std::move(server)));
}

}  // namespace mlxcel
