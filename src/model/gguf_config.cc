#include "model/gguf_config.h"

#include <algorithm>
#include <cmath>

namespace mlxcel {
namespace {

// GGUF's architecture names and Hugging Face's model types. "llama" with experts is Mixtral.
struct Architecture {
  std::string_view gguf;
  std::string_view model_type;
  std::string_view epsilon_key = "layer_norm_eps";  // where attention.layer_norm_epsilon belongs
};
constexpr Architecture kArchitectures[] = {
    {"llama", "llama"},       {"qwen2", "qwen2"},        {"qwen2moe", "qwen2_moe"},
    {"qwen3", "qwen3"},       {"qwen3moe", "qwen3_moe"}, {"gemma", "gemma"},
    {"gemma2", "gemma2"},     {"gemma3", "gemma3_text"}, {"phi3", "phi3"},
    {"granite", "granite"},   {"olmo2", "olmo2"},        {"smollm3", "smollm3"},
    {"cohere2", "cohere2"},   {"glm4", "glm4"},          {"exaone4", "exaone4"},
    {"ernie4_5", "ernie4_5"}, {"gpt-oss", "gpt_oss"},    {"starcoder2", "starcoder2", "norm_epsilon"},
};

// Metadata key after "<architecture>." and the config key with the same meaning.
struct KeyPair {
  std::string_view gguf;
  std::string_view config;
};
constexpr KeyPair kKeys[] = {
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"block_count", "num_hidden_layers"},
    {"feed_forward_length", "intermediate_size"},
    {"vocab_size", "vocab_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.sliding_window", "sliding_window"},
    {"attention.sliding_window_pattern", "sliding_window_pattern"},
    {"attention.scale", "attention_multiplier"},
    {"rope.freq_base", "rope_theta"},
    {"rope.freq_base_swa", "rope_local_base_freq"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"residual_scale", "residual_multiplier"},
    {"embedding_scale", "embedding_multiplier"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
    {"expert_weights_norm", "norm_topk_prob"},
};

// Read by the functions below, or without effect here.
constexpr std::string_view kHandledElsewhere[] = {
    "attention.value_length",
    "attention.layer_norm_epsilon",
    "rope.dimension_count",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.finetuned",
    "expert_count",
    "logit_scale",
    "tensor_data_layout",
    "expert_gating_func",
    "attention.causal",
    "use_parallel_residual",
};

// Longer than any list of layers; what a message or a per-layer check needs to see of an array.
constexpr size_t kMaxArray = 4096;

Error gguf_error(const Checkpoint& checkpoint, std::string what, const std::string& key, std::string expected,
                 std::string found, ErrorKind kind = ErrorKind::kInvalidData) {
  return make_error(kind, std::move(what), std::string(path_basename(checkpoint.path)) + ": " + key,
                    std::move(expected), std::move(found));
}

JsonValue to_json_value(const GgufValue& value) {
  if (const int64_t* integer = value.integer()) return *integer;
  if (const double* number = value.number()) return *number;
  if (const bool* boolean = value.boolean()) return *boolean;
  if (const std::string* text = value.string()) return *text;
  JsonArray array;
  const GgufArray& items = *value.array();
  for (size_t i = 0; i < std::min(items.size(), kMaxArray); ++i) array.push_back(to_json_value(items[i]));
  return array;
}

class Translator {
 public:
  Translator(const Checkpoint& checkpoint, const Architecture& architecture)
      : checkpoint_(checkpoint), architecture_(architecture), prefix_(std::string(architecture.gguf) + ".") {}
  Result<GgufConfig> run();

 private:
  const GgufValue* meta(std::string_view key) const { return checkpoint_.meta(prefix_ + std::string(key)); }
  void set(std::string_view key, JsonValue value, std::string_view source);
  Status translate(std::string_view suffix, const GgufValue& value);
  Status head_sizes();
  Status scaling();
  Status factors(JsonObject& block, const char* tensor, const char* key);
  Status experts();
  void logit_scale();
  void gemma_attention_scale();
  Result<int64_t> embedding_rows() const;
  int64_t config_integer(std::string_view key) const;

