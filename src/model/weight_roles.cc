#include "model/weight_roles.h"

namespace mlxcel {
namespace {

class RoleList {
 public:
  void matrix(int layer, WeightRole role, int64_t rows, int64_t columns, int expert = 0) {
    list_.push_back({{layer, role, expert}, true, rows, columns, 0.0f, false});
  }
  void vector(int layer, WeightRole role, int64_t size, int expert = 0) {
    list_.push_back({{layer, role, expert}, false, size, 1, 0.0f, false});
  }
  void vector_if(bool needed, int layer, WeightRole role, int64_t size, int expert = 0) {
    if (needed) vector(layer, role, size, expert);
  }
  void norm(int layer, const NormSpec& norm, WeightRole weight, WeightRole bias, int64_t size) {
    if (norm.has_weight) {
      vector(layer, weight, size);
      list_.back().offset = norm.weight_offset;
    }
    if (norm.has_bias) vector(layer, bias, size);
  }
  void norm_if(const std::optional<NormSpec>& maybe, int layer, WeightRole weight, WeightRole bias,
               int64_t size) {
    if (maybe) norm(layer, *maybe, weight, bias, size);
  }
  void mark_optional() { list_.back().optional = true; }
  std::vector<RoleShape> take() { return std::move(list_); }

  void head_norm(int layer, const std::optional<HeadNormSpec>& norm, WeightRole weight, WeightRole bias,
                 int heads, int head_dim);
  void attention(int layer, const AttentionSpec& spec, int64_t hidden);
  void dense(int layer, const DenseMlpSpec& spec, int64_t hidden);
  void experts(int layer, const MoeSpec& spec, int64_t hidden);
  void shared_expert(int layer, const DenseMlpSpec& spec, int64_t hidden);

