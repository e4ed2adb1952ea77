#include "backend/cpu/cpu_moe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "backend/cpu/gate_function.h"
#include "base/checked.h"
#include "tensor/math.h"

namespace mlxcel {
namespace {

float exp_of(float x) { return exp_lanes<ScalarLanes>(x); }

void softmax(std::span<float> values) {
  float largest = values[0];
  for (const float v : values) largest = largest < v ? v : largest;
  float sum = 0.0f;
  for (float& v : values) {
    v = exp_of(v - largest);
    sum = sum + v;
  }
  for (float& v : values) v = v / sum;
}

// Puts the `count` best ids first: larger values first, ties to the lower id, NaN last.
void best_first(std::span<const float> values, int count, std::span<int32_t> order) {
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int32_t a, int32_t b) {
    const float x = values[static_cast<size_t>(a)], y = values[static_cast<size_t>(b)];
    const bool x_nan = std::isnan(x), y_nan = std::isnan(y);
    if (x_nan || y_nan) return x_nan == y_nan ? a < b : y_nan;
    return x != y ? x > y : a < b;
  });
}

// DeepSeek V3's group-limited choice: the groups with the largest sums of their two best scores stay.
void limit_to_groups(const MoeSpec& spec, RouterScratch& scratch) {
  const size_t groups = static_cast<size_t>(spec.num_groups), size = scratch.choice.size() / groups;
  scratch.group_scores.resize(groups);
  scratch.group_order.resize(groups);
  for (size_t g = 0; g < groups; ++g) {
    const std::span<const float> members = std::span(scratch.choice).subspan(g * size, size);
    const std::span<int32_t> order = std::span(scratch.order).first(size);
    const int best = static_cast<int>(std::min<size_t>(2, size));
    best_first(members, best, order);
    float sum = 0.0f;
    for (int i = 0; i < best; ++i) sum = sum + members[static_cast<size_t>(order[static_cast<size_t>(i)])];
    scratch.group_scores[g] = sum;
  }
  best_first(scratch.group_scores, spec.groups_per_token, scratch.group_order);
  scratch.group_kept.assign(groups, 0);
  for (int i = 0; i < spec.groups_per_token; ++i)
    scratch.group_kept[static_cast<size_t>(scratch.group_order[static_cast<size_t>(i)])] = 1;
  for (size_t e = 0; e < scratch.choice.size(); ++e) {
    if (scratch.group_kept[e / size] == 0) scratch.choice[e] = 0.0f;
  }
}

}  // namespace

void choose_experts(const MoeSpec& spec, std::span<const float> logits, std::span<const float> correction,
                    RouterScratch& scratch, std::span<int32_t> ids, std::span<float> weights) {
  scratch.scores.assign(logits.begin(), logits.end());
  if (spec.router == RouterKind::kSoftmaxAll) softmax(scratch.scores);
  if (spec.router == RouterKind::kSigmoid) {
    for (float& score : scratch.scores) score = sigmoid_lanes<ScalarLanes>(score);
  }
  scratch.choice.assign(scratch.scores.begin(), scratch.scores.end());
  for (size_t e = 0; e < correction.size(); ++e) scratch.choice[e] = scratch.choice[e] + correction[e];
  scratch.order.resize(logits.size());
  if (spec.num_groups > 1) limit_to_groups(spec, scratch);
  best_first(scratch.choice, spec.experts_per_token, scratch.order);
  std::copy_n(scratch.order.begin(), spec.experts_per_token, ids.begin());
  std::sort(ids.begin(), ids.end());
  for (size_t i = 0; i < ids.size(); ++i) weights[i] = scratch.scores[static_cast<size_t>(ids[i])];
  if (spec.router == RouterKind::kSoftmaxTopK) softmax(weights);
  if (spec.normalise_weights) {
    float sum = 0.0f;
    for (const float w : weights) sum = sum + w;
    for (float& w : weights) w = w / sum;
  }
  if (spec.routed_scale != 1.0f) {
    for (float& w : weights) w = w * spec.routed_scale;
  }
}

