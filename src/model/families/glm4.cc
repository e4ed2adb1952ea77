// GLM 4 (0414): norms before and after each block, interleaved rope over half of each head, fused gate/up.
#include "model/decoder_config.h"

namespace mlxcel {

void build_glm4(ConfigReader& config, FamilyModel& model) {
  DecoderDefaults defaults;
  defaults.partial_rotary = 0.5;
  defaults.epsilon = 1.5625e-7;
  defaults.head_dim = 128;
  const DecoderConfig decoder = read_decoder_config(config, defaults, model);
  AttentionSpec attention = plain_attention(decoder);
  attention.q_bias = attention.k_bias = attention.v_bias = config.boolean("attention_bias", false);
  attention.rope.interleaved = true;
  LayerSpec layer = plain_layer(decoder, attention, plain_mlp(decoder));
  layer.post_mixer_norm = layer.post_ffn_norm = decoder.norm;
  model.spec.layers.assign(static_cast<size_t>(decoder.layers), layer);
  model.names.set(WeightRole::kPostMixerNorm, "layers.{layer}.post_self_attn_layernorm.weight");
  model.names.set(WeightRole::kPostFfnNorm, "layers.{layer}.post_mlp_layernorm.weight");
  const std::string gate_up = "layers.{layer}.mlp.gate_up_proj.weight";
  model.names.set(WeightRole::kGate, gate_up, Fusion::kGateUp);
  model.names.set(WeightRole::kUp, gate_up, Fusion::kGateUp);
}

}  // namespace mlxcel
