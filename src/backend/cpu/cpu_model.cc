#include "backend/cpu/cpu_model.h"

#include <span>
#include <utility>
#include <variant>

namespace mlxcel {
namespace {

std::vector<float> to_vector(std::span<const float> values) { return {values.begin(), values.end()}; }

// Packs the roles of one model and reports how far it is.
class Packer {
 public:
  Packer(const LoadedModel& model, CpuModel& packed, ThreadPool& pool,
         const std::function<void(uint64_t, uint64_t)>& progress)
      : weights_(model.weights), packed_(packed), pool_(pool), progress_(progress) {
    for (const auto& [key, matrix] : weights_.matrices()) total_ += matrix.data.size();
  }

  Result<PackedMatrix> matrix(int layer, WeightRole role, int expert = 0) {
    const WeightMatrix* source = weights_.matrix(layer, role, expert);
    MLXCEL_CHECK_MSG(source != nullptr, weight_role_name(role));
    MLXCEL_ASSIGN_OR_RETURN(PackedMatrix result, PackedMatrix::pack(*source, packed_.arena, pool_));
    done_ += source->data.size();
    if (progress_) progress_(done_, total_);
    return result;
  }
  Result<CpuLinear> linear(int layer, WeightRole role, WeightRole bias_role, int expert = 0) {
    MLXCEL_ASSIGN_OR_RETURN(PackedMatrix packed, matrix(layer, role, expert));
    return CpuLinear{std::move(packed), to_vector(weights_.vector(layer, bias_role, expert))};
  }
  std::vector<float> vector(int layer, WeightRole role) const {
    return to_vector(weights_.vector(layer, role));
  }
  CpuNorm norm(const NormSpec& spec, int layer, WeightRole weight, WeightRole bias) const {
    CpuNorm result{spec, {}, {}};
    if (spec.has_weight) result.weight = vector(layer, weight);  // the loader has added the offset
    if (spec.has_bias) result.bias = vector(layer, bias);
    return result;
  }
  std::optional<CpuNorm> norm(const std::optional<NormSpec>& spec, int layer, WeightRole weight,
                              WeightRole bias) const {
    if (!spec) return std::nullopt;
    return norm(*spec, layer, weight, bias);
  }
  bool has(int layer, WeightRole role) const { return weights_.matrix(layer, role) != nullptr; }

