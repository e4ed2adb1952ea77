// On every fixture model: requests through scheduler and engine, in every way that could matter, give the
// tokens of the same request alone on dense storage, and every bit of the logits that they were chosen from.
// A way whose counter did not move proves nothing and fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <deque>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "base/file.h"
#include "engine_parity/rig.h"

namespace mlxcel::engine_parity {
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

// Ways that a model's state does not allow, with the reason; printed at the end, so that nobody takes them
// for tested.
std::map<std::string, int>& skipped_ways() {
  static std::map<std::string, int> counts;
  return counts;
}

Tokens random_tokens(int64_t vocabulary, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Tokens ids;
  for (size_t i = 0; i < count; ++i)
    ids.push_back(static_cast<TokenId>(random() % static_cast<uint64_t>(vocabulary)));
  return ids;
}

// Where a rope changes its factors with the length: sequences that cross it compute their rows again.
std::optional<int64_t> rope_border(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (attention != nullptr && attention->rope.kind == RopeKind::kLongRope)
      return attention->rope.original_max_position;
  }
  return std::nullopt;
}

class EngineParity : public testing::TestWithParam<std::string> {
 protected:
  EngineParity() : model_(GetParam()) {}

  Ask greedy(size_t length, uint32_t seed) {
    Ask ask;
    ask.prompt = random_tokens(model_.spec().vocab_size, length, seed);
    return ask;
  }
  Ask drawn(size_t length, uint32_t seed) {
    Ask ask = greedy(length, seed);
    ask.sampling.temperature = 1.0f;
    ask.sampling.seed = seed;
    return ask;
  }
  // Draws from three tokens only, so that their pairs come again soon and prompt lookup is right about as
  // often as wrong. The logits are those of any other request.
  Ask repetitive(size_t length, uint32_t seed) {
    Ask ask = drawn(length, seed);
    ask.max_tokens = 24;
    for (const TokenId id : {5, 9, 17}) ask.sampling.logit_bias.emplace_back(id, 1000.0f);
    return ask;
  }
  // One drawn and one greedy request, and one that crosses the border of a rope where the model has one.
  std::vector<Ask> base() {
    std::vector<Ask> asks = {greedy(37, 1), drawn(20, 2)};
    const std::optional<int64_t> border = rope_border(model_.spec());
    if (border && *border < 200)
      asks.push_back(drawn(static_cast<size_t>(std::max<int64_t>(1, *border - 2)), 3));
    return asks;
  }

  std::vector<Ask> chaotic_asks(std::mt19937& random) {
    const Tokens common = random_tokens(model_.spec().vocab_size, 60, 71);
    std::vector<Ask> asks = base();
    for (uint32_t i = 0; i < 14; ++i) {
      const auto seed = static_cast<uint32_t>(random() % 100000);
      const size_t length = 1 + random() % 50, shared = std::min<size_t>(length, random() % 60);
      Ask ask = i % 3 == 0 ? greedy(length, seed) : repetitive(length, seed);
      std::copy_n(common.begin(), shared, ask.prompt.begin());
      if (i % 3 != 0) ask.max_tokens = 40;
      ask.step = static_cast<int64_t>(random() % 12);
      if (i >= 12) ask.cancel_after_tokens = 2;
      asks.push_back(ask);
    }
    return asks;
  }

  const Told& alone(const Ask& ask) {
    for (const auto& [known, told] : alone_) {
      if (known.prompt == ask.prompt && known.max_tokens == ask.max_tokens &&
          known.sampling.temperature == ask.sampling.temperature &&
          known.sampling.seed == ask.sampling.seed &&
          known.sampling.choice_index == ask.sampling.choice_index &&
          known.sampling.logit_bias == ask.sampling.logit_bias)
        return told;
    }
    alone_.emplace_back(ask, lone(model_, ask));
    return alone_.back().second;
  }

