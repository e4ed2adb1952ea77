#include "engine/engine_row.h"

#include <algorithm>

namespace mlxcel {

namespace {
bool contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}
}  // namespace

void EngineRow::set_stop(StopRules rules, int64_t vocab) {
  stop = std::move(rules);
  suppressible.clear();
  // A checkpoint may name an EOS id beyond its head; such a token is never sampled anyway.
  const auto add = [&](const std::vector<TokenId>& ids) {
    std::copy_if(ids.begin(), ids.end(), std::back_inserter(suppressible),
                 [&](TokenId id) { return id >= 0 && id < vocab; });
  };
  add(stop.eos_ids);
  num_suppressible_eos = suppressible.size();
  add(stop.stop_token_ids);
}

std::span<const TokenId> EngineRow::suppressed_now() const {
  if (num_generated() < stop.min_tokens) return suppressible;
  return std::span(suppressible).first(stop.ignore_eos ? num_suppressible_eos : 0);
}

FinishReason EngineRow::finish_after_token(int64_t context_length) const {
  const TokenId newest = tokens.back();
  if (!stop.ignore_eos && contains(stop.eos_ids, newest)) return FinishReason::kEos;
  if (contains(stop.stop_token_ids, newest)) return FinishReason::kStopToken;
  if (stop.max_tokens >= 0 && num_generated() >= stop.max_tokens) return FinishReason::kMaxTokens;
  if (num_tokens() >= context_length) return FinishReason::kContext;
  return FinishReason::kNone;
}

}  // namespace mlxcel
