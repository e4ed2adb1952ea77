#include "model/config_reader.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace mlxcel {
namespace {

// Keys of published configs that never change a logit at inference, whatever their value: names, ids of
// special tokens (the tokenizer's business), training settings, and defaults for generation.
constexpr std::string_view kInertKeys[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "_num_labels",
    "architectures",
    "attn_implementation",
    "auto_map",
    "aux_loss_alpha",
    "bad_words_ids",
    "begin_suppress_tokens",
    "boi_token_id",
    "boi_token_index",
    "bos_token_id",
    "cache_implementation",
    "cls_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eod_token_id",
    "eoi_token_id",
    "eoi_token_index",
    "eos_token_id",
    "eos_token_ids",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "head_dim_original",
    "id2label",
    "image_token_id",
    "image_token_index",
    "im_end_id",
    "im_newline_id",
    "im_start_id",
    "initializer_factor",
    "initializer_range",
    "is_decoder",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "length_penalty",
    "log_attn_weights",
    "mask_token_id",
    "max_length",
    "min_length",
    "mm_tokens_per_image",
    "model_type",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_logits_to_keep",
    "num_return_sequences",
    "ortho_init",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "pad_token_id",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "rescale_every",
    "return_dict",
    "return_dict_in_generate",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "sep_token_id",
    "seq_aux",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "text_config",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "use_flash_attn",
    "use_flash_attention",
    "video_token_id",
    "vision_config",
    "vision_end_token_id",
    "vision_start_token_id",
    "vision_token_id",
    "z_loss_coefficient",
    "repetition_penalty",
    // Sizes of tensor-parallel slices during training: the sum is the same.
    "pretraining_tp",
    "tensor_parallel_degree",
    // Which bytes a weight has is the checkpoint reader's business (check_quantisation() in the loader).
    "quantization",
    "quantization_config",
};

// Features that a config may name while they are switched off.
struct NeutralKey {
  std::string_view key;
  double value;  // false is 0
};
constexpr NeutralKey kNeutralKeys[] = {
    {"add_cross_attention", 0},
    {"chunk_size_feed_forward", 0},
    {"cross_attention_hidden_size", 0},
    {"is_encoder_decoder", 0},
    {"tie_encoder_decoder", 0},
    {"rope_interleaved", 0},
    {"use_mrope", 0},
    {"use_bidirectional_attention", 0},
    {"num_nextn_predict_layers", 0},
    {"attention_bias", 0},
    {"mlp_bias", 0},
    {"lm_head_bias", 0},
    {"use_qk_norm", 0},
    {"qk_layernorm", 0},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"use_sliding_window", 0},
    {"partial_rotary_factor", 1},
    {"rotary_pct", 1},
    {"residual_multiplier", 1},
    {"embedding_multiplier", 1},
    {"logit_scale", 1},
    {"logits_scaling", 1},
    {"n_shared_experts", 0},
    {"num_local_experts", 0},
    {"clip_qkv", 0},
    {"alibi", 0},
};

bool is_dropout(std::string_view key) {
  return key.find("dropout") != std::string_view::npos || key.find("pdrop") != std::string_view::npos;
}

bool is_neutral(std::string_view key, const JsonValue& value) {
  if (value.is_null() || is_dropout(key)) return true;
  if (key == "pruned_heads") return value.is_object() && value.as_object().empty();
  const auto* row = std::find_if(std::begin(kNeutralKeys), std::end(kNeutralKeys),
                                 [&](const NeutralKey& neutral) { return neutral.key == key; });
  if (row == std::end(kNeutralKeys)) return false;
  if (value.is_bool()) return (value.as_bool() ? 1.0 : 0.0) == row->value;
  return value.is_number() && value.as_double() == row->value;
}

bool same_value(const JsonValue& a, const JsonValue& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  return a == b;
}

