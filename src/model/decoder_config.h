// The keys that nearly all decoder configs share, read once, and the pieces of a ModelSpec that follow from
// them. Family files start from these and change what is theirs.
//
// Owner: values. Threads: one load.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config_reader.h"
#include "model/family.h"
#include "model/model_spec.h"

namespace mlxcel {

// Bounds of what a config may ask for: far above published models, low enough that products of sizes cannot
// overflow.
inline constexpr int64_t kMaxHidden = int64_t{1} << 20;
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxHeads = 65536;
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 26;
inline constexpr int64_t kMaxPosition = int64_t{1} << 31;
inline constexpr int64_t kMaxExperts = 4096;

struct DecoderDefaults {
  bool tied = false;  // when tie_word_embeddings is missing
  double rope_theta = 10000.0;
  double partial_rotary = 1.0;
  NormKind norm_kind = NormKind::kRms;
  std::string_view epsilon_key = "rms_norm_eps";
  double epsilon = 1e-6;
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";
  bool has_rope_alpha = false;      // see RopeDefaults::has_alpha
  std::optional<int64_t> head_dim;  // when head_dim is missing; else hidden_size / num_attention_heads
};

struct DecoderConfig {
  int hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
  int64_t max_position = 0;
  NormSpec norm;
  Activation activation = Activation::kSilu;
  RopeSpec rope;
};

// Also fills spec's sizes, final norm and head, and the usual names.
DecoderConfig read_decoder_config(ConfigReader& config, const DecoderDefaults& defaults, FamilyModel& model);

// q.k scaled by head_dim^-0.5, no biases, no norms, full attention.
AttentionSpec plain_attention(const DecoderConfig& decoder);
DenseMlpSpec plain_mlp(const DecoderConfig& decoder);
// Norm before the mixer and before the feed-forward.
LayerSpec plain_layer(const DecoderConfig& decoder, AttentionSpec attention, FeedForwardSpec ffn);
HeadNormSpec per_head_norm(const DecoderConfig& decoder);

Activation parse_activation(ConfigReader& config, std::string_view key, std::string_view fallback);

// "layer_types" as sliding or not, one per layer; absent: `fallback`. Any other kind of layer is an error.
std::vector<bool> read_sliding_layers(ConfigReader& config, int layers, std::vector<bool> fallback);
// A window that applies where it is set and positive; nullopt when null, 0 or missing.
std::optional<int> read_sliding_window(ConfigReader& config);
// Layer i slides unless (i + 1) is a multiple of `pattern`.
std::vector<bool> sliding_pattern(int layers, int pattern);

// Rope settings in either spelling: rope_parameters, or rope_theta with rope_scaling. `layer_type` picks one
// entry of a rope_parameters that has one per kind of layer.
struct RopeDefaults {
  double theta = 10000.0;
  double partial_rotary = 1.0;
  std::string_view theta_key = "rope_theta";
  std::string_view partial_key = "partial_rotary_factor";
  bool ignore_scaling = false;  // Gemma 3's local layers: the scaling is not theirs
  bool has_alpha = false;       // Hunyuan: "dynamic" with alpha stretches the base once
};
RopeSpec read_rope(ConfigReader& config, int head_dim, const RopeDefaults& defaults,
                   std::string_view layer_type = {});

}  // namespace mlxcel
