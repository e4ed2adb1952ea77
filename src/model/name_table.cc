#include "model/name_table.h"

#include <algorithm>

#include "model/weight_roles.h"

namespace mlxcel {
namespace {

using R = WeightRole;

std::string replace_all(std::string text, std::string_view mark, const std::string& by) {
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + by.size())) {
    text.replace(at, mark.size(), by);
  }
  return text;
}

// The three projections of a layer and the rows each has, for the parts of a fused tensor.
struct QkvRows {
  int64_t query = 0, key = 0, value = 0, head_dim = 0;
};
QkvRows qkv_rows(const ModelSpec& spec, int layer) {
  const auto* attention = std::get_if<AttentionSpec>(&spec.layers[static_cast<size_t>(layer)].mixer);
  if (attention == nullptr) return {};
  const int64_t head_dim = attention->head_dim;
  return {attention->num_heads * head_dim, attention->num_kv_heads * head_dim,
          int64_t{attention->num_kv_heads} * attention->value_head_dim, head_dim};
}

bool is_query(R role) { return role == R::kQuery || role == R::kQueryBias; }
bool is_key(R role) { return role == R::kKey || role == R::kKeyBias; }
bool is_gate(R role) {
  return role == R::kGate || role == R::kGateBias || role == R::kExpertGate || role == R::kExpertGateBias;
}

void select_qkv(TensorSource& source, const QkvRows& rows, R role) {
  source.stored_rows = rows.query + rows.key + rows.value;
  source.row_begin = is_query(role) ? 0 : is_key(role) ? rows.query : rows.query + rows.key;
  source.row_end = is_query(role) ? rows.query : is_key(role) ? rows.query + rows.key : source.stored_rows;
}

void select_rows(TensorSource& source, const Naming& naming, const ModelSpec& spec, const RoleShape& role) {
  const R which = role.key.role;
  source.stored_rows = role.rows;
  switch (naming.fusion) {
    case Fusion::kNone:
      return;
    case Fusion::kQkv:
      select_qkv(source, qkv_rows(spec, role.key.layer), which);
      return;
    case Fusion::kQkvPerHead: {
      const QkvRows rows = qkv_rows(spec, role.key.layer);
      source.stored_rows = rows.query + rows.key + rows.value;
      source.row_begin = (is_query(which) ? 0 : is_key(which) ? 1 : 2) * rows.head_dim;
      source.row_block = rows.head_dim;
      source.row_period = 3 * rows.head_dim;
      return;
    }
    case Fusion::kGateUp:
      source.stored_rows = 2 * role.rows;
      source.row_begin = is_gate(which) ? 0 : role.rows;
      source.row_end = source.row_begin + role.rows;
      return;
    case Fusion::kAlternating:
      source.stored_rows = 2 * role.rows;
      source.row_begin = is_gate(which) ? 0 : 1;
      source.row_block = 1;
      source.row_period = 2;
      return;
  }
}

std::string expand(const Naming& naming, const std::string& prefix, const WeightKey& key) {
  std::string name = naming.pattern.starts_with('/') ? naming.pattern.substr(1) : prefix + naming.pattern;
  name = replace_all(std::move(name), "{layer}", std::to_string(key.layer));
  return replace_all(std::move(name), "{expert}", std::to_string(key.expert));
}

bool exists(const std::string& name, const std::set<std::string, std::less<>>& tensors) {
  return tensors.contains(name);
}

std::string find_prefix(const NameTable& table, const std::set<std::string, std::less<>>& tensors) {
  const auto embedding = table.names.find(R::kEmbedding);
  if (embedding == table.names.end()) return table.prefixes.front();
  for (const std::string& prefix : table.prefixes) {
    for (const Naming& naming : embedding->second) {
      if (exists(expand(naming, prefix, {}), tensors)) return prefix;
    }
  }
  return table.prefixes.front();
}

}  // namespace

