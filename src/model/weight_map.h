// Which checkpoint tensor plays which role. A family fills a WeightMap next to the ModelSpec; binding it to a
// checkpoint (model/model_loader.h) checks that every role has its tensor with the right shape and that no
// tensor of the checkpoint is left over, so a missing or an unknown tensor is a load error that names it.
//
// Owner: a value. Threads: free to read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "tensor/weight_format.h"

namespace mlxcel {

enum class WeightRole {
  kEmbedding,
  kEmbeddingNorm,
  kEmbeddingNormBias,
  kFinalNorm,
  kFinalNormBias,
  kHead,
  kHeadBias,  // layer 0 only
  kPreMixerNorm,
  kPreMixerNormBias,
  kPostMixerNorm,
  kPostMixerNormBias,
  kPreFfnNorm,
  kPreFfnNormBias,
  kPostFfnNorm,
  kPostFfnNormBias,
  kQuery,
  kKey,
  kValue,
  kOutput,
  kQueryBias,
  kKeyBias,
  kValueBias,
  kOutputBias,
  kQueryNorm,
  kKeyNorm,
  kQueryNormBias,
  kKeyNormBias,
  kSinks,
  kPreOutputNorm,
  kGate,
  kUp,
  kDown,
  kGateBias,
  kUpBias,
  kDownBias,
  kPreDownNorm,
  kRouter,
  kRouterBias,
  kRouterCorrection,
  kExpertGate,
  kExpertUp,
  kExpertDown,
  kExpertGateBias,
  kExpertUpBias,
  kExpertDownBias,  // one per expert
  kSharedGate,
  kSharedUp,
  kSharedDown,
  kSharedGateBias,
  kSharedUpBias,
  kSharedDownBias,
  kSharedRouter,
  // MLA
  kQueryDown,
  kQueryDownNorm,
  kQueryUp,
  kKvDown,
  kKvDownNorm,
  kKvUp,
  // recurrent mixers
  kMixerIn,
  kMixerInBias,
  kMixerOut,
  kMixerOutBias,
  kConv,
  kConvBias,
  kStateDecay,
  kTimeBias,
  kStateSkip,
  kMixerNorm,
  kDeltaQkvz,
  kDeltaBa,
};
std::string_view weight_role_name(WeightRole role);

// Where a role's matrix or vector comes from.
struct TensorSource {
  std::string name;                     // tensor, without ".weight" suffix rules: the exact name in the file
  int64_t stored_rows = -1;             // rows the tensor must have; -1: as many as the role
  int64_t row_begin = 0, row_end = -1;  // rows of a fused tensor; -1: to the end
  // Of the range, only the first row_block of every row_period rows (0: all). GPT-OSS: gate_up alternates (1
  // of 2); GPT-NeoX: q, k and v alternate per head (head_dim of 3 * head_dim).
  int64_t row_block = 0, row_period = 0;
  std::optional<int> expert;  // slice of a stacked [experts, rows, columns] tensor
  int interleaved_heads = 0;  // GGUF llama q/k permutation to undo (also for biases)
  bool transposed = false;    // stored [columns, rows] (GPT-2, GPT-OSS)
  bool optional = false;      // may be absent (for example a head beside tied embeddings)
};

struct WeightKey {
  int layer = 0;
  WeightRole role = WeightRole::kEmbedding;
  int expert = 0;
  friend auto operator<=>(const WeightKey&, const WeightKey&) = default;
};

struct WeightMap {
  std::map<WeightKey, TensorSource> sources;
  // Tensors that a checkpoint may carry and that mean nothing here ("rotary_emb.inv_freq", a vision tower,
  // ...): names in which '*' stands for any characters.
  std::vector<std::string> ignored;

  void add(int layer, WeightRole role, TensorSource source) { sources[{layer, role, 0}] = std::move(source); }
  void add_expert(int layer, WeightRole role, int expert, TensorSource source) {
    sources[{layer, role, expert}] = std::move(source);
  }
};

}  // namespace mlxcel
