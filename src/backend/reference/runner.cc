// The scalar oracle: docs/numerics.md, literally, one token after the other. Slow on purpose; it shares no
// kernel with the runners that it checks.
#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "backend/backend.h"
#include "backend/common/forward_common.h"
#include "backend/common/host_kv_storage.h"
#include "backend/reference/attention.h"
#include "backend/reference/experts.h"
#include "backend/reference/linear.h"
#include "backend/reference/vectors.h"
#include "tensor/math.h"

namespace mlxcel {
namespace {

using reference::Linear;
using R = WeightRole;
using Row = std::vector<float>;

// One token of the batch on its way through the layers.
struct Token {
  const Segment* segment = nullptr;
  int64_t position = 0;
  Row hidden;  // [hidden_size]
};

class ReferenceRunner final : public ModelRunner {
 public:
  ReferenceRunner(LoadedModel model, const RunnerOptions& options, int64_t max_position);

  const RunnerCapabilities& capabilities() const override { return capabilities_; }
  const KvLayout& kv_layout() const override { return layout_; }
  const ModelSpec& spec() const override { return model_.spec; }
  ActivationPrecision precision() const override { return precision_; }
  std::string description() const override { return "reference (scalar, slow)"; }
  uint64_t resident_bytes() const override;
  Result<std::unique_ptr<KvStorage>> create_kv_storage(KvStorageKind kind, const KvBudget& budget) override;
  Ticket submit(const ForwardBatch& batch, KvStorage& storage) override;
  Result<StepOutputs> wait(Ticket ticket) override;
  Result<StateSnapshot> snapshot(int32_t state_slot) override;
  Status restore(int32_t state_slot, const StateSnapshot& snapshot) override;

 private:
  const Linear& linear(int layer, R role, int expert = 0) const { return linears_.at({layer, role, expert}); }
  std::span<const float> vector(int layer, R role, int expert = 0) const {
    return model_.weights.vector(layer, role, expert);
  }
  Row apply(int layer, R role, std::span<const float> x, std::optional<R> bias, int expert = 0) const;
  Row norm(const std::optional<NormSpec>& spec, int layer, R weight, std::optional<R> bias,
           const Row& x) const;

  std::vector<Token> embed(const ForwardBatch& batch) const;
  void run_layer(int layer, std::vector<Token>& tokens, HostKvStorage& storage) const;
  void normalise_heads(const std::optional<HeadNormSpec>& norm, bool after_rope, int layer, R weight, R bias,
                       int heads, Row& rows) const;
  Row project_heads(int layer, R role, R bias, const AttentionSpec& spec, const Row& x) const;
  Row query(int layer, const AttentionSpec& spec, const Token& token, const Row& x) const;
  void append_key_value(int layer, const AttentionSpec& spec, const Token& token, const Row& x,
                        HostKvStorage& storage) const;
  void rotate_heads(int layer, const AttentionSpec& spec, const Token& token, Row& rows) const;
  Row mix(int layer, const AttentionSpec& spec, const Token& token, const Row& x,
          const HostKvStorage& storage) const;
  Row feed_forward(int layer, const Row& x) const;
  Row dense_mlp(int layer, const DenseMlpSpec& spec, const Row& x) const;
  Row shared_expert(int layer, const DenseMlpSpec& spec, const Row& x) const;
  Row expert_mlp(int layer, const MoeSpec& spec, int expert, const Row& x) const;
  Row experts(int layer, const MoeSpec& spec, const Row& x) const;
  Row logits(const Row& hidden) const;
  Output finish(const OutputRequest& request, const Token& token);

