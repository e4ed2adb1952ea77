#include "backend/backend.h"

namespace mlxcel {

std::string_view activation_precision_name(ActivationPrecision p) {
  switch (p) {
    case ActivationPrecision::kHigh:
      return "high";
    case ActivationPrecision::kF32:
      return "f32";
    case ActivationPrecision::kInt8:
      return "int8";
  }
  return "high";
}

std::optional<ActivationPrecision> parse_activation_precision(std::string_view name) {
  for (const ActivationPrecision p :
       {ActivationPrecision::kHigh, ActivationPrecision::kF32, ActivationPrecision::kInt8}) {
    if (name == activation_precision_name(p)) return p;
  }
  return std::nullopt;
}

namespace {

std::string_view mixer_name(const MixerSpec& mixer) {
  struct Name {
    std::string_view operator()(const AttentionSpec&) const { return "attention"; }
    std::string_view operator()(const MlaSpec&) const { return "multi-head latent attention"; }
    std::string_view operator()(const GatedDeltaSpec&) const { return "gated delta net"; }
    std::string_view operator()(const Mamba2Spec&) const { return "Mamba 2"; }
    std::string_view operator()(const ShortConvSpec&) const { return "short convolution"; }
    std::string_view operator()(const ParallelMixerSpec&) const { return "attention beside Mamba 2"; }
  };
  return std::visit(Name{}, mixer);
}

Error unsupported_layer(const ModelSpec& spec, size_t layer, std::string_view what) {
  return make_error(ErrorKind::kUnsupported, "this backend cannot compute a layer of the model",
                    spec.family + ", layer " + std::to_string(layer),
                    "attention with a dense or expert feed-forward", std::string(what));
}

}  // namespace

Status check_attention_only(const ModelSpec& spec) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const AttentionSpec* attention = std::get_if<AttentionSpec>(&spec.layers[i].mixer);
    if (attention == nullptr) return unsupported_layer(spec, i, mixer_name(spec.layers[i].mixer));
    if (attention->has_output_gate) return unsupported_layer(spec, i, "gated attention output");
    if (!attention->rope.sections.empty()) return unsupported_layer(spec, i, "multi-axis rotary embedding");
    if (std::holds_alternative<NoFfnSpec>(spec.layers[i].ffn)) {
      return unsupported_layer(spec, i, "no feed-forward");
    }
  }
  return ok_status();
}

KvLayout kv_layout_for(const ModelSpec& spec, KvType key_type, KvType value_type) {
  KvLayout layout;
  layout.key_type = key_type;
  layout.value_type = value_type;
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec* attention = std::get_if<AttentionSpec>(&layer.mixer);
    LayerKvLayout row;
    if (attention != nullptr) {
      row.num_kv_heads = attention->num_kv_heads;
      row.key_dim = attention->head_dim;
      row.value_dim = attention->value_head_dim;
      row.sliding_window = attention->sliding_window;
    }
    layout.layers.push_back(row);
  }
  return layout;
}

}  // namespace mlxcel
