// Phi 3, 3.5 and 4: one fused q/k/v tensor, one fused gate/up tensor, LongRoPE, partial rotary (Phi 4 mini).
#include "model/decoder_config.h"

namespace mlxcel {

void build_phi3(ConfigReader& config, FamilyModel& model) {
  DecoderDefaults defaults;
  defaults.epsilon = 1e-5;
  const DecoderConfig decoder = read_decoder_config(config, defaults, model);
  AttentionSpec attention = plain_attention(decoder);
  attention.sliding_window = read_sliding_window(config);
  config.require("full_attn_mod", 1);
  config.require("interpolate_factor", 1);
  model.spec.layers.assign(static_cast<size_t>(decoder.layers),
                           plain_layer(decoder, attention, plain_mlp(decoder)));
  const std::string qkv = "layers.{layer}.self_attn.qkv_proj.weight";
  model.names.set(WeightRole::kQuery, qkv, Fusion::kQkv);
  model.names.set(WeightRole::kKey, qkv, Fusion::kQkv);
  model.names.set(WeightRole::kValue, qkv, Fusion::kQkv);
  const std::string gate_up = "layers.{layer}.mlp.gate_up_proj.weight";
  model.names.set(WeightRole::kGate, gate_up, Fusion::kGateUp);
  model.names.set(WeightRole::kUp, gate_up, Fusion::kGateUp);
}

}  // namespace mlxcel
