// The logits of a token depend on the weights and on the tokens before it: the same bits whatever the chunk,
// the storage, the block size, the order of physical blocks, the batch mates and the bytes that nobody uses.
#include <gtest/gtest.h>

#include "driver.h"

namespace mlxcel::golden {
namespace {

struct Setting {
  std::string model;
  ActivationPrecision precision;
  KvType kv;
};

std::vector<Setting> settings() {
  return {
      {"smollm2", ActivationPrecision::kHigh, KvType::kF16},
      {"gemma3", ActivationPrecision::kF32, KvType::kF32},
      {"qwen3_moe", ActivationPrecision::kF32, KvType::kBF16},
      {"phi3-longrope", ActivationPrecision::kF32, KvType::kF16},
      {"gpt_oss-mxfp4", ActivationPrecision::kHigh, KvType::kF16},
      {"mlx-llama-4bit-g64", ActivationPrecision::kHigh, KvType::kQ8_0},
      {"mlx-qwen3_moe-4bit-g32", ActivationPrecision::kHigh, KvType::kF16},
      {"gguf-llama-q4_k_m", ActivationPrecision::kInt8, KvType::kQ8_0},
      {"gguf-qwen3-q4_1", ActivationPrecision::kHigh, KvType::kF16},
  };
}

class Invariance : public testing::TestWithParam<std::tuple<RunnerFactory, Setting>> {
 protected:
  Driver make_driver(const StorageChoice& choice) const {
    const auto& [factory, setting] = GetParam();
    RunnerOptions options;
    options.precision = setting.precision;
    options.key_type = options.value_type = setting.kv;
    return Driver(factory.create(load_fixture(setting.model), options).value(), choice);
  }
  std::vector<TokenId> prompt() const {
    return load_golden(std::get<1>(GetParam()).model).prompts.back().ids;
  }
  Logits whole() const {
    Driver driver = make_driver(StorageChoice{});
    return driver.feed(driver.add_sequence(), prompt());
  }
};

TEST_P(Invariance, ChunksEqualTheWhole) {
  const Logits expected = whole();
  for (const size_t chunk : {1, 7, 16}) {
    Driver driver = make_driver(StorageChoice{});
    EXPECT_TRUE(driver.feed(driver.add_sequence(), prompt(), chunk) == expected) << "chunks of " << chunk;
  }
}

TEST_P(Invariance, StorageDoesNotMatter) {
  const Logits expected = whole();
  const StorageChoice choices[] = {
      {KvStorageKind::kDense, 16, false, true}, {KvStorageKind::kPaged, 1, true, true},
      {KvStorageKind::kPaged, 8, true, true},   {KvStorageKind::kPaged, 32, false, true},
      {KvStorageKind::kPaged, 64, false, true},
  };
  for (const StorageChoice& choice : choices) {
    Driver driver = make_driver(choice);
    EXPECT_TRUE(driver.feed(driver.add_sequence(), prompt(), 13) == expected)
        << (choice.kind == KvStorageKind::kDense ? "dense" : "paged") << ", blocks of " << choice.block_size;
  }
}

TEST_P(Invariance, BatchMatesDoNotMatter) {
  const Logits expected = whole();
  Driver driver = make_driver(StorageChoice{});
  const std::vector<TokenId> ids = prompt();
  const std::vector<TokenId> mate = {3, 1, 4, 1, 5, 9, 2, 6};
  const int first = driver.add_sequence(), row = driver.add_sequence(), last = driver.add_sequence();
  const int64_t total = static_cast<int64_t>(ids.size());
  Logits found;
  for (size_t at = 0; at < ids.size(); at += 10) {
    const std::span<const TokenId> part = std::span(ids).subspan(at, std::min<size_t>(10, ids.size() - at));
    const size_t mates = 1 + at / 10;
    const Driver::Feed feeds[] = {
        {first, std::span(mate).first(mates), 40}, {row, part, total}, {last, mate, 40}};
    const Logits step = driver.step(feeds);
    for (size_t i = 0; i < part.size(); ++i) found.push_back(step[mates + i]);
  }
  EXPECT_TRUE(found == expected);
}

TEST_P(Invariance, TrimmedRowsWereNeverThere) {
  const Logits expected = whole();
  Driver driver = make_driver(StorageChoice{});
  const std::vector<TokenId> ids = prompt();
  const std::vector<TokenId> wrong = {9, 8, 7, 6, 5};
  const int sequence = driver.add_sequence();
  const int64_t total = static_cast<int64_t>(ids.size());
  const Driver::Feed begin[] = {{sequence, std::span(ids).first(11), total}};
  const Driver::Feed detour[] = {{sequence, wrong, total}};
  const Driver::Feed rest[] = {{sequence, std::span(ids).subspan(11), total}};
  driver.step(begin);
  driver.step(detour);
  ASSERT_EQ(driver.sequence(sequence).trim(5), 5);
  const Logits found = driver.step(rest);
  EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin() + 11, expected.end()));
}

std::string parameter_name(const testing::TestParamInfo<Invariance::ParamType>& info) {
  const Setting& setting = std::get<1>(info.param);
  std::string name = std::get<0>(info.param).name + "_" + setting.model + "_" +
                     std::string(activation_precision_name(setting.precision)) + "_" +
                     std::string(kv_type_name(setting.kv));
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Invariance,
                         testing::Combine(testing::ValuesIn(runner_factories()),
                                          testing::ValuesIn(settings())),
                         parameter_name);

}  // namespace
}  // namespace mlxcel::golden
