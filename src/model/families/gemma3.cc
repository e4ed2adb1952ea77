// Gemma 3 (text): q/k norms, five sliding layers to one full; sliding layers have a rope base of their own
// and no scaling. The language model of a multi-modal checkpoint loads too; its vision tower is left out.
#include "model/families/gemma.h"

namespace mlxcel {
namespace {

RopeSpec local_rope(ConfigReader& config, const DecoderConfig& decoder) {
  RopeDefaults defaults;
  defaults.theta = 10000.0;
  defaults.theta_key = "rope_local_base_freq";
  defaults.ignore_scaling = true;
  return read_rope(config, decoder.head_dim, defaults, "sliding_attention");
}

RopeSpec full_rope(ConfigReader& config, const DecoderConfig& decoder) {
  RopeDefaults defaults;
  defaults.theta = 1e6;
  return read_rope(config, decoder.head_dim, defaults, "full_attention");
}

}  // namespace

void build_gemma3(ConfigReader& config, FamilyModel& model) {
  const DecoderConfig decoder = read_gemma_config(config, 1e6, model);
  name_gemma_norms(model.names);
  AttentionSpec attention = gemma_attention(config, decoder);
  attention.q_norm = attention.k_norm = per_head_norm(decoder);
  read_gemma_scale_and_caps(config, 256.0, 0.0, 0.0, attention, model.spec.head);
  const std::optional<int> window = read_sliding_window(config);
  const int pattern = config.count("sliding_window_pattern", 1, kMaxLayers, 6);
  config.ignore({"_sliding_window_pattern"});
  const RopeSpec local = local_rope(config, decoder);
  const RopeSpec full = full_rope(config, decoder);
  for (const bool slides :
       read_sliding_layers(config, decoder.layers, sliding_pattern(decoder.layers, pattern))) {
    attention.sliding_window = slides ? window : std::nullopt;
    attention.rope = slides ? local : full;
    model.spec.layers.push_back(gemma_layer(decoder, attention));
  }
  model.names.ignored.insert(
      model.names.ignored.end(),
      {"vision_tower.*", "multi_modal_projector.*", "model.vision_tower.*", "model.multi_modal_projector.*"});
}

}  // namespace mlxcel