  Outcome check(const Way& way, const std::vector<Ask>& asks) {
    const Outcome outcome = serve(model_, way, asks);
    for (size_t i = 0; i < asks.size(); ++i) {
      EXPECT_EQ(difference(asks[i], alone(asks[i]), outcome.told[i]), "")
          << GetParam() << ", " << way.name << ", request " << i;
    }
    return outcome;
  }
  bool needs_trim(const std::string& way) {
    if (model_.can_trim()) return true;
    ++skipped_ways()[way + ": the model's state cannot be rewound"];
    return false;
  }

  Model model_;
  std::deque<std::pair<Ask, Told>> alone_;
};

void make_dense(Way& way) { way.engine.storage = KvStorageKind::kDense; }

TEST_P(EngineParity, StorageAndBlockSize) {
  Way dense = plain("dense");
  make_dense(dense);
  check(dense, base());
  for (const int32_t block_size : {1, 8, 16, 32, 64}) {
    Way way = plain("paged, blocks of " + std::to_string(block_size));
    way.engine.block_size = block_size;
    check(way, base());
  }
}

TEST_P(EngineParity, Chunks) {
  for (const int32_t chunk : {1, 7, 16, 64}) {
    Way way = plain("chunks of " + std::to_string(chunk));
    way.scheduler.prefill_chunk = chunk;
    const Outcome outcome = check(way, base());
    EXPECT_GE(outcome.engine.steps, static_cast<uint64_t>(37 / chunk)) << way.name;
  }
}

TEST_P(EngineParity, PaddedPrefill) {
  if (!needs_trim("padded prefill")) return;
  for (const bool dense : {false, true}) {
    for (const int32_t chunk : {512, 7}) {
      Way way =
          plain(std::string(dense ? "dense" : "paged") + ", padded, chunks of " + std::to_string(chunk));
      if (dense) make_dense(way);
      way.engine.force_padded_prefill = true;
      way.scheduler.prefill_chunk = chunk;
      EXPECT_GT(check(way, base()).engine.padded_rows_trimmed, 0u) << way.name;
    }
  }
}

TEST_P(EngineParity, Threads) {
  Way way = plain("2 threads");
  way.num_threads = 2;
  way.engine.max_sequences = 3;
  check(way, base());
}

TEST_P(EngineParity, Mates) {
  std::mt19937 random(7);
  for (const size_t mates : {1u, 3u, 7u}) {
    for (const bool dense : {false, true}) {
      Way way = plain(std::to_string(mates) + " mates, " + (dense ? "dense" : "paged"));
      if (dense) make_dense(way);
      way.engine.max_sequences = static_cast<int64_t>(mates) + 1;
      way.scheduler.prefill_chunk = 16;
      std::vector<Ask> asks = {greedy(37, 1)};
      asks[0].max_tokens = 12;
      for (uint32_t i = 0; i < mates; ++i) {
        asks.push_back(i % 2 == 0 ? drawn(1 + random() % 40, 100 + i) : greedy(1 + random() % 40, 100 + i));
        asks.back().step = random() % 6;
      }
      EXPECT_GT(check(way, asks).most_segments, 1u) << way.name;
    }
  }
}

// The donor's prompt has 2 B + 9 tokens; the followers share their first `shared` tokens and differ there.
TEST_P(EngineParity, PrefixHitsAroundTheBlockSize) {
  const auto vocabulary = static_cast<TokenId>(model_.spec().vocab_size);
  for (const int32_t block : {8, 16, 32, 0}) {
    Way way = plain(block == 0 ? "prefix hits, dense" : "prefix hits, blocks of " + std::to_string(block));
    const int32_t around = block == 0 ? 16 : block;
    way.engine.block_size = around;
    if (block == 0) make_dense(way);
    way.engine.prefix_cache = true;
    way.engine.max_sequences = 8;
    const Ask donor = greedy(static_cast<size_t>(2 * around + 9), 11);
    std::vector<Ask> asks = {donor};
    std::vector<int64_t> cached = {0};
    for (const int64_t shared : {around - 1, around, around + 1, 2 * around}) {
      Ask follower = drawn(donor.prompt.size(), static_cast<uint32_t>(40 + shared));
      std::copy_n(donor.prompt.begin(), shared, follower.prompt.begin());
      TokenId& differs = follower.prompt[static_cast<size_t>(shared)];
      differs = (donor.prompt[static_cast<size_t>(shared)] + 1) % vocabulary;
      asks.push_back(follower);
      cached.push_back(shared);
    }
    Ask whole = drawn(1, 77);
    whole.prompt = donor.prompt;
    asks.push_back(whole);
    cached.push_back(static_cast<int64_t>(donor.prompt.size()) - 1);
    if (!rope_border(model_.spec())) {  // another length, other rows
      whole.prompt.resize(static_cast<size_t>(2 * around));
      asks.push_back(whole);
      cached.push_back(2 * around - 1);
    }
    for (size_t i = 1; i < asks.size(); ++i) {
      asks[i].after = i - 1;
      asks[i].after_its_end = true;
    }
    const Outcome outcome = check(way, asks);
    for (size_t i = 0; i < asks.size(); ++i)
      EXPECT_EQ(outcome.told[i].num_cached, cached[i]) << GetParam() << ", " << way.name << ", request " << i;
    EXPECT_GT(outcome.prefix.hit_tokens, 0u);
  }
}

