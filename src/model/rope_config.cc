// Rope settings of config.json in both spellings (Hugging Face transformers: modeling_rope_utils.py, 5.24).
#include <algorithm>
#include <cmath>
#include <string>

#include "model/decoder_config.h"

namespace mlxcel {
namespace {

// Every setting that a scaling block may carry. Those that its kind does not use have no effect in the
// reference either, so they are allowed; anything else is an error.
constexpr std::string_view kRopeKeys[] = {
    "rope_type",
    "type",
    "rope_theta",
    "factor",
    "original_max_position_embeddings",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "short_factor",
    "long_factor",
    "low_freq_factor",
    "high_freq_factor",
    "mscale",
    "mscale_all_dim",
    "truncate",
    "alpha",
    "partial_rotary_factor",
    "max_position_embeddings",
    "finetuned",
};

// One block of settings: rope_parameters, rope_scaling, or nothing. Errors go to the reader under the block's
// name.
class RopeBlock {
 public:
  RopeBlock(ConfigReader& config, std::string_view layer_type, bool ignore_scaling);

  bool has(std::string_view key) const { return block_ != nullptr && block_->find_set(key) != nullptr; }
  double number(std::string_view key, std::optional<double> fallback = std::nullopt);
  std::optional<double> maybe(std::string_view key);
  bool boolean(std::string_view key, bool fallback);
  std::vector<double> numbers(std::string_view key, int count);
  std::string type();
  void reject(std::string_view key, std::string expected);

