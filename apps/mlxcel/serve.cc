// mlxcel serve: the HTTP server. Binds first, loads the model behind an answering /health, says when it is
// ready, and drains on the first SIGTERM or SIGINT; the second ends it at once.
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <sstream>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "commands.h"
#include "serve/api_server.h"

namespace mlxcel {
namespace {

// Waits for signals on a thread of its own; they are blocked everywhere else.
class SignalWatch {
 public:
  explicit SignalWatch(std::function<void()> on_first) {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, &old_);
    thread_ = std::thread([this, on_first = std::move(on_first)] { watch(on_first); });
  }
  ~SignalWatch() {
    stopping_ = true;
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  void watch(const std::function<void()>& on_first) {
    const timespec wait{0, 100'000'000};
    bool was_told = false;
    while (!stopping_) {
      const int got = ::sigtimedwait(&set_, nullptr, &wait);
      if (got < 0) continue;
      if (was_told) ::_exit(1);
      was_told = true;
      on_first();
    }
  }
  sigset_t set_{}, old_{};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// systemd's readiness protocol (sd_notify(3)): one datagram to the socket it names.
void notify(const Settings& settings, std::string_view message) {
  const auto path = settings.text("notify-socket");
  if (!path || path->empty() || path->size() >= sizeof(sockaddr_un{}.sun_path)) return;
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path->data(), path->size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // abstract namespace
  sockaddr generic{};
  static_assert(sizeof(sockaddr_un) >= sizeof generic);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path->size());
  ::sendto(fd, message.data(), message.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
           size);
  ::close(fd);
}

Result<std::vector<std::string>> read_keys(const Settings& settings) {
  std::vector<std::string> keys = settings.list("api-key");
  if (const auto path = settings.text("api-key-file")) {
    MLXCEL_ASSIGN_OR_RETURN(const std::string text, read_file(*path, 1 << 20));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
      if (!line.empty() && line[0] != '#') keys.push_back(line);
    }
    if (keys.empty()) {
      return make_error(ErrorKind::kInvalidArgument, "the key file holds no key", *path,
                        "one key a line (lines that begin with # are comments)", "nothing");
    }
  }
  std::erase(keys, std::string());
  return keys;
}

HttpServerOptions http_options(const Settings& settings) {
  HttpServerOptions http;
  http.host = *settings.text("host");
  if (http.host.ends_with(".sock")) http.unix_socket = http.host;
  http.port = static_cast<uint16_t>(*settings.integer("port"));
  http.limits.max_body_bytes = static_cast<size_t>(*settings.integer("max-body"));
  return http;
}

bool is_loopback(const HttpServerOptions& http) {
  return !http.unix_socket.empty() || http.host == "localhost" || http.host == "::1" ||
         http.host.starts_with("127.");
}

Result<std::vector<MetricDialect>> metric_aliases(const Settings& settings) {
  std::vector<MetricDialect> dialects;
  const std::string names = settings.text("metrics-alias").value_or("");
  for (size_t at = 0; at < names.size();) {
    const size_t end = std::min(names.find(',', at), names.size());
    const std::string name = names.substr(at, end - at);
    at = end + 1;
    const bool is_llama = name == "llama";
    if (!is_llama && name != "vllm") {
      return make_error(ErrorKind::kInvalidArgument, "wrong value", "--metrics-alias",
                        "llama, vllm or llama,vllm", fmt::format("'{}'", names));
    }
    dialects.push_back(is_llama ? MetricDialect::kLlama : MetricDialect::kVllm);
  }
  return dialects;
}

Status open_log(const Settings& settings) {
  const std::string format = *settings.text("log-format");
  set_log_format(format == "json"   ? LogFormat::kJson
                 : format == "text" ? LogFormat::kTimed
                                    : LogFormat::kPlain);
  if (const auto path = settings.text("log-file")) return set_log_file(*path);
  return ok_status();
}

// A request's defaults: flag, generation_config.json, built-in. The file's do_sample = false means greedy.
Result<RequestDefaults> request_defaults(Settings settings, const TextModel::Defaults& model,
                                         std::string id) {
  apply_model_defaults(settings, model);
  apply_greedy_default(settings, model);
  RequestDefaults defaults;
  defaults.model_id = std::move(id);
  defaults.strict_model = settings.flag("strict-model");
  defaults.strict_fields = settings.flag("strict-fields");
  defaults.max_tokens = *settings.integer("max-tokens");
  MLXCEL_ASSIGN_OR_RETURN(defaults.sampling, sampling_params(settings));
  return defaults;
}

Result<ServingOptions> serving_options(const Settings& settings, const ResolvedModel& model) {
  ServingOptions options;
  options.max_rows = static_cast<int32_t>(*settings.integer("parallel"));
  MLXCEL_ASSIGN_OR_RETURN(options.session, session_options(settings, model, options.max_rows));
  MLXCEL_ASSIGN_OR_RETURN(options.session.chat_template, chat_template_override(settings));
  options.alias = settings.text("alias").value_or(model.name);
  options.max_batch_tokens = settings.integer("max-batch-tokens").value_or(0);
  options.prefill_chunk = static_cast<int32_t>(settings.integer("prefill-chunk").value_or(0));
  options.max_queue = static_cast<int32_t>(*settings.integer("max-queue"));
  options.prefix_cache = settings.flag("prefix-cache");
  options.lookahead = settings.flag("force-lookahead");
  options.force_sync = settings.flag("force-sync");
  options.draft_kind = *settings.text("draft-kind") == "none" ? "" : *settings.text("draft-kind");
  options.draft_max = static_cast<int32_t>(*settings.integer("draft-max"));
  return options;
}

void print_ready(Context& context, const ServingLoop& loop, const ApiServer& server,
                 const RequestDefaults& defaults) {
  const ModelInfo& m = loop.info();
  const ServingSnapshot s = loop.snapshot();
  Terminal& t = context.terminal;
  for (const std::string& warning : m.warnings) t.note("warning: " + warning);
  t.note(fmt::format("model     {} ({}, {}), context {}", m.id, m.family, m.quantisation, m.context_length));
  t.note(fmt::format("device    {}, activations {}", m.device, m.precision));
  t.note(fmt::format("kv cache  {}, {}, room for {} rows; {} answers at once; prefix cache {}", m.kv_type,
                     m.storage, s.kv_rows_total, m.max_rows,
                     context.settings.flag("prefix-cache") ? "on" : "off"));
  t.note("memory    " + m.memory);
  t.note(
      fmt::format("defaults  temperature {}, top-k {}, top-p {}, min-p {} (request, then flag, then "
                  "generation_config.json, then built-in)",
                  defaults.sampling.temperature, defaults.sampling.top_k, defaults.sampling.top_p,
                  defaults.sampling.min_p));
  t.note(fmt::format("ready in {:.2f} s: {}", m.load_seconds, server.address()));
  log_info("ready: {} on {}", m.id, server.address());
}

}  // namespace

