// What the Gemma families share.
// Owner: values. Threads: one load.
#pragma once

#include "model/decoder_config.h"

namespace mlxcel {

// Decoder keys with Gemma's defaults; fills the final norm and the embedding scale.
DecoderConfig read_gemma_config(ConfigReader& config, double theta, FamilyModel& model);
void name_gemma_norms(NameTable& names);
AttentionSpec gemma_attention(ConfigReader& config, const DecoderConfig& decoder);
// A norm before and after each block.
LayerSpec gemma_layer(const DecoderConfig& decoder, AttentionSpec attention);
void read_gemma_scale_and_caps(ConfigReader& config, double default_scalar, double default_cap,
                               double default_final_cap, AttentionSpec& attention, HeadSpec& head);

}  // namespace mlxcel