NameTable decoder_names() {
  NameTable table;
  table.prefixes = {"model.", "language_model.model.", "model.language_model.", ""};
  table.set(R::kEmbedding, "embed_tokens.weight");
  table.set(R::kFinalNorm, "norm.weight");
  table.set(R::kFinalNormBias, "norm.bias");
  table.names[R::kHead] = {Naming{"/lm_head.weight"}, Naming{"/language_model.lm_head.weight"}};
  table.set(R::kHeadBias, "/lm_head.bias");
  const std::string layer = "layers.{layer}.";
  table.set(R::kPreMixerNorm, layer + "input_layernorm.weight");
  table.set(R::kPreMixerNormBias, layer + "input_layernorm.bias");
  table.set(R::kPreFfnNorm, layer + "post_attention_layernorm.weight");
  table.set(R::kPreFfnNormBias, layer + "post_attention_layernorm.bias");
  const std::string attention = layer + "self_attn.";
  table.set(R::kQuery, attention + "q_proj.weight");
  table.set(R::kKey, attention + "k_proj.weight");
  table.set(R::kValue, attention + "v_proj.weight");
  table.set(R::kOutput, attention + "o_proj.weight");
  table.set(R::kQueryBias, attention + "q_proj.bias");
  table.set(R::kKeyBias, attention + "k_proj.bias");
  table.set(R::kValueBias, attention + "v_proj.bias");
  table.set(R::kOutputBias, attention + "o_proj.bias");
  table.set(R::kQueryNorm, attention + "q_norm.weight");
  table.set(R::kKeyNorm, attention + "k_norm.weight");
  const std::string mlp = layer + "mlp.";
  table.set(R::kGate, mlp + "gate_proj.weight");
  table.set(R::kUp, mlp + "up_proj.weight");
  table.set(R::kDown, mlp + "down_proj.weight");
  table.set(R::kGateBias, mlp + "gate_proj.bias");
  table.set(R::kUpBias, mlp + "up_proj.bias");
  table.set(R::kDownBias, mlp + "down_proj.bias");
  // Frequencies are computed from the config; some older checkpoints store them as well.
  table.ignored = {"*rotary_emb.inv_freq"};
  return table;
}

void add_expert_names(NameTable& table, const std::string& block, const std::string& gate,
                      const std::string& up, const std::string& down) {
  const std::string one = block + ".experts.{expert}.";
  table.add(R::kExpertGate, Naming{one + gate + ".weight"});
  table.add(R::kExpertUp, Naming{one + up + ".weight"});
  table.add(R::kExpertDown, Naming{one + down + ".weight"});
  // mlx-lm stacks the experts of a layer ("switch_mlp").
  const std::string stacked = block + ".switch_mlp.";
  table.add(R::kExpertGate, Naming{stacked + "gate_proj.weight", Fusion::kNone, true, false});
  table.add(R::kExpertUp, Naming{stacked + "up_proj.weight", Fusion::kNone, true, false});
  table.add(R::kExpertDown, Naming{stacked + "down_proj.weight", Fusion::kNone, true, false});
  // transformers 5 may write [experts, 2 * intermediate, hidden] and [experts, hidden, intermediate].
  table.add(R::kExpertGate, Naming{block + ".experts.gate_up_proj", Fusion::kGateUp, true, false});
  table.add(R::kExpertUp, Naming{block + ".experts.gate_up_proj", Fusion::kGateUp, true, false});
  table.add(R::kExpertDown, Naming{block + ".experts.down_proj", Fusion::kNone, true, false});
}

