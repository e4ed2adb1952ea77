// Rows that outlive their sequence or are written ahead of the truth: prefix reuse, pre-emption, lookahead,
// drafts. The fake model's logits come from the rows it reads back, so a wrong row changes the text.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "engine/engine.h"
#include "engine/fake_runner_for_tests.h"

namespace mlxcel {
namespace {

using Tokens = std::vector<TokenId>;

EngineOptions options_of(KvStorageKind storage, int32_t block_size = 16) {
  EngineOptions options;
  options.storage = storage;
  options.block_size = block_size;
  options.max_sequences = 4;
  options.prefix_cache = true;
  return options;
}
std::unique_ptr<Engine> make(const EngineOptions& options, FakeRunnerForTests** seen = nullptr) {
  auto runner = std::make_unique<FakeRunnerForTests>(FakeRunnerForTests::Options{});
  if (seen != nullptr) *seen = runner.get();
  return Engine::create(std::move(runner), options).value();
}
Tokens prompt_of(int64_t length, uint64_t seed) {
  std::mt19937_64 random(seed);
  Tokens tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<TokenId>(random() % 61));
  return tokens;
}
SequenceRequest request_of(Tokens prompt, int64_t max_tokens, float temperature = 0.8f) {
  SequenceRequest request;
  request.prompt = std::move(prompt);
  request.stop.max_tokens = max_tokens;
  request.sampling.temperature = temperature;
  request.sampling.seed = 11;
  request.num_logprobs = 2;
  return request;
}
struct Answer {
  Tokens tokens;
  std::vector<float> logprobs;
  friend bool operator==(const Answer&, const Answer&) = default;
};
void take(const StepResult& result, std::map<SequenceId, Answer>& answers) {
  for (const SequenceEvent& e : result.events) {
    EXPECT_FALSE(e.error) << e.error->one_line();
    if (!e.token) continue;
    answers[e.sequence].tokens.push_back(*e.token);
    answers[e.sequence].logprobs.push_back(e.logprobs->chosen);
  }
}
// Steps until the sequence ends; drafts: how many guesses to ask for.
Answer run(Engine& engine, SequenceId id, int32_t drafts = 0) {
  std::map<SequenceId, Answer> answers;
  while (engine.finish_reason(id) == FinishReason::kNone) {
    StepBatch batch;
    const auto missing =
        static_cast<int32_t>(static_cast<int64_t>(engine.tokens(id).size()) - engine.num_computed(id));
    batch.segments.push_back({id, missing, drafts > 0 ? engine.propose_drafts(id, drafts) : 0});
    take(engine.step(batch), answers);
    EXPECT_TRUE(engine.check_integrity().ok());
    const KvUse use = engine.kv_use();
    EXPECT_EQ(use.free + use.held + use.cached, use.total);
  }
  return answers[id];
}
Answer run_cold(const SequenceRequest& request) {
  EngineOptions options = options_of(KvStorageKind::kDense);
  options.prefix_cache = false;
  const auto engine = make(options);
  return run(*engine, engine->add(request).value());
}

class Reuse : public ::testing::TestWithParam<std::pair<KvStorageKind, int32_t>> {
 protected:
  EngineOptions options() const { return options_of(GetParam().first, GetParam().second); }
};

// Every length, multiples of the block size above all: the last token is computed again at its own position.
TEST_P(Reuse, AWholePromptAgainAtEveryLengthGivesTheSameAnswer) {
  for (const int64_t length : {1, 2, 15, 16, 17, 31, 32, 33, 48, 64, 100}) {
    const SequenceRequest request = request_of(prompt_of(length, 3), 20);
    const Answer cold = run_cold(request);
    const auto engine = make(options());
    for (int round = 0; round < 3; ++round) {
      const SequenceId id = engine->add(request).value();
      EXPECT_EQ(engine->adopt_prefix(id), round == 0 ? 0 : length - 1) << length;
      EXPECT_EQ(engine->num_computed(id), round == 0 ? 0 : length - 1);
      EXPECT_EQ(run(*engine, id), cold) << length << " round " << round;
      engine->remove(id);
    }
    EXPECT_EQ(engine->kv_use().held, 0);
    EXPECT_TRUE(engine->reset_prefix_cache().ok());
    EXPECT_EQ(engine->kv_use().free, engine->kv_use().total);
  }
}

TEST_P(Reuse, TheNextTurnFindsTheLastOne) {
  const auto engine = make(options());
  const SequenceRequest first = request_of(prompt_of(45, 5), 10);
  const SequenceId one = engine->add(first).value();
  run(*engine, one);
  Tokens history(engine->tokens(one).begin(), engine->tokens(one).end());
  engine->remove(one);
  const Tokens question = prompt_of(7, 6);
  history.insert(history.end(), question.begin(), question.end());
  const SequenceRequest second = request_of(history, 15);
  const SequenceId two = engine->add(second).value();
  EXPECT_EQ(engine->adopt_prefix(two), 45 + 9);  // all rows that were computed: the last token's was not
  EXPECT_EQ(run(*engine, two), run_cold(second));
}

// Two sequences that share a partly filled block: the second writer copies it.
TEST_P(Reuse, SharersOfAPartlyFilledBlockDoNotSeeEachOther) {
  const auto engine = make(options());
  const Tokens common = prompt_of(100, 7);
  const SequenceId first = engine->add(request_of(common, 4)).value();
  run(*engine, first);
  engine->remove(first);
  std::vector<SequenceRequest> requests;
  for (const uint64_t seed : {8u, 9u}) {
    Tokens prompt = common;
    const Tokens tail = prompt_of(9, seed);
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    requests.push_back(request_of(prompt, 20));
  }
  std::vector<SequenceId> ids;
  for (const SequenceRequest& r : requests) {
    ids.push_back(engine->add(r).value());
    EXPECT_GE(engine->adopt_prefix(ids.back()), 99);
  }
  std::map<SequenceId, Answer> answers;
  while (engine->finish_reason(ids[0]) == FinishReason::kNone) {
    StepBatch batch;
    for (const SequenceId id : ids) {
      batch.segments.push_back(
          {id,
           static_cast<int32_t>(static_cast<int64_t>(engine->tokens(id).size()) - engine->num_computed(id)),
           0});
    }
    take(engine->step(batch), answers);
    ASSERT_TRUE(engine->check_integrity().ok());
  }
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(answers[ids[i]], run_cold(requests[i]));
  const SequenceId again = engine->add(request_of(common, 4)).value();
  engine->adopt_prefix(again);
  EXPECT_EQ(run(*engine, again), run_cold(request_of(common, 4)));
}

TEST_P(Reuse, SaltsAndRequestsThatWantNothingShared) {
  const auto engine = make(options());
  SequenceRequest a = request_of(prompt_of(40, 12), 3);
  a.cache_salt = "tenant a";
  const SequenceId one = engine->add(a).value();
  run(*engine, one);
  engine->remove(one);
  SequenceRequest b = a;
  b.cache_salt = "tenant b";
  EXPECT_EQ(engine->adopt_prefix(engine->add(b).value()), 0);
  SequenceRequest c = a;
  c.use_prefix_cache = false;
  EXPECT_EQ(engine->adopt_prefix(engine->add(c).value()), 0);
  EXPECT_EQ(engine->adopt_prefix(engine->add(a).value()), 39);
}

TEST_P(Reuse, PreemptionAtAnyStepChangesNothing) {
  const SequenceRequest request = request_of(prompt_of(37, 13), 30);
  const Answer cold = run_cold(request);
  for (int at = 0; at < 30; at += 3) {
    for (const bool uses_cache : {true, false}) {
      EngineOptions o = options();
      o.prefix_cache = uses_cache;
      const auto engine = make(o);
      const SequenceId id = engine->add(request).value();
      std::map<SequenceId, Answer> answers;
      for (int step = 0; engine->finish_reason(id) == FinishReason::kNone; ++step) {
        if (step == at) {
          engine->drop_rows(id);
          EXPECT_EQ(engine->num_computed(id), 0);
          engine->adopt_prefix(id);
        }
        StepBatch batch;
        batch.segments.push_back(
            {id,
             static_cast<int32_t>(static_cast<int64_t>(engine->tokens(id).size()) - engine->num_computed(id)),
             0});
        take(engine->step(batch), answers);
      }
      EXPECT_EQ(answers[id], cold) << at;
    }
  }
}

TEST_P(Reuse, LookaheadChangesNothingAndIsUnwound) {
  for (const float temperature : {0.0f, 1.0f}) {
    SequenceRequest request = request_of(prompt_of(37, 17), 25, temperature);
    const Answer cold = run_cold(request);
    EngineOptions o = options();
    o.lookahead = true;
    FakeRunnerForTests* runner = nullptr;
    const auto engine = make(o, &runner);
    const SequenceId id = engine->add(request).value();
    EXPECT_EQ(run(*engine, id), cold);
    EXPECT_EQ(engine->counters().lookahead_rows_trimmed,
              1u);  // the row of the last token, which nobody wanted
    EXPECT_GE(engine->counters().lookahead_rows, 25u);
    EXPECT_EQ(engine->num_computed(id), 37 + 24);
    engine->remove(id);
    // What was donated is true: a follow-up that contains the answer is computed as if cold.
    SequenceRequest next = request;
    next.prompt.insert(next.prompt.end(), cold.tokens.begin(), cold.tokens.end());
    next.prompt.push_back(1);
    const SequenceId two = engine->add(next).value();
    EXPECT_EQ(engine->adopt_prefix(two), 37 + 24);
    EXPECT_EQ(run(*engine, two), run_cold(next));
  }
}

TEST_P(Reuse, ARowOfLookaheadGivesWayToEverythingElse) {
  EngineOptions o = options();
  o.lookahead = true;
  const SequenceRequest request = request_of(prompt_of(20, 19), 30);
  const Answer cold = run_cold(request);
  std::mt19937_64 random(4);
  const auto engine = make(o);
  const SequenceId id = engine->add(request).value();
  std::map<SequenceId, Answer> answers;
  while (engine->finish_reason(id) == FinishReason::kNone) {
    switch (random() % 4) {
      case 0: {
        engine->drop_rows(id);
        engine->adopt_prefix(id);
        break;
      }
      case 1: {
        const auto copy = engine->fork(id, request.sampling);
        ASSERT_TRUE(copy.ok());
        EXPECT_TRUE(engine->check_integrity().ok());
        engine->remove(*copy);
        break;
      }
      default:
        break;
    }
    StepBatch batch;
    const auto missing =
        static_cast<int32_t>(static_cast<int64_t>(engine->tokens(id).size()) - engine->num_computed(id));
    batch.segments.push_back({id, missing, 0});
    take(engine->step(batch), answers);
    ASSERT_TRUE(engine->check_integrity().ok());
  }
  EXPECT_EQ(answers[id], cold);
}

// With two tokens in the vocabulary every second guess is right: several tokens come from one step, the
// rows of wrong guesses are trimmed, and nothing else changes.
TEST_P(Reuse, DraftsChangeNothingAndRejectedRowsAreTrimmed) {
  Tokens prompt = prompt_of(30, 23);
  for (TokenId& id : prompt) id %= 2;
  const auto make_small = [](const EngineOptions& o) {
    FakeRunnerForTests::Options small;
    small.vocab_size = 2;
    return Engine::create(std::make_unique<FakeRunnerForTests>(small), o).value();
  };
  for (const float temperature : {0.0f, 1.0f}) {
    SequenceRequest request = request_of(prompt, 200, temperature);
    request.num_logprobs = 1;
    EngineOptions plain = options_of(KvStorageKind::kDense);
    plain.prefix_cache = false;
    const auto reference = make_small(plain);
    const Answer cold = run(*reference, reference->add(request).value());
    for (const int32_t drafts : {1, 2, 4, 8}) {
      for (const bool lookahead : {false, true}) {
        EngineOptions o = options();
        o.lookahead = lookahead;
        const auto engine = make_small(o);
        const SequenceId id = engine->add(request).value();
        EXPECT_EQ(run(*engine, id, drafts), cold) << temperature << " " << drafts;
        EXPECT_GT(engine->counters().accepted_tokens, 20u);
        EXPECT_LT(engine->counters().accepted_tokens, engine->counters().draft_tokens);
        EXPECT_LT(engine->counters().steps, reference->counters().steps);
        EXPECT_EQ(engine->num_computed(id), static_cast<int64_t>(engine->tokens(id).size()) - 1);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Storages, Reuse,
    ::testing::Values(std::pair{KvStorageKind::kDense, 16}, std::pair{KvStorageKind::kPaged, 1},
                      std::pair{KvStorageKind::kPaged, 8}, std::pair{KvStorageKind::kPaged, 16},
                      std::pair{KvStorageKind::kPaged, 32}),
    [](const auto& tested) {
      return std::string(tested.param.first == KvStorageKind::kDense ? "Dense" : "Paged") +
             std::to_string(tested.param.second);
    });

// A pool that is too small for the copy of a partial tail: whole blocks only, and the sequence still ends.
TEST(ReuseInASmallPool, ASequenceAloneAlwaysFinishes) {
  EngineOptions options = options_of(KvStorageKind::kPaged, 16);
  options.context_length = 64;
  options.max_sequences = 1;
  const auto engine = make(options);
  const SequenceRequest request = request_of(prompt_of(40, 29), -1);
  Answer first;
  for (int round = 0; round < 3; ++round) {
    const SequenceId id = engine->add(request).value();
    engine->adopt_prefix(id);
    const Answer answer = run(*engine, id);
    if (round == 0) first = answer;
    EXPECT_EQ(answer, first);
    EXPECT_EQ(engine->finish_reason(id), FinishReason::kContext);
    engine->remove(id);
  }
}

}  // namespace
}  // namespace mlxcel
