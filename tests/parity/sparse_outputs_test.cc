// Asking for few outputs skips work (the last layer and the head run for those tokens only) and changes no
// bit.
#include <gtest/gtest.h>

#include <vector>

#include "golden/driver.h"

namespace mlxcel::golden {
namespace {

struct Step {
  std::vector<int32_t> wanted;
  std::vector<std::vector<float>> logits, hidden;
  std::vector<TokenId> argmax;
};

// Two sequences of 9 and 5 tokens in one step, with outputs for `wanted` inputs only; then one token each.
std::vector<Step> run(const std::string& name, const std::vector<int32_t>& wanted) {
  RunnerOptions options;
  options.num_threads = 2;
  auto runner = create_cpu_runner(load_fixture(name), options).value();
  KvBudget budget;
  budget.block_size = 16;
  budget.num_blocks = 8;
  auto storage = runner->create_kv_storage(KvStorageKind::kPaged, budget).value();
  BlockPool pool(budget.num_blocks, budget.block_size);
  std::vector<SequenceCache> sequences;
  for (int i = 0; i < 2; ++i) sequences.push_back(SequenceCache::paged(pool, runner->kv_layout()));
  std::vector<Step> steps;
  for (int round = 0; round < 2; ++round) {
    const std::vector<int32_t> lengths = round == 0 ? std::vector<int32_t>{9, 5} : std::vector<int32_t>{1, 1};
    std::vector<Input> inputs;
    std::vector<Segment> segments;
    for (size_t s = 0; s < 2; ++s) {
      static_cast<void>(sequences[s].commit_append(sequences[s].plan_append(lengths[s]).value()));
      Segment segment;
      segment.input_begin = static_cast<int32_t>(inputs.size());
      segment.num_inputs = lengths[s];
      segment.kv = sequences[s].view();
      segment.first_position = sequences[s].length() - lengths[s];
      segment.total_length = sequences[s].length();
      segments.push_back(segment);
      for (int32_t i = 0; i < lengths[s]; ++i)
        inputs.push_back(Input::token(3 + 2 * i + static_cast<int>(s)));
    }
    std::vector<OutputRequest> requests;
    Step step;
    step.wanted = round == 0 ? wanted : std::vector<int32_t>{0, 1};
    for (const int32_t input : step.wanted) requests.push_back({input, true, true});
    ForwardBatch batch;
    batch.inputs = inputs;
    batch.segments = segments;
    batch.outputs = requests;
    const StepOutputs outputs = runner->wait(runner->submit(batch, *storage)).value();
    for (const Output& output : outputs.outputs) {
      step.logits.emplace_back(output.logits.begin(), output.logits.end());
      step.hidden.emplace_back(output.hidden.begin(), output.hidden.end());
      step.argmax.push_back(output.argmax);
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

TEST(SparseOutputs, FewOutputsEqualAllOutputs) {
  std::vector<int32_t> all;
  for (int32_t i = 0; i < 14; ++i) all.push_back(i);
  for (const std::string name : {"llama", "mlx-llama-4bit-g64", "stablelm-parallel", "qwen3_moe"}) {
    const std::vector<Step> want = run(name, all);
    for (const std::vector<int32_t>& wanted :
         std::vector<std::vector<int32_t>>{{8, 13}, {13}, {}, {0, 4, 9}}) {
      const std::vector<Step> found = run(name, wanted);
      for (size_t i = 0; i < wanted.size(); ++i) {
        const size_t input = static_cast<size_t>(wanted[i]);
        EXPECT_EQ(found[0].logits[i], want[0].logits[input]) << name;
        EXPECT_EQ(found[0].hidden[i], want[0].hidden[input]) << name;
        EXPECT_EQ(found[0].argmax[i], want[0].argmax[input]) << name;
      }
      EXPECT_EQ(found[1].logits, want[1].logits) << name << ": the cache differs";
    }
  }
}

}  // namespace
}  // namespace mlxcel::golden
