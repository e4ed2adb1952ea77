// mlxcel bench serve: load on any OpenAI-compatible server, measured from outside.
//
// TTFT: request sent until the first text; ITL: gaps between the pieces of text of one answer;
// TPOT = (end - first text) / (tokens - 1) of one answer; throughput: sums over the wall time from the first
// request to the last end. Percentiles interpolate linearly (as NumPy's default). The names and the table are
// those of `vllm bench serve`, so that old scripts read them.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/environment.h"
#include "base/file.h"
#include "client/api_client.h"
#include "commands.h"
#include "interrupt.h"

namespace mlxcel {
namespace {

// Short common words: nearly every tokenizer has each as one token with its blank.
constexpr std::string_view kWords[] = {
    "the",   "of",    "and", "to",   "in",    "is",    "that",  "for",  "it",    "as",   "was",  "with",
    "be",    "by",    "on",  "not",  "he",    "his",   "but",   "at",   "are",   "this", "have", "from",
    "or",    "had",   "an",  "they", "which", "one",   "you",   "were", "all",   "her",  "she",  "there",
    "would", "their", "we",  "him",  "been",  "has",   "when",  "who",  "will",  "no",   "more", "if",
    "out",   "so",    "up",  "said", "what",  "its",   "about", "than", "into",  "them", "can",  "only",
    "other", "time",  "new", "some", "could", "these", "two",   "may",  "first", "then", "do",   "any"};

// splitmix64: a seed gives the same load everywhere.
class LoadRandom {
 public:
  explicit LoadRandom(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

struct LoadRequest {
  std::string prompt;
  int64_t max_tokens = 0;
  double start_at = 0.0;  // seconds after the run began, at the earliest
};

struct LoadOutcome {
  double started = 0.0, ended = 0.0;
  std::vector<double> text_times;
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  std::optional<Error> error;
};

struct LoadPlan {
  std::string server, model, path;
  bool is_chat = false, reuses_prefixes = false, is_random = true;
  int64_t max_concurrency = 0;  // 0: no limit
  std::optional<double> request_rate;
  uint64_t seed = 0;
  std::vector<LoadRequest> requests;
};

std::string random_words(LoadRandom& random, int64_t count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    if (!text.empty()) text += ' ';
    text += kWords[random.next() % std::size(kWords)];
  }
  return text;
}

// Tokens per word, by the server's own tokenizer (llama-server's request, then vLLM's); 1 where it has none.
double tokens_per_word(ApiClient& client, const std::string& model) {
  constexpr int64_t kSample = 512;
  LoadRandom random(1);
  const std::string text = random_words(random, kSample);
  for (const char* field : {"content", "prompt"}) {
    JsonObject body;
    body.set("model", model);
    body.set(field, text);
    const auto answer = client.post("/tokenize", JsonValue(std::move(body)));
    if (!answer.ok()) continue;
    const JsonValue* tokens = answer->find_set("tokens");
    if (tokens != nullptr && tokens->is_array() && !tokens->as_array().empty())
      return static_cast<double>(tokens->as_array().size()) / static_cast<double>(kSample);
  }
  return 1.0;
}

// A uniform draw from [(1 - spread) * length, (1 + spread) * length], at least 1.
int64_t drawn_length(LoadRandom& random, int64_t length, double spread) {
  const double factor = 1.0 - spread + 2.0 * spread * random.uniform();
  return std::max<int64_t>(1, std::llround(static_cast<double>(length) * factor));
}

void make_random_requests(const Settings& settings, double per_word, LoadPlan& plan) {
  LoadRandom random(plan.seed);
  const auto words = [&](int64_t tokens) {
    return std::max<int64_t>(1, std::llround(static_cast<double>(tokens) / per_word));
  };
  const int64_t prefix_tokens = *settings.integer("shared-prefix");
  const std::string prefix = prefix_tokens > 0 ? random_words(random, words(prefix_tokens)) + "\n" : "";
  const double spread = *settings.number("length-spread");
  for (int64_t i = 0; i < *settings.integer("num-prompts"); ++i) {
    LoadRequest request;
    const int64_t prompt_tokens = drawn_length(random, *settings.integer("prompt-tokens"), spread);
    request.max_tokens = drawn_length(random, *settings.integer("gen-tokens"), spread);
    request.prompt = prefix + random_words(random, words(prompt_tokens));
    plan.requests.push_back(std::move(request));
  }
}

// One JSON object a line: {"prompt": "...", "max_tokens": N (optional)}.
Status read_requests(const std::string& path, const Settings& settings, LoadPlan& plan) {
  MLXCEL_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  const int64_t most = settings.is_given("num-prompts") ? *settings.integer("num-prompts") : INT64_MAX;
  int64_t number = 0;
  for (size_t at = 0; at < text.size() && static_cast<int64_t>(plan.requests.size()) < most;) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}, line {}", path, number);
    MLXCEL_ASSIGN_OR_RETURN(const JsonValue row, parse_json(line, where));
    const JsonReader reader(row, where);
    LoadRequest request;
    MLXCEL_ASSIGN_OR_RETURN(request.prompt, reader.string("prompt"));
    MLXCEL_ASSIGN_OR_RETURN(request.max_tokens, reader.integer("max_tokens", settings.integer("gen-tokens")));
    plan.requests.push_back(std::move(request));
  }
  if (plan.requests.empty())
    return make_error(ErrorKind::kInvalidData, "the file holds no request", path, "a JSON object a line",
                      "none");
  return ok_status();
}

JsonValue request_body(const LoadPlan& plan, const LoadRequest& request) {
  JsonObject body;
  body.set("model", plan.model);
  if (plan.is_chat) {
    JsonObject message;
    message.set("role", "user");
    message.set("content", request.prompt);
    JsonArray messages;
    messages.emplace_back(std::move(message));
    body.set("messages", std::move(messages));
  } else {
    body.set("prompt", request.prompt);
  }
  body.set("max_tokens", request.max_tokens);
  body.set("temperature", 0.0);
  body.set("stream", true);
  JsonObject options;
  options.set("include_usage", true);
  body.set("stream_options", std::move(options));
  if (plan.is_random) body.set("ignore_eos", true);
  if (!plan.reuses_prefixes) body.set("cache_prompt", false);
  return JsonValue(std::move(body));
}

int64_t integer_at(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find_set(key);
  return value != nullptr && value->is_int() ? value->as_int() : 0;
}

void take_chunk(const JsonValue& chunk, LoadOutcome& outcome) {
  if (const JsonValue* usage = chunk.find_set("usage")) {
    outcome.prompt_tokens = integer_at(*usage, "prompt_tokens");
    outcome.output_tokens = integer_at(*usage, "completion_tokens");
    if (const JsonValue* details = usage->find_set("prompt_tokens_details"))
      outcome.cached_tokens = integer_at(*details, "cached_tokens");
  }
  const JsonValue* choices = chunk.find_set("choices");
  if (choices == nullptr || !choices->is_array()) return;
  for (const JsonValue& choice : choices->as_array()) {
    const JsonValue* delta = choice.find_set("delta");
    const JsonValue& holder = delta != nullptr ? *delta : choice;
    for (const char* key : {"text", "content", "reasoning_content"}) {
      const JsonValue* text = holder.find_set(key);
      if (text != nullptr && text->is_string() && !text->as_string().empty()) {
        outcome.text_times.push_back(monotonic_seconds());
        break;
      }
    }
  }
}

double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct LoadRun {
  std::vector<LoadOutcome> outcomes;
  double seconds = 0.0, generator_share = 0.0;
  size_t peak_streams = 0;
};

LoadRun run_load(ApiClient& client, const LoadPlan& plan, Terminal& terminal, bool is_quiet) {
  LoadRun run;
  run.outcomes.resize(plan.requests.size());
  const double begin = monotonic_seconds(), begin_processor = processor_seconds();
  size_t next = 0, finished = 0;
  double last_note = begin;
  while (finished < plan.requests.size() && !InterruptScope::was_interrupted()) {
    const double now = monotonic_seconds() - begin;
    while (next < plan.requests.size() && plan.requests[next].start_at <= now &&
           (plan.max_concurrency == 0 || client.num_streams() < static_cast<size_t>(plan.max_concurrency))) {
      LoadOutcome& outcome = run.outcomes[next];
      outcome.started = monotonic_seconds();
      client.start_stream(plan.path, request_body(plan, plan.requests[next]),
                          {[&outcome](const JsonValue& chunk) { take_chunk(chunk, outcome); },
                           [&outcome, &finished](const ApiStreamEnd& end) {
                             outcome.ended = monotonic_seconds();
                             outcome.error = end.error;
                             ++finished;
                           }});
      ++next;
    }
    run.peak_streams = std::max(run.peak_streams, client.num_streams());
    double wait = 0.05;
    if (next < plan.requests.size()) wait = std::clamp(plan.requests[next].start_at - now, 0.001, wait);
    client.poll(wait);
    if (!is_quiet && monotonic_seconds() - last_note > 5.0) {
      last_note = monotonic_seconds();
      terminal.note(fmt::format("{} of {} requests done", finished, plan.requests.size()));
    }
  }
  run.seconds = monotonic_seconds() - begin;
  run.generator_share = (processor_seconds() - begin_processor) / std::max(run.seconds, 1e-9);
  return run;
}

struct Distribution {
  double mean = 0.0, median = 0.0, p99 = 0.0;
};
double percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0.0;
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}
Distribution distribution_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  Distribution out;
  if (!values.empty())
    out.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  out.median = percentile(values, 0.5);
  out.p99 = percentile(values, 0.99);
  return out;
}

