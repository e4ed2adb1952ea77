// mlxcel bench decode: the engine alone, random token ids, no tokenizer, greedy.
//
// prefill tokens/s = batch * prompt tokens / time until every sequence has its first token;
// decode tokens/s = batch * generated tokens / time of the steps after it, at a context of `prompt tokens`
// and more.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/environment.h"
#include "base/memory_info.h"
#include "base/threads.h"
#include "commands.h"
#include "interrupt.h"
#include "options/values.h"

namespace mlxcel {
namespace {

struct Shape {
  int64_t prompt_tokens = 0, gen_tokens = 0, batch = 1;
  int64_t chunk = 512;  // tokens per prefill step, of all sequences together
};
struct Times {
  double prefill_seconds = 0.0, decode_seconds = 0.0;
};

// xorshift64*: which tokens they are does not matter, only that a seed gives the same ones.
class TokenSource {
 public:
  TokenSource(uint64_t seed, int64_t vocabulary)
      : state_(seed * 2654435769u + 88172645463325252u), vocabulary_(static_cast<uint64_t>(vocabulary)) {}
  TokenId next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<TokenId>((state_ * 2685821657736338717u >> 32) % vocabulary_);
  }

 private:
  uint64_t state_, vocabulary_;
};

Status run_step(Engine& engine, const StepBatch& batch) {
  if (InterruptScope::was_interrupted()) return make_error(ErrorKind::kCancelled, "cancelled");
  const StepResult result = engine.step(batch);
  for (const SequenceEvent& event : result.events) {
    if (event.error) return *event.error;
  }
  return ok_status();
}

Status prefill(Engine& engine, const std::vector<SequenceId>& ids, const Shape& shape) {
  for (;;) {
    StepBatch batch;
    int64_t budget = shape.chunk;
    for (const SequenceId id : ids) {
      const int64_t pending = std::min(shape.prompt_tokens - engine.num_computed(id), budget);
      if (pending <= 0) continue;
      batch.segments.push_back({id, static_cast<int32_t>(pending)});
      budget -= pending;
    }
    if (batch.segments.empty()) return ok_status();
    MLXCEL_RETURN_IF_ERROR(run_step(engine, batch));
  }
}

Status decode(Engine& engine, const std::vector<SequenceId>& ids, int64_t steps) {
  StepBatch batch;
  for (const SequenceId id : ids) batch.segments.push_back({id, 1});
  for (int64_t step = 0; step < steps; ++step) MLXCEL_RETURN_IF_ERROR(run_step(engine, batch));
  return ok_status();
}

Result<Times> measure(Engine& engine, const Shape& shape, TokenSource& source) {
  std::vector<SequenceId> ids;
  Status status = ok_status();
  for (int64_t i = 0; status.ok() && i < shape.batch; ++i) {
    SequenceRequest request;
    for (int64_t t = 0; t < shape.prompt_tokens; ++t) request.prompt.push_back(source.next());
    request.stop.ignore_eos = true;
    request.stop.max_tokens = shape.gen_tokens + 1;  // the prefill makes the first
    auto id = engine.add(std::move(request));
    if (id.ok())
      ids.push_back(*id);
    else
      status = id.error();
  }
  Times times;
  const double begin = monotonic_seconds();
  if (status.ok()) status = prefill(engine, ids, shape);
  const double middle = monotonic_seconds();
  if (status.ok()) status = decode(engine, ids, shape.gen_tokens);
  times.prefill_seconds = middle - begin;
  times.decode_seconds = monotonic_seconds() - middle;
  for (const SequenceId id : ids) engine.remove(id);
  if (!status.ok()) return status.error();
  return times;
}

struct Summary {
  double median = 0.0, deviation = 0.0;  // of tokens per second over the repeats
};
Summary summarise(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  Summary out;
  out.median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2.0;
  double mean = 0.0, squares = 0.0;
  for (const double v : values) mean += v / static_cast<double>(n);
  for (const double v : values) squares += (v - mean) * (v - mean);
  if (n > 1) out.deviation = std::sqrt(squares / static_cast<double>(n - 1));
  return out;
}

struct BenchResult {
  Summary prefill, decode;
  std::vector<double> prefill_runs, decode_runs;
  double load_seconds = 0.0, rss_mib = 0.0;
};

JsonArray numbers_json(const std::vector<double>& values) {
  JsonArray out;
  for (const double v : values) out.emplace_back(v);
  return out;
}

std::string result_json(const ResolvedModel& model, const ModelSession& session, const Settings& settings,
                        int threads, const Shape& shape, const BenchResult& result) {
  const Engine& engine = *session.engine;
  const KvLayout& layout = engine.runner().kv_layout();
  JsonObject out;
  out.set("prefill_tok_s", result.prefill.median);
  out.set("decode_tok_s", result.decode.median);
  out.set("load_s", result.load_seconds);
  out.set("rss_mib", result.rss_mib);
  out.set("schema", 1);
  out.set("build", MLXCEL_VERSION);
  out.set("compiler", fmt::format("{} {}.{}", MLXCEL_COMPILER, __GNUC__, __GNUC_MINOR__));
  out.set("model", model.name);
  out.set("quant", session.quantisation);
  out.set("device", engine.runner().description());
  out.set("backend", *settings.text("backend"));
  out.set("activation_precision", activation_precision_name(engine.runner().precision()));
  out.set("kv_type", fmt::format("{}/{}", kv_type_name(layout.key_type), kv_type_name(layout.value_type)));
  out.set("kv_storage", engine.block_pool() != nullptr ? "paged" : "dense");
  out.set("kv_bytes", engine.kv_bytes());
  out.set("threads", threads);
  out.set("batch", shape.batch);
  out.set("prompt_tokens", shape.prompt_tokens);
  out.set("generated_tokens", shape.gen_tokens);
  out.set("prefill_chunk", shape.chunk);
  out.set("repeats", static_cast<int64_t>(result.prefill_runs.size()));
  out.set("prefill_tok_s_stddev", result.prefill.deviation);
  out.set("decode_tok_s_stddev", result.decode.deviation);
  out.set("prefill_tok_s_runs", numbers_json(result.prefill_runs));
  out.set("decode_tok_s_runs", numbers_json(result.decode_runs));
  out.set("seed", *settings.integer("seed"));
  return to_json(JsonValue(std::move(out))) + "\n";
}

std::string result_table(const ResolvedModel& model, const ModelSession& session, int threads,
                         const Shape& shape, const BenchResult& result) {
  const Engine& engine = *session.engine;
  const std::string weights = format_bytes(engine.runner().resident_bytes());
  const std::string parameters =
      fmt::format("{:.2f} M", static_cast<double>(engine.runner().spec().num_parameters_estimate()) / 1e6);
  const std::string title = fmt::format("{} {}", model.name, session.quantisation);
  std::string out = fmt::format("| {:<40} | {:>10} | {:>10} | {:<16} | {:>7} | {:>5} | {:>14} | {:>18} |\n",
                                "model", "size", "params", "backend", "threads", "batch", "test", "t/s");
  out += fmt::format("| {:-<40} | {:->9}: | {:->9}: | {:-<16} | {:->6}: | {:->4}: | {:->13}: | {:->17}: |\n",
                     "", "", "", "", "", "", "", "");
  const auto row = [&](const std::string& test, const Summary& summary) {
    out += fmt::format("| {:<40} | {:>10} | {:>10} | {:<16} | {:>7} | {:>5} | {:>14} | {:>18} |\n", title,
                       weights, parameters, engine.runner().description().substr(0, 16), threads, shape.batch,
                       test, fmt::format("{:.2f} +- {:.2f}", summary.median, summary.deviation));
  };
  row(fmt::format("pp{}", shape.prompt_tokens), result.prefill);
  row(fmt::format("tg{} @ d{}", shape.gen_tokens, shape.prompt_tokens), result.decode);
  return out;
}

Result<BenchResult> run_bench(Engine& engine, const Settings& settings, const Shape& shape) {
  TokenSource source(static_cast<uint64_t>(*settings.integer("seed")), engine.runner().spec().vocab_size);
  if (settings.flag("warm-up")) {
    Shape small = shape;
    small.prompt_tokens = std::min<int64_t>(shape.prompt_tokens, 32);
    small.gen_tokens = 1;
    MLXCEL_RETURN_IF_ERROR(measure(engine, small, source));
  }
  BenchResult result;
  const auto batch = static_cast<double>(shape.batch);
  for (int64_t i = 0; i < *settings.integer("repeats"); ++i) {
    MLXCEL_ASSIGN_OR_RETURN(const Times times, measure(engine, shape, source));
    result.prefill_runs.push_back(batch * static_cast<double>(shape.prompt_tokens) / times.prefill_seconds);
    result.decode_runs.push_back(batch * static_cast<double>(shape.gen_tokens) / times.decode_seconds);
  }
  result.prefill = summarise(result.prefill_runs);
  result.decode = summarise(result.decode_runs);
  return result;
}

}  // namespace

