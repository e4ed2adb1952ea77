// Mixtral: Mistral's attention with routed experts; the softmax is over the chosen ones.
#include "model/decoder_config.h"

namespace mlxcel {

void build_mixtral(ConfigReader& config, FamilyModel& model) {
  DecoderDefaults defaults;
  defaults.epsilon = 1e-5;
  defaults.rope_theta = 1e6;
  const DecoderConfig decoder = read_decoder_config(config, defaults, model);
  AttentionSpec attention = plain_attention(decoder);
  attention.sliding_window = read_sliding_window(config);
  MoeSpec moe;
  moe.num_experts = config.count("num_local_experts", 1, kMaxExperts);
  moe.experts_per_token = config.count("num_experts_per_tok", 1, moe.num_experts);
  moe.intermediate = decoder.intermediate;
  moe.activation = decoder.activation;
  moe.router = RouterKind::kSoftmaxTopK;
  model.spec.layers.assign(static_cast<size_t>(decoder.layers), plain_layer(decoder, attention, moe));
  const std::string block = "layers.{layer}.block_sparse_moe";
  model.names.names[WeightRole::kRouter] = {Naming{block + ".gate.weight"},
                                            Naming{"layers.{layer}.mlp.gate.weight"}};
  add_expert_names(model.names, block, "w1", "w3", "w2");
  add_expert_names(model.names, "layers.{layer}.mlp", "gate_proj", "up_proj", "down_proj");
  model.gguf_permutes_heads = true;
}

}  // namespace mlxcel
