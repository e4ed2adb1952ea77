// Mistral 7B, Nemo, Small: Llama with a sliding window on every layer (when the config sets one).
#include "model/decoder_config.h"

namespace mlxcel {

void build_mistral(ConfigReader& config, FamilyModel& model) {
  const DecoderConfig decoder = read_decoder_config(config, DecoderDefaults{}, model);
  AttentionSpec attention = plain_attention(decoder);
  attention.sliding_window = read_sliding_window(config);
  model.spec.layers.assign(static_cast<size_t>(decoder.layers),
                           plain_layer(decoder, attention, plain_mlp(decoder)));
  model.gguf_permutes_heads = true;
}

}  // namespace mlxcel