Result<int> bench_decode_command(Context& context) {
  const Settings& settings = context.settings;
  MLXCEL_ASSIGN_OR_RETURN(const ResolvedModel model, find_model(context, settings.text("model")));
  Shape shape;
  shape.prompt_tokens = *settings.integer("prompt-tokens");
  shape.gen_tokens = *settings.integer("gen-tokens");
  shape.batch = *settings.integer("batch");
  shape.chunk = *settings.integer("prefill-chunk");
  MLXCEL_ASSIGN_OR_RETURN(SessionOptions options, session_options(settings, model, shape.batch));
  // One more row than is shown: the first token comes from the prefill.
  if (!settings.is_given("ctx-size"))
    options.engine.context_length = shape.prompt_tokens + shape.gen_tokens + 1;
  MLXCEL_ASSIGN_OR_RETURN(ModelSession session, load_session(context, model, options, false));
  const InterruptScope interruptible;
  MLXCEL_ASSIGN_OR_RETURN(BenchResult result, run_bench(*session.engine, settings, shape));
  result.load_seconds = session.load_seconds;
  result.rss_mib = static_cast<double>(peak_resident_bytes().value_or(0)) / 1048576.0;
  const int threads = options.runner.num_threads;
  context.terminal.print(settings.flag("json") ? result_json(model, session, settings, threads, shape, result)
                                               : result_table(model, session, threads, shape, result));
  return 0;
}

}  // namespace mlxcel
