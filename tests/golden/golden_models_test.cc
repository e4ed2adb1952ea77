// Every fixture model, in f32 with an f32 cache, against the logits and greedy tokens of the implementation
// that its golden.json names.
#include <gtest/gtest.h>

#include <cmath>

#include "driver.h"

namespace mlxcel::golden {
namespace {

constexpr int kGreedyTokens = 24;

const std::vector<std::string>& fixture_names() {
  static const std::vector<std::string> names = {
      "bitnet",
      "cohere2",
      "ernie4_5",
      "exaone4",
      "gemma",
      "gemma2",
      "gemma3",
      "glm4",
      "gpt_neox",
      "gpt_oss",
      "gpt_oss-mxfp4",
      "granite",
      "hunyuan_v1_dense",
      "internlm3",
      "llama",
      "llama-bf16",
      "llama-llama3-tied",
      "llama-sharded",
      "mistral",
      "mixtral",
      "nemotron",
      "olmo2",
      "phi3",
      "phi3-longrope",
      "phi3-longrope-short",
      "qwen2",
      "qwen2_moe",
      "qwen3",
      "qwen3-bf16",
      "qwen3-fp8-block",
      "qwen3-sharded",
      "qwen3_moe",
      "smollm2",
      "smollm3",
      "stablelm",
      "stablelm-parallel",
      "starcoder2",
      "mlx-llama-2bit-g64",
      "mlx-llama-3bit-g64",
      "mlx-llama-4bit-g32",
      "mlx-llama-4bit-g64",
      "mlx-llama-5bit-g64",
      "mlx-llama-6bit-g64",
      "mlx-llama-8bit-g64",
      "mlx-qwen3-3bit-g128",
      "mlx-qwen3-4bit-g128-f16",
      "mlx-qwen3-4bit-g64-bf16",
      "mlx-qwen3-8bit-g32-f16",
      "mlx-qwen3-mixed-bf16",
      "mlx-qwen3-mxfp4",
      "mlx-qwen3-mxfp8",
      "mlx-qwen3-nvfp4",
      "mlx-qwen3_moe-4bit-g32",
      "gguf-llama-bf16",
      "gguf-llama-f16",
      "gguf-llama-f32",
      "gguf-llama-iq4_xs",
      "gguf-llama-q4_0",
      "gguf-llama-q4_1",
      "gguf-llama-q4_k_m",
      "gguf-llama-q5_0",
      "gguf-llama-q5_1",
      "gguf-llama-q8_0",
      "gguf-llama3-f32",
      "gguf-qwen2-bf16",
      "gguf-qwen2-f16",
      "gguf-qwen2-f32",
      "gguf-qwen2-q4_0",
      "gguf-qwen2-q4_1",
      "gguf-qwen2-q5_0",
      "gguf-qwen2-q5_1",
      "gguf-qwen2-q8_0",
      "gguf-qwen3-bf16",
      "gguf-qwen3-f16",
      "gguf-qwen3-f32",
      "gguf-qwen3-q4_0",
      "gguf-qwen3-q4_1",
      "gguf-qwen3-q5_0",
      "gguf-qwen3-q5_1",
      "gguf-qwen3-q8_0",
  };
  return names;
}

class GoldenModels : public testing::TestWithParam<std::tuple<RunnerFactory, std::string>> {};

void expect_logits(const Logits& found, const std::vector<float>& expected, double tolerance) {
  const size_t vocabulary = found.front().size();
  ASSERT_EQ(found.size() * vocabulary, expected.size());
  double largest = 0.0;
  for (size_t t = 0; t < found.size(); ++t) {
    for (size_t i = 0; i < vocabulary; ++i) {
      const double difference = std::fabs(double{found[t][i]} - double{expected[t * vocabulary + i]});
      // A NaN is no difference that compares; it must not pass.
      largest = difference <= largest ? largest : difference;
    }
  }
  EXPECT_LE(largest, tolerance);
}

TEST_P(GoldenModels, LogitsAndGreedyTokens) {
  const auto& [factory, name] = GetParam();
  const Golden golden = load_golden(name);
  ASSERT_EQ(golden.prompts.size(), 3U);
  RunnerOptions options;
  options.precision = ActivationPrecision::kF32;
  options.key_type = options.value_type = KvType::kF32;
  auto runner = factory.create(load_fixture(name), options);
  ASSERT_TRUE(runner.ok()) << runner.error().to_string();
  Driver driver(std::move(*runner), StorageChoice{});
  for (const GoldenPrompt& prompt : golden.prompts) {
    SCOPED_TRACE("prompt of " + std::to_string(prompt.ids.size()) + " tokens");
    const int sequence = driver.add_sequence();
    const Logits logits = driver.feed(sequence, prompt.ids);
    expect_logits(logits, prompt.logits, golden.tolerance);
    EXPECT_EQ(driver.continue_greedily(sequence, logits.back(), kGreedyTokens), prompt.greedy);
  }
}

std::string parameter_name(const testing::TestParamInfo<GoldenModels::ParamType>& info) {
  std::string name = std::get<0>(info.param).name + "_" + std::get<1>(info.param);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenModels,
                         testing::Combine(testing::ValuesIn(runner_factories()),
                                          testing::ValuesIn(fixture_names())),
                         parameter_name);

}  // namespace
}  // namespace mlxcel::golden
