#include "backend/cpu/cpu_forward.h"

#include <algorithm>
#include <array>

#include "backend/cpu/gate_function.h"
#include "backend/cpu/kernel_tables.h"
#include "base/error.h"

namespace mlxcel {
namespace {

uint8_t ffn_group_sizes(const CpuLayer& layer) {
  if (layer.mlp)
    return group_sizes_of({layer.mlp->gate ? &layer.mlp->gate->matrix : nullptr, &layer.mlp->up.matrix});
  const CpuMoe& moe = *layer.moe;
  uint8_t sizes =
      group_sizes_of({&moe.router.matrix, moe.shared_router ? &moe.shared_router->matrix : nullptr,
                      &moe.experts[0].gate->matrix, &moe.experts[0].up.matrix});
  if (moe.shared)
    sizes = static_cast<uint8_t>(sizes | group_sizes_of({&moe.shared->gate->matrix, &moe.shared->up.matrix}));
  return sizes;
}
uint8_t mixer_group_sizes(const CpuAttention& attention) {
  return group_sizes_of({&attention.query.matrix, &attention.key.matrix, &attention.value.matrix});
}

}  // namespace

CpuForward::CpuForward(const CpuModel& model, const KvLayout& layout, const RopeTables& ropes,
                       const KernelTable& kernels, ActivationPrecision precision, ThreadPool& pool)
    : model_(model),
      layout_(layout),
      ropes_(ropes),
      kernels_(kernels),
      pool_(pool),
      linear_(kernels, precision, pool),
      attention_(model, layout, kernels, pool.num_threads()),
      moe_(model, linear_, pool) {
  declare_widths();
}

void CpuForward::declare_widths() {
  const int64_t hidden = model_.spec.hidden_size;
  const InputForms forms = linear_.input_forms();
  int64_t query = 0, key = 0, value = 0, intermediate = 0;
  for (const CpuLayer& layer : model_.layers) {
    const CpuAttention& attention = layer.attention;
    query = std::max(query, attention.query.matrix.rows());
    key = std::max(key, attention.key.matrix.rows());
    value = std::max(value, attention.value.matrix.rows());
    mixer_input_.use(hidden, mixer_group_sizes(attention), forms);
    mixed_.use(attention.output.matrix.columns(), group_sizes_of({&attention.output.matrix}), forms);
    ffn_input_.use(hidden, ffn_group_sizes(layer), forms);
    if (!layer.mlp) continue;
    intermediate = std::max(intermediate, layer.mlp->up.matrix.rows());
    units_.use(layer.mlp->down.matrix.columns(), group_sizes_of({&layer.mlp->down.matrix}), forms);
  }
  head_input_.use(hidden, group_sizes_of({&model_.head_matrix()}), forms);
  for (RowBuffer* rows : {&hidden_, &mixer_out_, &ffn_out_}) rows->set_columns(hidden);
  query_.set_columns(query);
  key_.set_columns(key);
  value_.set_columns(value);
  gate_.set_columns(intermediate);
  up_.set_columns(intermediate);
  logits_.set_columns(model_.head_matrix().rows());
}

void CpuForward::reserve(int64_t num_tokens, int64_t num_outputs) {
  if (num_tokens > reserved_tokens_) {
    reserved_tokens_ = num_tokens;
    for (RowBuffer* rows : {&hidden_, &query_, &key_, &value_, &mixer_out_, &ffn_out_, &gate_, &up_})
      rows->reserve(num_tokens);
    for (LinearInput* input : {&mixer_input_, &mixed_, &ffn_input_, &units_}) input->reserve(num_tokens);
    moe_.reserve(num_tokens);
    tokens_.reserve(static_cast<size_t>(num_tokens));
  }
  if (num_outputs > reserved_outputs_) {
    reserved_outputs_ = num_outputs;
    head_input_.reserve(num_outputs);
    logits_.reserve(num_outputs);
    best_.resize(static_cast<size_t>(num_outputs * pool_.num_threads()));
    argmax_.resize(static_cast<size_t>(num_outputs));
    wanted_.reserve(static_cast<size_t>(num_outputs));
  }
}

void CpuForward::list_tokens(const ForwardBatch& batch) {
  tokens_.clear();
  for (size_t s = 0; s < batch.segments.size(); ++s) {
    const Segment& segment = batch.segments[s];
    for (int32_t i = 0; i < segment.num_inputs; ++i)
      tokens_.push_back({static_cast<int32_t>(s), segment.input_begin + i, segment.first_position + i});
  }
  wanted_.clear();
  for (const OutputRequest& request : batch.outputs) wanted_.push_back(request.input);
  num_tokens_ = static_cast<int64_t>(tokens_.size());
}

void CpuForward::run(const ForwardBatch& batch, HostKvStorage& storage) {
  batch_ = &batch;
  reserve(static_cast<int64_t>(batch.inputs.size()), static_cast<int64_t>(batch.outputs.size()));
  list_tokens(batch);
  storage.copy_blocks(batch.block_copies);
  if (tokens_.empty()) return;
  pool_.run([&](int thread) { forward(thread, storage); });
  const int64_t outputs = num_tokens_;
  for (int64_t o = 0; o < outputs; ++o) {
    Best best;
    for (int thread = 0; thread < pool_.num_threads(); ++thread) {  // ascending ids
      const Best& other = best_[static_cast<size_t>(thread * outputs + o)];
      if (other.index >= 0 && (best.index < 0 || other.value > best.value)) best = other;
    }
    argmax_[static_cast<size_t>(o)] = static_cast<TokenId>(std::max<int64_t>(0, best.index));
  }
}

void CpuForward::forward(int thread, HostKvStorage& storage) {
  reset_floating_point_mode();
  embed(thread);
  for (size_t i = 0; i < model_.layers.size(); ++i) {
    const CpuLayer& layer = model_.layers[i];
    const int index = static_cast<int>(i);
    pool_.barrier();
    project(thread, layer);
    pool_.barrier();
    const bool drops_tokens =
        i + 1 == model_.layers.size() && static_cast<int64_t>(wanted_.size()) != num_tokens_;
    if (thread == 0 && !drops_tokens) attention_.begin(index, tokens_, batch_->segments, storage);
    prepare_heads(thread, index, storage);
    pool_.barrier();
    if (drops_tokens) {
      if (thread == 0) {
        keep_wanted_tokens();
        attention_.begin(index, tokens_, batch_->segments, storage);
      }
      pool_.barrier();
      if (num_tokens_ == 0) return;
    }
    attention_.attend(thread, query_, mixed_);
    pool_.barrier();
    finish_mixer(thread, layer);
    pool_.barrier();
    after_mixer(thread, layer);
    pool_.barrier();
    feed_forward(thread, layer);
    pool_.barrier();
    after_feed_forward(thread, i);
  }
  pool_.barrier();
  head(thread);
}

void CpuForward::normalise(const CpuNorm& norm, const float* x, float* y) const {
  const float* weight = norm.weight.empty() ? nullptr : norm.weight.data();
  const float* bias = norm.bias.empty() ? nullptr : norm.bias.data();
  const auto kernel = norm.spec.kind == NormKind::kRms ? kernels_.rms_norm : kernels_.layer_norm;
  kernel(x, weight, bias, model_.spec.hidden_size, norm.spec.epsilon, y);
}

void CpuForward::embed(int thread) {
  const ModelSpec& spec = model_.spec;
  const Range mine = my_tokens(thread);
  for (int64_t t = mine.begin; t < mine.end; ++t) {
    const Input& input = batch_->inputs[static_cast<size_t>(tokens_[static_cast<size_t>(t)].input)];
    MLXCEL_CHECK_MSG(input.kind == Input::Kind::kToken, "this runner takes token ids only");
    float* h = hidden_.row(t);
    model_.embedding.read_row(input.value, h);
    if (spec.embedding_scale != 1.0f) kernels_.scale(h, spec.embedding_scale, spec.hidden_size, h);
    if (model_.embedding_norm) normalise(*model_.embedding_norm, h, h);
    begin_layer(model_.layers[0], t);
  }
}

// The mixer's input of one token.
void CpuForward::begin_layer(const CpuLayer& layer, int64_t token) {
  const float* h = hidden_.row(token);
  float* x = mixer_input_.row(token);
  if (layer.pre_mixer_norm) {
    normalise(*layer.pre_mixer_norm, h, x);
  } else {
    std::copy(h, h + model_.spec.hidden_size, x);
  }
  linear_.quantise(mixer_input_, model_.spec.hidden_size, mixer_group_sizes(layer.attention), token);
}

void CpuForward::project(int thread, const CpuLayer& layer) {
  const CpuAttention& attention = layer.attention;
  const std::array jobs = {
      LinearJob{&attention.query.matrix, attention.query.bias, query_.row(0), query_.stride()},
      LinearJob{&attention.key.matrix, attention.key.bias, key_.row(0), key_.stride()},
      LinearJob{&attention.value.matrix, attention.value.bias, value_.row(0), value_.stride()},
  };
  linear_.multiply(thread, mixer_input_, 0, num_tokens_, jobs);
}

void CpuForward::normalise_heads(const std::optional<CpuNorm>& norm, const std::optional<HeadNormSpec>& spec,
                                 bool after_rope, int64_t heads, int64_t dim, float* rows) const {
  if (!spec || spec->after_rope != after_rope) return;
  const auto kernel = norm->spec.kind == NormKind::kRms ? kernels_.rms_norm : kernels_.layer_norm;
  const float* weight = norm->weight.empty() ? nullptr : norm->weight.data();
  const float* bias = norm->bias.empty() ? nullptr : norm->bias.data();
  if (spec->scope == HeadNormScope::kWholeProjection) {
    kernel(rows, weight, bias, heads * dim, norm->spec.epsilon, rows);
    return;
  }
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t first = spec->per_head_weights ? head * dim : 0;
    float* row = rows + head * dim;
    kernel(row, weight == nullptr ? nullptr : weight + first, bias == nullptr ? nullptr : bias + first, dim,
           norm->spec.epsilon, row);
  }
}

