// Qwen 3: RMSNorm on the q and k of each head, no biases by default.
#include "model/decoder_config.h"
#include "model/families/qwen.h"

namespace mlxcel {

void build_qwen3(ConfigReader& config, FamilyModel& model) {
  DecoderDefaults defaults;
  defaults.head_dim = 128;
  const DecoderConfig decoder = read_decoder_config(config, defaults, model);
  AttentionSpec attention = plain_attention(decoder);
  const bool bias = config.boolean("attention_bias", false);
  attention.q_bias = attention.k_bias = attention.v_bias = attention.output_bias = bias;
  attention.q_norm = attention.k_norm = per_head_norm(decoder);
  for (const std::optional<int>& window : read_qwen_windows(config, decoder.layers)) {
    attention.sliding_window = window;
    model.spec.layers.push_back(plain_layer(decoder, attention, plain_mlp(decoder)));
  }
}

}  // namespace mlxcel