  const Checkpoint& checkpoint_;
  const Architecture& architecture_;
  std::string prefix_;
  JsonObject config_;
  std::map<std::string, std::string> names_;
};

void Translator::set(std::string_view key, JsonValue value, std::string_view source) {
  config_.set(std::string(key), std::move(value));
  names_[std::string(key)] = prefix_ + std::string(source);
}

int64_t Translator::config_integer(std::string_view key) const {
  const JsonValue* value = config_.find(key);
  return value != nullptr && value->is_int() ? value->as_int() : 0;
}

// One value per layer is accepted when all layers agree.
Status Translator::translate(std::string_view suffix, const GgufValue& value) {
  const auto* pair = std::find_if(std::begin(kKeys), std::end(kKeys),
                                  [&](const KeyPair& row) { return row.gguf == suffix; });
  if (pair == std::end(kKeys)) {
    if (std::find(std::begin(kHandledElsewhere), std::end(kHandledElsewhere), suffix) !=
        std::end(kHandledElsewhere)) {
      return ok_status();
    }
    return gguf_error(checkpoint_, "metadata key is not understood and may change what the model computes",
                      prefix_ + std::string(suffix), {}, to_json(to_json_value(value)),
                      ErrorKind::kUnsupported);
  }
  JsonValue json = to_json_value(value);
  if (json.is_array() && !json.as_array().empty()) {
    const JsonArray& items = json.as_array();
    if (!std::all_of(items.begin(), items.end(),
                     [&](const JsonValue& item) { return item == items.front(); })) {
      return gguf_error(checkpoint_, "layers differ", prefix_ + std::string(suffix),
                        "one value for all layers", to_json(json), ErrorKind::kUnsupported);
    }
    json = JsonValue(items.front());
  }
  set(pair->config, std::move(json), suffix);
  return ok_status();
}

Result<int64_t> Translator::embedding_rows() const {
  const TensorEntry* embedding = checkpoint_.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return gguf_error(checkpoint_, "embedding is missing or no matrix", "token_embd.weight", "two dimensions",
                      {});
  }
  return embedding->shape[0];
}

Status Translator::head_sizes() {
  const int64_t heads = config_integer("num_attention_heads");
  int64_t head_dim = config_integer("head_dim");
  if (head_dim == 0 && heads > 0) head_dim = config_integer("hidden_size") / heads;
  MLXCEL_ASSIGN_OR_RETURN(const int64_t value_dim,
                          checkpoint_.meta_integer(prefix_ + "attention.value_length", head_dim));
  if (value_dim != head_dim) {
    return gguf_error(checkpoint_, "value heads and key heads differ in size",
                      prefix_ + "attention.value_length", std::to_string(head_dim), std::to_string(value_dim),
                      ErrorKind::kUnsupported);
  }
  MLXCEL_ASSIGN_OR_RETURN(const int64_t rotary,
                          checkpoint_.meta_integer(prefix_ + "rope.dimension_count", head_dim));
  if (head_dim <= 0 || rotary <= 0 || rotary > head_dim) {
    return gguf_error(checkpoint_, "rotated elements do not fit the head", prefix_ + "rope.dimension_count",
                      "1 to " + std::to_string(head_dim), std::to_string(rotary));
  }
  // Half an element more, so that the product with head_dim rounds down to the same count again.
  if (rotary != head_dim) {
    set("partial_rotary_factor", (static_cast<double>(rotary) + 0.5) / static_cast<double>(head_dim),
        "rope.dimension_count");
  } else if (architecture_.model_type == "glm4") {
    set("partial_rotary_factor", 1.0, "rope.dimension_count");
  }
  return ok_status();
}

Status Translator::factors(JsonObject& block, const char* tensor, const char* key) {
  MLXCEL_ASSIGN_OR_RETURN(const std::vector<float> values, load_vector(checkpoint_, tensor));
  JsonArray array;
  for (const float value : values) array.push_back(static_cast<double>(value));
  block.set(key, std::move(array));
  return ok_status();
}

Status Translator::scaling() {
  MLXCEL_ASSIGN_OR_RETURN(std::string type, checkpoint_.meta_string(prefix_ + "rope.scaling.type", "none"));
  const bool has_factors = checkpoint_.find("rope_factors_short.weight") != nullptr;
  if (has_factors) type = "longrope";
  if (type == "none") return ok_status();
  JsonObject block;
  block.set("rope_type", type);
  const auto copy = [&](std::string_view suffix, const char* key) {
    if (const GgufValue* value = meta(suffix)) block.set(key, to_json_value(*value));
  };
  copy("rope.scaling.original_context_length", "original_max_position_embeddings");
  copy("rope.scaling.yarn_beta_fast", "beta_fast");
  copy("rope.scaling.yarn_beta_slow", "beta_slow");
  if (type != "longrope") copy("rope.scaling.factor", "factor");
  if (has_factors) {
    MLXCEL_RETURN_IF_ERROR(factors(block, "rope_factors_short.weight", "short_factor"));
    MLXCEL_RETURN_IF_ERROR(factors(block, "rope_factors_long.weight", "long_factor"));
  }
  if (meta("rope.scaling.attn_factor") != nullptr) {
    MLXCEL_ASSIGN_OR_RETURN(double factor, checkpoint_.meta_number(prefix_ + "rope.scaling.attn_factor"));
    // For YaRN llama.cpp multiplies its own magnitude by it; for LongRoPE it is the whole magnitude.
    MLXCEL_ASSIGN_OR_RETURN(const double stretch,
                            checkpoint_.meta_number(prefix_ + "rope.scaling.factor", 1.0));
    if (type == "yarn" && stretch > 1.0) factor *= 0.1 * std::log(stretch) + 1.0;
    block.set("attention_factor", factor);
  }
  // GPT-OSS does not round the ends of its ramp, and GGUF has no key to say so.
  if (architecture_.model_type == "gpt_oss") block.set("truncate", false);
  set("rope_scaling", std::move(block), "rope.scaling");
  return ok_status();
}

Status Translator::experts() {
  MLXCEL_ASSIGN_OR_RETURN(const int64_t experts,
                          checkpoint_.meta_integer(prefix_ + "expert_count", int64_t{0}));
  // 1: softmax over all experts, 3: over the chosen ones; both are what these families do. 2 is sigmoid.
  MLXCEL_ASSIGN_OR_RETURN(const int64_t gating,
                          checkpoint_.meta_integer(prefix_ + "expert_gating_func", int64_t{0}));
  if (gating == 2) {
    return gguf_error(checkpoint_, "router is not a softmax", prefix_ + "expert_gating_func", "1 or 3", "2",
                      ErrorKind::kUnsupported);
  }
  if (experts == 0) {
    config_.erase("num_experts_per_tok");
    return ok_status();
  }
  const bool local = architecture_.model_type == "llama" || architecture_.model_type == "gpt_oss";
  set(local ? "num_local_experts" : "num_experts", experts, "expert_count");
  if (architecture_.model_type == "llama") config_.set("model_type", "mixtral");
  // GPT-OSS's experts have the width that dense models call feed_forward_length.
  if (architecture_.model_type == "gpt_oss" && config_.find("moe_intermediate_size") != nullptr) {
    const JsonValue width = *config_.find("moe_intermediate_size");
    config_.erase("moe_intermediate_size");
    set("intermediate_size", width, "expert_feed_forward_length");
  }
  // The sum of the chosen weights is one by definition in llama.cpp's graph of this architecture.
  if (architecture_.model_type == "qwen3_moe" && config_.find("norm_topk_prob") == nullptr) {
    config_.set("norm_topk_prob", true);
  }
  return ok_status();
}

void Translator::logit_scale() {
  const GgufValue* value = meta("logit_scale");
  if (value == nullptr) return;
  // Granite divides by it, Cohere multiplies.
  set(architecture_.model_type == "granite" ? "logits_scaling" : "logit_scale", to_json_value(*value),
      "logit_scale");
}

// GGUF does not carry query_pre_attn_scalar. It is the head size, but for the 27B models (46 and 62 layers),
// which use hidden / heads.
void Translator::gemma_attention_scale() {
  const std::string_view type = architecture_.model_type;
  if (type != "gemma2" && type != "gemma3_text") return;
  const int64_t layers = config_integer("num_hidden_layers"), heads = config_integer("num_attention_heads");
  const bool is_27b = (type == "gemma2" && layers == 46) || (type == "gemma3_text" && layers == 62);
  if (heads == 0) return;
  const int64_t per_head = config_integer("hidden_size") / heads;
  const int64_t head_dim = config_integer("head_dim");
  config_.set("query_pre_attn_scalar", is_27b || head_dim == 0 ? per_head : head_dim);
}

Result<GgufConfig> Translator::run() {
  config_.set("model_type", std::string(architecture_.model_type));
  for (const auto& [key, value] : checkpoint_.metadata) {
    if (!key.starts_with(prefix_)) continue;
    MLXCEL_RETURN_IF_ERROR(translate(std::string_view(key).substr(prefix_.size()), value));
  }
  MLXCEL_ASSIGN_OR_RETURN(const int64_t vocabulary, embedding_rows());
  set("vocab_size", vocabulary, "vocab_size");
  if (const GgufValue* epsilon = meta("attention.layer_norm_epsilon")) {
    set(architecture_.epsilon_key, to_json_value(*epsilon), "attention.layer_norm_epsilon");
  }
  MLXCEL_RETURN_IF_ERROR(head_sizes());
  MLXCEL_RETURN_IF_ERROR(scaling());
  MLXCEL_RETURN_IF_ERROR(experts());
  logit_scale();
  gemma_attention_scale();
  config_.set("tie_word_embeddings", checkpoint_.find("output.weight") == nullptr);
  return GgufConfig{JsonValue(std::move(config_)), std::move(names_)};
}

}  // namespace