// Queries and keys as attention takes them; keys and values into the cache.
void CpuForward::prepare_heads(int thread, int index, HostKvStorage& storage) {
  const CpuAttention& attention = model_.layers[static_cast<size_t>(index)].attention;
  const AttentionSpec& spec = *attention.spec;
  const Range mine = my_tokens(thread);
  const bool turns = spec.rope.kind != RopeKind::kNone;
  for (int64_t t = mine.begin; t < mine.end; ++t) {
    const QueryToken& token = tokens_[static_cast<size_t>(t)];
    const Segment& segment = batch_->segments[static_cast<size_t>(token.segment)];
    float *q = query_.row(t), *k = key_.row(t), *v = value_.row(t);
    if (spec.clamp_qkv) {
      kernels_.clamp(*spec.clamp_qkv, attention.query.matrix.rows(), q);
      kernels_.clamp(*spec.clamp_qkv, attention.key.matrix.rows(), k);
      kernels_.clamp(*spec.clamp_qkv, attention.value.matrix.rows(), v);
    }
    normalise_heads(attention.query_norm, spec.q_norm, false, spec.num_heads, spec.head_dim, q);
    normalise_heads(attention.key_norm, spec.k_norm, false, spec.num_kv_heads, spec.head_dim, k);
    if (turns) {
      const RopeTable& table = ropes_.of_layer(index);
      const int regime = table.regime(segment.total_length);
      const float* cos = table.cos(regime, token.position);
      const float* sin = table.sin(regime, token.position);
      for (int head = 0; head < spec.num_heads; ++head)
        kernels_.rotate(cos, sin, spec.rope.rotary_dim, spec.rope.interleaved, q + head * spec.head_dim);
      for (int head = 0; head < spec.num_kv_heads; ++head)
        kernels_.rotate(cos, sin, spec.rope.rotary_dim, spec.rope.interleaved, k + head * spec.head_dim);
    }
    normalise_heads(attention.query_norm, spec.q_norm, true, spec.num_heads, spec.head_dim, q);
    normalise_heads(attention.key_norm, spec.k_norm, true, spec.num_kv_heads, spec.head_dim, k);
    storage.write_row(segment.kv, index, token.position, k, v);
  }
}