std::optional<int64_t> as_integer(const JsonValue& value) {
  if (value.is_int()) return value.as_int();
  if (!value.is_double()) return std::nullopt;
  const double number = value.as_double();
  if (number != std::floor(number) || std::fabs(number) > 9.0e15) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::string shown(const JsonValue& value) {
  std::string text = to_json(value);
  constexpr size_t kLongest = 80;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace

ConfigReader::ConfigReader(const JsonValue& config, std::string where,
                           const std::map<std::string, std::string>* source_names)
    : config_(config), where_(std::move(where)), source_names_(source_names) {
  const JsonValue* text = config.find_set("text_config");
  if (text != nullptr && text->is_object()) text_ = text;
}

std::string ConfigReader::source_name(std::string_view key) const {
  if (source_names_ != nullptr) {
    const auto found = source_names_->find(std::string(key));
    if (found != source_names_->end()) return found->second;
  }
  return std::string(key);
}

const JsonValue* ConfigReader::find(std::string_view key) const {
  if (text_ != nullptr) {
    if (const JsonValue* found = text_->find_set(key)) return found;
  }
  return config_.find_set(key);
}

bool ConfigReader::mentions(std::string_view key) const {
  return config_.find(key) != nullptr || (text_ != nullptr && text_->find(key) != nullptr);
}

const JsonValue* ConfigReader::value(std::string_view key) {
  understood_.insert(std::string(key));
  return find(key);
}

void ConfigReader::fail(Error error) {
  if (!error_) error_ = std::move(error);
}

void ConfigReader::reject(std::string_view key, std::string expected, std::string hint) {
  const JsonValue* found = find(key);
  const std::string name = where_ + ": " + source_name(key);
  if (found == nullptr) {
    fail(make_error(ErrorKind::kInvalidData, "config key is missing", name, std::move(expected), {},
                    std::move(hint)));
    return;
  }
  fail(make_error(ErrorKind::kInvalidData, "config key has a value that does not fit", name,
                  std::move(expected), shown(*found), std::move(hint)));
}

int64_t ConfigReader::integer(std::string_view key, std::optional<int64_t> fallback) {
  const JsonValue* found = value(key);
  if (found == nullptr && fallback) return *fallback;
  const std::optional<int64_t> result = found == nullptr ? std::nullopt : as_integer(*found);
  if (!result) reject(key, "an integer");
  return result.value_or(0);
}

int ConfigReader::count(std::string_view key, int64_t low, int64_t high, std::optional<int64_t> fallback) {
  const int64_t result = integer(key, fallback);
  if (result >= low && result <= high) return static_cast<int>(result);
  reject(key, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
  return static_cast<int>(low);
}

double ConfigReader::number(std::string_view key, std::optional<double> fallback) {
  const JsonValue* found = value(key);
  if (found == nullptr && fallback) return *fallback;
  if (found != nullptr && found->is_number() && std::isfinite(found->as_double())) return found->as_double();
  reject(key, "a number");
  return fallback.value_or(0.0);
}

bool ConfigReader::boolean(std::string_view key, std::optional<bool> fallback) {
  const JsonValue* found = value(key);
  if (found == nullptr && fallback) return *fallback;
  if (found != nullptr && found->is_bool()) return found->as_bool();
  reject(key, "true or false");
  return fallback.value_or(false);
}

std::string ConfigReader::string(std::string_view key, std::optional<std::string> fallback) {
  const JsonValue* found = value(key);
  if (found == nullptr && fallback) return *fallback;
  if (found != nullptr && found->is_string()) return found->as_string();
  reject(key, "a string");
  return fallback.value_or(std::string());
}

std::vector<std::string> ConfigReader::strings(std::string_view key) {
  const JsonValue* found = value(key);
  std::vector<std::string> result;
  if (found == nullptr) return result;
  if (!found->is_array()) {
    reject(key, "an array of strings");
    return result;
  }
  for (const JsonValue& item : found->as_array()) {
    if (!item.is_string()) {
      reject(key, "an array of strings");
      return {};
    }
    result.push_back(item.as_string());
  }
  return result;
}

std::vector<int64_t> ConfigReader::integers(std::string_view key) {
  const JsonValue* found = value(key);
  std::vector<int64_t> result;
  if (found == nullptr) return result;
  if (!found->is_array()) {
    reject(key, "an array of integers");
    return result;
  }
  for (const JsonValue& item : found->as_array()) {
    const std::optional<int64_t> number = as_integer(item);
    if (!number) {
      reject(key, "an array of integers");
      return {};
    }
    result.push_back(*number);
  }
  return result;
}

void ConfigReader::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) understood_.insert(std::string(key));
}

void ConfigReader::require(std::string_view key, const JsonValue& only) {
  const JsonValue* found = value(key);
  if (found == nullptr || same_value(*found, only)) return;
  reject(key, to_json(only), "this family is implemented for that value only");
}

Status ConfigReader::status() const {
  if (error_) return *error_;
  return ok_status();
}

std::optional<Error> ConfigReader::unknown_key(const JsonValue& object) const {
  for (const auto& [key, value] : object.as_object()) {
    if (understood_.contains(key) || is_neutral(key, value)) continue;
    if (std::find(std::begin(kInertKeys), std::end(kInertKeys), key) != std::end(kInertKeys)) continue;
    return make_error(ErrorKind::kUnsupported,
                      "config key is not understood and may change what the model computes",
                      where_ + ": " + source_name(key), {}, shown(value),
                      "this build would have to ignore it; if it has no effect, remove it from the file");
  }
  return std::nullopt;
}

Status ConfigReader::finish() {
  MLXCEL_RETURN_IF_ERROR(status());
  if (!config_.is_object()) {
    return make_error(ErrorKind::kInvalidData, "config is no object", where_, "an object",
                      std::string(config_.type_name()));
  }
  if (std::optional<Error> error = unknown_key(config_)) return *error;
  if (text_ == nullptr) return ok_status();
  if (std::optional<Error> error = unknown_key(*text_)) return *error;
  return ok_status();
}

}  // namespace mlxcel