namespace {

void gguf_attention_names(NameTable& table, const std::string& block) {
  const std::string fused = block + "attn_qkv.";
  const auto projection = [&](R weight, R bias, const std::string& name) {
    table.names[weight] = {Naming{block + name + ".weight"}, Naming{fused + "weight", Fusion::kQkv}};
    table.names[bias] = {Naming{block + name + ".bias"}, Naming{fused + "bias", Fusion::kQkv}};
  };
  projection(R::kQuery, R::kQueryBias, "attn_q");
  projection(R::kKey, R::kKeyBias, "attn_k");
  projection(R::kValue, R::kValueBias, "attn_v");
  table.set(R::kOutput, block + "attn_output.weight");
  table.set(R::kOutputBias, block + "attn_output.bias");
  table.set(R::kQueryNorm, block + "attn_q_norm.weight");
  table.set(R::kKeyNorm, block + "attn_k_norm.weight");
  table.set(R::kSinks, block + "attn_sinks.weight");
  table.set(R::kPreOutputNorm, block + "attn_sub_norm.weight");
}

void gguf_expert_names(NameTable& table, const std::string& block) {
  table.set(R::kRouter, block + "ffn_gate_inp.weight");
  table.set(R::kRouterBias, block + "ffn_gate_inp.bias");
  table.set(R::kRouterCorrection, block + "exp_probs_b.bias");
  const auto expert = [&](R weight, R bias, const std::string& name) {
    // Files from before the stacked layout have one tensor per expert.
    table.names[weight] = {Naming{block + name + "_exps.weight", Fusion::kNone, true, false},
                           Naming{block + name + ".{expert}.weight"}};
    table.names[bias] = {Naming{block + name + "_exps.bias", Fusion::kNone, true, false}};
  };
  expert(R::kExpertGate, R::kExpertGateBias, "ffn_gate");
  expert(R::kExpertUp, R::kExpertUpBias, "ffn_up");
  expert(R::kExpertDown, R::kExpertDownBias, "ffn_down");
  table.set(R::kSharedGate, block + "ffn_gate_shexp.weight");
  table.set(R::kSharedUp, block + "ffn_up_shexp.weight");
  table.set(R::kSharedDown, block + "ffn_down_shexp.weight");
  table.set(R::kSharedRouter, block + "ffn_gate_inp_shexp.weight");
}

}  // namespace

NameTable gguf_names() {
  NameTable table;
  table.set(R::kEmbedding, "token_embd.weight");
  table.set(R::kFinalNorm, "output_norm.weight");
  table.set(R::kFinalNormBias, "output_norm.bias");
  table.set(R::kHead, "output.weight");
  table.set(R::kHeadBias, "output.bias");
  const std::string block = "blk.{layer}.";
  table.set(R::kPreMixerNorm, block + "attn_norm.weight");
  table.set(R::kPreMixerNormBias, block + "attn_norm.bias");
  table.set(R::kPostMixerNorm, block + "post_attention_norm.weight");
  table.set(R::kPreFfnNorm, block + "ffn_norm.weight");
  table.set(R::kPreFfnNormBias, block + "ffn_norm.bias");
  table.set(R::kPostFfnNorm, block + "post_ffw_norm.weight");
  gguf_attention_names(table, block);
  table.set(R::kGate, block + "ffn_gate.weight");
  table.set(R::kUp, block + "ffn_up.weight");
  table.set(R::kDown, block + "ffn_down.weight");
  table.set(R::kGateBias, block + "ffn_gate.bias");
  table.set(R::kUpBias, block + "ffn_up.bias");
  table.set(R::kDownBias, block + "ffn_down.bias");
  table.set(R::kPreDownNorm, block + "ffn_sub_norm.weight");
  gguf_expert_names(table, block);
  return table;
}

WeightMap map_weights(const ModelSpec& spec, const NameTable& table,
                      const std::set<std::string, std::less<>>& tensors) {
  WeightMap map;
  map.ignored = table.ignored;
  const std::string prefix = find_prefix(table, tensors);
  for (const RoleShape& role : required_roles(spec)) {
    const auto entry = table.names.find(role.key.role);
    MLXCEL_CHECK_MSG(entry != table.names.end(), weight_role_name(role.key.role));
    const Naming* chosen = &entry->second.front();
    for (const Naming& naming : entry->second) {
      if (!exists(expand(naming, prefix, role.key), tensors)) continue;
      chosen = &naming;
      break;
    }
    TensorSource source;
    source.name = expand(*chosen, prefix, role.key);
    source.transposed = chosen->transposed;
    source.optional = role.optional;
    if (chosen->stacked) source.expert = role.key.expert;
    select_rows(source, *chosen, spec, role);
    map.sources[role.key] = std::move(source);
  }
  return map;
}