// Only tokens with an output go on; their rows move to the front (ascending, so nothing is overwritten
// early).
void CpuForward::keep_wanted_tokens() {
  for (size_t i = 0; i < wanted_.size(); ++i) {
    const int64_t from = wanted_[i], to = static_cast<int64_t>(i);
    tokens_[i] = tokens_[static_cast<size_t>(from)];
    if (from == to) continue;
    std::copy_n(hidden_.row(from), hidden_.stride(), hidden_.row(to));
    std::copy_n(query_.row(from), query_.stride(), query_.row(to));
    std::copy_n(mixer_input_.row(from), mixer_input_.stride(), mixer_input_.row(to));
  }
  tokens_.resize(wanted_.size());
  num_tokens_ = static_cast<int64_t>(wanted_.size());
}

void CpuForward::finish_mixer(int thread, const CpuLayer& layer) {
  const CpuAttention& attention = layer.attention;
  const int64_t columns = attention.output.matrix.columns();
  const Range mine = my_tokens(thread);
  for (int64_t t = mine.begin; t < mine.end; ++t) {
    attention_.finish_token(t, mixed_);
    float* x = mixed_.row(t);
    if (attention.pre_output_norm) {
      const CpuNorm& norm = *attention.pre_output_norm;
      const auto kernel = norm.spec.kind == NormKind::kRms ? kernels_.rms_norm : kernels_.layer_norm;
      kernel(x, norm.weight.empty() ? nullptr : norm.weight.data(), nullptr, columns, norm.spec.epsilon, x);
    }
    linear_.quantise(mixed_, columns, group_sizes_of({&attention.output.matrix}), t);
  }
  pool_.barrier();
  const std::array jobs = {
      LinearJob{&attention.output.matrix, attention.output.bias, mixer_out_.row(0), mixer_out_.stride()}};
  linear_.multiply(thread, mixed_, 0, num_tokens_, jobs);
}

