// From logits to a token: the fixed chain of the design: logit bias and suppression; repetition, frequency, presence
// penalties and DRY; top-n-sigma; top-k; typical; top-p; min-p; XTC; temperature for the draw only.
//
// Random numbers are Philox4x32-10 with key (seed, choice index) and counter (position, draw index), so a token
// depends on the request and its position alone. Greedy: temperature 0 or top_k 1; ties to the lower id.
//
// Owner: the engine's row. Threads: one row, one thread; no allocation in steady state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace mlxcel {

using TokenId = int32_t;

struct SamplingParams {
  float temperature = 0.0f;          // 0: greedy
  int32_t top_k = 0;                 // 0 or -1: off
  float top_p = 1.0f;                // 1: off; 0 keeps one token
  float min_p = 0.0f;                // 0: off
  float typical_p = 1.0f;            // 1: off
  float top_n_sigma = 0.0f;          // <= 0: off
  float xtc_probability = 0.0f;      // 0: off
  float xtc_threshold = 0.1f;
  float repetition_penalty = 1.0f;   // 1: off (divides positive, multiplies negative logits)
  int32_t repetition_window = 64;    // tokens looked back at (prompt and answer); -1: all; 0: off
  float frequency_penalty = 0.0f;    // counts generated tokens only, all of them
  float presence_penalty = 0.0f;
  float dry_multiplier = 0.0f;       // 0: off
  float dry_base = 1.75f;
  int32_t dry_allowed_length = 2;
  int32_t dry_window = -1;           // -1: all
  std::vector<TokenId> dry_breakers; // sequence breakers, single tokens
  uint64_t seed = 0;
  uint32_t choice_index = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<TokenId> suppress;     // never chosen (ignore_eos, min_tokens)

  // Ranges; the error names the field as the API spells it.
  Status validate() const;
  bool is_greedy() const { return temperature == 0.0f || top_k == 1; }
  // True when the argmax of the raw logits is the answer: greedy and nothing edits the logits.
  bool is_plain_greedy() const;
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0f;
};
struct Logprobs {                     // log-softmax of the raw logits, the same for any temperature
  float chosen = 0.0f;
  std::vector<TokenLogprob> top;      // descending, ties to the lower id
};

// State of one sequence: counts for penalties, scratch.
class Sampler {
 public:
  Sampler(SamplingParams params, int64_t vocab_size);
  const SamplingParams& params() const { return params_; }
  // `logits` [vocab_size] are not changed. `position`: of the token being chosen. `prompt` and `generated` are the
  // tokens so far (for penalties). Ids in `params().suppress` plus `extra_suppress` are never chosen.
  TokenId sample(std::span<const float> logits, int64_t position, std::span<const TokenId> prompt,
                 std::span<const TokenId> generated, std::span<const TokenId> extra_suppress = {});

 private:
  SamplingParams params_;
  int64_t vocab_size_;
  std::vector<float> scratch_;
  std::vector<int32_t> order_;
  std::vector<float> probabilities_;
};

Logprobs compute_logprobs(std::span<const float> logits, TokenId chosen, int num_top);

}  // namespace mlxcel
