// BitNet b1.58 with plain (unpacked) weights: squared ReLU gate, extra norms before the output and down
// projections.
#include "model/decoder_config.h"

namespace mlxcel {

void build_bitnet(ConfigReader& config, FamilyModel& model) {
  DecoderDefaults defaults;
  defaults.epsilon = 1e-5;
  defaults.rope_theta = 500000.0;
  defaults.activation = "relu2";
  const DecoderConfig decoder = read_decoder_config(config, defaults, model);
  AttentionSpec attention = plain_attention(decoder);
  const bool bias = config.boolean("attention_bias", false);
  attention.q_bias = attention.k_bias = attention.v_bias = attention.output_bias = bias;
  attention.pre_output_norm = decoder.norm;
  DenseMlpSpec mlp = plain_mlp(decoder);
  mlp.pre_down_norm = decoder.norm;
  model.spec.layers.assign(static_cast<size_t>(decoder.layers), plain_layer(decoder, attention, mlp));
  model.names.set(WeightRole::kPreOutputNorm, "layers.{layer}.self_attn.attn_sub_norm.weight");
  model.names.set(WeightRole::kPreDownNorm, "layers.{layer}.mlp.ffn_sub_norm.weight");
}

}  // namespace mlxcel