void CpuForward::after_mixer(int thread, const CpuLayer& layer) {
  const int64_t n = model_.spec.hidden_size;
  const bool parallel = layer.spec->parallel_residual;
  const Range mine = my_tokens(thread);
  for (int64_t t = mine.begin; t < mine.end; ++t) {
    float *h = hidden_.row(t), *y = mixer_out_.row(t), *x = ffn_input_.row(t);
    if (layer.post_mixer_norm) normalise(*layer.post_mixer_norm, y, y);
    if (!parallel) kernels_.add_scaled(y, layer.spec->residual_scale, n, h);
    if (layer.pre_ffn_norm) {
      normalise(*layer.pre_ffn_norm, h, x);
    } else {
      const float* shared = parallel ? mixer_input_.row(t) : h;
      std::copy(shared, shared + n, x);
    }
    linear_.quantise(ffn_input_, n, ffn_group_sizes(layer), t);
  }
}

void CpuForward::feed_forward(int thread, const CpuLayer& layer) {
  if (layer.mlp) {
    dense_mlp(thread, *layer.mlp);
  } else {
    moe_.run(thread, *layer.moe, ffn_input_, num_tokens_, ffn_out_);
  }
}

void CpuForward::dense_mlp(int thread, const CpuMlp& mlp) {
  std::array<LinearJob, 2> jobs;
  size_t count = 0;
  if (mlp.gate) jobs[count++] = {&mlp.gate->matrix, mlp.gate->bias, gate_.row(0), gate_.stride()};
  jobs[count++] = {&mlp.up.matrix, mlp.up.bias, up_.row(0), up_.stride()};
  linear_.multiply(thread, ffn_input_, 0, num_tokens_, std::span(jobs).first(count));
  pool_.barrier();
  const int64_t columns = mlp.down.matrix.columns();
  const Range mine = my_tokens(thread);
  for (int64_t t = mine.begin; t < mine.end; ++t) {
    float* x = units_.row(t);
    const float* acted = mlp.gate ? gate_.row(t) : up_.row(t);
    kernels_.gate(gate_function(mlp.spec.activation), acted, mlp.gate ? up_.row(t) : nullptr, columns, x);
    if (mlp.pre_down_norm) {
      const CpuNorm& norm = *mlp.pre_down_norm;
      const auto kernel = norm.spec.kind == NormKind::kRms ? kernels_.rms_norm : kernels_.layer_norm;
      kernel(x, norm.weight.empty() ? nullptr : norm.weight.data(), nullptr, columns, norm.spec.epsilon, x);
    }
    linear_.quantise(units_, columns, group_sizes_of({&mlp.down.matrix}), t);
  }
  pool_.barrier();
  const std::array down = {LinearJob{&mlp.down.matrix, mlp.down.bias, ffn_out_.row(0), ffn_out_.stride()}};
  linear_.multiply(thread, units_, 0, num_tokens_, down);
}

