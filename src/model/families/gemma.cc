// Gemma 1 and 2: norm weights stored as w - 1, embeddings scaled by sqrt(hidden), tanh GELU; Gemma 2 adds
// norms after each block, soft caps and a window on every other layer.
#include "model/families/gemma.h"

#include <cmath>

namespace mlxcel {

DecoderConfig read_gemma_config(ConfigReader& config, double theta, FamilyModel& model) {
  DecoderDefaults defaults;
  defaults.tied = true;
  defaults.rope_theta = theta;
  defaults.head_dim = 256;
  // "hidden_act" of the first configs says "gelu"; the models were trained with the tanh form, which
  // "hidden_activation" names.
  defaults.activation_key = "hidden_activation";
  defaults.activation = "gelu_pytorch_tanh";
  DecoderConfig decoder = read_decoder_config(config, defaults, model);
  config.ignore({"hidden_act"});
  decoder.norm.weight_offset = 1.0f;
  model.spec.final_norm = decoder.norm;
  model.spec.embedding_scale = std::sqrt(static_cast<float>(decoder.hidden));
  config.require("use_bidirectional_attention", false);
  return decoder;
}

void name_gemma_norms(NameTable& names) {
  const std::string layer = "layers.{layer}.";
  names.set(WeightRole::kPostMixerNorm, layer + "post_attention_layernorm.weight");
  names.set(WeightRole::kPreFfnNorm, layer + "pre_feedforward_layernorm.weight");
  names.set(WeightRole::kPostFfnNorm, layer + "post_feedforward_layernorm.weight");
}

LayerSpec gemma_layer(const DecoderConfig& decoder, AttentionSpec attention) {
  LayerSpec layer = plain_layer(decoder, std::move(attention), plain_mlp(decoder));
  layer.post_mixer_norm = layer.post_ffn_norm = decoder.norm;
  return layer;
}

AttentionSpec gemma_attention(ConfigReader& config, const DecoderConfig& decoder) {
  AttentionSpec attention = plain_attention(decoder);
  const bool bias = config.boolean("attention_bias", false);
  attention.q_bias = attention.k_bias = attention.v_bias = attention.output_bias = bias;
  return attention;
}

void read_gemma_scale_and_caps(ConfigReader& config, double default_scalar, double default_cap,
                               double default_final_cap, AttentionSpec& attention, HeadSpec& head) {
  const double scalar = config.number("query_pre_attn_scalar", default_scalar);
  if (!(scalar > 0.0)) config.reject("query_pre_attn_scalar", "a positive number");
  attention.scale = static_cast<float>(1.0 / std::sqrt(scalar));
  // null switches a cap off; a missing key means the family's default.
  const auto cap = [&](std::string_view key, double fallback) {
    return static_cast<float>(config.number(key, config.mentions(key) ? 0.0 : fallback));
  };
  attention.logit_softcap = cap("attn_logit_softcapping", default_cap);
  head.softcap = cap("final_logit_softcapping", default_final_cap);
}

void build_gemma(ConfigReader& config, FamilyModel& model) {
  const DecoderConfig decoder = read_gemma_config(config, 10000.0, model);
  model.spec.layers.assign(static_cast<size_t>(decoder.layers),
                           plain_layer(decoder, gemma_attention(config, decoder), plain_mlp(decoder)));
}

void build_gemma2(ConfigReader& config, FamilyModel& model) {
  const DecoderConfig decoder = read_gemma_config(config, 10000.0, model);
  name_gemma_norms(model.names);
  AttentionSpec attention = gemma_attention(config, decoder);
  read_gemma_scale_and_caps(config, 256.0, 50.0, 30.0, attention, model.spec.head);
  const std::optional<int> window = read_sliding_window(config);
  for (const bool slides : read_sliding_layers(config, decoder.layers, sliding_pattern(decoder.layers, 2))) {
    attention.sliding_window = slides ? window : std::nullopt;
    model.spec.layers.push_back(gemma_layer(decoder, attention));
  }
}

}  // namespace mlxcel
