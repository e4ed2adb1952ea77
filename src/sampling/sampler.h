// From logits to a token: the fixed chain of the design: logit bias and suppression; repetition, frequency,
// presence penalties and DRY; top-n-sigma; top-k; typical; top-p; min-p; XTC; temperature for the draw only.
//
// Random numbers are Philox4x32-10 of (seed, choice index, position, draw index), so a token depends on the
// request and its position alone. Greedy: temperature 0 or top_k 1; ties to the lower id. Logits that are NaN
// count as -inf.
//
// The rules in full (probabilities are the softmax of the edited logits over the candidates that are left):
//   repetition    every token of the last `repetition_window`: positive logits divided, others multiplied
//   (CTRL,
//                 arXiv 1909.05858)
//   frequency, presence    logit -= count * frequency + presence, counts of generated tokens (OpenAI's
//   definition) DRY           a token that would continue a repeat of n >= allowed tokens: logit -=
//   multiplier * base^(n - allowed)
//                 (p-e-w, text-generation-webui pull request 5677)
//   top-n-sigma   logit >= max - n * standard deviation of all logits (arXiv 2411.07641)
//   top-k, top-p (arXiv 1904.09751), min-p relative to the best candidate (arXiv 2407.01082)
//   typical       smallest |-ln p - entropy| first, until their mass reaches typical_p (arXiv 2202.00666)
//   XTC           with its probability: of the candidates at or above the threshold only the least likely
//   stays (p-e-w,
//                 text-generation-webui pull request 6335)
//   draw          weights exp((logit - max) / temperature), cumulated in ascending id
// Every filter leaves at least one candidate.
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
  float temperature = 0.0f;      // 0: greedy
  int32_t top_k = 0;             // 0 or -1: off
  float top_p = 1.0f;            // 1: off; 0 keeps one token
  float min_p = 0.0f;            // 0: off
  float typical_p = 1.0f;        // 1: off
  float top_n_sigma = 0.0f;      // <= 0: off
  float xtc_probability = 0.0f;  // 0: off
  float xtc_threshold = 0.1f;
  float repetition_penalty = 1.0f;  // 1: off (divides positive, multiplies negative logits)
  int32_t repetition_window = 64;   // tokens looked back at (prompt and answer); -1: all; 0: off
  float frequency_penalty = 0.0f;   // counts generated tokens only, all of them
  float presence_penalty = 0.0f;
  float dry_multiplier = 0.0f;  // 0: off
  float dry_base = 1.75f;
  int32_t dry_allowed_length = 2;
  int32_t dry_window = -1;            // -1: all
  std::vector<TokenId> dry_breakers;  // sequence breakers, single tokens
  uint64_t seed = 0;
  uint32_t choice_index = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<TokenId> suppress;  // never chosen (ignore_eos, min_tokens)

  // Ranges; the error names the field as the API spells it.
  Status validate() const;
  bool is_greedy() const { return temperature == 0.0f || top_k == 1; }
  bool edits_logits() const;  // bias, suppression or a penalty is on
  // True when the argmax of the raw logits is the answer: greedy and nothing edits the logits.
  bool is_plain_greedy() const { return is_greedy() && !edits_logits(); }
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0f;
};
struct Logprobs {  // log-softmax of the raw logits, the same for any temperature
  float chosen = 0.0f;
  std::vector<TokenLogprob> top;  // descending, ties to the lower id
};

// kInvalidArgument when a bias or a suppressed token is outside the vocabulary.
Status check_token_ids(const SamplingParams& params, int64_t vocab_size);

// State of one sequence: scratch only (what the penalties count is in the tokens that sample() is given).
class Sampler {
 public:
  static constexpr TokenId kNoToken = -1;

  // REQUIRES: params.validate() and check_token_ids() are ok.
  Sampler(SamplingParams params, int64_t vocab_size);
  const SamplingParams& params() const { return params_; }
  // `logits` [vocab_size] are not changed. `position`: of the token being chosen. `prompt` and `generated`
  // are the tokens so far (for penalties). Ids in `params().suppress` plus `extra_suppress` are never chosen.
  // kNoToken when nothing can be chosen: every logit is NaN, -inf or suppressed.
  TokenId sample(std::span<const float> logits, int64_t position, std::span<const TokenId> prompt,
                 std::span<const TokenId> generated, std::span<const TokenId> extra_suppress = {});

 private:
  struct Candidate {
    TokenId token = 0;
    float logit = 0.0f;
    double weight = 0.0;  // exp(logit - largest)
    double score = 0.0;   // typical
  };

  void edit_logits(std::span<const float> logits, std::span<const TokenId> prompt,
                   std::span<const TokenId> generated, std::span<const TokenId> extra_suppress);
  void penalise_repetition(std::span<const TokenId> prompt, std::span<const TokenId> generated);
  void penalise_counts(std::span<const TokenId> generated);
  void penalise_dry(std::span<const TokenId> prompt, std::span<const TokenId> generated);
  void collect_candidates(std::span<const float> logits);
  void keep_top_k(std::span<const float> logits, float floor);
  void weigh_candidates();
  double total_weight() const;
  template <typename Less>
  void keep_mass(double mass, Less less);
  void keep_typical();
  void keep_min_p();
  void exclude_top_choices(int64_t position);
  TokenId draw(int64_t position);

  SamplingParams params_;
  int64_t vocab_size_;
  std::vector<float> edited_;               // [vocab_size] once something edits the logits
  std::vector<int32_t> counts_;             // [vocab_size], zero between calls
  std::vector<int32_t> history_, matches_;  // DRY: tokens newest first, and how long each repeats the end
  std::vector<Candidate> candidates_;       // ascending by token between the filters
};

// num_top is cut to the vocabulary. REQUIRES: chosen in [0, logits.size()).
Logprobs compute_logprobs(std::span<const float> logits, TokenId chosen, int num_top);

}  // namespace mlxcel
