// Qwen 2 and 2.5, and the DeepSeek-R1 distillations of them: biases on q, k and v; windows only on request.
#include "model/decoder_config.h"
#include "model/families/qwen.h"

namespace mlxcel {

std::vector<std::optional<int>> read_qwen_windows(ConfigReader& config, int layers) {
  const bool enabled = config.boolean("use_sliding_window", false);
  const std::optional<int> window = read_sliding_window(config);
  // The first max_window_layers layers see everything, the others a window.
  const int64_t first = config.integer("max_window_layers", int64_t{28});
  std::vector<bool> sliding;
  for (int i = 0; i < layers; ++i) sliding.push_back(enabled && i >= first);
  sliding = read_sliding_layers(config, layers, std::move(sliding));
  std::vector<std::optional<int>> windows;
  for (const bool slides : sliding) windows.push_back(slides && enabled ? window : std::nullopt);
  return windows;
}

void build_qwen2(ConfigReader& config, FamilyModel& model) {
  const DecoderConfig decoder = read_decoder_config(config, DecoderDefaults{}, model);
  AttentionSpec attention = plain_attention(decoder);
  attention.q_bias = attention.k_bias = attention.v_bias = true;
  config.require("qkv_bias", true);
  for (const std::optional<int>& window : read_qwen_windows(config, decoder.layers)) {
    attention.sliding_window = window;
    model.spec.layers.push_back(plain_layer(decoder, attention, plain_mlp(decoder)));
  }
}

}  // namespace mlxcel
