#include "context.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/threads.h"
#include "options/values.h"
#include "progress.h"

namespace mlxcel {
namespace {

constexpr size_t kMaxInputBytes = size_t{256} << 20;
constexpr double kQuietLoadSeconds = 0.4;  // shorter loads show no bar

Result<std::string> read_stdin() {
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (got < 0) return make_error(ErrorKind::kIo, "cannot read standard input");
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kMaxInputBytes) {
      return make_error(ErrorKind::kInvalidArgument, "standard input is too long", "",
                        fmt::format("at most {} bytes", kMaxInputBytes));
    }
  }
}

void print_banner(Context& context, const ModelSession& session, const ResolvedModel& model) {
  const Engine& engine = *session.engine;
  const ModelSpec& spec = engine.runner().spec();
  Terminal& terminal = context.terminal;
  terminal.note(fmt::format("model     {} ({}), {} layers, hidden {}, vocabulary {}, {}", model.name,
                            spec.family, spec.layers.size(), spec.hidden_size, spec.vocab_size,
                            session.quantisation));
  terminal.note(fmt::format("device    {}, activations {}, {} resident", engine.runner().description(),
                            activation_precision_name(engine.runner().precision()),
                            format_bytes(engine.runner().resident_bytes())));
  const KvLayout& layout = engine.runner().kv_layout();
  terminal.note(fmt::format(
      "kv cache  {}/{}, {}, room for {} rows of {}, {} taken now; memory is taken as rows are written",
      kv_type_name(layout.key_type), kv_type_name(layout.value_type),
      engine.block_pool() != nullptr ? "paged" : "dense", engine.kv_capacity_rows(),
      format_bytes(static_cast<uint64_t>(layout.bytes_per_row())),
      format_bytes(static_cast<uint64_t>(std::max<int64_t>(0, engine.kv_bytes())))));
  terminal.note("memory    " + session.memory.describe());
  terminal.note(
      fmt::format("context   {} tokens (the model allows {})", engine.context_length(), spec.max_position));
  if (const Setting* temperature = context.settings.find("temp")) {
    const bool is_greedy = *context.settings.number("temp") == 0.0;
    terminal.note(fmt::format("sampling  {}, temperature {} from {}", is_greedy ? "greedy" : "random",
                              *context.settings.number("temp"), temperature->source));
  }
  const std::string given = describe_settings(context.settings, true);
  if (!given.empty()) terminal.note("settings\n" + given.substr(0, given.size() - 1));
  terminal.note(fmt::format("ready in {:.2f} s", session.load_seconds));
}

template <typename Value>
void set_from_model(Settings& settings, std::string_view name, Value value) {
  settings.set(*find_option(name),
               Setting{SettingValue(value), Origin::kModelFile, "generation_config.json"});
}

KvType kv_type_setting(const Settings& settings, std::string_view name) {
  const std::optional<KvType> type = parse_kv_type(settings.text(name).value_or("f16"));
  MLXCEL_CHECK_MSG(type.has_value(), "the option table and the KV types disagree");
  return *type;
}

}  // namespace

StorePaths store_paths(const Settings& settings) {
  const std::string user_home = settings.text("user-home").value_or(".");
  const std::string cache = settings.text("user-cache").value_or(path_join(user_home, ".cache"));
  StorePaths paths;
  paths.home = settings.text("home").value_or(path_join(cache, "mlxcel"));
  paths.hugging_face_hub =
      path_join(settings.text("hf-home").value_or(path_join(cache, "huggingface")), "hub");
  paths.default_owner = *settings.text("default-org");
  return paths;
}

Result<ResolvedModel> find_model(const Context& context, const std::optional<std::string>& reference) {
  if (reference) return resolve_model(*reference, store_paths(context.settings));
  return make_error(ErrorKind::kInvalidArgument, "no model is named", "", "-m MODEL (or MLXCEL_MODEL)",
                    "neither",
                    "get one with 'mlxcel pull mlx-community/SmolLM2-135M-Instruct-4bit'; 'mlxcel list' "
                    "shows those you have");
}

Result<std::optional<std::string>> chat_template_override(const Settings& settings) {
  if (const auto text = settings.text("chat-template")) return text;
  const auto path = settings.text("chat-template-file");
  if (!path) return std::optional<std::string>();
  MLXCEL_ASSIGN_OR_RETURN(std::string text, read_text(*path));
  return std::optional<std::string>(std::move(text));
}