CpuMoePass::CpuMoePass(const CpuModel& model, LinearContext& linear, ThreadPool& pool)
    : linear_(linear),
      pool_(pool),
      hidden_size_(model.spec.hidden_size),
      router_scratch_(static_cast<size_t>(pool.num_threads())) {
  int64_t experts = 0, intermediate = 0, shared = 0;
  for (const CpuLayer& layer : model.layers) {
    if (!layer.moe) continue;
    const MoeSpec& spec = *layer.moe->spec;
    most_chosen_ = std::max<int64_t>(most_chosen_, spec.experts_per_token);
    experts = std::max<int64_t>(experts, spec.num_experts);
    intermediate = std::max<int64_t>(intermediate, spec.intermediate);
    for (const CpuMlp& expert : layer.moe->experts) {
      pair_input_.use(hidden_size_, group_sizes_of({&expert.gate->matrix, &expert.up.matrix}),
                      linear_.input_forms());
      units_.use(spec.intermediate, group_sizes_of({&expert.down.matrix}), linear_.input_forms());
    }
    if (layer.moe->shared) {
      shared = std::max<int64_t>(shared, layer.moe->shared->spec.intermediate);
      shared_units_.use(shared, group_sizes_of({&layer.moe->shared->down.matrix}), linear_.input_forms());
    }
  }
  router_.set_columns(experts);
  shared_router_.set_columns(1);
  gate_.set_columns(intermediate);
  up_.set_columns(intermediate);
  shared_gate_.set_columns(shared);
  shared_up_.set_columns(shared);
  down_.set_columns(hidden_size_);
  shared_down_.set_columns(hidden_size_);
  first_pair_.resize(static_cast<size_t>(experts) + 1);
}

void CpuMoePass::reserve(int64_t num_tokens) {
  if (most_chosen_ == 0) return;
  const int64_t pairs = num_tokens * most_chosen_;
  for (RowBuffer* rows : {&router_, &shared_router_, &shared_gate_, &shared_up_, &shared_down_})
    rows->reserve(num_tokens);
  for (RowBuffer* rows : {&gate_, &up_, &down_}) rows->reserve(pairs);
  pair_input_.reserve(pairs);
  units_.reserve(pairs);
  shared_units_.reserve(num_tokens);
  ids_.resize(static_cast<size_t>(pairs));
  weights_.resize(static_cast<size_t>(pairs));
  pair_of_.resize(static_cast<size_t>(pairs));
}

void CpuMoePass::route(int thread, const CpuMoe& moe, int64_t num_tokens) {
  const MoeSpec& spec = *moe.spec;
  const size_t chosen = static_cast<size_t>(spec.experts_per_token);
  const Range tokens = share(thread, num_tokens);
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    const size_t at = static_cast<size_t>(t) * chosen;
    choose_experts(spec, {router_.row(t), static_cast<size_t>(spec.num_experts)}, moe.correction,
                   router_scratch_[static_cast<size_t>(thread)], std::span(ids_).subspan(at, chosen),
                   std::span(weights_).subspan(at, chosen));
    if (!moe.shared) continue;
    const int64_t n = moe.shared->spec.intermediate;
    linear_.kernels().gate(gate_function(moe.shared->spec.activation), shared_gate_.row(t), shared_up_.row(t),
                           n, shared_units_.row(t));
    linear_.quantise(shared_units_, n, group_sizes_of({&moe.shared->down.matrix}), t);
  }
}

void CpuMoePass::sort_by_expert(const CpuMoe& moe, int64_t num_tokens) {
  const size_t pairs = static_cast<size_t>(num_tokens * moe.spec->experts_per_token);
  std::fill(first_pair_.begin(), first_pair_.end(), 0);
  for (size_t i = 0; i < pairs; ++i) ++first_pair_[static_cast<size_t>(ids_[i]) + 1];
  for (size_t e = 1; e < first_pair_.size(); ++e) first_pair_[e] += first_pair_[e - 1];
  for (size_t i = 0; i < pairs; ++i) pair_of_[i] = first_pair_[static_cast<size_t>(ids_[i])]++;
  // Every entry has moved to the next expert's start: move them back by one.
  for (size_t e = first_pair_.size() - 1; e > 0; --e) first_pair_[e] = first_pair_[e - 1];
  first_pair_[0] = 0;
}

void CpuMoePass::gather(int thread, const CpuMoe& moe, const LinearInput& input, int64_t num_tokens) {
  const int64_t chosen = moe.spec->experts_per_token;
  const uint8_t sizes = linear_.uses_integers()
                            ? group_sizes_of({&moe.experts[0].gate->matrix, &moe.experts[0].up.matrix})
                            : uint8_t{0};
  const Range pairs = share(thread, num_tokens * chosen);
  for (int64_t i = pairs.begin; i < pairs.end; ++i)
    pair_input_.copy_row(input, i / chosen, pair_of_[static_cast<size_t>(i)], hidden_size_, sizes);
}

void CpuMoePass::project_experts(int thread, const CpuMoe& moe) {
  for (size_t e = 0; e < moe.experts.size(); ++e) {
    const int64_t first = first_pair_[e], count = first_pair_[e + 1] - first;
    if (count == 0) continue;
    const CpuMlp& expert = moe.experts[e];
    const std::array jobs = {
        LinearJob{&expert.gate->matrix, expert.gate->bias, gate_.row(first), gate_.stride()},
        LinearJob{&expert.up.matrix, expert.up.bias, up_.row(first), up_.stride()},
    };
    linear_.multiply(thread, pair_input_, first, count, jobs);
  }
}

