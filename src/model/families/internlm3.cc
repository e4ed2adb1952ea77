// InternLM 3: Llama with separate switches for the biases of q, k, v and of everything else.
#include "model/decoder_config.h"

namespace mlxcel {

void build_internlm3(ConfigReader& config, FamilyModel& model) {
  const DecoderConfig decoder = read_decoder_config(config, DecoderDefaults{}, model);
  AttentionSpec attention = plain_attention(decoder);
  const bool qkv_bias = config.boolean("qkv_bias", false);
  const bool bias = config.boolean("bias", false);
  // Llama's names for the same switches, which converted checkpoints carry as well.
  config.require("attention_bias", qkv_bias);
  config.require("mlp_bias", bias);
  attention.q_bias = attention.k_bias = attention.v_bias = qkv_bias;
  attention.output_bias = bias;
  DenseMlpSpec mlp = plain_mlp(decoder);
  mlp.bias = mlp.down_bias = bias;
  model.spec.layers.assign(static_cast<size_t>(decoder.layers), plain_layer(decoder, attention, mlp));
  model.gguf_permutes_heads = true;
}

}  // namespace mlxcel
