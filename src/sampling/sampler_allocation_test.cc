// A sampler that has run once allocates nothing: the replaced allocation functions of this test program
// count.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "sampling/sampler.h"

namespace {
std::atomic<int64_t> num_allocations{0};
}  // namespace

// Not inlined: GCC would then see malloc() behind a delete and warn.
__attribute__((noinline)) void* operator new(std::size_t size) {
  ++num_allocations;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace mlxcel {
namespace {

TEST(SamplerAllocation, NoneAfterTheFirstCall) {
  constexpr int64_t kVocab = 5000;
  std::vector<float> logits;
  for (int64_t i = 0; i < kVocab; ++i) logits.push_back(static_cast<float>(i * 7919 % 1000) * 0.01f);
  const std::vector<TokenId> prompt{1, 2, 3, 1, 2}, generated{3, 1, 2}, extra{4};
  for (const int32_t top_k : {0, 1, 40, 2000}) {
    SamplingParams params;
    params.temperature = 0.8f;
    params.top_k = top_k;
    params.top_p = 0.9f;
    params.min_p = 0.01f;
    params.typical_p = 0.95f;
    params.top_n_sigma = 3.0f;
    params.xtc_probability = 0.5f;
    params.repetition_penalty = 1.1f;
    params.frequency_penalty = 0.1f;
    params.presence_penalty = 0.1f;
    params.dry_multiplier = 0.8f;
    Sampler sampler(params, kVocab);
    TokenId sum = sampler.sample(logits, 0, prompt, generated, extra);
    const int64_t before = num_allocations;
    for (int64_t position = 1; position < 50; ++position)
      sum += sampler.sample(logits, position, prompt, generated, extra);
    EXPECT_EQ(num_allocations, before) << top_k;
    EXPECT_GT(sum, 0);
  }
}

}  // namespace
}  // namespace mlxcel
