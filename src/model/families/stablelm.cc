// StableLM 3B, Zephyr, StableLM 2: LayerNorm with bias, rope over a quarter of each head; the 12B has a
// parallel residual and q/k norms with weights per head.
#include "model/decoder_config.h"

namespace mlxcel {

void build_stablelm(ConfigReader& config, FamilyModel& model) {
  DecoderDefaults defaults;
  defaults.norm_kind = NormKind::kLayer;
  defaults.epsilon_key = "layer_norm_eps";
  defaults.epsilon = 1e-5;
  defaults.partial_rotary = 0.25;
  const DecoderConfig decoder = read_decoder_config(config, defaults, model);
  AttentionSpec attention = plain_attention(decoder);
  attention.q_bias = attention.k_bias = attention.v_bias = config.boolean("use_qkv_bias", false);
  config.require("rotary_scaling_factor", 1.0);
  if (config.boolean("qk_layernorm", false)) {
    HeadNormSpec norm = per_head_norm(decoder);
    norm.per_head_weights = true;
    attention.q_norm = attention.k_norm = norm;
  }
  NormSpec with_bias = decoder.norm;
  with_bias.has_bias = true;
  model.spec.final_norm = with_bias;
  LayerSpec layer = plain_layer(decoder, attention, plain_mlp(decoder));
  layer.pre_mixer_norm = layer.pre_ffn_norm = with_bias;
  layer.parallel_residual = config.boolean("use_parallel_residual", false);
  // One norm feeds both halves of the parallel block.
  if (layer.parallel_residual) layer.pre_ffn_norm = std::nullopt;
  model.spec.layers.assign(static_cast<size_t>(decoder.layers), layer);
  const std::string attention_names = "layers.{layer}.self_attn.";
  model.names.set(WeightRole::kQueryNorm, attention_names + "q_layernorm.norms.{expert}.weight");
  model.names.set(WeightRole::kKeyNorm, attention_names + "k_layernorm.norms.{expert}.weight");
}

}  // namespace mlxcel
