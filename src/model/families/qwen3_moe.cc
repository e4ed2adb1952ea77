// Qwen 3 MoE: Qwen 3's attention with routed experts and no shared one.
#include "model/decoder_config.h"
#include "model/families/qwen.h"

namespace mlxcel {

void build_qwen3_moe(ConfigReader& config, FamilyModel& model) {
  const DecoderConfig decoder = read_decoder_config(config, DecoderDefaults{}, model);
  AttentionSpec attention = plain_attention(decoder);
  const bool bias = config.boolean("attention_bias", false);
  attention.q_bias = attention.k_bias = attention.v_bias = attention.output_bias = bias;
  attention.q_norm = attention.k_norm = per_head_norm(decoder);
  // Unlike its dense sibling, a window applies to every layer.
  const std::optional<int> window = read_sliding_window(config);
  if (config.boolean("use_sliding_window", false)) attention.sliding_window = window;
  config.ignore({"max_window_layers", "layer_types"});
  const MoeSpec moe = read_qwen_experts(config, decoder, false);
  for (const bool sparse : read_qwen_sparse_layers(config, decoder.layers)) {
    const FeedForwardSpec ffn = sparse ? FeedForwardSpec(moe) : FeedForwardSpec(plain_mlp(decoder));
    model.spec.layers.push_back(plain_layer(decoder, attention, ffn));
  }
  const std::string mlp = "layers.{layer}.mlp";
  model.names.set(WeightRole::kRouter, mlp + ".gate.weight");
  add_expert_names(model.names, mlp, "gate_proj", "up_proj", "down_proj");
}

}  // namespace mlxcel