void CpuForward::after_feed_forward(int thread, size_t index) {
  const CpuLayer& layer = model_.layers[index];
  const int64_t n = model_.spec.hidden_size;
  const Range mine = my_tokens(thread);
  for (int64_t t = mine.begin; t < mine.end; ++t) {
    float *h = hidden_.row(t), *y = ffn_out_.row(t);
    if (layer.post_ffn_norm) normalise(*layer.post_ffn_norm, y, y);
    if (layer.spec->parallel_residual) kernels_.add(mixer_out_.row(t), y, n, y);
    kernels_.add_scaled(y, layer.spec->residual_scale, n, h);
    if (index + 1 < model_.layers.size()) {
      begin_layer(model_.layers[index + 1], t);
    } else {
      normalise(model_.final_norm, h, head_input_.row(t));
      linear_.quantise(head_input_, n, group_sizes_of({&model_.head_matrix()}), t);
    }
  }
}

void CpuForward::head(int thread) {
  const HeadSpec& spec = model_.spec.head;
  const PackedMatrix& matrix = model_.head_matrix();
  const Range blocks = split_range(matrix.num_blocks(), 1, pool_.num_threads(), thread);
  const LinearJob job = {&matrix, model_.head_bias, logits_.row(0), logits_.stride()};
  linear_.multiply_blocks(thread, head_input_, 0, num_tokens_, job, blocks);
  const int64_t begin = blocks.begin * kLanes, count = std::min(blocks.end * kLanes, matrix.rows()) - begin;
  for (int64_t t = 0; t < num_tokens_; ++t) {
    Best& best = best_[static_cast<size_t>(thread * num_tokens_ + t)];
    best = Best{};
    if (count <= 0) continue;
    float* l = logits_.row(t) + begin;
    if (spec.logit_scale != 1.0f) kernels_.scale(l, spec.logit_scale, count, l);
    if (spec.softcap != 0.0f) kernels_.softcap(spec.softcap, count, l);
    kernels_.argmax(l, count, &best.value, &best.index);
    if (best.index >= 0) best.index += begin;
  }
}

std::span<const float> CpuForward::logits(size_t output) const {
  return {logits_.row(static_cast<int64_t>(output)), static_cast<size_t>(model_.head_matrix().rows())};
}

std::span<const float> CpuForward::hidden(size_t output) const {
  return {head_input_.row(static_cast<int64_t>(output)), static_cast<size_t>(model_.spec.hidden_size)};
}

uint64_t CpuForward::scratch_bytes() const {
  uint64_t total = linear_.scratch_bytes() + attention_.scratch_bytes() + moe_.scratch_bytes();
  for (const RowBuffer* rows :
       {&hidden_, &query_, &key_, &value_, &mixer_out_, &ffn_out_, &gate_, &up_, &logits_})
    total += rows->bytes();
  for (const LinearInput* input : {&mixer_input_, &mixed_, &ffn_input_, &units_, &head_input_})
    total += input->bytes();
  return total;
}

}  // namespace mlxcel