struct LoadSummary {
  int64_t completed = 0, failed = 0, input_tokens = 0, cached_tokens = 0, output_tokens = 0;
  Distribution ttft, tpot, itl, e2e;  // milliseconds
  std::optional<Error> first_error;
};

LoadSummary summarise_load(const LoadRun& run) {
  LoadSummary s;
  std::vector<double> ttft, tpot, itl, e2e;
  for (const LoadOutcome& o : run.outcomes) {
    if (o.error || o.ended == 0.0) {
      s.failed += o.ended != 0.0 ? 1 : 0;
      if (o.error && !s.first_error) s.first_error = o.error;
      continue;
    }
    ++s.completed;
    // A server that sends no usage: pieces of text stand for tokens.
    const int64_t tokens = o.output_tokens > 0 ? o.output_tokens : static_cast<int64_t>(o.text_times.size());
    s.input_tokens += o.prompt_tokens;
    s.cached_tokens += o.cached_tokens;
    s.output_tokens += tokens;
    e2e.push_back((o.ended - o.started) * 1e3);
    if (o.text_times.empty()) continue;
    ttft.push_back((o.text_times.front() - o.started) * 1e3);
    if (tokens > 1)
      tpot.push_back((o.text_times.back() - o.text_times.front()) * 1e3 / static_cast<double>(tokens - 1));
    for (size_t i = 1; i < o.text_times.size(); ++i)
      itl.push_back((o.text_times[i] - o.text_times[i - 1]) * 1e3);
  }
  s.ttft = distribution_of(std::move(ttft));
  s.tpot = distribution_of(std::move(tpot));
  s.itl = distribution_of(std::move(itl));
  s.e2e = distribution_of(std::move(e2e));
  return s;
}

