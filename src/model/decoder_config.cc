#include "model/decoder_config.h"

#include <algorithm>
#include <cmath>

namespace mlxcel {
namespace {

struct NamedActivation {
  std::string_view name;
  Activation activation;
};
// Hugging Face's names (transformers, activations.py). "gelu" is the exact one; the others approximate it by
// tanh.
constexpr NamedActivation kActivations[] = {
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"gelu", Activation::kGeluErf},
    {"gelu_python", Activation::kGeluErf},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_accurate", Activation::kGeluTanh},
    {"relu", Activation::kRelu},
    {"relu2", Activation::kReluSquared},
    {"sigmoid", Activation::kSigmoid},
    {"linear", Activation::kIdentity},
};

int read_head_dim(ConfigReader& config, const DecoderDefaults& defaults, const DecoderConfig& decoder) {
  if (config.has("head_dim")) return config.count("head_dim", 1, kMaxHidden);
  config.ignore({"head_dim"});
  if (defaults.head_dim) return static_cast<int>(*defaults.head_dim);
  if (decoder.hidden % decoder.heads != 0) {
    config.reject("hidden_size", "a multiple of num_attention_heads, or head_dim set");
    return 1;
  }
  return decoder.hidden / decoder.heads;
}

}  // namespace

Activation parse_activation(ConfigReader& config, std::string_view key, std::string_view fallback) {
  const std::string name = config.string(key, std::string(fallback));
  const auto* found = std::find_if(std::begin(kActivations), std::end(kActivations),
                                   [&](const NamedActivation& row) { return row.name == name; });
  if (found != std::end(kActivations)) return found->activation;
  std::string known;
  for (const NamedActivation& row : kActivations) {
    if (!known.empty()) known += ", ";
    known += row.name;
  }
  config.reject(key, "one of " + known);
  return Activation::kSilu;
}

DecoderConfig read_decoder_config(ConfigReader& config, const DecoderDefaults& defaults, FamilyModel& model) {
  DecoderConfig decoder;
  decoder.hidden = config.count("hidden_size", 1, kMaxHidden);
  decoder.layers = config.count("num_hidden_layers", 1, kMaxLayers);
  decoder.heads = config.count("num_attention_heads", 1, kMaxHeads);
  decoder.kv_heads = config.count("num_key_value_heads", 1, kMaxHeads, decoder.heads);
  decoder.head_dim = read_head_dim(config, defaults, decoder);
  decoder.intermediate = config.count("intermediate_size", 1, kMaxHidden);
  decoder.max_position = config.count("max_position_embeddings", 1, kMaxPosition - 1);
  decoder.norm.kind = defaults.norm_kind;
  decoder.norm.epsilon = static_cast<float>(config.number(defaults.epsilon_key, defaults.epsilon));
  if (!(decoder.norm.epsilon >= 0.0f && decoder.norm.epsilon < 1.0f)) {
    config.fail(make_error(ErrorKind::kInvalidData, "a norm's epsilon is out of range",
                           std::string(defaults.epsilon_key), "at least 0 and below 1",
                           std::to_string(decoder.norm.epsilon)));
  }
  decoder.activation = parse_activation(config, defaults.activation_key, defaults.activation);
  RopeDefaults rope;
  rope.theta = defaults.rope_theta;
  rope.partial_rotary = defaults.partial_rotary;
  rope.has_alpha = defaults.has_rope_alpha;
  const JsonValue* parameters = config.value("rope_parameters");
  const bool per_layer_type = parameters != nullptr && (parameters->find("full_attention") != nullptr ||
                                                        parameters->find("sliding_attention") != nullptr);
  if (!per_layer_type) decoder.rope = read_rope(config, decoder.head_dim, rope);
  if (decoder.heads % decoder.kv_heads != 0) {
    config.reject("num_key_value_heads", "a divisor of num_attention_heads");
  }

  ModelSpec& spec = model.spec;
  spec.vocab_size = config.count("vocab_size", 1, kMaxVocabulary);
  spec.hidden_size = decoder.hidden;
  spec.max_position = decoder.max_position;
  spec.final_norm = decoder.norm;
  spec.head.tied = config.boolean("tie_word_embeddings", defaults.tied);
  model.names = decoder_names();
  return decoder;
}

AttentionSpec plain_attention(const DecoderConfig& decoder) {
  AttentionSpec attention;
  attention.num_heads = decoder.heads;
  attention.num_kv_heads = decoder.kv_heads;
  attention.head_dim = decoder.head_dim;
  attention.value_head_dim = decoder.head_dim;
  attention.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(decoder.head_dim)));
  attention.rope = decoder.rope;
  return attention;
}

DenseMlpSpec plain_mlp(const DecoderConfig& decoder) {
  DenseMlpSpec mlp;
  mlp.intermediate = decoder.intermediate;
  mlp.activation = decoder.activation;
  return mlp;
}

LayerSpec plain_layer(const DecoderConfig& decoder, AttentionSpec attention, FeedForwardSpec ffn) {
  LayerSpec layer;
  layer.mixer = std::move(attention);
  layer.ffn = std::move(ffn);
  layer.pre_mixer_norm = decoder.norm;
  layer.pre_ffn_norm = decoder.norm;
  return layer;
}

HeadNormSpec per_head_norm(const DecoderConfig& decoder) {
  HeadNormSpec norm;
  norm.norm = decoder.norm;
  return norm;
}

std::vector<bool> read_sliding_layers(ConfigReader& config, int layers, std::vector<bool> fallback) {
  if (!config.has("layer_types")) {
    config.ignore({"layer_types"});
    return fallback;
  }
  const std::vector<std::string> types = config.strings("layer_types");
  if (types.size() != static_cast<size_t>(layers)) {
    config.reject("layer_types", "one entry per layer (" + std::to_string(layers) + ")");
    return fallback;
  }
  std::vector<bool> sliding;
  for (const std::string& type : types) {
    if (type != "sliding_attention" && type != "full_attention") {
      config.reject("layer_types", "entries full_attention or sliding_attention");
      return fallback;
    }
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

std::optional<int> read_sliding_window(ConfigReader& config) {
  if (!config.has("sliding_window")) {
    config.ignore({"sliding_window"});
    return std::nullopt;
  }
  const int window = config.count("sliding_window", 0, kMaxPosition - 1);
  if (window == 0) return std::nullopt;
  return window;
}

std::vector<bool> sliding_pattern(int layers, int pattern) {
  std::vector<bool> sliding;
  for (int i = 0; i < layers; ++i) sliding.push_back((i + 1) % pattern != 0);
  return sliding;
}

}  // namespace mlxcel
