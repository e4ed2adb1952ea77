// Whole models: the CPU runner gives the reference runner's bits, whatever the instruction set, precision,
// cache type, storage, block size, chunking, number of threads and company in the batch.
#include <gtest/gtest.h>

#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/isa.h"
#include "base/file.h"
#include "golden/driver.h"

namespace mlxcel::golden {
namespace {

std::vector<std::string> all_fixtures() {
  const std::string root = std::string(MLXCEL_SOURCE_DIR) + "/tests/data/models";
  std::vector<std::string> names;
  for (const std::string& name : list_directory(root).value()) {
    if (file_exists(root + "/" + name + "/config.json") || file_exists(root + "/" + name + "/model.gguf"))
      names.push_back(name);
  }
  return names;
}

struct Arithmetic {
  ActivationPrecision precision = ActivationPrecision::kHigh;
  KvType kv = KvType::kF16;
};
constexpr Arithmetic kArithmetics[] = {
    {ActivationPrecision::kHigh, KvType::kF16},
    {ActivationPrecision::kF32, KvType::kF32},
    {ActivationPrecision::kInt8, KvType::kBF16},
    {ActivationPrecision::kHigh, KvType::kQ8_0},
};

struct Way {
  StorageChoice storage;
  int threads = 1;
  size_t chunk = 0;
};
const std::vector<Way>& ways() {
  static const std::vector<Way> list = {
      {{KvStorageKind::kPaged, 16, false, true}, 1, 0}, {{KvStorageKind::kDense, 16, false, true}, 2, 7},
      {{KvStorageKind::kPaged, 1, true, true}, 3, 0},   {{KvStorageKind::kPaged, 8, true, true}, 2, 1},
      {{KvStorageKind::kPaged, 64, true, true}, 3, 33}, {{KvStorageKind::kPaged, 32, false, true}, 2, 19},
      {{KvStorageKind::kPaged, 48, true, true}, 1, 5},
  };
  return list;
}

std::vector<TokenId> random_tokens(int64_t vocabulary, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> ids;
  for (size_t i = 0; i < count; ++i)
    ids.push_back(static_cast<TokenId>(random() % static_cast<uint64_t>(vocabulary)));
  return ids;
}

RunnerOptions options_for(const Arithmetic& arithmetic, int threads, Isa isa, int64_t max_position = 256) {
  RunnerOptions options;
  options.precision = arithmetic.precision;
  options.key_type = options.value_type = arithmetic.kv;
  options.num_threads = threads;
  options.isa = isa_name(isa);
  options.max_position = max_position;
  return options;
}

std::string describe(const Arithmetic& a, const Way& way, Isa isa) {
  return std::string(isa_name(isa)) + ", " + std::string(activation_precision_name(a.precision)) + ", " +
         std::string(kv_type_name(a.kv)) +
         (way.storage.kind == KvStorageKind::kDense ? ", dense" : ", paged ") +
         std::to_string(way.storage.block_size) + ", threads " + std::to_string(way.threads) + ", chunk " +
         std::to_string(way.chunk);
}

// The first difference, or nothing.
std::string difference(const Logits& want, const Logits& found) {
  if (want.size() != found.size()) return "number of rows";
  for (size_t t = 0; t < want.size(); ++t) {
    for (size_t i = 0; i < want[t].size(); ++i) {
      if (std::memcmp(&want[t][i], &found[t][i], 4) == 0) continue;
      return "token " + std::to_string(t) + ", logit " + std::to_string(i) + ": " +
             std::to_string(want[t][i]) + " against " + std::to_string(found[t][i]);
    }
  }
  return "";
}

Logits reference_logits(const std::string& name, const Arithmetic& arithmetic,
                        std::span<const TokenId> tokens, int64_t max_position = 256) {
  const RunnerOptions options = options_for(arithmetic, 1, Isa::kScalar, max_position);
  Driver driver(create_reference_runner(load_fixture(name), options).value(), StorageChoice{}, 1024);
  return driver.feed(driver.add_sequence(), tokens);
}

bool fits_cache(const ModelSpec& spec, KvType type) {
  if (type != KvType::kQ8_0) return true;
  for (const LayerKvLayout& layer : kv_layout_for(spec, type, type).layers) {
    if (layer.key_dim % 32 != 0 || layer.value_dim % 32 != 0) return false;
  }
  return true;
}

class ParityTest : public testing::TestWithParam<std::string> {};

TEST_P(ParityTest, EveryWayGivesTheReferenceBits) {
  const ModelSpec spec = load_fixture(GetParam()).spec;
  // One more than a block of 64 rows, with a remainder of the lanes.
  const std::vector<TokenId> tokens = random_tokens(spec.vocab_size, 70, 5);
  size_t next_way = std::hash<std::string>{}(GetParam());
  for (const Arithmetic& arithmetic : kArithmetics) {
    if (!fits_cache(spec, arithmetic.kv)) continue;
    const Logits want = reference_logits(GetParam(), arithmetic, tokens);
    for (const Isa isa : available_isas()) {
      const int count = isa == Isa::kScalar ? 1 : 3;
      for (int i = 0; i < count; ++i) {
        const Way& way = ways()[next_way++ % ways().size()];
        Driver driver(
            create_cpu_runner(load_fixture(GetParam()), options_for(arithmetic, way.threads, isa)).value(),
            way.storage, 1024);
        const Logits found = driver.feed(driver.add_sequence(), tokens, way.chunk);
        ASSERT_EQ(difference(want, found), "") << describe(arithmetic, way, isa);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ParityTest, testing::ValuesIn(all_fixtures()), [](const auto& fixture) {
  std::string name = fixture.param;
  for (char& c : name) c = (std::isalnum(static_cast<unsigned char>(c)) != 0) ? c : '_';
  return name;
});

TEST(Parity, AllWaysOnOneModel) {
  const Arithmetic arithmetic = kArithmetics[0];
  const std::vector<TokenId> tokens = random_tokens(load_fixture("llama").spec.vocab_size, 131, 6);
  const Logits want = reference_logits("llama", arithmetic, tokens);
  std::string isas;
  for (const Isa isa : available_isas()) {
    isas += std::string(isas.empty() ? "" : ", ") + std::string(isa_name(isa));
    for (const Way& way : ways()) {
      Driver driver(
          create_cpu_runner(load_fixture("llama"), options_for(arithmetic, way.threads, isa)).value(),
          way.storage, 1024);
      ASSERT_EQ(difference(want, driver.feed(driver.add_sequence(), tokens, way.chunk)), "")
          << describe(arithmetic, way, isa);
    }
  }
  std::cout << "instruction sets run: " << isas << "\n";
}

// Beyond one split of 512 rows, alone (the splits of the last tokens go to different threads) and in one
// piece.
TEST(Parity, SplitsOfLongSequences) {
  const Arithmetic arithmetic = kArithmetics[0];
  const std::vector<TokenId> tokens = random_tokens(load_fixture("llama").spec.vocab_size, 600, 8);
  const Logits want = reference_logits("llama", arithmetic, tokens, 1024);
  for (const int threads : {1, 3}) {
    const Isa isa = available_isas().back();
    Driver driver(
        create_cpu_runner(load_fixture("llama"), options_for(arithmetic, threads, isa, 1024)).value(),
        {KvStorageKind::kPaged, 32, true, true}, 1024);
    const int sequence = driver.add_sequence();
    Logits found = driver.feed(sequence, std::span(tokens).first(590));
    for (std::vector<float>& row : driver.feed(sequence, std::span(tokens).subspan(590), 1))
      found.push_back(row);
    ASSERT_EQ(difference(want, found), "") << threads << " threads";
  }
}

TEST(Parity, MatesInTheBatchDoNotMatter) {
  for (const std::string name : {"gemma2", "mlx-llama-4bit-g64", "qwen3_moe", "gpt_oss"}) {
    const Arithmetic arithmetic = kArithmetics[0];
    const int64_t vocabulary = load_fixture(name).spec.vocab_size;
    std::vector<std::vector<TokenId>> prompts;
    std::vector<Logits> want;
    for (uint32_t i = 0; i < 4; ++i) {
      prompts.push_back(random_tokens(vocabulary, 20 + 13 * i, 20 + i));
      want.push_back(reference_logits(name, arithmetic, prompts.back()));
    }
    Driver driver(
        create_cpu_runner(load_fixture(name), options_for(arithmetic, 2, available_isas().back())).value(),
        {KvStorageKind::kPaged, 16, true, false}, 256);
    std::vector<Logits> found(4);
    std::vector<size_t> at(4, 0);
    std::mt19937 random(3);
    for (int i = 0; i < 4; ++i) driver.add_sequence();
    for (bool working = true; working;) {
      working = false;
      std::vector<Driver::Feed> feeds;
      for (size_t i = 0; i < 4; ++i) {
        const size_t left = prompts[i].size() - at[i];
        if (left == 0) continue;
        working = true;
        const size_t count = std::min<size_t>(left, random() % 6);
        if (count == 0) continue;
        feeds.push_back({static_cast<int>(i), std::span(prompts[i]).subspan(at[i], count), 0});
      }
      size_t row = 0;
      const Logits rows = driver.step(feeds);
      for (const Driver::Feed& feed : feeds) {
        const size_t i = static_cast<size_t>(feed.sequence);
        at[i] += feed.tokens.size();
        for (size_t k = 0; k < feed.tokens.size(); ++k) found[i].push_back(rows[row++]);
      }
    }
    for (size_t i = 0; i < 4; ++i) ASSERT_EQ(difference(want[i], found[i]), "") << name << ", sequence " << i;
  }
}

TEST(Parity, AnUnknownInstructionSetIsAnErrorThatListsThoseAvailable) {
  RunnerOptions options;
  options.isa = "mmx";
  const auto runner = create_cpu_runner(load_fixture("llama"), options);
  ASSERT_FALSE(runner.ok());
  EXPECT_EQ(runner.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_NE(runner.error().to_string().find("scalar"), std::string::npos);
}

}  // namespace
}  // namespace mlxcel::golden
