// Runs a ModelRunner on token ids without an engine: sequences, KV storage and batches of the test's choice.
//
// Owner: the test. Threads: one. Errors end the test program: fixtures are ours.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "kv/block_pool.h"
#include "kv/sequence_cache.h"

namespace mlxcel::golden {

using Logits = std::vector<std::vector<float>>;  // per token [vocab_size]

struct StorageChoice {
  KvStorageKind kind = KvStorageKind::kPaged;
  int32_t block_size = 16;
  bool shuffle_blocks = false;  // hand physical blocks out in another order
  bool poison = false;          // NaN in every byte that no live row uses, before each step
};

// One runner with one storage; any number of sequences up to the capacity.
class Driver {
 public:
  Driver(std::unique_ptr<ModelRunner> runner, const StorageChoice& choice, int32_t max_rows = 256,
         int32_t max_sequences = 4);

  ModelRunner& runner() { return *runner_; }
  int add_sequence();  // its number
  SequenceCache& sequence(int number) { return sequences_[static_cast<size_t>(number)]; }

  struct Feed {
    int sequence = 0;
    std::span<const TokenId> tokens;
    int64_t total_length = 0;  // 0: what the sequence holds after this step
  };
  // One forward pass; the logits of every token fed, in order.
  Logits step(std::span<const Feed> feeds);
  // The tokens in chunks of `chunk` (0: all at once).
  Logits feed(int sequence, std::span<const TokenId> tokens, size_t chunk = 0);
  // Greedy: the most likely token after `logits`, fed, and so on; `count` tokens.
  std::vector<TokenId> continue_greedily(int sequence, const std::vector<float>& logits, int count);

 private:
  std::unique_ptr<ModelRunner> runner_;
  StorageChoice choice_;
  std::unique_ptr<KvStorage> storage_;
  BlockPool pool_;
  std::deque<SequenceCache> sequences_;
};

// One prompt of a golden file.
struct GoldenPrompt {
  std::vector<TokenId> ids, greedy;
  std::vector<float> logits;  // [length, vocab_size]
};
struct Golden {
  std::vector<GoldenPrompt> prompts;
  double tolerance = 0.0;  // suggested_atol
};

std::string model_path(const std::string& name);  // folder, or the .gguf file in it
Golden load_golden(const std::string& name);
LoadedModel load_fixture(const std::string& name);
TokenId argmax(const std::vector<float>& values);

// The runners under test. Each must give the same results.
struct RunnerFactory {
  std::string name;
  std::function<Result<std::unique_ptr<ModelRunner>>(LoadedModel, const RunnerOptions&)> create;
};
std::vector<RunnerFactory> runner_factories();

}  // namespace mlxcel::golden
