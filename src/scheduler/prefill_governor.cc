#include "scheduler/prefill_governor.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"

namespace mlxcel {
namespace {

// A step moves the average by an eighth: a page fault does not, a second of steps does.
constexpr double kNewWeight = 0.125;
constexpr double kTokensMax = 1 << 30;

void average(double& value, double sample) {
  value = value == 0.0 ? sample : value + kNewWeight * (sample - value);
}

// The power of two at or below; -1 for 0.
int bucket_of(int64_t decode_tokens, int num_buckets) {
  return std::min(num_buckets, static_cast<int>(std::bit_width(static_cast<uint64_t>(decode_tokens)))) - 1;
}

}  // namespace

PrefillGovernor::PrefillGovernor(double wait_factor, int64_t tokens_min)
    : wait_factor_(wait_factor), tokens_min_(tokens_min) {
  MLXCEL_CHECK(wait_factor > 1.0 && tokens_min >= 1);
}

// Of the nearest measured size at or below, which errs on the side of less prefill; 0 when there is none.
double PrefillGovernor::decode_seconds(int64_t decode_tokens) const {
  int bucket = bucket_of(decode_tokens, kNumBuckets);
  while (bucket >= 0 && decode_seconds_[static_cast<size_t>(bucket)] == 0.0) --bucket;
  return bucket < 0 ? 0.0 : decode_seconds_[static_cast<size_t>(bucket)];
}

void PrefillGovernor::observe(int64_t decode_tokens, int64_t prefill_tokens, double seconds) {
  if (!std::isfinite(seconds) || seconds <= 0.0 || decode_tokens + prefill_tokens <= 0) return;
  if (prefill_tokens == 0) {
    const int bucket = bucket_of(decode_tokens, kNumBuckets);
    average(decode_seconds_[static_cast<size_t>(bucket)], seconds);
    return;
  }
  const double usual = decode_tokens == 0 ? 0.0 : decode_seconds(decode_tokens);
  if (decode_tokens > 0 && usual == 0.0) return;  // what the decode rows cost of it is not known
  // A mixed step that was no slower than usual: prompt tokens are nearly free, but never quite.
  const double extra = std::max(seconds - usual, 0.01 * seconds);
  average(prefill_token_seconds_, extra / static_cast<double>(prefill_tokens));
}

int64_t PrefillGovernor::tokens_max(int64_t decode_tokens) const {
  const double usual = decode_seconds(decode_tokens);
  if (usual == 0.0 || prefill_token_seconds_ == 0.0) return tokens_min_;
  const double allowed = (wait_factor_ - 1.0) * usual / prefill_token_seconds_;
  return std::max(tokens_min_, static_cast<int64_t>(std::min(allowed, kTokensMax)));
}

}  // namespace mlxcel