Result<GgufConfig> gguf_config(const Checkpoint& checkpoint) {
  MLXCEL_ASSIGN_OR_RETURN(const std::string name, checkpoint.meta_string("general.architecture"));
  const auto* found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                   [&](const Architecture& row) { return row.gguf == name; });
  if (found != std::end(kArchitectures)) return Translator(checkpoint, *found).run();
  std::string known;
  for (const Architecture& row : kArchitectures) {
    if (!known.empty()) known += ", ";
    known += row.gguf;
  }
  return gguf_error(checkpoint, "architecture is not supported in GGUF files", "general.architecture",
                    "one of " + known, name, ErrorKind::kUnsupported);
}

namespace {

void adapt_biases(const Checkpoint& checkpoint, int layer, LayerSpec& spec) {
  const std::string block = "blk." + std::to_string(layer) + ".";
  const auto has = [&](const char* name) { return checkpoint.find(block + name + ".bias") != nullptr; };
  if (auto* attention = std::get_if<AttentionSpec>(&spec.mixer)) {
    const bool fused = has("attn_qkv");
    attention->q_bias = fused || has("attn_q");
    attention->k_bias = fused || has("attn_k");
    attention->v_bias = fused || has("attn_v");
    attention->output_bias = has("attn_output");
  }
  if (auto* mlp = std::get_if<DenseMlpSpec>(&spec.ffn)) {
    mlp->bias = has("ffn_up");
    mlp->down_bias = has("ffn_down");
  }
}

void clear_norm_offsets(LayerSpec& layer) {
  for (std::optional<NormSpec>* norm :
       {&layer.pre_mixer_norm, &layer.post_mixer_norm, &layer.pre_ffn_norm, &layer.post_ffn_norm}) {
    if (*norm) (*norm)->weight_offset = 0.0f;
  }
  auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
  if (attention == nullptr) return;
  if (attention->q_norm) attention->q_norm->norm.weight_offset = 0.0f;
  if (attention->k_norm) attention->k_norm->norm.weight_offset = 0.0f;
}

Status apply_rope_factors(const Checkpoint& checkpoint, ModelSpec& spec) {
  if (checkpoint.find("rope_freqs.weight") == nullptr) return ok_status();
  MLXCEL_ASSIGN_OR_RETURN(const std::vector<float> factors, load_vector(checkpoint, "rope_freqs.weight"));
  for (LayerSpec& layer : spec.layers) {
    auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (attention == nullptr || attention->rope.kind == RopeKind::kNone) continue;
    if (factors.size() != static_cast<size_t>(attention->rope.rotary_dim / 2)) {
      return gguf_error(checkpoint, "tensor has an unexpected shape", "rope_freqs.weight",
                        std::to_string(attention->rope.rotary_dim / 2) + " elements",
                        std::to_string(factors.size()));
    }
    attention->rope.explicit_factors.assign(factors.begin(), factors.end());
  }
  return ok_status();
}

}  // namespace

Status adapt_to_gguf(const Checkpoint& checkpoint, FamilyModel& model) {
  const auto gate = model.names.names.find(WeightRole::kGate);
  const bool fused_gate_up =
      gate != model.names.names.end() && gate->second.front().fusion == Fusion::kGateUp;
  model.names = gguf_names();
  if (fused_gate_up) {
    model.names.set(WeightRole::kGate, "blk.{layer}.ffn_up.weight", Fusion::kGateUp);
    model.names.set(WeightRole::kUp, "blk.{layer}.ffn_up.weight", Fusion::kGateUp);
  }
  // GPT-OSS's norm before the experts goes by the name that other architectures use for one after the
  // attention.
  if (model.spec.family == "gpt_oss") {
    model.names.set(WeightRole::kPreFfnNorm, "blk.{layer}.post_attention_norm.weight");
  }
  model.names.ignored = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"};
  model.spec.final_norm.weight_offset = 0.0f;  // writers of GGUF add it to the weights
  int number = 0;
  for (LayerSpec& layer : model.spec.layers) {
    clear_norm_offsets(layer);
    adapt_biases(checkpoint, number++, layer);
  }
  return apply_rope_factors(checkpoint, model.spec);
}

}  // namespace mlxcel
