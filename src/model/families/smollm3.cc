// SmolLM3: Llama without rope on every fourth layer.
#include "model/decoder_config.h"
#include "model/families/qwen.h"

namespace mlxcel {
namespace {

std::vector<bool> read_rope_layers(ConfigReader& config, int layers) {
  const int interval = config.count("no_rope_layer_interval", 1, kMaxLayers, 4);
  std::vector<bool> with_rope;
  if (!config.has("no_rope_layers")) {
    config.ignore({"no_rope_layers"});
    return sliding_pattern(layers, interval);
  }
  // The key lists, despite its name, 1 for each layer that has rope.
  for (const int64_t flag : config.integers("no_rope_layers")) with_rope.push_back(flag != 0);
  if (with_rope.size() == static_cast<size_t>(layers)) return with_rope;
  config.reject("no_rope_layers", "one entry per layer (" + std::to_string(layers) + ")");
  return std::vector<bool>(static_cast<size_t>(layers), true);
}

}  // namespace

void build_smollm3(ConfigReader& config, FamilyModel& model) {
  DecoderDefaults defaults;
  defaults.tied = true;
  defaults.rope_theta = 2e6;
  const DecoderConfig decoder = read_decoder_config(config, defaults, model);
  AttentionSpec attention = plain_attention(decoder);
  const bool bias = config.boolean("attention_bias", false);
  attention.q_bias = attention.k_bias = attention.v_bias = attention.output_bias = bias;
  DenseMlpSpec mlp = plain_mlp(decoder);
  mlp.bias = mlp.down_bias = config.boolean("mlp_bias", false);
  const std::vector<bool> with_rope = read_rope_layers(config, decoder.layers);
  const std::vector<std::optional<int>> windows = read_qwen_windows(config, decoder.layers);
  for (size_t i = 0; i < windows.size(); ++i) {
    AttentionSpec of_layer = attention;
    of_layer.sliding_window = windows[i];
    if (!with_rope[i]) of_layer.rope.kind = RopeKind::kNone;
    model.spec.layers.push_back(plain_layer(decoder, of_layer, mlp));
  }
  model.gguf_permutes_heads = true;
}

}  // namespace mlxcel