Result<JsonObject> template_variables(const Settings& settings) {
  const auto text = settings.text("chat-template-kwargs");
  if (!text) return JsonObject();
  auto parsed = parse_json(*text, "--chat-template-kwargs");
  if (!parsed.ok()) {
    return make_error(ErrorKind::kInvalidArgument, "wrong value", "--chat-template-kwargs", "a JSON object",
                      parsed.error().found, "as {\"enable_thinking\": false}");
  }
  JsonValue value = *std::move(parsed);
  if (value.is_object()) return std::move(value.as_object());
  return make_error(ErrorKind::kInvalidArgument, "wrong value", "--chat-template-kwargs", "a JSON object",
                    std::string(value.type_name()));
}

Result<SessionOptions> session_options(const Settings& settings, const ResolvedModel& model,
                                       int64_t num_sequences) {
  if (settings.integer("gpu-layers").value_or(0) != 0) {
    return make_error(ErrorKind::kUnsupported, "this build has no GPU backend", "--gpu-layers", "0",
                      fmt::format("{}", *settings.integer("gpu-layers")),
                      "leave the flag out to run on the CPU");
  }
  SessionOptions options;
  options.model_path = model.path;
  options.backend = settings.text("backend") == "reference" ? BackendKind::kReference : BackendKind::kCpu;
  options.runner.num_threads = static_cast<int>(settings.integer("threads").value_or(usable_cores()));
  options.runner.isa = settings.text("isa") == "auto" ? "" : *settings.text("isa");
  const auto precision = parse_activation_precision(*settings.text("activation-precision"));
  MLXCEL_CHECK_MSG(precision.has_value(), "the option table and the precisions disagree");
  options.runner.precision = *precision;
  options.runner.key_type = kv_type_setting(settings, "cache-type-k");
  options.runner.value_type = kv_type_setting(settings, "cache-type-v");
  const std::string storage = *settings.text("decode-storage-backend");
  const bool is_paged = storage == "paged" || (storage == "auto" && num_sequences > 1);
  options.engine.storage = is_paged ? KvStorageKind::kPaged : KvStorageKind::kDense;
  options.engine.block_size = static_cast<int32_t>(*settings.integer("kv-block-size"));
  options.engine.max_sequences = num_sequences;
  options.kv.bytes = settings.integer("kv-memory");
  options.kv.percent = settings.percent("kv-memory");
  options.force = settings.flag("force");
  options.context_length = settings.integer("ctx-size");
  if (settings.flag("force-padded-prefill")) options.engine.force_padded_prefill = true;
  if (settings.flag("no-padded-prefill")) options.engine.force_padded_prefill = false;
  return options;
}

Result<ModelSession> load_session(Context& context, const ResolvedModel& model, SessionOptions options,
                                  bool with_text) {
  ProgressLine line(context.terminal, "loading " + model.name, kQuietLoadSeconds);
  if (context.terminal.can_redraw() || context.is_verbose()) {
    options.runner.progress = [&line](uint64_t done, uint64_t total) { line.update(done, total); };
  }
  auto session = with_text ? open_session(options) : open_engine(options);
  line.erase();
  if (!session.ok()) return session;
  for (const std::string& warning : session->warnings) context.terminal.note("warning: " + warning);
  if (with_text) apply_model_defaults(context.settings, session->text.defaults);
  if (context.is_verbose()) print_banner(context, *session, model);
  return session;
}

void apply_model_defaults(Settings& settings, const TextModel::Defaults& defaults) {
  if (!defaults.do_sample.value_or(false)) return;
  // With do_sample, an absent temperature means 1 in the file's own format.
  set_from_model(settings, "temp", static_cast<double>(defaults.temperature.value_or(1.0f)));
  if (defaults.top_p) set_from_model(settings, "top-p", static_cast<double>(*defaults.top_p));
  if (defaults.min_p) set_from_model(settings, "min-p", static_cast<double>(*defaults.min_p));
  if (defaults.top_k) set_from_model(settings, "top-k", static_cast<int64_t>(*defaults.top_k));
  if (defaults.repetition_penalty)
    set_from_model(settings, "repeat-penalty", static_cast<double>(*defaults.repetition_penalty));
}

void apply_greedy_default(Settings& settings, const TextModel::Defaults& defaults) {
  if (defaults.do_sample && !*defaults.do_sample) set_from_model(settings, "temp", 0.0);
}

