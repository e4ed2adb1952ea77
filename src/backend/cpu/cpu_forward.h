// One ragged forward pass of a packed model: the layers as phases that all threads of the pool walk through
// together, with a barrier between a phase that writes rows and one that reads them. Row-wise phases split
// the tokens, linear layers split the row blocks of their weights (so weights are streamed once however many
// tokens there are), attention hands out tiles. No split changes the arithmetic of any number
// (docs/numerics.md).
//
// In the last layer only the tokens whose output is wanted go on after their keys and values are written.
//
// Owner: the runner. Threads: run() by the engine thread; private functions take the number of the pool's
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/common/forward_common.h"
#include "backend/common/host_kv_storage.h"
#include "backend/cpu/buffers.h"
#include "backend/cpu/cpu_attention.h"
#include "backend/cpu/cpu_linear.h"
#include "backend/cpu/cpu_model.h"
#include "backend/cpu/cpu_moe.h"
#include "backend/cpu/kernel_table.h"
#include "base/threads.h"

namespace mlxcel {

class CpuForward {
 public:
  CpuForward(const CpuModel& model, const KvLayout& layout, const RopeTables& ropes,
             const KernelTable& kernels, ActivationPrecision precision, ThreadPool& pool);

  // REQUIRES: check_forward_batch(). Leaves logits, argmax and hidden rows of the batch's output requests.
  void run(const ForwardBatch& batch, HostKvStorage& storage);

  TokenId argmax(size_t output) const { return argmax_[output]; }
  std::span<const float> logits(size_t output) const;  // [vocab_size]
  std::span<const float> hidden(size_t output) const;  // [hidden_size]
  uint64_t scratch_bytes() const;

 private:
  struct Best {
    float value = 0.0f;
    int64_t index = -1;  // -1: nothing but NaN
  };

  void declare_widths();
  void reserve(int64_t num_tokens, int64_t num_outputs);
  void list_tokens(const ForwardBatch& batch);
  void forward(int thread, HostKvStorage& storage);
  void embed(int thread);
  void begin_layer(const CpuLayer& layer, int64_t token);
  void project(int thread, const CpuLayer& layer);
  void prepare_heads(int thread, int index, HostKvStorage& storage);
  void normalise_heads(const std::optional<CpuNorm>& norm, const std::optional<HeadNormSpec>& spec,
                       bool after_rope, int64_t heads, int64_t dim, float* rows) const;
  void keep_wanted_tokens();
  void finish_mixer(int thread, const CpuLayer& layer);
  void after_mixer(int thread, const CpuLayer& layer);
  void feed_forward(int thread, const CpuLayer& layer);
  void dense_mlp(int thread, const CpuMlp& mlp);
  void after_feed_forward(int thread, size_t index);
  void head(int thread);
  void normalise(const CpuNorm& norm, const float* x, float* y) const;
  Range my_tokens(int thread) const { return split_range(num_tokens_, 1, pool_.num_threads(), thread); }

  const CpuModel& model_;
  const KvLayout& layout_;
  const RopeTables& ropes_;
  const KernelTable& kernels_;
  ThreadPool& pool_;
  LinearContext linear_;
  CpuAttentionPass attention_;
  CpuMoePass moe_;

  const ForwardBatch* batch_ = nullptr;
  std::vector<QueryToken> tokens_;  // those still under way
  std::vector<int32_t> wanted_;     // inputs whose output is asked for
  int64_t num_tokens_ = 0;
  int64_t reserved_tokens_ = 0, reserved_outputs_ = 0;

  RowBuffer hidden_;  // [tokens][hidden_size], the residual stream
  LinearInput mixer_input_, mixed_, ffn_input_, units_;
  RowBuffer query_, key_, value_;  // [tokens][heads * dim]
  RowBuffer mixer_out_, ffn_out_;  // [tokens][hidden_size]
  RowBuffer gate_, up_;            // [tokens][intermediate]
  LinearInput head_input_;         // [outputs][hidden_size]
  RowBuffer logits_;               // [outputs][vocab_size]
  std::vector<Best> best_;         // [thread][output]
  std::vector<TokenId> argmax_;
};

}  // namespace mlxcel