double per_second(int64_t count, double seconds) {
  return static_cast<double>(count) / std::max(seconds, 1e-9);
}

std::string load_table(const LoadPlan& plan, const LoadRun& run, const LoadSummary& s) {
  std::string out = fmt::format("{:=^50}\n", " Serving Benchmark Result ");
  const auto text = [&](std::string_view name, const std::string& value) {
    out += fmt::format("{:<40} {:<9}\n", name, value);
  };
  const auto count = [&](std::string_view name, int64_t value) { text(name, fmt::format("{}", value)); };
  const auto number = [&](std::string_view name, double value) { text(name, fmt::format("{:.2f}", value)); };
  count("Successful requests:", s.completed);
  count("Failed requests:", s.failed);
  text("Maximum request concurrency:",
       plan.max_concurrency > 0 ? fmt::format("{}", plan.max_concurrency) : "none");
  text("Request rate configured (RPS):", plan.request_rate ? fmt::format("{}", *plan.request_rate) : "inf");
  number("Benchmark duration (s):", run.seconds);
  count("Total input tokens:", s.input_tokens);
  count("Total cached input tokens:", s.cached_tokens);
  count("Total generated tokens:", s.output_tokens);
  number("Request throughput (req/s):", per_second(s.completed, run.seconds));
  number("Output token throughput (tok/s):", per_second(s.output_tokens, run.seconds));
  number("Total token throughput (tok/s):", per_second(s.input_tokens + s.output_tokens, run.seconds));
  count("Peak concurrent requests:", static_cast<int64_t>(run.peak_streams));
  number("Load generator (cores):", run.generator_share);
  const auto block = [&](std::string_view title, std::string_view name, const Distribution& d) {
    out += fmt::format("{:-^50}\n", title);
    number(fmt::format("Mean {} (ms):", name), d.mean);
    number(fmt::format("Median {} (ms):", name), d.median);
    number(fmt::format("P99 {} (ms):", name), d.p99);
  };
  block("Time to First Token", "TTFT", s.ttft);
  block("Time per Output Token (excl. 1st token)", "TPOT", s.tpot);
  block("Inter-token Latency", "ITL", s.itl);
  block("End-to-end Latency", "E2EL", s.e2e);
  out += std::string(50, '=') + "\n";
  return out;
}

