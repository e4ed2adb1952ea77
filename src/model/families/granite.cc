// Granite 3: Llama with multipliers on embeddings, residuals, attention scores and logits.
#include "model/decoder_config.h"

namespace mlxcel {

void build_granite(ConfigReader& config, FamilyModel& model) {
  const DecoderConfig decoder = read_decoder_config(config, DecoderDefaults{}, model);
  AttentionSpec attention = plain_attention(decoder);
  const bool bias = config.boolean("attention_bias", false);
  attention.q_bias = attention.k_bias = attention.v_bias = attention.output_bias = bias;
  attention.scale = static_cast<float>(config.number("attention_multiplier", 1.0));
  DenseMlpSpec mlp = plain_mlp(decoder);
  mlp.bias = mlp.down_bias = config.boolean("mlp_bias", false);
  LayerSpec layer = plain_layer(decoder, attention, mlp);
  layer.residual_scale = static_cast<float>(config.number("residual_multiplier", 1.0));
  model.spec.embedding_scale = static_cast<float>(config.number("embedding_multiplier", 1.0));
  const double divisor = config.number("logits_scaling", 1.0);
  if (!(divisor > 0.0)) config.reject("logits_scaling", "a positive number");
  model.spec.head.logit_scale = static_cast<float>(1.0 / divisor);
  model.spec.layers.assign(static_cast<size_t>(decoder.layers), layer);
  model.gguf_permutes_heads = true;
}

}  // namespace mlxcel