Result<int> serve_command(Context& context) {
  const Settings& settings = context.settings;
  const auto word = context.arguments.empty() ? settings.text("model") : std::optional(context.arguments[0]);
  MLXCEL_ASSIGN_OR_RETURN(const ResolvedModel model, find_model(context, word));
  MLXCEL_ASSIGN_OR_RETURN(ServingOptions serving, serving_options(settings, model));
  MLXCEL_RETURN_IF_ERROR(open_log(settings));
  ApiServerOptions api;
  MLXCEL_ASSIGN_OR_RETURN(api.metric_aliases, metric_aliases(settings));
  api.http = http_options(settings);
  MLXCEL_ASSIGN_OR_RETURN(api.api_keys, read_keys(settings));
  MLXCEL_ASSIGN_OR_RETURN(api.defaults,
                          request_defaults(settings, {}, serving.alias));  // flags are right or we end here
  api.allowed_origins = settings.list("allowed-origins");
  api.request_timeout_seconds = settings.number("timeout").value_or(0.0);
  api.drain_seconds = settings.number("drain-timeout").value_or(30.0);
  api.metrics = settings.flag("metrics");
  api.slots = settings.flag("slots");
  api.props = settings.flag("props");
  api.version = MLXCEL_VERSION;
  api.resolve_defaults = [&settings](const TextModel& text, const ModelInfo& info) {
    auto defaults = request_defaults(settings, text.defaults, info.id);
    if (defaults.ok()) return *std::move(defaults);
    log_warning("generation_config.json is ignored: {}", defaults.error().one_line());
    return *request_defaults(settings, {}, info.id);
  };
  const auto resolve_defaults = api.resolve_defaults;
  const bool needs_warning = api.api_keys.empty() && !is_loopback(api.http);
  if (!settings.list("api-key").empty() && settings.find("api-key")->origin == Origin::kFlag) {
    context.terminal.note(
        "warning: a key given as a flag can be seen by other users of this machine; use --api-key-file");
  }

  std::unique_ptr<ApiServer> server;
  std::atomic<ApiServer*> running{nullptr};
  std::atomic<bool> early_stop{false};
  const SignalWatch signals([&] {
    if (ApiServer* s = running.load()) {
      s->begin_drain();
    } else {
      early_stop = true;
    }
  });
  const std::shared_ptr<ServingLoop> loop = ServingLoop::start(std::move(serving));
  MLXCEL_ASSIGN_OR_RETURN(server, ApiServer::create(std::move(api), loop));
  running = server.get();
  if (early_stop) return 0;
  if (needs_warning) {
    context.terminal.note(
        "WARNING: THIS SERVER LISTENS BEYOND THIS MACHINE AND NEEDS NO KEY. USE --api-key-file.");
  }
  // The one line on standard output, for scripts that start the server with port 0.
  context.terminal.print(fmt::format("listening on {}\n", server->address()));

  std::optional<Error> failure;
  std::thread loader([&] {
    if (Status ready = loop->wait_until_ready(); !ready.ok()) {
      failure = std::move(ready).error();
      server->stop();
      return;
    }
    print_ready(context, *loop, *server, resolve_defaults(loop->text(), loop->info()));
    notify(settings, "READY=1");
  });
  server->run();
  notify(settings, "STOPPING=1");
  running = nullptr;
  loader.join();
  if (failure) return *std::move(failure);
  return 0;
}

}  // namespace mlxcel
