// The mixture-of-experts feed-forward of a step. Tokens are sorted by expert, so that each expert's weights
// are streamed once for all of its tokens; each token's sum runs over its experts in ascending id whatever
// the order of the work.
//
// Owner: the forward pass. Threads: run() by every thread of the pool with the same arguments; it has
// barriers inside.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/buffers.h"
#include "backend/cpu/cpu_linear.h"
#include "backend/cpu/cpu_model.h"
#include "base/threads.h"

namespace mlxcel {

// Which experts a token goes to, by ascending id, and with which weights (docs/numerics.md). `scores`,
// `choice` and `order` are scratch of num_experts elements each; ids and weights get experts_per_token
// elements.
struct RouterScratch {
  std::vector<float> scores, choice, group_scores;
  std::vector<int32_t> order, group_order;
  std::vector<uint8_t> group_kept;
};
void choose_experts(const MoeSpec& spec, std::span<const float> logits, std::span<const float> correction,
                    RouterScratch& scratch, std::span<int32_t> ids, std::span<float> weights);

class CpuMoePass {
 public:
  CpuMoePass(const CpuModel& model, LinearContext& linear, ThreadPool& pool);
  void reserve(int64_t num_tokens);
  // out[token] = the layer's feed-forward of input row `token`, integer forms included.
  void run(int thread, const CpuMoe& moe, const LinearInput& input, int64_t num_tokens, RowBuffer& out);
  uint64_t scratch_bytes() const;

 private:
  void route(int thread, const CpuMoe& moe, int64_t num_tokens);
  void sort_by_expert(const CpuMoe& moe, int64_t num_tokens);
  void gather(int thread, const CpuMoe& moe, const LinearInput& input, int64_t num_tokens);
  void project_experts(int thread, const CpuMoe& moe);
  void activate(int thread, const CpuMoe& moe, int64_t num_tokens);
  void contract_experts(int thread, const CpuMoe& moe, int64_t num_tokens);
  void combine(int thread, const CpuMoe& moe, int64_t num_tokens, RowBuffer& out);
  Range share(int thread, int64_t count) const { return split_range(count, 1, pool_.num_threads(), thread); }

  LinearContext& linear_;
  ThreadPool& pool_;
  int64_t most_chosen_ = 0, hidden_size_ = 0;
  RowBuffer router_, shared_router_;  // [token][experts], [token][1]
  RowBuffer gate_, up_, down_;        // [pair][intermediate], [pair][hidden]
  RowBuffer shared_gate_, shared_up_, shared_down_;
  LinearInput pair_input_, units_, shared_units_;
  std::vector<int32_t> ids_;  // [token][experts_per_token], ascending
  std::vector<float> weights_;
  std::vector<int32_t> pair_of_;               // [token][experts_per_token]: row of the pair buffers
  std::vector<int32_t> first_pair_;            // [experts + 1]
  std::vector<RouterScratch> router_scratch_;  // per thread
};

}  // namespace mlxcel