void CpuMoePass::activate(int thread, const CpuMoe& moe, int64_t num_tokens) {
  const MoeSpec& spec = *moe.spec;
  const KernelTable& kernels = linear_.kernels();
  const uint8_t sizes = group_sizes_of({&moe.experts[0].down.matrix});
  const Range pairs = share(thread, num_tokens * spec.experts_per_token);
  for (int64_t i = pairs.begin; i < pairs.end; ++i) {
    if (spec.swiglu_limit) {
      kernels.gate_clamped(gate_.row(i), up_.row(i), *spec.swiglu_limit, spec.swiglu_alpha, spec.intermediate,
                           units_.row(i));
    } else {
      kernels.gate(gate_function(spec.activation), gate_.row(i), up_.row(i), spec.intermediate,
                   units_.row(i));
    }
    linear_.quantise(units_, spec.intermediate, sizes, i);
  }
}

void CpuMoePass::contract_experts(int thread, const CpuMoe& moe, int64_t num_tokens) {
  for (size_t e = 0; e < moe.experts.size(); ++e) {
    const int64_t first = first_pair_[e], count = first_pair_[e + 1] - first;
    if (count == 0) continue;
    const std::array jobs = {
        LinearJob{&moe.experts[e].down.matrix, moe.experts[e].down.bias, down_.row(first), down_.stride()}};
    linear_.multiply(thread, units_, first, count, jobs);
  }
  if (!moe.shared) return;
  const std::array jobs = {
      LinearJob{&moe.shared->down.matrix, moe.shared->down.bias, shared_down_.row(0), shared_down_.stride()}};
  linear_.multiply(thread, shared_units_, 0, num_tokens, jobs);
}

void CpuMoePass::combine(int thread, const CpuMoe& moe, int64_t num_tokens, RowBuffer& out) {
  const KernelTable& kernels = linear_.kernels();
  const int64_t chosen = moe.spec->experts_per_token;
  const Range tokens = share(thread, num_tokens);
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    float* sum = out.row(t);
    std::fill(sum, sum + hidden_size_, 0.0f);
    for (int64_t i = t * chosen; i < (t + 1) * chosen; ++i) {
      const size_t at = static_cast<size_t>(i);
      kernels.add_scaled(down_.row(pair_of_[at]), weights_[at], hidden_size_, sum);
    }
    if (!moe.shared) continue;
    if (moe.shared_router) {
      const float share_of_shared = sigmoid_lanes<ScalarLanes>(shared_router_.row(t)[0]);
      kernels.add_scaled(shared_down_.row(t), share_of_shared, hidden_size_, sum);
    } else {
      kernels.add(sum, shared_down_.row(t), hidden_size_, sum);
    }
  }
}

void CpuMoePass::run(int thread, const CpuMoe& moe, const LinearInput& input, int64_t num_tokens,
                     RowBuffer& out) {
  std::array<LinearJob, 4> jobs;
  size_t count = 0;
  jobs[count++] = {&moe.router.matrix, moe.router.bias, router_.row(0), router_.stride()};
  if (moe.shared) {
    jobs[count++] = {&moe.shared->gate->matrix, moe.shared->gate->bias, shared_gate_.row(0),
                     shared_gate_.stride()};
    jobs[count++] = {&moe.shared->up.matrix, moe.shared->up.bias, shared_up_.row(0), shared_up_.stride()};
  }
  if (moe.shared_router)
    jobs[count++] = {&moe.shared_router->matrix, {}, shared_router_.row(0), shared_router_.stride()};
  linear_.multiply(thread, input, 0, num_tokens, std::span(jobs).first(count));
  pool_.barrier();
  route(thread, moe, num_tokens);
  pool_.barrier();
  if (thread == 0) sort_by_expert(moe, num_tokens);
  pool_.barrier();
  gather(thread, moe, input, num_tokens);
  pool_.barrier();
  project_experts(thread, moe);
  pool_.barrier();
  activate(thread, moe, num_tokens);
  pool_.barrier();
  contract_experts(thread, moe, num_tokens);
  pool_.barrier();
  combine(thread, moe, num_tokens, out);
}

uint64_t CpuMoePass::scratch_bytes() const {
  uint64_t total = pair_input_.bytes() + units_.bytes() + shared_units_.bytes();
  for (const RowBuffer* rows :
       {&router_, &shared_router_, &gate_, &up_, &down_, &shared_gate_, &shared_up_, &shared_down_})
    total += rows->bytes();
  return total;
}

}  // namespace mlxcel
