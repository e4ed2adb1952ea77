// Command R7B (Cohere 2): attention and feed-forward in parallel, LayerNorm without bias, three sliding
// layers with interleaved rope to one full layer without any.
#include "model/decoder_config.h"

namespace mlxcel {

void build_cohere2(ConfigReader& config, FamilyModel& model) {
  DecoderDefaults defaults;
  defaults.tied = true;
  defaults.norm_kind = NormKind::kLayer;
  defaults.epsilon_key = "layer_norm_eps";
  defaults.epsilon = 1e-5;
  const DecoderConfig decoder = read_decoder_config(config, defaults, model);
  model.spec.head.logit_scale = static_cast<float>(config.number("logit_scale", 0.0625));
  AttentionSpec attention = plain_attention(decoder);
  const bool bias = config.boolean("attention_bias", false);
  attention.q_bias = attention.k_bias = attention.v_bias = attention.output_bias = bias;
  attention.rope.interleaved = true;
  const std::optional<int> window = read_sliding_window(config);
  const int pattern = config.count("sliding_window_pattern", 1, kMaxLayers, 4);
  config.ignore({"_sliding_window_pattern"});
  // Other spellings of what the family is by definition.
  config.require("position_embedding_type", "rope_gptj");
  config.require("order_of_interleaved_layers", "local_attn_first");
  config.require("use_embedding_sharing", true);
  config.require("use_gated_activation", true);
  config.require("use_parallel_block", true);
  config.ignore({"use_parallel_embedding"});
  for (const bool slides :
       read_sliding_layers(config, decoder.layers, sliding_pattern(decoder.layers, pattern))) {
    AttentionSpec of_layer = attention;
    of_layer.sliding_window = slides ? window : std::nullopt;
    if (!slides) of_layer.rope.kind = RopeKind::kNone;
    LayerSpec layer = plain_layer(decoder, of_layer, plain_mlp(decoder));
    layer.pre_ffn_norm = std::nullopt;
    layer.parallel_residual = true;
    model.spec.layers.push_back(layer);
  }
}

}  // namespace mlxcel
