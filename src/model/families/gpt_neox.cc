// GPT-NeoX and Pythia: parallel residual with a norm of its own for each half, q, k and v fused per head,
// rope over a part of each head.
#include "model/decoder_config.h"

namespace mlxcel {
namespace {

void name_gpt_neox(NameTable& names) {
  names = NameTable{};
  names.prefixes = {"gpt_neox.", ""};
  names.set(WeightRole::kEmbedding, "embed_in.weight");
  names.set(WeightRole::kFinalNorm, "final_layer_norm.weight");
  names.set(WeightRole::kFinalNormBias, "final_layer_norm.bias");
  names.set(WeightRole::kHead, "/embed_out.weight");
  const std::string layer = "layers.{layer}.";
  names.set(WeightRole::kPreMixerNorm, layer + "input_layernorm.weight");
  names.set(WeightRole::kPreMixerNormBias, layer + "input_layernorm.bias");
  names.set(WeightRole::kPreFfnNorm, layer + "post_attention_layernorm.weight");
  names.set(WeightRole::kPreFfnNormBias, layer + "post_attention_layernorm.bias");
  const std::string attention = layer + "attention.";
  for (const WeightRole role : {WeightRole::kQuery, WeightRole::kKey, WeightRole::kValue}) {
    names.set(role, attention + "query_key_value.weight", Fusion::kQkvPerHead);
  }
  for (const WeightRole role : {WeightRole::kQueryBias, WeightRole::kKeyBias, WeightRole::kValueBias}) {
    names.set(role, attention + "query_key_value.bias", Fusion::kQkvPerHead);
  }
  names.set(WeightRole::kOutput, attention + "dense.weight");
  names.set(WeightRole::kOutputBias, attention + "dense.bias");
  names.set(WeightRole::kUp, layer + "mlp.dense_h_to_4h.weight");
  names.set(WeightRole::kUpBias, layer + "mlp.dense_h_to_4h.bias");
  names.set(WeightRole::kDown, layer + "mlp.dense_4h_to_h.weight");
  names.set(WeightRole::kDownBias, layer + "mlp.dense_4h_to_h.bias");
  // Masks and frequencies that older checkpoints stored as buffers.
  names.ignored = {"*.attention.bias", "*.attention.masked_bias", "*rotary_emb.inv_freq"};
}

}  // namespace

void build_gpt_neox(ConfigReader& config, FamilyModel& model) {
  DecoderDefaults defaults;
  defaults.norm_kind = NormKind::kLayer;
  defaults.epsilon_key = "layer_norm_eps";
  defaults.epsilon = 1e-5;
  defaults.activation = "gelu";
  DecoderConfig decoder = read_decoder_config(config, defaults, model);
  decoder.norm.has_bias = true;
  model.spec.final_norm = decoder.norm;
  RopeDefaults rope;
  rope.theta = config.number("rotary_emb_base", 10000.0);
  rope.partial_key = "rotary_pct";
  rope.partial_rotary = 0.25;
  decoder.rope = read_rope(config, decoder.head_dim, rope);
  AttentionSpec attention = plain_attention(decoder);
  const bool bias = config.boolean("attention_bias", true);
  attention.q_bias = attention.k_bias = attention.v_bias = attention.output_bias = bias;
  DenseMlpSpec mlp = plain_mlp(decoder);
  mlp.gated = false;
  mlp.bias = mlp.down_bias = true;
  LayerSpec layer = plain_layer(decoder, attention, mlp);
  layer.parallel_residual = config.boolean("use_parallel_residual", true);
  model.spec.layers.assign(static_cast<size_t>(decoder.layers), layer);
  name_gpt_neox(model.names);
}

}  // namespace mlxcel