// Two followers share the donor's half-full block at once and go different ways; then the donor's prompt
// again.
TEST_P(EngineParity, CopyOnWrite) {
  Way way = plain("copy on write");
  way.engine.prefix_cache = true;
  way.engine.max_sequences = 3;
  const Ask donor = greedy(37, 1);
  std::vector<Ask> asks = {donor, drawn(50, 21), greedy(50, 22), drawn(1, 23)};
  for (size_t i = 1; i < 4; ++i) {
    if (i == 3) asks[i].prompt.clear();
    asks[i].prompt.resize(std::max<size_t>(asks[i].prompt.size(), 37));
    std::copy(donor.prompt.begin(), donor.prompt.end(), asks[i].prompt.begin());
    asks[i].after = i == 3 ? 2 : 0;
    asks[i].after_its_end = true;
  }
  const Outcome outcome = check(way, asks);
  EXPECT_GE(outcome.engine.kv_block_copies, 2u) << GetParam();
  EXPECT_GE(outcome.told[1].num_cached, 37) << GetParam();
  EXPECT_GE(outcome.told[2].num_cached, 37) << GetParam();
  EXPECT_EQ(outcome.told[3].num_cached, 36) << GetParam();
}

TEST_P(EngineParity, Preemption) {
  for (const bool has_cache : {false, true}) {
    Way way = plain(std::string("pool too small, ") + (has_cache ? "with" : "without") + " prefix cache");
    way.engine.prefix_cache = has_cache;
    way.engine.max_sequences = 3;
    way.pool_blocks = 7;
    std::vector<Ask> asks = {greedy(37, 1), drawn(37, 31), greedy(30, 32)};
    for (Ask& ask : asks) ask.max_tokens = 14;
    EXPECT_GT(check(way, asks).scheduler.preemptions, 0u) << GetParam() << ", " << way.name;
  }
}

TEST_P(EngineParity, Lookahead) {
  if (!needs_trim("lookahead")) return;
  for (const bool dense : {false, true}) {
    Way way = plain(std::string("lookahead, ") + (dense ? "dense" : "paged"));
    if (dense) make_dense(way);
    way.engine.lookahead = true;
    way.engine.max_sequences = 3;
    const Outcome outcome = check(way, base());
    EXPECT_GT(outcome.engine.lookahead_rows, 0u) << way.name;
    EXPECT_GT(outcome.engine.lookahead_rows_trimmed, 0u) << way.name;
  }
}

TEST_P(EngineParity, Drafts) {
  if (!needs_trim("drafts")) return;
  for (const int32_t most : {2, 4, 8}) {
    Way way = plain("drafts, at most " + std::to_string(most));
    if (most == 4) make_dense(way);
    way.drafts = most;
    way.engine.max_sequences = 3;
    const Outcome outcome = check(way, {repetitive(37, 1), repetitive(9, 41), greedy(20, 42)});
    EXPECT_GT(outcome.engine.accepted_tokens, 0u) << GetParam() << ", " << way.name;
    EXPECT_GT(outcome.rejected_drafts(), 0u) << GetParam() << ", " << way.name;
  }
}

