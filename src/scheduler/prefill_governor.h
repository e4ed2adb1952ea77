// How many prompt tokens may share a step with decode rows, so that a row waits at most `wait_factor` times
// its usual step. A rule over measured step times, which are part of the trace: the same trace gives the same
// numbers.
//
// Model: seconds = decode(tokens) + prefill_tokens * per_token. decode() is a moving average of steps without
// prompt tokens, kept per power of two of decode tokens, because the cost of a step grows with its rows;
// per_token is one of what prompt tokens cost beyond that.
//
// Owner: the scheduler. Threads: the engine thread only.
#pragma once

#include <array>
#include <cstdint>

namespace mlxcel {

class PrefillGovernor {
 public:
  // REQUIRES: wait_factor > 1, tokens_min >= 1.
  PrefillGovernor(double wait_factor, int64_t tokens_min);
  // Of one finished step. Times that cannot be (not finite, not positive) say nothing and change nothing.
  void observe(int64_t decode_tokens, int64_t prefill_tokens, double seconds);
  // Prompt tokens allowed beside that many decode tokens; tokens_min until both costs are known, and never
  // less.
  int64_t tokens_max(int64_t decode_tokens) const;

 private:
  static constexpr int kNumBuckets = 24;  // up to 2^23 decode tokens in a step
  double decode_seconds(int64_t decode_tokens) const;

  double wait_factor_;
  int64_t tokens_min_;
  std::array<double, kNumBuckets> decode_seconds_{};  // 0: not measured
  double prefill_token_seconds_ = 0.0;                // 0: not measured
};

}  // namespace mlxcel
