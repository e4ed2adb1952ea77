// The engine over the scalar oracle on real (tiny) models: the golden greedy answers, whatever the storage,
// the block size, the padding, the chunks and the batch mates.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "engine/engine.h"
#include "model/model_loader.h"
#include "tensor/vector_file_for_test.h"

namespace mlxcel {
namespace {

using Tokens = std::vector<TokenId>;

struct GoldenPrompt {
  Tokens prompt, greedy;
};

std::vector<GoldenPrompt> golden_prompts(const std::string& model) {
  const VectorFile file(model + "/golden.safetensors");
  const auto ids = [&](const std::string& name) {
    const std::span<const std::byte> bytes = file.bytes(name);
    Tokens tokens(bytes.size() / sizeof(TokenId));
    std::memcpy(tokens.data(), bytes.data(), tokens.size() * sizeof(TokenId));
    return tokens;
  };
  std::vector<GoldenPrompt> prompts;
  for (int i = 0; file.has("input_ids." + std::to_string(i)); ++i) {
    prompts.push_back({ids("input_ids." + std::to_string(i)), ids("greedy." + std::to_string(i))});
  }
  return prompts;
}

std::unique_ptr<Engine> make_engine(const std::string& model, KvStorageKind storage, int32_t block_size,
                                    bool padded) {
  const std::string path = std::string(MLXCEL_SOURCE_DIR) + "/tests/data/models/" + model;
  RunnerOptions runner_options;
  runner_options.precision = ActivationPrecision::kF32;
  runner_options.key_type = runner_options.value_type = KvType::kF32;
  runner_options.max_position = 128;
  std::unique_ptr<ModelRunner> runner =
      create_reference_runner(load_model(open_checkpoint(path).value()).value(), runner_options).value();
  EngineOptions options;
  options.storage = storage;
  options.block_size = block_size;
  options.max_sequences = 4;
  options.context_length = 128;
  options.force_padded_prefill = padded;
  return Engine::create(std::move(runner), options).value();
}

SequenceRequest greedy_request(const Tokens& prompt, size_t max_tokens) {
  SequenceRequest request;
  request.prompt = prompt;
  request.stop.max_tokens = static_cast<int64_t>(max_tokens);
  return request;
}

// All sequences together, prompts in chunks; what each generated.
std::vector<Tokens> run_all(Engine& engine, const std::vector<SequenceRequest>& requests, int64_t chunk) {
  std::vector<SequenceId> ids;
  for (const SequenceRequest& request : requests) ids.push_back(engine.add(request).value());
  while (true) {
    StepBatch batch;
    for (const SequenceId id : ids) {
      if (engine.finish_reason(id) != FinishReason::kNone) continue;
      const int64_t open = static_cast<int64_t>(engine.tokens(id).size()) - engine.num_computed(id);
      batch.segments.push_back({id, static_cast<int32_t>(std::min(chunk, open))});
    }
    if (batch.segments.empty()) break;
    for (const SequenceEvent& event : engine.step(batch).events) {
      EXPECT_FALSE(event.error) << event.error->one_line();
      if (event.error) return {};
    }
  }
  std::vector<Tokens> generated;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::span<const TokenId> all = engine.tokens(ids[i]);
    const auto answer = all.subspan(requests[i].prompt.size());
    generated.emplace_back(answer.begin(), answer.end());
  }
  EXPECT_TRUE(engine.check_integrity().ok());
  return generated;
}

TEST(EngineReference, GreedyAnswersAreTheGoldenOnes) {
  for (const char* model : {"llama", "qwen3"}) {
    std::vector<GoldenPrompt> prompts = golden_prompts(model);
    ASSERT_GE(prompts.size(), 2u);
    prompts.resize(std::min<size_t>(prompts.size(), 3));
    std::vector<SequenceRequest> requests;
    for (const GoldenPrompt& golden : prompts) {
      ASSERT_FALSE(golden.greedy.empty());
      requests.push_back(greedy_request(golden.prompt, golden.greedy.size()));
    }
    for (const KvStorageKind storage : {KvStorageKind::kDense, KvStorageKind::kPaged}) {
      for (const bool padded : {false, true}) {
        for (const int64_t chunk : {1000, 7}) {
          const auto engine = make_engine(model, storage, 16, padded);
          const std::vector<Tokens> generated = run_all(*engine, requests, chunk);
          ASSERT_EQ(generated.size(), prompts.size());
          for (size_t i = 0; i < prompts.size(); ++i) {
            EXPECT_EQ(generated[i], prompts[i].greedy) << model << ", prompt " << i << ", chunk " << chunk;
          }
        }
      }
    }
  }
}

// Across the border of a longrope each token is what a fresh prompt of everything before it gives.
TEST(EngineReference, LongRopeAnswersDoNotDependOnWhereTheyBegan) {
  const Tokens prompt = golden_prompts("phi3-longrope").at(0).prompt;
  const auto engine = make_engine("phi3-longrope", KvStorageKind::kPaged, 16, false);
  int64_t border = 0;
  for (const LayerSpec& layer : engine->runner().spec().layers) {
    border = std::get<AttentionSpec>(layer.mixer).rope.original_max_position;
  }
  ASSERT_GT(border, 2);
  ASSERT_LT(border, 100);
  Tokens known;
  for (int64_t i = 0; i < border - 2; ++i) {
    known.push_back(prompt[static_cast<size_t>(i) % prompt.size()]);
  }
  const std::vector<SequenceRequest> requests{greedy_request(known, 6)};
  const Tokens generated = run_all(*engine, requests, 1000).at(0);
  ASSERT_EQ(generated.size(), 6u);
  for (const TokenId token : generated) {
    const auto fresh = make_engine("phi3-longrope", KvStorageKind::kDense, 16, true);
    EXPECT_EQ(run_all(*fresh, {greedy_request(known, 1)}, 5).at(0), Tokens{token}) << known.size();
    known.push_back(token);
  }
}

}  // namespace
}  // namespace mlxcel
