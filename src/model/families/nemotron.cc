// Nemotron 3 and 4, Minitron: LayerNorm with weights stored as w - 1, squared ReLU without a gate, partial
// rope.
#include "model/decoder_config.h"

namespace mlxcel {

void build_nemotron(ConfigReader& config, FamilyModel& model) {
  DecoderDefaults defaults;
  defaults.norm_kind = NormKind::kLayer;
  defaults.epsilon_key = "norm_eps";
  defaults.epsilon = 1e-5;
  defaults.activation = "relu2";
  defaults.partial_rotary = config.number("rope_percent", 0.5);
  DecoderConfig decoder = read_decoder_config(config, defaults, model);
  decoder.norm.weight_offset = 1.0f;
  decoder.norm.has_bias = true;
  model.spec.final_norm = decoder.norm;
  AttentionSpec attention = plain_attention(decoder);
  const bool bias = config.boolean("attention_bias", false);
  attention.q_bias = attention.k_bias = attention.v_bias = attention.output_bias = bias;
  DenseMlpSpec mlp = plain_mlp(decoder);
  mlp.gated = false;
  mlp.bias = mlp.down_bias = config.boolean("mlp_bias", false);
  model.spec.layers.assign(static_cast<size_t>(decoder.layers), plain_layer(decoder, attention, mlp));
}

}  // namespace mlxcel
