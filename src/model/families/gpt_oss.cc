// GPT-OSS: attention sinks, a window on every other layer, YaRN without rounding, experts with biases and a
// clamped SwiGLU. Experts come as plain [experts, columns, rows], as MXFP4 blocks, or stacked by mlx-lm.
#include "model/decoder_config.h"

namespace mlxcel {
namespace {

void name_experts(NameTable& names) {
  const std::string mlp = "layers.{layer}.mlp.";
  names.set(WeightRole::kRouter, mlp + "router.weight");
  names.set(WeightRole::kRouterBias, mlp + "router.bias");
  const std::string experts = mlp + "experts.";
  const auto stacked = [](std::string pattern) {
    return Naming{std::move(pattern), Fusion::kNone, true, false};
  };
  const auto alternating = [](std::string pattern, bool transposed) {
    return Naming{std::move(pattern), Fusion::kAlternating, true, transposed};
  };
  for (const WeightRole role : {WeightRole::kExpertGate, WeightRole::kExpertUp}) {
    const std::string part = role == WeightRole::kExpertGate ? "gate_proj" : "up_proj";
    names.names[role] = {alternating(experts + "gate_up_proj", true),
                         alternating(experts + "gate_up_proj_blocks", false),
                         stacked(experts + part + ".weight")};
  }
  for (const WeightRole role : {WeightRole::kExpertGateBias, WeightRole::kExpertUpBias}) {
    const std::string part = role == WeightRole::kExpertGateBias ? "gate_proj" : "up_proj";
    names.names[role] = {alternating(experts + "gate_up_proj_bias", false),
                         stacked(experts + part + ".bias")};
  }
  names.names[WeightRole::kExpertDown] = {Naming{experts + "down_proj", Fusion::kNone, true, true},
                                          stacked(experts + "down_proj_blocks"),
                                          stacked(experts + "down_proj.weight")};
  names.names[WeightRole::kExpertDownBias] = {stacked(experts + "down_proj_bias"),
                                              stacked(experts + "down_proj.bias")};
}

}  // namespace

void build_gpt_oss(ConfigReader& config, FamilyModel& model) {
  DecoderDefaults defaults;
  defaults.epsilon = 1e-5;
  defaults.rope_theta = 150000.0;
  defaults.head_dim = 64;
  const DecoderConfig decoder = read_decoder_config(config, defaults, model);
  AttentionSpec attention = plain_attention(decoder);
  const bool bias = config.boolean("attention_bias", true);
  attention.q_bias = attention.k_bias = attention.v_bias = attention.output_bias = bias;
  attention.has_sinks = true;
  MoeSpec moe;
  moe.num_experts = config.count("num_local_experts", 1, kMaxExperts);
  moe.experts_per_token = config.count("num_experts_per_tok", 1, moe.num_experts);
  config.require("experts_per_token", moe.experts_per_token);
  config.ignore({"initial_context_length"});  // the original length again; the rope settings state it
  moe.intermediate = decoder.intermediate;
  moe.activation = decoder.activation;
  moe.router = RouterKind::kSoftmaxTopK;
  moe.router_bias = moe.expert_bias = true;
  moe.swiglu_limit = static_cast<float>(config.number("swiglu_limit", 7.0));
  moe.swiglu_alpha = static_cast<float>(config.number("swiglu_alpha", 1.702));
  const std::optional<int> window = read_sliding_window(config);
  for (const bool slides : read_sliding_layers(config, decoder.layers, sliding_pattern(decoder.layers, 2))) {
    attention.sliding_window = slides ? window : std::nullopt;
    model.spec.layers.push_back(plain_layer(decoder, attention, moe));
  }
  model.names.set(WeightRole::kSinks, "layers.{layer}.self_attn.sinks");
  name_experts(model.names);
}

}  // namespace mlxcel