// Choices of one request: the second starts when the first has a token and finds the prompt's rows.
TEST_P(EngineParity, ChoicesShareThePrompt) {
  Way way = plain("choices");
  way.engine.prefix_cache = true;
  way.engine.max_sequences = 3;
  std::vector<Ask> asks(3, drawn(37, 51));
  for (uint32_t i = 1; i < 3; ++i) {
    asks[i].sampling.choice_index = i;
    asks[i].after = 0;
  }
  const Outcome outcome = check(way, asks);
  EXPECT_GE(outcome.told[1].num_cached, 32) << GetParam();
  EXPECT_GE(outcome.told[2].num_cached, 32) << GetParam();
  EXPECT_NE(outcome.told[1].logits, outcome.told[2].logits) << "the choices are one and the same";
}

TEST_P(EngineParity, Forks) {
  Ask first = drawn(37, 61), second = first;
  second.sampling.choice_index = 1;
  for (const bool dense : {false, true}) {
    Way way = plain(std::string("fork, ") + (dense ? "dense" : "paged"));
    if (dense) make_dense(way);
    way.engine.max_sequences = 2;
    const Outcome outcome = serve_forked(model_, way, first, second.sampling);
    EXPECT_EQ(difference(first, alone(first), outcome.told[0]), "") << GetParam() << ", " << way.name;
    EXPECT_EQ(difference(second, alone(second), outcome.told[1]), "") << GetParam() << ", " << way.name;
    if (!dense) {
      EXPECT_GT(outcome.engine.kv_block_copies, 0u) << GetParam();
    }
  }
}

// All of it at once, with requests that come, share prefixes and go.
TEST_P(EngineParity, Chaos) {
  if (!needs_trim("chaos")) return;
  for (const uint32_t seed : {1u, 2u, 3u, 4u}) {
    std::mt19937 random(seed);
    const bool dense = seed % 2 == 0;
    Way way = plain("chaos " + std::to_string(seed) + (dense ? ", dense" : ", paged"));
    if (dense) make_dense(way);
    way.num_threads = 1 + static_cast<int>(random() % 2);
    way.engine.max_sequences = 5;
    way.engine.block_size = 16;
    way.engine.prefix_cache = way.engine.lookahead = true;
    way.engine.force_padded_prefill = true;
    way.engine.padding_multiple = 16;
    way.scheduler.prefill_chunk = 7 + static_cast<int32_t>(random() % 20);
    way.drafts = 4;
    way.pool_blocks = dense ? 0 : 10;
    const std::vector<Ask> asks = chaotic_asks(random);
    const Outcome outcome = check(way, asks);
    const std::string where = GetParam() + ", " + way.name;
    EXPECT_GT(outcome.most_segments, 1u) << where;
    EXPECT_GT(outcome.engine.padded_rows_trimmed, 0u) << where;
    EXPECT_GT(outcome.engine.lookahead_rows_trimmed, 0u) << where;
    EXPECT_GT(outcome.engine.accepted_tokens, 0u) << where;
    EXPECT_GT(outcome.rejected_drafts(), 0u) << where;
    EXPECT_GT(outcome.prefix.hit_tokens, 0u) << where;
    if (!dense) {
      EXPECT_GT(outcome.engine.kv_block_copies, 0u) << where;
      EXPECT_GT(outcome.scheduler.preemptions, 0u) << where;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, EngineParity, testing::ValuesIn(all_fixtures()), [](const auto& fixture) {
  std::string name = fixture.param;
  for (char& c : name) c = (std::isalnum(static_cast<unsigned char>(c)) != 0) ? c : '_';
  return name;
});

class SkipReport : public testing::Environment {
 public:
  void TearDown() override {
    for (const auto& [way, count] : skipped_ways())
      std::cout << "not run on " << count << " fixtures: " << way << "\n";
  }
};
const auto* const kReport = testing::AddGlobalTestEnvironment(new SkipReport);

}  // namespace
}  // namespace mlxcel::engine_parity