 private:
  const ModelWeights& weights_;
  CpuModel& packed_;
  ThreadPool& pool_;
  const std::function<void(uint64_t, uint64_t)>& progress_;
  uint64_t done_ = 0, total_ = 0;
};

Status pack_attention(Packer& packer, int layer, const AttentionSpec& spec, CpuAttention& out) {
  using R = WeightRole;
  out.spec = &spec;
  MLXCEL_ASSIGN_OR_RETURN(out.query, packer.linear(layer, R::kQuery, R::kQueryBias));
  MLXCEL_ASSIGN_OR_RETURN(out.key, packer.linear(layer, R::kKey, R::kKeyBias));
  MLXCEL_ASSIGN_OR_RETURN(out.value, packer.linear(layer, R::kValue, R::kValueBias));
  MLXCEL_ASSIGN_OR_RETURN(out.output, packer.linear(layer, R::kOutput, R::kOutputBias));
  if (spec.q_norm) out.query_norm = packer.norm(spec.q_norm->norm, layer, R::kQueryNorm, R::kQueryNormBias);
  if (spec.k_norm) out.key_norm = packer.norm(spec.k_norm->norm, layer, R::kKeyNorm, R::kKeyNormBias);
  // This norm has no bias role: a bias is not part of any model that has the norm.
  out.pre_output_norm = packer.norm(spec.pre_output_norm, layer, R::kPreOutputNorm, R::kPreOutputNorm);
  if (spec.has_sinks) out.sinks = packer.vector(layer, R::kSinks);
  return ok_status();
}

struct MlpRoles {
  WeightRole gate, up, down, gate_bias, up_bias, down_bias;
};
constexpr MlpRoles kDenseRoles = {WeightRole::kGate,     WeightRole::kUp,     WeightRole::kDown,
                                  WeightRole::kGateBias, WeightRole::kUpBias, WeightRole::kDownBias};
constexpr MlpRoles kExpertRoles = {WeightRole::kExpertGate,   WeightRole::kExpertUp,
                                   WeightRole::kExpertDown,   WeightRole::kExpertGateBias,
                                   WeightRole::kExpertUpBias, WeightRole::kExpertDownBias};
constexpr MlpRoles kSharedRoles = {WeightRole::kSharedGate,   WeightRole::kSharedUp,
                                   WeightRole::kSharedDown,   WeightRole::kSharedGateBias,
                                   WeightRole::kSharedUpBias, WeightRole::kSharedDownBias};

Result<CpuMlp> pack_mlp(Packer& packer, int layer, const DenseMlpSpec& spec, const MlpRoles& roles,
                        int expert = 0) {
  CpuMlp out;
  out.spec = spec;
  if (spec.gated) {
    MLXCEL_ASSIGN_OR_RETURN(out.gate, packer.linear(layer, roles.gate, roles.gate_bias, expert));
  }
  MLXCEL_ASSIGN_OR_RETURN(out.up, packer.linear(layer, roles.up, roles.up_bias, expert));
  MLXCEL_ASSIGN_OR_RETURN(out.down, packer.linear(layer, roles.down, roles.down_bias, expert));
  out.pre_down_norm =
      packer.norm(spec.pre_down_norm, layer, WeightRole::kPreDownNorm, WeightRole::kPreDownNorm);
  return out;
}

Result<CpuMoe> pack_moe(Packer& packer, int layer, const MoeSpec& spec) {
  CpuMoe out;
  out.spec = &spec;
  MLXCEL_ASSIGN_OR_RETURN(out.router, packer.linear(layer, WeightRole::kRouter, WeightRole::kRouterBias));
  if (spec.correction_bias) out.correction = packer.vector(layer, WeightRole::kRouterCorrection);
  DenseMlpSpec expert;
  expert.intermediate = spec.intermediate;
  expert.activation = spec.activation;
  expert.bias = expert.down_bias = spec.expert_bias;
  for (int e = 0; e < spec.num_experts; ++e) {
    MLXCEL_ASSIGN_OR_RETURN(CpuMlp packed, pack_mlp(packer, layer, expert, kExpertRoles, e));
    out.experts.push_back(std::move(packed));
  }
  if (spec.shared) {
    MLXCEL_ASSIGN_OR_RETURN(out.shared, pack_mlp(packer, layer, *spec.shared, kSharedRoles));
  }
  if (spec.shared_gate) {
    MLXCEL_ASSIGN_OR_RETURN(PackedMatrix gate, packer.matrix(layer, WeightRole::kSharedRouter));
    out.shared_router = CpuLinear{std::move(gate), {}};
  }
  return out;
}

Status pack_layer(Packer& packer, int index, const LayerSpec& spec, CpuLayer& out) {
  using R = WeightRole;
  out.spec = &spec;
  out.pre_mixer_norm = packer.norm(spec.pre_mixer_norm, index, R::kPreMixerNorm, R::kPreMixerNormBias);
  out.post_mixer_norm = packer.norm(spec.post_mixer_norm, index, R::kPostMixerNorm, R::kPostMixerNormBias);
  out.pre_ffn_norm = packer.norm(spec.pre_ffn_norm, index, R::kPreFfnNorm, R::kPreFfnNormBias);
  out.post_ffn_norm = packer.norm(spec.post_ffn_norm, index, R::kPostFfnNorm, R::kPostFfnNormBias);
  MLXCEL_RETURN_IF_ERROR(pack_attention(packer, index, std::get<AttentionSpec>(spec.mixer), out.attention));
  if (const DenseMlpSpec* mlp = std::get_if<DenseMlpSpec>(&spec.ffn)) {
    MLXCEL_ASSIGN_OR_RETURN(out.mlp, pack_mlp(packer, index, *mlp, kDenseRoles));
  } else {
    MLXCEL_ASSIGN_OR_RETURN(out.moe, pack_moe(packer, index, std::get<MoeSpec>(spec.ffn)));
  }
  return ok_status();
}

}  // namespace

uint8_t group_sizes_of(std::initializer_list<const PackedMatrix*> matrices) {
  uint8_t sizes = 0;
  for (const PackedMatrix* matrix : matrices) {
    if (matrix == nullptr || !matrix->is_quantised()) continue;
    for (int i = 0; i < 4; ++i) {
      if (matrix->quantised().group_size == 16 << i) sizes = static_cast<uint8_t>(sizes | (1u << i));
    }
  }
  return sizes;
}

Result<std::unique_ptr<CpuModel>> pack_model(const LoadedModel& model, ThreadPool& pool,
                                             const std::function<void(uint64_t, uint64_t)>& progress) {
  auto packed = std::make_unique<CpuModel>();
  packed->spec = model.spec;
  Packer packer(model, *packed, pool, progress);
  const ModelSpec& spec = packed->spec;
  MLXCEL_ASSIGN_OR_RETURN(packed->embedding, packer.matrix(0, WeightRole::kEmbedding));
  packed->embedding_norm =
      packer.norm(spec.embedding_norm, 0, WeightRole::kEmbeddingNorm, WeightRole::kEmbeddingNormBias);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    CpuLayer layer;
    MLXCEL_RETURN_IF_ERROR(pack_layer(packer, static_cast<int>(i), spec.layers[i], layer));
    packed->layers.push_back(std::move(layer));
  }
  packed->final_norm = packer.norm(spec.final_norm, 0, WeightRole::kFinalNorm, WeightRole::kFinalNormBias);
  if (!spec.head.tied) {
    MLXCEL_ASSIGN_OR_RETURN(packed->head, packer.matrix(0, WeightRole::kHead));
  }
  packed->head_bias = packer.vector(0, WeightRole::kHeadBias);
  return packed;
}

}  // namespace mlxcel
