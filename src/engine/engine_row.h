// What the engine knows about one sequence.
//
// Owner: the engine. Threads: the engine thread only.
// Invariants: 0 <= num_computed() <= tokens.size() between steps; tokens[num_prompt..) were generated since
// the last turn from outside.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/ngram_drafter.h"

namespace mlxcel {

struct EngineRow {
  EngineRow(SequenceRequest asked, std::optional<SequenceCache> rows, int64_t vocab)
      : tokens(std::move(asked.prompt)),
        num_prompt(static_cast<int64_t>(tokens.size())),
        num_logprobs(asked.num_logprobs),
        wants_prompt_logits(asked.wants_prompt_logits),
        use_prefix_cache(asked.use_prefix_cache),
        cache_salt(std::move(asked.cache_salt)),
        sampler(std::move(asked.sampling), vocab),
        cache(std::move(rows)) {
    set_stop(std::move(asked.stop), vocab);
  }

  int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }
  // A row of lookahead is written but does not count: nobody has said yet that it is wanted.
  int64_t num_computed() const { return cache ? cache->length() - (ahead ? 1 : 0) : 0; }
  int64_t num_generated() const { return num_tokens() - num_prompt; }
  std::span<const TokenId> prompt() const { return std::span(tokens).first(static_cast<size_t>(num_prompt)); }
  std::span<const TokenId> generated() const {
    return std::span(tokens).subspan(static_cast<size_t>(num_prompt));
  }

  void set_stop(StopRules rules, int64_t vocab);
  // Ids that must not be chosen now: EOS when it is ignored, EOS and stop ids before min_tokens.
  std::span<const TokenId> suppressed_now() const;
  // The first rule that the newest token fulfils, in the fixed order.
  FinishReason finish_after_token(int64_t context_length) const;

  std::vector<TokenId> tokens;
  int64_t num_prompt = 0;
  int num_logprobs = -1;
  bool wants_prompt_logits = false;
  bool use_prefix_cache = true;
  std::string cache_salt;
  StopRules stop;
  std::vector<TokenId> suppressible;  // EOS ids, then stop ids, those that are in the vocabulary
  size_t num_suppressible_eos = 0;
  Sampler sampler;
  // Dense: absent until rows are first written, so that a waiting sequence holds no slot.
  std::optional<SequenceCache> cache;
  int rope_regime = 0;  // that the cached rows were rotated in
  FinishReason finish = FinishReason::kNone;

  // What the row of the newest token says, computed before it was asked for.
  struct Ahead {
    TokenId argmax = 0;
    std::vector<float> logits;
  };
  std::optional<Ahead> ahead;
  std::unique_ptr<NgramDrafter> drafter;  // made when first asked for
  std::vector<TokenId> drafts;            // proposed for the next step
};

}  // namespace mlxcel
