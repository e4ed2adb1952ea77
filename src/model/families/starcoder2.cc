// StarCoder 2: LayerNorm with bias, a plain two-layer feed-forward with tanh GELU, biases everywhere.
#include "model/decoder_config.h"

namespace mlxcel {

void build_starcoder2(ConfigReader& config, FamilyModel& model) {
  DecoderDefaults defaults;
  defaults.tied = true;
  defaults.norm_kind = NormKind::kLayer;
  defaults.epsilon_key = "norm_epsilon";
  defaults.epsilon = 1e-5;
  defaults.activation = "gelu_pytorch_tanh";
  DecoderConfig decoder = read_decoder_config(config, defaults, model);
  decoder.norm.has_bias = true;
  model.spec.final_norm = decoder.norm;
  // Spellings of an older implementation for what the family is by definition.
  config.ignore({"activation_function", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"});
  config.require("norm_type", "layer_norm");
  config.require("mlp_type", "default");
  config.require("scale_attn_weights", true);
  AttentionSpec attention = plain_attention(decoder);
  attention.sliding_window = read_sliding_window(config);
  const bool bias = config.boolean("use_bias", true);
  attention.q_bias = attention.k_bias = attention.v_bias = attention.output_bias = bias;
  DenseMlpSpec mlp = plain_mlp(decoder);
  mlp.gated = false;
  mlp.bias = mlp.down_bias = bias;
  model.spec.layers.assign(static_cast<size_t>(decoder.layers), plain_layer(decoder, attention, mlp));
  const std::string names = "layers.{layer}.mlp.";
  model.names.set(WeightRole::kUp, names + "c_fc.weight");
  model.names.set(WeightRole::kUpBias, names + "c_fc.bias");
  model.names.set(WeightRole::kDown, names + "c_proj.weight");
  model.names.set(WeightRole::kDownBias, names + "c_proj.bias");
}

}  // namespace mlxcel
