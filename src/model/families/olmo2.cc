// OLMo 2: norms after each block only, q/k norms over the whole projection.
#include "model/decoder_config.h"

namespace mlxcel {

void build_olmo2(ConfigReader& config, FamilyModel& model) {
  DecoderDefaults defaults;
  defaults.epsilon = 1e-5;
  const DecoderConfig decoder = read_decoder_config(config, defaults, model);
  AttentionSpec attention = plain_attention(decoder);
  const bool bias = config.boolean("attention_bias", false);
  attention.q_bias = attention.k_bias = attention.v_bias = attention.output_bias = bias;
  HeadNormSpec norm = per_head_norm(decoder);
  norm.scope = HeadNormScope::kWholeProjection;
  attention.q_norm = attention.k_norm = norm;
  LayerSpec layer = plain_layer(decoder, attention, plain_mlp(decoder));
  layer.pre_mixer_norm = layer.pre_ffn_norm = std::nullopt;
  layer.post_mixer_norm = layer.post_ffn_norm = decoder.norm;
  model.spec.layers.assign(static_cast<size_t>(decoder.layers), layer);
  model.names.set(WeightRole::kPostMixerNorm, "layers.{layer}.post_attention_layernorm.weight");
  model.names.set(WeightRole::kPostFfnNorm, "layers.{layer}.post_feedforward_layernorm.weight");
}

}  // namespace mlxcel
