#include "serve/api/generation_fields.h"

#include <fmt/format.h>

#include <charconv>

#include "base/environment.h"

namespace mlxcel {

namespace {

constexpr int64_t kMaxTokensLimit = int64_t{1} << 31;
constexpr size_t kMaxStopStrings = 32, kMaxStopBytes = 1024, kMaxStopIds = 1024, kMaxBiases = 4096;

// The first of several spellings that is present.
std::string_view spelling(const Fields& fields, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (fields.has(name)) return name;
  }
  return *names.begin();
}

template <typename To, typename From>
void assign(To& to, const std::optional<From>& from) {
  if (from) to = static_cast<To>(*from);
}

void read_sampling(Fields& fields, SamplingParams& s) {
  assign(s.temperature, fields.number("temperature", 0.0, 100.0));
  assign(s.top_p, fields.number("top_p", 0.0, 1.0));
  assign(s.top_k, fields.integer("top_k", -1, INT32_MAX));
  assign(s.min_p, fields.number("min_p", 0.0, 1.0));
  assign(s.typical_p, fields.number("typical_p", 0.0, 1.0));
  assign(s.top_n_sigma, fields.number("top_n_sigma", -1.0, 1000.0));
  assign(s.xtc_probability, fields.number("xtc_probability", 0.0, 1.0));
  assign(s.xtc_threshold, fields.number("xtc_threshold", 0.0, 1.0));
  assign(s.repetition_penalty,
         fields.number(spelling(fields, {"repetition_penalty", "repeat_penalty"}), 0.01, 100.0));
  assign(s.repetition_window, fields.integer("repeat_last_n", -1, INT32_MAX));
  assign(s.frequency_penalty, fields.number("frequency_penalty", -100.0, 100.0));
  assign(s.presence_penalty, fields.number("presence_penalty", -100.0, 100.0));
  assign(s.dry_multiplier, fields.number("dry_multiplier", 0.0, 100.0));
  assign(s.dry_base, fields.number("dry_base", 1.0, 100.0));
  assign(s.dry_allowed_length, fields.integer("dry_allowed_length", 1, INT32_MAX));
  assign(s.dry_window, fields.integer("dry_penalty_last_n", -1, INT32_MAX));
}

void read_logit_bias(Fields& fields, int64_t vocab_size, SamplingParams& s) {
  const auto bias = fields.object("logit_bias");
  if (!bias) return;
  const JsonObject& entries = fields.find("logit_bias")->as_object();
  if (entries.size() > kMaxBiases)
    return fields.fail("logit_bias", fmt::format("must have at most {} entries", kMaxBiases));
  for (const JsonMember& entry : entries) {
    int64_t id = -1;
    const auto [end, ec] = std::from_chars(entry.first.data(), entry.first.data() + entry.first.size(), id);
    if (ec != std::errc() || end != entry.first.data() + entry.first.size() || id < 0 || id >= vocab_size) {
      return fields.fail("logit_bias", fmt::format("keys are token ids between 0 and {}", vocab_size - 1));
    }
    if (!entry.second.is_number() ||
        !(entry.second.as_double() >= -100.0 && entry.second.as_double() <= 100.0)) {
      return fields.fail("logit_bias." + entry.first, "must be a number between -100 and 100");
    }
    s.logit_bias.emplace_back(static_cast<TokenId>(id), static_cast<float>(entry.second.as_double()));
  }
}

// A breaker is the token that a string encodes to; strings of several tokens break at their last one.
void read_dry_breakers(Fields& fields, const Tokenizer& tokenizer, SamplingParams& s) {
  const bool given = fields.has("dry_sequence_breakers");
  std::vector<std::string> breakers = fields.strings("dry_sequence_breakers", 64, 64);
  if (!given && s.dry_multiplier > 0.0f) breakers = {"\n", ":", "\"", "*"};
  for (const std::string& text : breakers) {
    const std::vector<TokenId> ids = tokenizer.encode(text, {false, false});
    if (!ids.empty()) s.dry_breakers.push_back(ids.back());
  }
}

}  // namespace

void read_generation_fields(Fields& fields, const TextModel& text, const RequestDefaults& defaults,
                            GenerationRequest& out) {
  const int64_t vocab_size = text.tokenizer->vocab_size();
  out.sampling = defaults.sampling;
  read_sampling(fields, out.sampling);
  read_logit_bias(fields, vocab_size, out.sampling);
  read_dry_breakers(fields, *text.tokenizer, out.sampling);
  const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX);
  // -1 is "random" to llama.cpp's clients.
  out.sampling.seed = seed && *seed != -1 ? static_cast<uint64_t>(*seed) : random_seed();

  out.stop.max_tokens = defaults.max_tokens;
  assign(out.stop.max_tokens,
         fields.integer(spelling(fields, {"max_completion_tokens", "max_tokens", "n_predict"}), -1,
                        kMaxTokensLimit));
  assign(out.stop.ignore_eos, fields.boolean("ignore_eos"));
  assign(out.stop.min_tokens, fields.integer("min_tokens", 0, kMaxTokensLimit));
  for (const int64_t id : fields.integers("stop_token_ids", kMaxStopIds, 0, vocab_size - 1)) {
    out.stop.stop_token_ids.push_back(static_cast<TokenId>(id));
  }
  out.stop_strings = fields.strings("stop", kMaxStopStrings, kMaxStopBytes);
  std::erase(out.stop_strings, std::string());
  assign(out.include_stop_string, fields.boolean("include_stop_str_in_output"));
  assign(out.skip_special_tokens, fields.boolean("skip_special_tokens"));
  assign(out.num_choices, fields.integer("n", 1, 128));
  assign(out.priority, fields.integer("priority", -1000, 1000));
  assign(out.use_prefix_cache, fields.boolean("cache_prompt"));
  if (auto salt = fields.string("cache_salt")) out.cache_salt = std::move(*salt);
}

StreamOptions read_stream_options(Fields& fields) {
  StreamOptions out;
  assign(out.stream, fields.boolean("stream"));
  assign(out.timings_per_token, fields.boolean("timings_per_token"));
  assign(out.return_token_ids, fields.boolean(spelling(fields, {"return_token_ids", "return_tokens"})));
  if (auto options = fields.object("stream_options"))
    assign(out.include_usage, options->boolean("include_usage"));
  return out;
}

std::optional<ApiError> check_model_name(Fields& fields, const RequestDefaults& defaults) {
  const auto name = fields.string("model");
  if (!name || !defaults.strict_model || *name == defaults.model_id) return std::nullopt;
  ApiError error =
      field_error("model", fmt::format("this server has \"{}\" and no other model", defaults.model_id));
  error.status = 404;
  error.code = "model_not_found";
  return error;
}

}  // namespace mlxcel