JsonObject load_json(const LoadPlan& plan, const LoadRun& run, const LoadSummary& s) {
  JsonObject out;
  out.set("schema", 1);
  out.set("build", MLXCEL_VERSION);
  out.set("server", plan.server);
  out.set("model_id", plan.model);
  out.set("endpoint", plan.path);
  out.set("seed", plan.seed);
  out.set("num_prompts", static_cast<int64_t>(plan.requests.size()));
  out.set("request_rate", plan.request_rate ? JsonValue(*plan.request_rate) : JsonValue("inf"));
  out.set("max_concurrency", plan.max_concurrency > 0 ? JsonValue(plan.max_concurrency) : JsonValue());
  out.set("duration", run.seconds);
  out.set("completed", s.completed);
  out.set("failed", s.failed);
  out.set("total_input_tokens", s.input_tokens);
  out.set("total_cached_tokens", s.cached_tokens);
  out.set("total_output_tokens", s.output_tokens);
  out.set("request_throughput", per_second(s.completed, run.seconds));
  out.set("output_throughput", per_second(s.output_tokens, run.seconds));
  out.set("total_token_throughput", per_second(s.input_tokens + s.output_tokens, run.seconds));
  out.set("peak_concurrent_requests", static_cast<int64_t>(run.peak_streams));
  out.set("generator_cores", run.generator_share);
  const auto block = [&](std::string_view name, const Distribution& d) {
    out.set(fmt::format("mean_{}_ms", name), d.mean);
    out.set(fmt::format("median_{}_ms", name), d.median);
    out.set(fmt::format("p99_{}_ms", name), d.p99);
  };
  block("ttft", s.ttft);
  block("tpot", s.tpot);
  block("itl", s.itl);
  block("e2el", s.e2e);
  if (s.first_error) out.set("first_error", s.first_error->one_line());
  return out;
}

Result<std::string> first_model_of(ApiClient& client) {
  MLXCEL_ASSIGN_OR_RETURN(const JsonValue models, client.get("/v1/models"));
  const JsonValue* data = models.find_set("data");
  if (data != nullptr && data->is_array() && !data->as_array().empty()) {
    const JsonValue* id = data->as_array().front().find_set("id");
    if (id != nullptr && id->is_string()) return id->as_string();
  }
  return make_error(ErrorKind::kInvalidData, "the server names no model", "/v1/models", "data[0].id",
                    "nothing", "give the name with --served-model");
}

