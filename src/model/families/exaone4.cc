// EXAONE 4: norms after each block, q/k norms per head; hybrid models have three sliding layers with rope to
// one full layer without.
#include "model/decoder_config.h"

namespace mlxcel {
namespace {

// "LLLG" repeats over the layers (L local, G global), or a number n: every n-th layer is global.
std::vector<bool> read_pattern(ConfigReader& config, int layers, bool has_window) {
  std::vector<bool> none(static_cast<size_t>(layers), false);
  const JsonValue* pattern = config.value("sliding_window_pattern");
  if (!has_window) return none;
  if (pattern == nullptr) return sliding_pattern(layers, 4);
  if (pattern->is_string() && !pattern->as_string().empty()) {
    const std::string& text = pattern->as_string();
    for (size_t i = 0; i < none.size(); ++i) none[i] = text[i % text.size()] == 'L';
    return none;
  }
  return sliding_pattern(layers, config.count("sliding_window_pattern", 1, kMaxLayers));
}

}  // namespace

void build_exaone4(ConfigReader& config, FamilyModel& model) {
  DecoderDefaults defaults;
  defaults.epsilon = 1e-5;
  const DecoderConfig decoder = read_decoder_config(config, defaults, model);
  AttentionSpec attention = plain_attention(decoder);
  attention.q_norm = attention.k_norm = per_head_norm(decoder);
  const std::optional<int> window = read_sliding_window(config);
  const std::vector<bool> pattern = read_pattern(config, decoder.layers, window.has_value());
  for (const bool slides : read_sliding_layers(config, decoder.layers, pattern)) {
    AttentionSpec of_layer = attention;
    of_layer.sliding_window = slides ? window : std::nullopt;
    if (window && !slides) of_layer.rope.kind = RopeKind::kNone;
    LayerSpec layer = plain_layer(decoder, of_layer, plain_mlp(decoder));
    layer.pre_mixer_norm = layer.pre_ffn_norm = std::nullopt;
    layer.post_mixer_norm = layer.post_ffn_norm = decoder.norm;
    model.spec.layers.push_back(layer);
  }
  model.names.set(WeightRole::kPostMixerNorm, "layers.{layer}.post_attention_layernorm.weight");
  model.names.set(WeightRole::kPostFfnNorm, "layers.{layer}.post_feedforward_layernorm.weight");
}

}  // namespace mlxcel