  LoadedModel model_;
  ActivationPrecision precision_;
  KvLayout layout_;
  RopeTables ropes_;
  RunnerCapabilities capabilities_;
  std::map<WeightKey, Linear> linears_;
  std::vector<Row> kept_;  // logits and hidden rows that the last step's outputs point to
  StepOutputs outputs_;
  uint64_t next_ticket_ = 1;
};

ReferenceRunner::ReferenceRunner(LoadedModel model, const RunnerOptions& options, int64_t max_position)
    : model_(std::move(model)),
      precision_(options.precision),
      layout_(kv_layout_for(model_.spec, options.key_type, options.value_type)),
      ropes_(model_.spec, max_position) {
  capabilities_.can_trim = true;
  uint64_t done = 0;
  for (const auto& [key, matrix] : model_.weights.matrices()) {
    linears_.emplace(key, Linear(matrix, precision_));
    done += matrix.data.size() + matrix.scales.size() + matrix.biases.size();
    if (options.progress) options.progress(done, std::max(done, model_.weight_bytes));
  }
}

uint64_t ReferenceRunner::resident_bytes() const {
  uint64_t total = model_.weight_bytes;  // read through the mapping at every step
  for (const auto& [key, matrix] : linears_) total += matrix.resident_bytes();
  return total;
}

Result<std::unique_ptr<KvStorage>> ReferenceRunner::create_kv_storage(KvStorageKind kind,
                                                                      const KvBudget& budget) {
  MLXCEL_ASSIGN_OR_RETURN(auto storage,
                          HostKvStorage::create(kind, layout_, budget, HostKvStorage::KeyLayout::kRowMajor));
  return std::unique_ptr<KvStorage>(std::move(storage));
}

Row ReferenceRunner::apply(int layer, R role, std::span<const float> x, std::optional<R> bias,
                           int expert) const {
  const Linear& matrix = linear(layer, role, expert);
  Row y(static_cast<size_t>(matrix.rows()));
  matrix.apply(x, y);
  if (bias) reference::add(y, vector(layer, *bias, expert));
  return y;
}

Row ReferenceRunner::norm(const std::optional<NormSpec>& spec, int layer, R weight, std::optional<R> bias,
                          const Row& x) const {
  if (!spec) return x;
  Row y(x.size());
  const std::span<const float> biases = bias ? vector(layer, *bias) : std::span<const float>();
  reference::normalise(*spec, x, vector(layer, weight), biases, y);
  return y;
}

std::vector<Token> ReferenceRunner::embed(const ForwardBatch& batch) const {
  const ModelSpec& spec = model_.spec;
  std::vector<Token> tokens;
  for (const Segment& segment : batch.segments) {
    for (int32_t i = 0; i < segment.num_inputs; ++i) {
      const Input& input = batch.inputs[static_cast<size_t>(segment.input_begin + i)];
      MLXCEL_CHECK_MSG(input.kind == Input::Kind::kToken, "this runner takes token ids only");
      Token token{&segment, segment.first_position + i, linear(0, R::kEmbedding).row(input.value)};
      if (spec.embedding_scale != 1.0f) {
        for (float& value : token.hidden) value = value * spec.embedding_scale;
      }
      token.hidden = norm(spec.embedding_norm, 0, R::kEmbeddingNorm, R::kEmbeddingNormBias, token.hidden);
      tokens.push_back(std::move(token));
    }
  }
  return tokens;
}

void ReferenceRunner::normalise_heads(const std::optional<HeadNormSpec>& norm_spec, bool after_rope,
                                      int layer, R weight, R bias, int heads, Row& rows) const {
  if (!norm_spec || norm_spec->after_rope != after_rope) return;
  const std::span<const float> weights = vector(layer, weight), biases = vector(layer, bias);
  if (norm_spec->scope == HeadNormScope::kWholeProjection) {
    reference::normalise(norm_spec->norm, rows, weights, biases, rows);
    return;
  }
  const size_t dim = rows.size() / static_cast<size_t>(heads);
  for (size_t head = 0; head < static_cast<size_t>(heads); ++head) {
    const size_t first = norm_spec->per_head_weights ? head * dim : 0;
    const auto part = [&](std::span<const float> all) { return all.empty() ? all : all.subspan(first, dim); };
    const std::span<float> row = std::span(rows).subspan(head * dim, dim);
    reference::normalise(norm_spec->norm, row, part(weights), part(biases), row);
  }
}

Row ReferenceRunner::project_heads(int layer, R role, R bias, const AttentionSpec& spec, const Row& x) const {
  Row rows = apply(layer, role, x, bias);
  if (spec.clamp_qkv) {
    for (float& value : rows) {
      value = value > *spec.clamp_qkv ? *spec.clamp_qkv : value < -*spec.clamp_qkv ? -*spec.clamp_qkv : value;
    }
  }
  return rows;
}

void ReferenceRunner::rotate_heads(int layer, const AttentionSpec& spec, const Token& token,
                                   Row& rows) const {
  if (spec.rope.kind == RopeKind::kNone) return;
  const RopeTable& table = ropes_.of_layer(layer);
  const int regime = table.regime(token.segment->total_length);
  const float* cosines = table.cos(regime, token.position);
  const float* sines = table.sin(regime, token.position);
  const size_t dim = static_cast<size_t>(spec.head_dim);
  for (size_t at = 0; at < rows.size(); at += dim) {
    reference::rotate(spec.rope, cosines, sines, std::span(rows).subspan(at, dim));
  }
}

void ReferenceRunner::append_key_value(int layer, const AttentionSpec& spec, const Token& token, const Row& x,
                                       HostKvStorage& storage) const {
  Row keys = project_heads(layer, R::kKey, R::kKeyBias, spec, x);
  normalise_heads(spec.k_norm, false, layer, R::kKeyNorm, R::kKeyNormBias, spec.num_kv_heads, keys);
  rotate_heads(layer, spec, token, keys);
  normalise_heads(spec.k_norm, true, layer, R::kKeyNorm, R::kKeyNormBias, spec.num_kv_heads, keys);
  const Row values = project_heads(layer, R::kValue, R::kValueBias, spec, x);
  storage.write_row(token.segment->kv, layer, token.position, keys.data(), values.data());
}

Row ReferenceRunner::query(int layer, const AttentionSpec& spec, const Token& token, const Row& x) const {
  Row queries = project_heads(layer, R::kQuery, R::kQueryBias, spec, x);
  normalise_heads(spec.q_norm, false, layer, R::kQueryNorm, R::kQueryNormBias, spec.num_heads, queries);
  rotate_heads(layer, spec, token, queries);
  normalise_heads(spec.q_norm, true, layer, R::kQueryNorm, R::kQueryNormBias, spec.num_heads, queries);
  return queries;
}

Row ReferenceRunner::mix(int layer, const AttentionSpec& spec, const Token& token, const Row& x,
                         const HostKvStorage& storage) const {
  const Row queries = query(layer, spec, token, x);
  const size_t dim = static_cast<size_t>(spec.head_dim), value_dim = static_cast<size_t>(spec.value_head_dim);
  const int heads_per_group = spec.num_heads / spec.num_kv_heads;
  const std::span<const float> sinks = vector(layer, R::kSinks);
  Row mixed(static_cast<size_t>(spec.num_heads) * value_dim);
  for (int head = 0; head < spec.num_heads; ++head) {
    const size_t h = static_cast<size_t>(head);
    const reference::AttentionQuery where{&storage,       &token.segment->kv,
                                          layer,          head / heads_per_group,
                                          token.position, sinks.empty() ? 0.0f : sinks[h]};
    reference::attend(spec, where, std::span(queries).subspan(h * dim, dim),
                      std::span(mixed).subspan(h * value_dim, value_dim));
  }
  mixed = norm(spec.pre_output_norm, layer, R::kPreOutputNorm, std::nullopt, mixed);
  return apply(layer, R::kOutput, mixed, R::kOutputBias);
}

Row ReferenceRunner::dense_mlp(int layer, const DenseMlpSpec& spec, const Row& x) const {
  Row units = apply(layer, R::kUp, x, R::kUpBias);
  if (spec.gated) {
    const Row gates = apply(layer, R::kGate, x, R::kGateBias);
    for (size_t i = 0; i < units.size(); ++i)
      units[i] = reference::activate(spec.activation, gates[i]) * units[i];
  } else {
    for (float& unit : units) unit = reference::activate(spec.activation, unit);
  }
  units = norm(spec.pre_down_norm, layer, R::kPreDownNorm, std::nullopt, units);
  return apply(layer, R::kDown, units, R::kDownBias);
}

Row ReferenceRunner::shared_expert(int layer, const DenseMlpSpec& spec, const Row& x) const {
  Row units = apply(layer, R::kSharedUp, x, R::kSharedUpBias);
  const Row gates = apply(layer, R::kSharedGate, x, R::kSharedGateBias);
  for (size_t i = 0; i < units.size(); ++i)
    units[i] = reference::activate(spec.activation, gates[i]) * units[i];
  return apply(layer, R::kSharedDown, units, R::kSharedDownBias);
}

Row ReferenceRunner::expert_mlp(int layer, const MoeSpec& spec, int expert, const Row& x) const {
  Row units = apply(layer, R::kExpertUp, x, R::kExpertUpBias, expert);
  const Row gates = apply(layer, R::kExpertGate, x, R::kExpertGateBias, expert);
  for (size_t i = 0; i < units.size(); ++i) units[i] = reference::gated_unit(spec, gates[i], units[i]);
  return apply(layer, R::kExpertDown, units, R::kExpertDownBias, expert);
}

Row ReferenceRunner::experts(int layer, const MoeSpec& spec, const Row& x) const {
  const Row router = apply(layer, R::kRouter, x, R::kRouterBias);
  Row sum(x.size(), 0.0f);
  for (const auto& [expert, weight] :
       reference::choose_experts(spec, router, vector(layer, R::kRouterCorrection))) {
    const Row y = expert_mlp(layer, spec, expert, x);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = std::fma(weight, y[i], sum[i]);
  }
  if (!spec.shared) return sum;
  const Row shared = shared_expert(layer, *spec.shared, x);
  if (!spec.shared_gate) {
    reference::add(sum, shared);
    return sum;
  }
  const Row gate = apply(layer, R::kSharedRouter, x, std::nullopt);
  const float share = sigmoid_lanes<ScalarLanes>(gate[0]);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = std::fma(share, shared[i], sum[i]);
  return sum;
}

Row ReferenceRunner::feed_forward(int layer, const Row& x) const {
  const FeedForwardSpec& ffn = model_.spec.layers[static_cast<size_t>(layer)].ffn;
  if (const auto* dense = std::get_if<DenseMlpSpec>(&ffn)) return dense_mlp(layer, *dense, x);
  return experts(layer, std::get<MoeSpec>(ffn), x);
}

void ReferenceRunner::run_layer(int layer, std::vector<Token>& tokens, HostKvStorage& storage) const {
  const LayerSpec& spec = model_.spec.layers[static_cast<size_t>(layer)];
  const AttentionSpec& attention = std::get<AttentionSpec>(spec.mixer);
  std::vector<Row> inputs;
  for (const Token& token : tokens) {
    inputs.push_back(norm(spec.pre_mixer_norm, layer, R::kPreMixerNorm, R::kPreMixerNormBias, token.hidden));
    append_key_value(layer, attention, token, inputs.back(), storage);
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    Row& hidden = tokens[i].hidden;
    Row mixed = mix(layer, attention, tokens[i], inputs[i], storage);
    mixed = norm(spec.post_mixer_norm, layer, R::kPostMixerNorm, R::kPostMixerNormBias, mixed);
    if (!spec.parallel_residual) reference::add_residual(hidden, mixed, spec.residual_scale);
    const bool shares_input = spec.parallel_residual && !spec.pre_ffn_norm;
    const Row ffn_input =
        shares_input ? inputs[i] : norm(spec.pre_ffn_norm, layer, R::kPreFfnNorm, R::kPreFfnNormBias, hidden);
    Row fed = feed_forward(layer, ffn_input);
    fed = norm(spec.post_ffn_norm, layer, R::kPostFfnNorm, R::kPostFfnNormBias, fed);
    if (spec.parallel_residual) reference::add(mixed, fed);
    reference::add_residual(hidden, spec.parallel_residual ? mixed : fed, spec.residual_scale);
  }
}

Row ReferenceRunner::logits(const Row& hidden) const {
  const HeadSpec& head = model_.spec.head;
  Row values = apply(0, head.tied ? R::kEmbedding : R::kHead, hidden, R::kHeadBias);
  for (float& value : values) {
    if (head.logit_scale != 1.0f) value = value * head.logit_scale;
    value = reference::soft_cap(value, head.softcap);
  }
  return values;
}

TokenId argmax(const Row& values) {
  size_t best = 0;
  bool found = false;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i]) || (found && !(values[i] > values[best]))) continue;
    best = i;
    found = true;
  }
  return static_cast<TokenId>(best);
}

