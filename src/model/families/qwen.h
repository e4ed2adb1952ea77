// What the Qwen families share: where sliding windows apply, which layers hold experts, and their experts'
// settings. Owner: values. Threads: one load.
#pragma once

#include <optional>
#include <vector>

#include "model/config_reader.h"
#include "model/decoder_config.h"

namespace mlxcel {

// The window of each layer, from use_sliding_window, sliding_window, max_window_layers and layer_types.
std::vector<std::optional<int>> read_qwen_windows(ConfigReader& config, int layers);
// Whether each layer holds experts, from decoder_sparse_step and mlp_only_layers.
std::vector<bool> read_qwen_sparse_layers(ConfigReader& config, int layers);
MoeSpec read_qwen_experts(ConfigReader& config, const DecoderConfig& decoder, bool normalise);

}  // namespace mlxcel