 private:
  std::vector<RoleShape> list_;
};

void RoleList::head_norm(int layer, const std::optional<HeadNormSpec>& norm, WeightRole weight,
                         WeightRole bias, int heads, int head_dim) {
  if (!norm) return;
  const bool whole = norm->scope == HeadNormScope::kWholeProjection;
  const int64_t size = whole ? int64_t{heads} * head_dim : head_dim;
  const int copies = norm->per_head_weights ? heads : 1;
  for (int head = 0; head < copies; ++head) {
    if (norm->norm.has_weight) {
      vector(layer, weight, size, head);
      list_.back().offset = norm->norm.weight_offset;
    }
    vector_if(norm->norm.has_bias, layer, bias, size, head);
  }
}

void RoleList::attention(int layer, const AttentionSpec& spec, int64_t hidden) {
  using R = WeightRole;
  const int64_t q_rows = int64_t{spec.num_heads} * spec.head_dim;
  const int64_t k_rows = int64_t{spec.num_kv_heads} * spec.head_dim;
  const int64_t v_rows = int64_t{spec.num_kv_heads} * spec.value_head_dim;
  const int64_t out_columns = int64_t{spec.num_heads} * spec.value_head_dim;
  matrix(layer, R::kQuery, spec.has_output_gate ? 2 * q_rows : q_rows, hidden);
  matrix(layer, R::kKey, k_rows, hidden);
  matrix(layer, R::kValue, v_rows, hidden);
  matrix(layer, R::kOutput, hidden, out_columns);
  vector_if(spec.q_bias, layer, R::kQueryBias, q_rows);
  vector_if(spec.k_bias, layer, R::kKeyBias, k_rows);
  vector_if(spec.v_bias, layer, R::kValueBias, v_rows);
  vector_if(spec.output_bias, layer, R::kOutputBias, hidden);
  head_norm(layer, spec.q_norm, R::kQueryNorm, R::kQueryNormBias, spec.num_heads, spec.head_dim);
  head_norm(layer, spec.k_norm, R::kKeyNorm, R::kKeyNormBias, spec.num_kv_heads, spec.head_dim);
  vector_if(spec.has_sinks, layer, R::kSinks, spec.num_heads);
  vector_if(spec.pre_output_norm.has_value(), layer, R::kPreOutputNorm, out_columns);
}

void RoleList::dense(int layer, const DenseMlpSpec& spec, int64_t hidden) {
  using R = WeightRole;
  if (spec.gated) matrix(layer, R::kGate, spec.intermediate, hidden);
  matrix(layer, R::kUp, spec.intermediate, hidden);
  matrix(layer, R::kDown, hidden, spec.intermediate);
  vector_if(spec.gated && spec.bias, layer, R::kGateBias, spec.intermediate);
  vector_if(spec.bias, layer, R::kUpBias, spec.intermediate);
  vector_if(spec.down_bias, layer, R::kDownBias, hidden);
  vector_if(spec.pre_down_norm.has_value(), layer, R::kPreDownNorm, spec.intermediate);
}

void RoleList::shared_expert(int layer, const DenseMlpSpec& spec, int64_t hidden) {
  using R = WeightRole;
  matrix(layer, R::kSharedGate, spec.intermediate, hidden);
  matrix(layer, R::kSharedUp, spec.intermediate, hidden);
  matrix(layer, R::kSharedDown, hidden, spec.intermediate);
  vector_if(spec.bias, layer, R::kSharedGateBias, spec.intermediate);
  vector_if(spec.bias, layer, R::kSharedUpBias, spec.intermediate);
  vector_if(spec.down_bias, layer, R::kSharedDownBias, hidden);
}

void RoleList::experts(int layer, const MoeSpec& spec, int64_t hidden) {
  using R = WeightRole;
  matrix(layer, R::kRouter, spec.num_experts, hidden);
  vector_if(spec.router_bias, layer, R::kRouterBias, spec.num_experts);
  vector_if(spec.correction_bias, layer, R::kRouterCorrection, spec.num_experts);
  for (int expert = 0; expert < spec.num_experts; ++expert) {
    matrix(layer, R::kExpertGate, spec.intermediate, hidden, expert);
    matrix(layer, R::kExpertUp, spec.intermediate, hidden, expert);
    matrix(layer, R::kExpertDown, hidden, spec.intermediate, expert);
    vector_if(spec.expert_bias, layer, R::kExpertGateBias, spec.intermediate, expert);
    vector_if(spec.expert_bias, layer, R::kExpertUpBias, spec.intermediate, expert);
    vector_if(spec.expert_bias, layer, R::kExpertDownBias, hidden, expert);
  }
  if (!spec.shared) return;
  shared_expert(layer, *spec.shared, hidden);
  if (spec.shared_gate) matrix(layer, R::kSharedRouter, 1, hidden);
}

}  // namespace

std::vector<RoleShape> required_roles(const ModelSpec& spec) {
  using R = WeightRole;
  RoleList list;
  const int64_t hidden = spec.hidden_size;
  list.matrix(0, R::kEmbedding, spec.vocab_size, hidden);
  list.norm_if(spec.embedding_norm, 0, R::kEmbeddingNorm, R::kEmbeddingNormBias, hidden);
  list.norm(0, spec.final_norm, R::kFinalNorm, R::kFinalNormBias, hidden);
  list.matrix(0, R::kHead, spec.vocab_size, hidden);
  if (spec.head.tied) list.mark_optional();
  list.vector_if(spec.head.bias, 0, R::kHeadBias, spec.vocab_size);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    const int n = static_cast<int>(i);
    list.norm_if(layer.pre_mixer_norm, n, R::kPreMixerNorm, R::kPreMixerNormBias, hidden);
    list.norm_if(layer.post_mixer_norm, n, R::kPostMixerNorm, R::kPostMixerNormBias, hidden);
    list.norm_if(layer.pre_ffn_norm, n, R::kPreFfnNorm, R::kPreFfnNormBias, hidden);
    list.norm_if(layer.post_ffn_norm, n, R::kPostFfnNorm, R::kPostFfnNormBias, hidden);
    if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer))
      list.attention(n, *attention, hidden);
    if (const auto* mlp = std::get_if<DenseMlpSpec>(&layer.ffn)) list.dense(n, *mlp, hidden);
    if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn)) list.experts(n, *moe, hidden);
  }
  return list.take();
}

}  // namespace mlxcel