Output ReferenceRunner::finish(const OutputRequest& request, const Token& token) {
  Row hidden = norm(model_.spec.final_norm, 0, R::kFinalNorm, R::kFinalNormBias, token.hidden);
  Row values = logits(hidden);
  Output output;
  output.argmax = argmax(values);
  // Moving a row into kept_ leaves its elements where they are.
  if (request.wants_logits) {
    kept_.push_back(std::move(values));
    output.logits = kept_.back();
  }
  if (request.wants_hidden) {
    kept_.push_back(std::move(hidden));
    output.hidden = kept_.back();
  }
  return output;
}

Ticket ReferenceRunner::submit(const ForwardBatch& batch, KvStorage& storage) {
  const auto begin = std::chrono::steady_clock::now();
  check_forward_batch(batch, model_.spec);
  auto* host = dynamic_cast<HostKvStorage*>(&storage);
  MLXCEL_CHECK_MSG(host != nullptr && host->key_layout() == HostKvStorage::KeyLayout::kRowMajor,
                   "the storage was made by another runner");
  host->copy_blocks(batch.block_copies);
  std::vector<Token> tokens = embed(batch);
  for (size_t layer = 0; layer < model_.spec.layers.size(); ++layer) {
    run_layer(static_cast<int>(layer), tokens, *host);
  }
  kept_.clear();
  outputs_ = StepOutputs{};
  for (const OutputRequest& request : batch.outputs) {
    outputs_.outputs.push_back(finish(request, tokens[static_cast<size_t>(request.input)]));
  }
  outputs_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return Ticket{next_ticket_++};
}

Result<StepOutputs> ReferenceRunner::wait(Ticket ticket) {
  MLXCEL_CHECK_MSG(ticket.id + 1 == next_ticket_, "only the last step can be waited for");
  return outputs_;
}

Error no_state(const ModelSpec& spec) {
  return make_error(ErrorKind::kUnsupported, "the model has no recurrent state", spec.family);
}
Result<StateSnapshot> ReferenceRunner::snapshot(int32_t) { return no_state(model_.spec); }
Status ReferenceRunner::restore(int32_t, const StateSnapshot&) { return no_state(model_.spec); }

}  // namespace

Result<std::unique_ptr<ModelRunner>> create_reference_runner(LoadedModel model,
                                                             const RunnerOptions& options) {
  MLXCEL_RETURN_IF_ERROR(check_attention_only(model.spec));
  const int64_t max_position = runner_max_position(model.spec, options);
  MLXCEL_RETURN_IF_ERROR(check_max_position(model.spec, max_position));
  return std::unique_ptr<ModelRunner>(
      std::make_unique<ReferenceRunner>(std::move(model), options, max_position));
}

}  // namespace mlxcel