Result<SamplingParams> sampling_params(const Settings& settings) {
  const auto number = [&](std::string_view name) { return static_cast<float>(*settings.number(name)); };
  const auto integer = [&](std::string_view name) { return static_cast<int32_t>(*settings.integer(name)); };
  SamplingParams params;
  params.temperature = number("temp");
  params.top_k = integer("top-k");
  params.top_p = number("top-p");
  params.min_p = number("min-p");
  params.typical_p = number("typical-p");
  params.top_n_sigma = number("top-n-sigma");
  params.xtc_probability = number("xtc-probability");
  params.xtc_threshold = number("xtc-threshold");
  params.repetition_penalty = number("repeat-penalty");
  params.repetition_window = integer("repeat-last-n");
  params.frequency_penalty = number("frequency-penalty");
  params.presence_penalty = number("presence-penalty");
  params.dry_multiplier = number("dry-multiplier");
  params.dry_base = number("dry-base");
  params.dry_allowed_length = integer("dry-allowed-length");
  params.dry_window = integer("dry-penalty-last-n");
  params.seed = static_cast<uint64_t>(settings.integer("seed").value_or(0));
  for (const std::string& entry : settings.list("logit-bias")) {
    const size_t equals = entry.find('=');
    const auto id = parse_integer(entry.substr(0, equals));
    const auto bias = equals == std::string::npos ? std::nullopt : parse_number(entry.substr(equals + 1));
    if (!id || !bias || *id < 0 || *id > INT32_MAX) {
      return make_error(ErrorKind::kInvalidArgument, "wrong value", "--logit-bias", "ID=BIAS, as 42=-1.5",
                        fmt::format("'{}'", entry));
    }
    params.logit_bias.emplace_back(static_cast<TokenId>(*id), static_cast<float>(*bias));
  }
  MLXCEL_RETURN_IF_ERROR(params.validate());
  return params;
}

StopRules stop_rules(const Settings& settings, const TextModel& text) {
  StopRules rules;
  rules.eos_ids = text.eos_ids;
  rules.ignore_eos = settings.flag("ignore-eos");
  rules.min_tokens = *settings.integer("min-tokens");
  rules.max_tokens = *settings.integer("max-tokens");
  return rules;
}

Result<GenerateOptions> generate_options(const Settings& settings, const TextModel& text) {
  GenerateOptions options;
  MLXCEL_ASSIGN_OR_RETURN(options.sampling, sampling_params(settings));
  options.stop = stop_rules(settings, text);
  options.stop_strings = settings.list("stop");
  options.prefill_chunk = static_cast<int32_t>(*settings.integer("prefill-chunk"));
  options.skip_special_tokens = !settings.flag("show-special");
  return options;
}

Result<std::string> read_text(const std::string& path) {
  if (path == "-") return read_stdin();
  auto text = read_file(path, kMaxInputBytes);
  if (!text.ok() && text.error().kind == ErrorKind::kNotFound)
    text.error().kind = ErrorKind::kInvalidArgument;  // no model's file
  return text;
}

Result<JsonValue> read_json(const std::string& path) {
  MLXCEL_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  auto value = parse_json(text, path == "-" ? "standard input" : path);
  if (!value.ok()) value.error().kind = ErrorKind::kInvalidArgument;
  return value;
}

std::string describe_speed(const GenerateResult& result) {
  const int64_t computed = result.prompt_tokens - result.cached_tokens;
  const auto speed = [](int64_t tokens, double seconds) {
    return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  const auto generated = static_cast<int64_t>(result.tokens.size());
  std::string text = fmt::format("prompt {} tokens", result.prompt_tokens);
  if (result.cached_tokens > 0) text += fmt::format(" ({} kept from before)", result.cached_tokens);
  text +=
      fmt::format(", {:.1f} tokens/s; answer {} tokens", speed(computed, result.prefill_seconds), generated);
  if (generated > 1) text += fmt::format(", {:.1f} tokens/s", speed(generated - 1, result.decode_seconds));
  text += fmt::format("; first token after {:.0f} ms; {}", result.first_token_seconds * 1e3,
                      finish_reason_name(result.finish));
  return text;
}

JsonObject timings_json(const GenerateResult& result) {
  const auto generated = static_cast<int64_t>(result.tokens.size());
  JsonObject timings;
  timings.set("prefill_s", result.prefill_seconds);
  timings.set("decode_s", result.decode_seconds);
  timings.set("first_token_s", result.first_token_seconds);
  const double prefill = static_cast<double>(result.prompt_tokens - result.cached_tokens);
  timings.set("prefill_tok_s", result.prefill_seconds > 0.0 ? prefill / result.prefill_seconds : 0.0);
  const double decode = static_cast<double>(std::max<int64_t>(0, generated - 1));
  timings.set("decode_tok_s", result.decode_seconds > 0.0 ? decode / result.decode_seconds : 0.0);
  return timings;
}

}  // namespace mlxcel
