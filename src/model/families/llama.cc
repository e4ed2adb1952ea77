// Llama 1 to 3, SmolLM2, and the many models that publish themselves as "llama".
#include "model/decoder_config.h"

namespace mlxcel {

void build_llama(ConfigReader& config, FamilyModel& model) {
  const DecoderConfig decoder = read_decoder_config(config, DecoderDefaults{}, model);
  AttentionSpec attention = plain_attention(decoder);
  const bool bias = config.boolean("attention_bias", false);
  attention.q_bias = attention.k_bias = attention.v_bias = attention.output_bias = bias;
  DenseMlpSpec mlp = plain_mlp(decoder);
  mlp.bias = mlp.down_bias = config.boolean("mlp_bias", false);
  model.spec.layers.assign(static_cast<size_t>(decoder.layers), plain_layer(decoder, attention, mlp));
  model.gguf_permutes_heads = true;
}

}  // namespace mlxcel