 private:
  void check_keys();
  ConfigReader& config_;
  const JsonValue* block_ = nullptr;
  std::string name_;
};

RopeBlock::RopeBlock(ConfigReader& config, std::string_view layer_type, bool ignore_scaling)
    : config_(config) {
  const JsonValue* scaling = config.value("rope_scaling");
  const JsonValue* parameters = config.value("rope_parameters");
  if (parameters != nullptr && !layer_type.empty() && parameters->find_set(layer_type) != nullptr) {
    block_ = parameters->find_set(layer_type);
    name_ = "rope_parameters." + std::string(layer_type);
  } else if (parameters != nullptr) {
    block_ = parameters;
    name_ = "rope_parameters";
  } else if (scaling != nullptr && !ignore_scaling) {
    block_ = scaling;
    name_ = "rope_scaling";
  }
  if (parameters != nullptr && scaling != nullptr && !(*parameters == *scaling) && !ignore_scaling) {
    config.fail(make_error(ErrorKind::kInvalidData, "rope_parameters and rope_scaling disagree",
                           config.where(), {}, {}, "keep the one that the model was trained with"));
  }
  if (block_ == nullptr) return;
  if (!block_->is_object()) {
    config.fail(make_error(ErrorKind::kInvalidData, "rope settings are no object",
                           config.where() + ": " + name_, "an object", std::string(block_->type_name())));
    block_ = nullptr;
    return;
  }
  check_keys();
}

void RopeBlock::check_keys() {
  for (const auto& [key, value] : block_->as_object()) {
    if (value.is_null()) continue;
    if (std::find(std::begin(kRopeKeys), std::end(kRopeKeys), key) != std::end(kRopeKeys)) continue;
    config_.fail(make_error(ErrorKind::kUnsupported,
                            "rope setting is not understood and may change what the model computes",
                            config_.where() + ": " + name_ + "." + key, {}, to_json(value)));
  }
}

void RopeBlock::reject(std::string_view key, std::string expected) {
  const JsonValue* found = block_ == nullptr ? nullptr : block_->find_set(key);
  config_.fail(
      make_error(ErrorKind::kInvalidData, "rope setting is missing or does not fit",
                 config_.where() + ": " + (name_.empty() ? "rope_scaling" : name_) + "." + std::string(key),
                 std::move(expected), found == nullptr ? "nothing" : to_json(*found)));
}

double RopeBlock::number(std::string_view key, std::optional<double> fallback) {
  const JsonValue* found = block_ == nullptr ? nullptr : block_->find_set(key);
  if (found == nullptr && fallback) return *fallback;
  if (found != nullptr && found->is_number() && std::isfinite(found->as_double())) return found->as_double();
  reject(key, "a number");
  return fallback.value_or(1.0);
}

std::optional<double> RopeBlock::maybe(std::string_view key) {
  if (!has(key)) return std::nullopt;
  return number(key);
}

bool RopeBlock::boolean(std::string_view key, bool fallback) {
  if (!has(key)) return fallback;
  const JsonValue* found = block_->find_set(key);
  if (found->is_bool()) return found->as_bool();
  reject(key, "true or false");
  return fallback;
}

std::vector<double> RopeBlock::numbers(std::string_view key, int count) {
  const JsonValue* found = block_ == nullptr ? nullptr : block_->find_set(key);
  std::vector<double> result;
  if (found != nullptr && found->is_array()) {
    for (const JsonValue& item : found->as_array()) {
      if (item.is_number() && item.as_double() > 0.0) result.push_back(item.as_double());
    }
  }
  if (result.size() == static_cast<size_t>(count)) return result;
  reject(key, "an array of " + std::to_string(count) + " positive numbers");
  return std::vector<double>(static_cast<size_t>(count), 1.0);
}

std::string RopeBlock::type() {
  for (const std::string_view key : {"rope_type", "type"}) {
    if (!has(key)) continue;
    const JsonValue* found = block_->find_set(key);
    if (found->is_string()) return found->as_string();
    reject(key, "a string");
  }
  if (has("factor")) reject("rope_type", "the kind of scaling that factor belongs to");
  return "default";
}

int64_t original_positions(ConfigReader& config, RopeBlock& block, int64_t fallback) {
  const JsonValue* top = config.value("original_max_position_embeddings");
  double value = static_cast<double>(fallback);
  if (top != nullptr && top->is_number()) value = top->as_double();
  value = block.number("original_max_position_embeddings", value);
  if (value >= 1.0 && value < static_cast<double>(kMaxPosition)) return static_cast<int64_t>(value);
  block.reject("original_max_position_embeddings", "a positive number of positions");
  return 1;
}

double positive(RopeBlock& block, std::string_view key, std::optional<double> fallback = std::nullopt) {
  const double value = block.number(key, fallback);
  if (value > 0.0) return value;
  block.reject(key, "a positive number");
  return 1.0;
}

void read_llama3(ConfigReader& config, RopeBlock& block, RopeSpec& rope) {
  rope.kind = RopeKind::kLlama3;
  rope.factor = positive(block, "factor");
  rope.low_freq_factor = positive(block, "low_freq_factor");
  rope.high_freq_factor = positive(block, "high_freq_factor");
  if (rope.high_freq_factor <= rope.low_freq_factor)
    block.reject("high_freq_factor", "more than low_freq_factor");
  rope.original_max_position = original_positions(config, block, rope.max_position);
}

void read_yarn(ConfigReader& config, RopeBlock& block, RopeSpec& rope) {
  rope.kind = RopeKind::kYarn;
  rope.original_max_position = original_positions(config, block, rope.max_position);
  const double stretched =
      static_cast<double>(rope.max_position) / static_cast<double>(rope.original_max_position);
  rope.factor = positive(block, "factor", stretched);
  rope.beta_fast = positive(block, "beta_fast", 32.0);
  rope.beta_slow = positive(block, "beta_slow", 1.0);
  rope.truncate = block.boolean("truncate", true);
  rope.attention_factor = block.maybe("attention_factor");
  rope.mscale = block.maybe("mscale");
  rope.mscale_all_dim = block.maybe("mscale_all_dim");
  if (rope.theta <= 1.0) block.reject("rope_theta", "more than 1");
}

void read_longrope(ConfigReader& config, RopeBlock& block, RopeSpec& rope) {
  rope.kind = RopeKind::kLongRope;
  rope.short_factors = block.numbers("short_factor", rope.rotary_dim / 2);
  rope.long_factors = block.numbers("long_factor", rope.rotary_dim / 2);
  rope.attention_factor = block.maybe("attention_factor");
  rope.original_max_position = original_positions(config, block, rope.max_position);
  // The ratio of the two lengths, where the config states both, takes the place of a factor.
  const bool has_original = config.has("original_max_position_embeddings");
  if (!has_original && block.has("factor")) rope.factor = positive(block, "factor");
}

void read_scaling(ConfigReader& config, RopeBlock& block, const RopeDefaults& defaults, RopeSpec& rope) {
  const std::string type = block.type();
  if (type == "default") return;
  if (type == "linear") {
    rope.kind = RopeKind::kLinear;
    rope.factor = positive(block, "factor");
  } else if (type == "dynamic" && defaults.has_alpha && block.has("alpha")) {
    const double dim = rope.rotary_dim;
    rope.theta *= std::pow(positive(block, "alpha"), dim / (dim - 2.0));
  } else if (type == "dynamic") {
    if (block.has("alpha")) block.reject("alpha", "no alpha in this family");
    rope.kind = RopeKind::kDynamicNtk;
    rope.factor = positive(block, "factor");
    rope.original_max_position = rope.max_position;
  } else if (type == "llama3") {
    read_llama3(config, block, rope);
  } else if (type == "yarn") {
    read_yarn(config, block, rope);
  } else if (type == "longrope" || type == "su") {
    read_longrope(config, block, rope);
  } else {
    block.reject(block.has("rope_type") ? "rope_type" : "type",
                 "default, linear, dynamic, llama3, yarn or longrope");
  }
}

}  // namespace

RopeSpec read_rope(ConfigReader& config, int head_dim, const RopeDefaults& defaults,
                   std::string_view layer_type) {
  RopeBlock block(config, layer_type, defaults.ignore_scaling);
  RopeSpec rope;
  rope.max_position = config.integer("max_position_embeddings", 1);
  const double partial =
      block.number("partial_rotary_factor", config.number(defaults.partial_key, defaults.partial_rotary));
  if (!(partial > 0.0 && partial <= 1.0)) config.reject(defaults.partial_key, "more than 0 and at most 1");
  rope.rotary_dim = static_cast<int>(static_cast<double>(head_dim) * std::clamp(partial, 0.0, 1.0));
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0) {
    config.reject(defaults.partial_key,
                  "an even number of rotated elements (of head_dim " + std::to_string(head_dim) + ")");
    rope.rotary_dim = 2;
  }
  rope.theta = block.number("rope_theta", config.number(defaults.theta_key, defaults.theta));
  if (!(rope.theta > 0.0)) config.reject(defaults.theta_key, "a positive number");
  config.ignore({"original_max_position_embeddings"});
  read_scaling(config, block, defaults, rope);
  return rope;
}

}  // namespace mlxcel
