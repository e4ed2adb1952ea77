// Qwen 1.5 and 2 MoE: a shared expert behind a sigmoid gate beside the routed ones.
#include <algorithm>

#include "model/decoder_config.h"
#include "model/families/qwen.h"

namespace mlxcel {

std::vector<bool> read_qwen_sparse_layers(ConfigReader& config, int layers) {
  const int step = config.count("decoder_sparse_step", 1, kMaxLayers, 1);
  const std::vector<int64_t> dense = config.integers("mlp_only_layers");
  std::vector<bool> sparse;
  for (int i = 0; i < layers; ++i) {
    const bool is_dense = std::find(dense.begin(), dense.end(), i) != dense.end();
    sparse.push_back(!is_dense && (i + 1) % step == 0);
  }
  return sparse;
}

MoeSpec read_qwen_experts(ConfigReader& config, const DecoderConfig& decoder, bool normalise) {
  MoeSpec moe;
  moe.num_experts = config.count("num_experts", 1, kMaxExperts);
  moe.experts_per_token = config.count("num_experts_per_tok", 1, moe.num_experts);
  moe.intermediate = config.count("moe_intermediate_size", 1, kMaxHidden);
  moe.activation = decoder.activation;
  moe.router = RouterKind::kSoftmaxAll;
  moe.normalise_weights = config.boolean("norm_topk_prob", normalise);
  // A second spelling of num_experts that some writers add.
  if (config.has("num_local_experts")) config.require("num_local_experts", moe.num_experts);
  return moe;
}

void build_qwen2_moe(ConfigReader& config, FamilyModel& model) {
  const DecoderConfig decoder = read_decoder_config(config, DecoderDefaults{}, model);
  AttentionSpec attention = plain_attention(decoder);
  attention.q_bias = attention.k_bias = attention.v_bias = config.boolean("qkv_bias", true);
  MoeSpec moe = read_qwen_experts(config, decoder, false);
  DenseMlpSpec shared = plain_mlp(decoder);
  shared.intermediate = config.count("shared_expert_intermediate_size", 1, kMaxHidden);
  moe.shared = shared;
  moe.shared_gate = true;
  const std::vector<std::optional<int>> windows = read_qwen_windows(config, decoder.layers);
  const std::vector<bool> sparse = read_qwen_sparse_layers(config, decoder.layers);
  for (size_t i = 0; i < windows.size(); ++i) {
    attention.sliding_window = windows[i];
    const FeedForwardSpec ffn = sparse[i] ? FeedForwardSpec(moe) : FeedForwardSpec(plain_mlp(decoder));
    model.spec.layers.push_back(plain_layer(decoder, attention, ffn));
  }
  const std::string mlp = "layers.{layer}.mlp";
  model.names.set(WeightRole::kRouter, mlp + ".gate.weight");
  add_expert_names(model.names, mlp, "gate_proj", "up_proj", "down_proj");
  model.names.set(WeightRole::kSharedGate, mlp + ".shared_expert.gate_proj.weight");
  model.names.set(WeightRole::kSharedUp, mlp + ".shared_expert.up_proj.weight");
  model.names.set(WeightRole::kSharedDown, mlp + ".shared_expert.down_proj.weight");
  model.names.set(WeightRole::kSharedRouter, mlp + ".shared_expert_gate.weight");
}

}  // namespace mlxcel