std::string_view weight_role_name(WeightRole role) {
  switch (role) {
    case R::kEmbedding:
      return "embedding";
    case R::kEmbeddingNorm:
      return "embedding norm";
    case R::kEmbeddingNormBias:
      return "embedding norm bias";
    case R::kFinalNorm:
      return "final norm";
    case R::kFinalNormBias:
      return "final norm bias";
    case R::kHead:
      return "output head";
    case R::kHeadBias:
      return "output head bias";
    case R::kPreMixerNorm:
      return "norm before the mixer";
    case R::kPreMixerNormBias:
      return "bias of the norm before the mixer";
    case R::kPostMixerNorm:
      return "norm after the mixer";
    case R::kPostMixerNormBias:
      return "bias of the norm after the mixer";
    case R::kPreFfnNorm:
      return "norm before the feed-forward";
    case R::kPreFfnNormBias:
      return "bias of the norm before the feed-forward";
    case R::kPostFfnNorm:
      return "norm after the feed-forward";
    case R::kPostFfnNormBias:
      return "bias of the norm after the feed-forward";
    case R::kQuery:
      return "query projection";
    case R::kKey:
      return "key projection";
    case R::kValue:
      return "value projection";
    case R::kOutput:
      return "attention output projection";
    case R::kQueryBias:
      return "query bias";
    case R::kKeyBias:
      return "key bias";
    case R::kValueBias:
      return "value bias";
    case R::kOutputBias:
      return "attention output bias";
    case R::kQueryNorm:
      return "query norm";
    case R::kKeyNorm:
      return "key norm";
    case R::kQueryNormBias:
      return "query norm bias";
    case R::kKeyNormBias:
      return "key norm bias";
    case R::kSinks:
      return "attention sinks";
    case R::kPreOutputNorm:
      return "norm before the attention output projection";
    case R::kGate:
      return "gate projection";
    case R::kUp:
      return "up projection";
    case R::kDown:
      return "down projection";
    case R::kGateBias:
      return "gate bias";
    case R::kUpBias:
      return "up bias";
    case R::kDownBias:
      return "down bias";
    case R::kPreDownNorm:
      return "norm before the down projection";
    case R::kRouter:
      return "router";
    case R::kRouterBias:
      return "router bias";
    case R::kRouterCorrection:
      return "router correction bias";
    case R::kExpertGate:
      return "expert gate projection";
    case R::kExpertUp:
      return "expert up projection";
    case R::kExpertDown:
      return "expert down projection";
    case R::kExpertGateBias:
      return "expert gate bias";
    case R::kExpertUpBias:
      return "expert up bias";
    case R::kExpertDownBias:
      return "expert down bias";
    case R::kSharedGate:
      return "shared expert gate projection";
    case R::kSharedUp:
      return "shared expert up projection";
    case R::kSharedDown:
      return "shared expert down projection";
    case R::kSharedGateBias:
      return "shared expert gate bias";
    case R::kSharedUpBias:
      return "shared expert up bias";
    case R::kSharedDownBias:
      return "shared expert down bias";
    case R::kSharedRouter:
      return "shared expert gate";
    case R::kQueryDown:
      return "query down projection";
    case R::kQueryDownNorm:
      return "query down norm";
    case R::kQueryUp:
      return "query up projection";
    case R::kKvDown:
      return "key-value down projection";
    case R::kKvDownNorm:
      return "key-value down norm";
    case R::kKvUp:
      return "key-value up projection";
    case R::kMixerIn:
      return "mixer input projection";
    case R::kMixerInBias:
      return "mixer input bias";
    case R::kMixerOut:
      return "mixer output projection";
    case R::kMixerOutBias:
      return "mixer output bias";
    case R::kConv:
      return "convolution";
    case R::kConvBias:
      return "convolution bias";
    case R::kStateDecay:
      return "state decay";
    case R::kTimeBias:
      return "time step bias";
    case R::kStateSkip:
      return "state skip";
    case R::kMixerNorm:
      return "mixer norm";
    case R::kDeltaQkvz:
      return "delta net q, k, v and gate projection";
    case R::kDeltaBa:
      return "delta net decay projection";
  }
  return "weight";
}

}  // namespace mlxcel
