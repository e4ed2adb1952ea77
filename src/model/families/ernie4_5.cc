// ERNIE 4.5 (dense): Llama with interleaved rope.
#include "model/decoder_config.h"

namespace mlxcel {

void build_ernie4_5(ConfigReader& config, FamilyModel& model) {
  DecoderDefaults defaults;
  defaults.tied = true;
  defaults.rope_theta = 500000.0;
  defaults.epsilon = 1e-5;
  const DecoderConfig decoder = read_decoder_config(config, defaults, model);
  AttentionSpec attention = plain_attention(decoder);
  attention.rope.interleaved = true;
  const bool bias = config.boolean("use_bias", false);
  attention.q_bias = attention.k_bias = attention.v_bias = attention.output_bias = bias;
  DenseMlpSpec mlp = plain_mlp(decoder);
  mlp.bias = mlp.down_bias = bias;
  model.spec.layers.assign(static_cast<size_t>(decoder.layers), plain_layer(decoder, attention, mlp));
}

}  // namespace mlxcel