Result<std::string> client_key(const Settings& settings) {
  if (const auto keys = settings.list("api-key"); !keys.empty()) return keys.front();
  const auto path = settings.text("api-key-file");
  if (!path) return std::string();
  MLXCEL_ASSIGN_OR_RETURN(const std::string text, read_text(*path));
  return text.substr(0, text.find_first_of("\r\n"));
}

Result<LoadPlan> make_plan(ApiClient& client, const Settings& settings) {
  LoadPlan plan;
  plan.server = *settings.text("server");
  plan.is_chat = *settings.text("load-endpoint") == "chat";
  plan.path = plan.is_chat ? "/v1/chat/completions" : "/v1/completions";
  plan.max_concurrency = settings.integer("max-concurrency").value_or(0);
  plan.request_rate = settings.number("request-rate");
  // A fresh load each time, or a prefix cache would answer for the second run.
  plan.seed =
      settings.is_given("seed") ? static_cast<uint64_t>(*settings.integer("seed")) : random_seed() >> 16;
  plan.reuses_prefixes = *settings.integer("shared-prefix") > 0;
  if (const auto name = settings.text("served-model")) {
    plan.model = *name;
  } else {
    MLXCEL_ASSIGN_OR_RETURN(plan.model, first_model_of(client));
  }
  if (const auto path = settings.text("dataset")) {
    plan.is_random = false;
    plan.reuses_prefixes = true;
    MLXCEL_RETURN_IF_ERROR(read_requests(*path, settings, plan));
  } else {
    make_random_requests(settings, tokens_per_word(client, plan.model), plan);
  }
  if (plan.request_rate) {  // a Poisson process: exponential gaps
    LoadRandom random(plan.seed ^ 0x5DEECE66Du);
    double at = 0.0;
    for (LoadRequest& request : plan.requests) {
      request.start_at = at;
      at += -std::log(1.0 - random.uniform()) / *plan.request_rate;
    }
  }
  return plan;
}

// One short answer, so that nobody measures first faults and page-ins.
Status warm_up(ApiClient& client, LoadPlan plan, Terminal& terminal) {
  LoadRequest request;
  request.prompt = "warm up";
  request.max_tokens = 2;
  plan.requests = {request};
  const LoadRun run = run_load(client, plan, terminal, true);
  if (run.outcomes[0].error) return *run.outcomes[0].error;
  return ok_status();
}

}  // namespace

Result<int> bench_serve_command(Context& context) {
  const Settings& settings = context.settings;
  const InterruptScope interruptible;
  ApiClientOptions options;
  options.base_url = *settings.text("server");
  MLXCEL_ASSIGN_OR_RETURN(options.api_key, client_key(settings));
  MLXCEL_ASSIGN_OR_RETURN(const std::unique_ptr<ApiClient> client, ApiClient::create(std::move(options)));
  MLXCEL_ASSIGN_OR_RETURN(const LoadPlan plan, make_plan(*client, settings));
  if (settings.flag("warm-up")) MLXCEL_RETURN_IF_ERROR(warm_up(*client, plan, context.terminal));
  const bool is_json = settings.flag("json");
  const LoadRun run = run_load(*client, plan, context.terminal, is_json);
  if (InterruptScope::was_interrupted()) return make_error(ErrorKind::kCancelled, "cancelled");
  const LoadSummary summary = summarise_load(run);
  const std::string json = to_json(JsonValue(load_json(plan, run, summary))) + "\n";
  if (const auto path = settings.text("save-result"))
    MLXCEL_RETURN_IF_ERROR(write_file_atomically(*path, json));
  context.terminal.print(is_json ? json : load_table(plan, run, summary));
  if (summary.first_error) {
    context.terminal.note(
        fmt::format("{} requests failed; the first: {}", summary.failed, summary.first_error->one_line()));
  }
  return summary.completed > 0 ? 0 : 1;
}

}  // namespace mlxcel
