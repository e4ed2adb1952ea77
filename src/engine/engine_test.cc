#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "base/log.h"
#include "engine/fake_runner_for_tests.h"

namespace mlxcel {
namespace {

using Tokens = std::vector<TokenId>;

// Collects log lines at debug level while it lives.
class LogCapture {
 public:
  LogCapture() : level_(log_level()) {
    set_log_level(LogLevel::kDebug);
    set_log_sink([this](LogLevel, std::string_view line) { lines_.emplace_back(line); });
  }
  ~LogCapture() {
    set_log_sink({});
    set_log_level(level_);
  }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;
  bool has(std::string_view line) const {
    return std::find(lines_.begin(), lines_.end(), line) != lines_.end();
  }

 private:
  LogLevel level_;
  std::vector<std::string> lines_;
};

struct Rig {
  EngineOptions engine;
  FakeRunnerForTests::Options runner;
};
struct Made {
  std::unique_ptr<Engine> engine;
  FakeRunnerForTests* runner = nullptr;
};
Made make(const Rig& rig) {
  auto runner = std::make_unique<FakeRunnerForTests>(rig.runner);
  FakeRunnerForTests* seen = runner.get();
  return {Engine::create(std::move(runner), rig.engine).value(), seen};
}
Rig rig_of(KvStorageKind storage, int64_t max_sequences = 8, int32_t block_size = 16) {
  Rig rig;
  rig.engine.storage = storage;
  rig.engine.max_sequences = max_sequences;
  rig.engine.block_size = block_size;
  return rig;
}

Tokens prompt_of(int64_t length, uint64_t seed) {
  std::mt19937_64 random(seed);
  Tokens tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<TokenId>(random() % 61));
  return tokens;
}
SequenceRequest request_of(Tokens prompt, int64_t max_tokens, float temperature = 0.0f, uint64_t seed = 0) {
  SequenceRequest request;
  request.prompt = std::move(prompt);
  request.stop.max_tokens = max_tokens;
  request.sampling.temperature = temperature;
  request.sampling.seed = seed;
  return request;
}

SequenceEvent step_one(Engine& engine, SequenceId id, int64_t num_tokens) {
  StepBatch batch;
  batch.segments.push_back({id, static_cast<int32_t>(num_tokens)});
  return engine.step(batch).events.at(0);
}
int64_t uncomputed(const Engine& engine, SequenceId id) {
  return static_cast<int64_t>(engine.tokens(id).size()) - engine.num_computed(id);
}
// Runs one sequence to its end with prompts cut into chunks; returns the generated tokens.
Tokens run_to_end(Engine& engine, SequenceId id, int64_t chunk = 1 << 20) {
  Tokens generated;
  while (engine.finish_reason(id) == FinishReason::kNone) {
    const SequenceEvent event = step_one(engine, id, std::min(chunk, uncomputed(engine, id)));
    EXPECT_FALSE(event.error) << event.error->one_line();
    if (event.error) break;
    if (event.token) generated.push_back(*event.token);
    EXPECT_TRUE(engine.check_integrity().ok());
  }
  return generated;
}
Tokens run_alone(const Rig& rig, const SequenceRequest& request, int64_t chunk = 1 << 20) {
  Made made = make(rig);
  return run_to_end(*made.engine, made.engine->add(request).value(), chunk);
}

TEST(Engine, ChunksStoragesBlockSizesAndPaddingChangeNothing) {
  const SequenceRequest request = request_of(prompt_of(37, 1), 40, 0.9f, 5);
  const Tokens expected = run_alone(rig_of(KvStorageKind::kDense), request);
  ASSERT_EQ(expected.size(), 40u);
  for (const KvStorageKind storage : {KvStorageKind::kDense, KvStorageKind::kPaged}) {
    for (const int32_t block_size : {1, 3, 16, 32, 256}) {
      for (const bool padded : {false, true}) {
        for (const int64_t chunk : {1, 5, 16, 32, 37}) {
          Rig rig = rig_of(storage, 2, block_size);
          rig.engine.force_padded_prefill = padded;
          EXPECT_EQ(run_alone(rig, request, chunk), expected) << block_size << " " << padded << " " << chunk;
        }
      }
    }
  }
}

// A padded prompt once left its padding visible: the first decode then saw 65 rows instead of 38.
TEST(Engine, A37TokenPromptDecodesItsFirstTokenOver38Rows) {
  for (const KvStorageKind storage : {KvStorageKind::kDense, KvStorageKind::kPaged}) {
    const std::string kind = storage == KvStorageKind::kPaged ? "paged" : "dense";
    Tokens tokens;
    for (const bool padded : {false, true}) {
      Rig rig = rig_of(storage, 1, 32);
      rig.engine.force_padded_prefill = padded;
      Made made = make(rig);
      const LogCapture log;
      const SequenceId id = made.engine->add(request_of(prompt_of(37, 2), 2)).value();
      const Tokens generated = run_to_end(*made.engine, id);
      EXPECT_TRUE(log.has(kind + " decode: 38 visible KV tokens across 1 request(s)"));
      EXPECT_EQ(made.runner->last_segments().at(0).length, 38);
      EXPECT_EQ(made.engine->counters().padded_rows_trimmed, padded ? 27u : 0u);
      if (tokens.empty()) tokens = generated;
      EXPECT_EQ(generated, tokens);
    }
  }
}

TEST(Engine, TheRunnersOwnMultiplePadsUnlessItCannotTrimOrItIsTurnedOff) {
  const auto trimmed = [](Rig rig) {
    Made made = make(rig);
    run_to_end(*made.engine, made.engine->add(request_of(prompt_of(37, 2), 3)).value());
    return made.engine->counters().padded_rows_trimmed;
  };
  Rig rig = rig_of(KvStorageKind::kPaged);
  rig.runner.preferred_row_multiple = 16;
  EXPECT_EQ(trimmed(rig), 11u);
  rig.engine.force_padded_prefill = false;
  EXPECT_EQ(trimmed(rig), 0u);
  rig.engine.force_padded_prefill = true;  // to 32
  EXPECT_EQ(trimmed(rig), 27u);
  rig.runner.can_trim = false;
  EXPECT_EQ(trimmed(rig), 0u);
}

TEST(Engine, PaddingNeverTakesTheLastBlockNorLeavesTheContext) {
  Rig rig = rig_of(KvStorageKind::kPaged, 1, 16);
  rig.engine.context_length = 48;
  rig.engine.force_padded_prefill = true;
  {
    Made made = make(rig);  // 3 blocks: 33 rows take all of them, padding to 64 would not fit
    const SequenceId id = made.engine->add(request_of(prompt_of(33, 3), 2)).value();
    EXPECT_EQ(run_to_end(*made.engine, id).size(), 2u);
    EXPECT_EQ(made.engine->counters().padded_rows_trimmed, 0u);
  }
  rig.engine.context_length = 64;
  rig.engine.kv_bytes = 2 * 16 * FakeRunnerForTests(rig.runner).kv_layout().bytes_per_row();
  Made made = make(rig);  // 2 blocks: padding 5 rows to 32 would take the last one
  EXPECT_EQ(made.engine->kv_capacity_rows(), 32);
  const SequenceId id = made.engine->add(request_of(prompt_of(5, 3), 2)).value();
  EXPECT_EQ(run_to_end(*made.engine, id).size(), 2u);
  EXPECT_EQ(made.engine->counters().padded_rows_trimmed, 0u);
}

TEST(Engine, ARaggedBatchEqualsLoneRuns) {
  for (const KvStorageKind storage : {KvStorageKind::kDense, KvStorageKind::kPaged}) {
    const Rig rig = rig_of(storage);
    std::vector<SequenceRequest> requests;
    for (const int64_t length : {19, 24, 30, 31, 1, 200, 16}) {
      requests.push_back(request_of(prompt_of(length, static_cast<uint64_t>(length)), 12,
                                    length % 2 == 0 ? 0.0f : 0.8f, static_cast<uint64_t>(length)));
    }
    requests[1].sampling.frequency_penalty = 1.05f;
    Made made = make(rig);
    std::vector<SequenceId> ids;
    for (const SequenceRequest& request : requests) ids.push_back(made.engine->add(request).value());
    std::map<SequenceId, Tokens> generated;
    while (true) {
      StepBatch batch;
      for (const SequenceId id : ids) {
        if (made.engine->finish_reason(id) != FinishReason::kNone) continue;
        batch.segments.push_back({id, static_cast<int32_t>(uncomputed(*made.engine, id))});
      }
      if (batch.segments.empty()) break;
      for (const SequenceEvent& event : made.engine->step(batch).events) {
        if (event.token) generated[event.sequence].push_back(*event.token);
      }
    }
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(generated[ids[i]], run_alone(rig, requests[i])) << i;
  }
}

// Any interleaving of chunks, decode rows, forks, failures and removals gives each sequence its lone tokens.
TEST(Engine, RandomInterleavingsGiveTheLoneTokens) {
  uint64_t num_padded = 0, num_copies = 0, num_errors = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto pick = [&](uint64_t below) { return static_cast<int64_t>(random() % below); };
    const int32_t block_sizes[] = {1, 4, 16, 32};
    Rig rig = rig_of(seed % 3 == 0 ? KvStorageKind::kDense : KvStorageKind::kPaged, 6, block_sizes[pick(4)]);
    rig.engine.context_length = 90;
    rig.engine.padding_multiple = 8;
    rig.engine.force_padded_prefill = pick(2) == 0;
    rig.runner.rope_border = pick(2) * 30;
    if (seed % 3 == 1) {  // a pool that runs out
      rig.engine.kv_bytes = 200 * FakeRunnerForTests(rig.runner).kv_layout().bytes_per_row();
    }
    Made made = make(rig);
    Engine& engine = *made.engine;
    std::map<SequenceId, SequenceRequest> running;
    for (int step = 0; step < 120; ++step) {
      if (running.size() < 4 && pick(3) == 0) {
        const SequenceRequest request =
            request_of(prompt_of(1 + pick(50), random()), 1 + pick(30), 0.9f, random());
        const Result<SequenceId> id = engine.add(request);
        ASSERT_TRUE(id.ok());
        running.emplace(*id, request);
      }
      if (!running.empty() && pick(12) == 0) {
        const auto source = std::next(running.begin(), pick(running.size()));
        if (engine.finish_reason(source->first) == FinishReason::kNone) {
          const Result<SequenceId> id = engine.fork(source->first, source->second.sampling);
          if (id.ok()) running.emplace(*id, source->second);
        }
      }
      if (pick(15) == 0) made.runner->fail_next_waits(1);
      StepBatch batch;
      for (const auto& [id, request] : running) {
        if (engine.finish_reason(id) != FinishReason::kNone || pick(4) == 0) continue;
        batch.segments.push_back(
            {id, static_cast<int32_t>(1 + pick(static_cast<uint64_t>(uncomputed(engine, id))))});
      }
      for (const SequenceEvent& event : engine.step(batch).events) num_errors += event.error ? 1 : 0;
      ASSERT_TRUE(engine.check_integrity().ok()) << engine.check_integrity().error().one_line();
      for (auto it = running.begin(); it != running.end();) {
        const Tokens tokens(engine.tokens(it->first).begin(), engine.tokens(it->first).end());
        const bool is_done = engine.finish_reason(it->first) != FinishReason::kNone || pick(40) == 0;
        if (is_done) {
          Rig alone = rig_of(KvStorageKind::kDense, 1);
          alone.engine.context_length = rig.engine.context_length;
          alone.runner.rope_border = rig.runner.rope_border;
          Tokens expected = it->second.prompt;
          for (const TokenId token : run_alone(alone, it->second)) expected.push_back(token);
          ASSERT_LE(tokens.size(), expected.size());
          expected.resize(tokens.size());
          ASSERT_EQ(tokens, expected);
          engine.remove(it->first);
        }
        it = is_done ? running.erase(it) : std::next(it);
      }
    }
    for (const auto& [id, request] : running) engine.remove(id);
    if (engine.block_pool() != nullptr) {
      EXPECT_EQ(engine.block_pool()->num_in_use(), 0);
    } else {
      EXPECT_EQ(engine.kv_bytes(), 0);
    }
    num_padded += engine.counters().padded_rows_trimmed;
    num_copies += engine.counters().kv_block_copies;
  }
  EXPECT_GT(num_padded, 0u);  // the paths under test really ran
  EXPECT_GT(num_copies, 0u);
  EXPECT_GT(num_errors, 0u);
}

TEST(Engine, AFailedStepLeavesEverythingAsItWas) {
  for (const KvStorageKind storage : {KvStorageKind::kDense, KvStorageKind::kPaged}) {
    for (const bool padded : {false, true}) {
      Rig rig = rig_of(storage);
      rig.engine.force_padded_prefill = padded;
      const SequenceRequest request = request_of(prompt_of(37, 4), 10, 0.7f, 3);
      const Tokens expected = run_alone(rig, request);
      Made made = make(rig);
      const SequenceId id = made.engine->add(request).value();
      Tokens generated;
      while (made.engine->finish_reason(id) == FinishReason::kNone) {
        const int64_t before = made.engine->num_computed(id);
        made.runner->fail_next_waits(1);
        const SequenceEvent failed = step_one(*made.engine, id, uncomputed(*made.engine, id));
        EXPECT_EQ(failed.finish, FinishReason::kError);
        EXPECT_EQ(failed.error->what, "injected failure");
        EXPECT_FALSE(failed.token);
        EXPECT_EQ(made.engine->num_computed(id), before);
        EXPECT_EQ(made.engine->finish_reason(id), FinishReason::kNone);
        EXPECT_TRUE(made.engine->check_integrity().ok());
        generated.push_back(*step_one(*made.engine, id, uncomputed(*made.engine, id)).token);
      }
      EXPECT_EQ(generated, expected);
    }
  }
}

TEST(Engine, ARowThatFindsNoBlocksFailsAlone) {
  Rig rig = rig_of(KvStorageKind::kPaged, 4, 16);
  rig.engine.kv_bytes = 4 * 16 * FakeRunnerForTests(rig.runner).kv_layout().bytes_per_row();
  Made made = make(rig);
  const SequenceId large = made.engine->add(request_of(prompt_of(40, 5), 8)).value();
  const SequenceId second = made.engine->add(request_of(prompt_of(40, 6), 8)).value();
  const SequenceId small = made.engine->add(request_of(prompt_of(9, 7), 8)).value();
  StepBatch batch{{{large, 40}, {second, 40}, {small, 9}}};
  const StepResult result = made.engine->step(batch);
  EXPECT_TRUE(result.events[0].token);
  EXPECT_EQ(result.events[1].error->kind, ErrorKind::kResourceExhausted);
  EXPECT_EQ(made.engine->num_computed(second), 0);
  EXPECT_TRUE(result.events[2].token);
  made.engine->remove(large);
  EXPECT_TRUE(step_one(*made.engine, second, 40).token);  // it was not harmed
}

TEST(Engine, NanLogitsAreThatRowsError) {
  for (const float temperature : {0.0f, 0.8f}) {
    Rig rig = rig_of(KvStorageKind::kPaged);
    rig.runner.nan_token = 60;
    Made made = make(rig);
    const SequenceId bad = made.engine->add(request_of({1, 2, 60}, 5, temperature)).value();
    const SequenceId good = made.engine->add(request_of({1, 2, 3}, 5, temperature)).value();
    const StepResult result = made.engine->step({{{bad, 3}, {good, 3}}});
    EXPECT_EQ(result.events[0].error->what, "no token can be chosen");
    EXPECT_FALSE(result.events[0].token);
    EXPECT_EQ(made.engine->num_computed(bad), 0);
    EXPECT_TRUE(result.events[1].token);
    EXPECT_TRUE(made.engine->check_integrity().ok());
  }
}

TEST(Engine, StopRules) {
  const Rig rig = rig_of(KvStorageKind::kPaged);
  SequenceRequest request = request_of(prompt_of(10, 8), 30);
  const Tokens free_run = run_alone(rig, request);
  const TokenId third = free_run[2];
  const auto first_of = [](const Tokens& tokens, TokenId id) {
    return static_cast<size_t>(std::find(tokens.begin(), tokens.end(), id) - tokens.begin());
  };
  const auto reason_and_tokens = [&](const SequenceRequest& asked) {
    Made made = make(rig);
    const SequenceId id = made.engine->add(asked).value();
    Tokens tokens = run_to_end(*made.engine, id);
    return std::pair(made.engine->finish_reason(id), tokens);
  };
  const auto [max_reason, max_tokens] = reason_and_tokens(request);
  EXPECT_EQ(max_reason, FinishReason::kMaxTokens);
  EXPECT_EQ(max_tokens.size(), 30u);

  request.stop.eos_ids = {third, 9999};  // an id beyond the vocabulary does no harm
  const auto [eos_reason, eos_tokens] = reason_and_tokens(request);
  EXPECT_EQ(eos_reason, FinishReason::kEos);
  EXPECT_EQ(eos_tokens.size(), first_of(free_run, third) + 1);

  request.stop.max_tokens = static_cast<int64_t>(eos_tokens.size());  // both at once: EOS comes first
  EXPECT_EQ(reason_and_tokens(request).first, FinishReason::kEos);
  request.stop.max_tokens = 30;

  request.stop.ignore_eos = true;
  const auto [ignored_reason, ignored_tokens] = reason_and_tokens(request);
  EXPECT_EQ(ignored_reason, FinishReason::kMaxTokens);
  EXPECT_EQ(first_of(ignored_tokens, third), ignored_tokens.size());
  request.stop.ignore_eos = false;

  request.stop.min_tokens = 20;
  const auto [min_reason, min_tokens] = reason_and_tokens(request);
  EXPECT_GE(min_tokens.size(), 20u);
  for (size_t i = 0; i < 20; ++i) EXPECT_NE(min_tokens[i], third);
  request.stop.min_tokens = 0;

  request.stop.eos_ids.clear();
  request.stop.stop_token_ids = {third};
  const auto [stop_reason, stop_tokens] = reason_and_tokens(request);
  EXPECT_EQ(stop_reason, FinishReason::kStopToken);
  EXPECT_EQ(stop_tokens, eos_tokens);
}

TEST(Engine, TheContextEndsASequence) {
  for (const KvStorageKind storage : {KvStorageKind::kDense, KvStorageKind::kPaged}) {
    Rig rig = rig_of(storage);
    rig.engine.context_length = 40;
    Made made = make(rig);
    const SequenceId id = made.engine->add(request_of(prompt_of(33, 9), -1)).value();
    EXPECT_EQ(run_to_end(*made.engine, id).size(), 7u);
    EXPECT_EQ(made.engine->finish_reason(id), FinishReason::kContext);
    EXPECT_EQ(made.engine->tokens(id).size(), 40u);
    EXPECT_TRUE(made.engine->add(request_of(prompt_of(39, 9), -1)).ok());
    const Result<SequenceId> refused = made.engine->add(request_of(prompt_of(40, 9), -1));
    EXPECT_EQ(refused.error().what, "context_length_exceeded");
    EXPECT_EQ(refused.error().kind, ErrorKind::kInvalidArgument);
    EXPECT_NE(refused.error().expected.find("40"), std::string::npos);
    EXPECT_EQ(refused.error().found, "41");
    EXPECT_TRUE(made.engine->add(request_of(prompt_of(40, 9), 0)).ok());  // no answer wanted: it fits
  }
}

TEST(Engine, BadRequestsAreErrorsThatNameTheField) {
  Made made = make(rig_of(KvStorageKind::kPaged, 2));
  const auto where = [&](auto change) {
    SequenceRequest request = request_of({1, 2, 3}, 5);
    change(request);
    const Result<SequenceId> id = made.engine->add(std::move(request));
    return id.ok() ? std::string() : id.error().where;
  };
  EXPECT_EQ(where([](SequenceRequest& r) { r.prompt.clear(); }), "prompt");
  EXPECT_EQ(where([](SequenceRequest& r) { r.prompt[1] = 61; }), "token 1");
  EXPECT_EQ(where([](SequenceRequest& r) { r.prompt[2] = -1; }), "token 2");
  EXPECT_EQ(where([](SequenceRequest& r) { r.sampling.temperature = NAN; }), "temperature");
  EXPECT_EQ(where([](SequenceRequest& r) { r.sampling.logit_bias = {{61, 1.0f}}; }), "logit_bias");
  EXPECT_EQ(where([](SequenceRequest& r) { r.num_logprobs = -2; }), "logprobs");
  EXPECT_EQ(where([](SequenceRequest& r) { r.stop.max_tokens = -2; }), "max_tokens, min_tokens");
  EXPECT_TRUE(made.engine->add(request_of({1}, 5)).ok());
  EXPECT_TRUE(made.engine->add(request_of({1}, 5)).ok());
  EXPECT_EQ(made.engine->add(request_of({1}, 5)).error().kind, ErrorKind::kResourceExhausted);
}

TEST(Engine, BadOptionsAreErrors) {
  const auto create = [](auto change) {
    Rig rig = rig_of(KvStorageKind::kPaged);
    change(rig);
    return Engine::create(std::make_unique<FakeRunnerForTests>(rig.runner), rig.engine).ok();
  };
  EXPECT_TRUE(create([](Rig&) {}));
  EXPECT_FALSE(create([](Rig& s) { s.engine.block_size = 0; }));
  EXPECT_FALSE(create([](Rig& s) { s.engine.block_size = 257; }));
  EXPECT_FALSE(create([](Rig& s) { s.engine.max_sequences = 0; }));
  EXPECT_FALSE(create([](Rig& s) { s.engine.max_sequences = int64_t{1} << 40; }));
  EXPECT_FALSE(create([](Rig& s) { s.engine.context_length = -1; }));
  EXPECT_FALSE(create([](Rig& s) { s.engine.context_length = int64_t{1} << 50; }));
  EXPECT_FALSE(create([](Rig& s) { s.engine.kv_bytes = 1; }));
  EXPECT_FALSE(create([](Rig& s) { s.engine.padding_multiple = 0; }));
  EXPECT_FALSE(create([](Rig& s) {
    s.engine.context_length = int64_t{1} << 29;
    s.engine.max_sequences = 64;
  }));
}

TEST(Engine, LogprobsAndPromptLogits) {
  for (const bool padded : {false, true}) {
    Rig rig = rig_of(KvStorageKind::kPaged);
    rig.engine.force_padded_prefill = padded;
    SequenceRequest request = request_of(prompt_of(20, 10), 4);
    request.num_logprobs = 3;
    request.wants_prompt_logits = true;
    Made made = make(rig);
    const SequenceId id = made.engine->add(request).value();
    std::vector<float> logits;
    for (const int64_t chunk : {7, 12, 1}) {
      const SequenceEvent event = step_one(*made.engine, id, chunk);
      EXPECT_EQ(event.first_logits_position, static_cast<int64_t>(logits.size()) / 61);
      EXPECT_EQ(event.logits.size(), static_cast<size_t>(chunk * 61));
      logits.insert(logits.end(), event.logits.begin(), event.logits.end());
      if (!event.token) continue;
      const std::span<const float> last = std::span(event.logits).last(61);
      EXPECT_EQ(event.logprobs->top.size(), 3u);
      EXPECT_EQ(event.logprobs->top[0].token, *event.token);
      EXPECT_EQ(event.logprobs->chosen, compute_logprobs(last, *event.token, 0).chosen);
    }
    Made whole = make(rig);
    const SequenceId whole_id = whole.engine->add(request).value();
    const SequenceEvent at_once = step_one(*whole.engine, whole_id, 20);
    EXPECT_EQ(at_once.logits, logits);
    EXPECT_TRUE(step_one(*whole.engine, whole_id, 1).logits.empty());

    request.stop.max_tokens = 0;  // a score: no token is made
    Made score = make(rig);
    const SequenceId score_id = score.engine->add(request).value();
    const SequenceEvent scored = step_one(*score.engine, score_id, 20);
    EXPECT_EQ(scored.logits, logits);
    EXPECT_FALSE(scored.token);
    EXPECT_EQ(scored.finish, FinishReason::kMaxTokens);
  }
}

TEST(Engine, ForksShareRowsAndGoTheirOwnWays) {
  for (const KvStorageKind storage : {KvStorageKind::kDense, KvStorageKind::kPaged}) {
    const Rig rig = rig_of(storage);
    const SequenceRequest request = request_of(prompt_of(37, 11), 12, 1.0f, 4);
    Made made = make(rig);
    const SequenceId first = made.engine->add(request).value();
    (void)step_one(*made.engine, first, 36);  // all but the last token, then one fork per choice
    std::vector<SequenceId> ids{first};
    for (uint32_t choice = 1; choice < 4; ++choice) {
      SamplingParams sampling = request.sampling;
      sampling.choice_index = choice;
      ids.push_back(made.engine->fork(first, sampling).value());
    }
    if (storage == KvStorageKind::kPaged) {
      EXPECT_EQ(made.engine->block_pool()->num_in_use(), 3);
    }
    std::vector<Tokens> texts;
    for (const SequenceId id : ids) texts.push_back(run_to_end(*made.engine, id));
    for (uint32_t choice = 0; choice < 4; ++choice) {
      SequenceRequest alone = request;
      alone.sampling.choice_index = choice;
      EXPECT_EQ(texts[choice], run_alone(rig, alone));
    }
    EXPECT_NE(texts[0], texts[1]);
    EXPECT_EQ(made.engine->counters().kv_block_copies, storage == KvStorageKind::kPaged ? 3u : 0u);
  }
}

TEST(Engine, ExtendAndTruncateEqualAFreshSequence) {
  for (const KvStorageKind storage : {KvStorageKind::kDense, KvStorageKind::kPaged}) {
    for (const int64_t border : {0, 40}) {
      Rig rig = rig_of(storage);
      rig.runner.rope_border = border;
      Made made = make(rig);
      Engine& engine = *made.engine;
      const SequenceId id = engine.add(request_of(prompt_of(30, 12), 8)).value();
      (void)run_to_end(engine, id);
      const Tokens turn = prompt_of(9, 13);
      StopRules stop;
      stop.max_tokens = 6;
      ASSERT_TRUE(engine.extend(id, turn, stop).ok());
      EXPECT_EQ(engine.finish_reason(id), FinishReason::kNone);
      Tokens prompt(engine.tokens(id).begin(), engine.tokens(id).end());
      EXPECT_EQ(prompt.size(), 30u + 8 + 9);
      EXPECT_EQ(run_to_end(engine, id), run_alone(rig, request_of(prompt, 6)));
      // Back into the first answer, then another turn.
      ASSERT_TRUE(engine.truncate(id, 32).ok());
      EXPECT_EQ(engine.num_computed(id), 31);
      const Tokens other = prompt_of(3, 14);
      ASSERT_TRUE(engine.extend(id, other, stop).ok());
      prompt.resize(32);
      prompt.insert(prompt.end(), other.begin(), other.end());
      EXPECT_EQ(run_to_end(engine, id), run_alone(rig, request_of(prompt, 6)));
      // A whole cut: the last token is computed again at its own position.
      ASSERT_TRUE(engine.truncate(id, 32).ok());
      ASSERT_TRUE(engine.extend(id, {}, stop).ok());
      prompt.resize(32);
      EXPECT_EQ(run_to_end(engine, id), run_alone(rig, request_of(prompt, 6)));
      EXPECT_FALSE(engine.truncate(id, 0).ok());
      EXPECT_FALSE(engine.truncate(id, 1000).ok());
      EXPECT_FALSE(engine.extend(id, Tokens{61}, stop).ok());
      EXPECT_FALSE(engine.extend(id, prompt_of(512, 1), stop).ok());
    }
  }
}

// A rope that changes with the length: rows rotated for the shorter length are computed again in the step
// that crosses.
TEST(Engine, CrossingARopeBorderRecomputesTheSequence) {
  for (const KvStorageKind storage : {KvStorageKind::kDense, KvStorageKind::kPaged}) {
    for (const bool padded : {false, true}) {
      Rig rig = rig_of(storage);
      rig.runner.rope_border = 20;
      rig.engine.force_padded_prefill = padded;
      Made made = make(rig);
      const SequenceId id = made.engine->add(request_of(prompt_of(18, 15), 10)).value();
      std::vector<int64_t> inputs;
      while (made.engine->finish_reason(id) == FinishReason::kNone) {
        EXPECT_EQ(step_one(*made.engine, id, uncomputed(*made.engine, id)).error, std::nullopt);
        const auto& segment = made.runner->last_segments().at(0);
        inputs.push_back(segment.num_inputs);
        EXPECT_EQ(segment.total_length, 18 + static_cast<int64_t>(inputs.size()) - 1);
      }
      const int64_t first = padded ? 32 : 18, crossing = padded ? 32 : 21;
      EXPECT_EQ(inputs, (std::vector<int64_t>{first, 1, 1, crossing, 1, 1, 1, 1, 1, 1}));
      // The answer so far as a prompt gives the same next token.
      const Tokens all(made.engine->tokens(id).begin(), made.engine->tokens(id).end());
      const Tokens prompt(all.begin(), all.end() - 1);
      EXPECT_EQ(run_alone(rig, request_of(prompt, 1)).at(0), all.back());
      EXPECT_EQ(run_alone(rig, request_of(prompt, 1), 6).at(0),
                all.back());  // every chunk in the long regime
    }
  }
}

TEST(Engine, AnEmptyBatchIsNothing) {
  Made made = make(rig_of(KvStorageKind::kPaged));
  EXPECT_TRUE(made.engine->step({}).events.empty());
  EXPECT_EQ(made.runner->num_steps(), 0);
  EXPECT_EQ(made.engine->counters().steps, 0u);
}

TEST(EngineDeathTest, SchedulingMistakesAbort) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Made made = make(rig_of(KvStorageKind::kPaged));
  const SequenceId id = made.engine->add(request_of({1, 2, 3}, 1)).value();
  EXPECT_DEATH(made.engine->step({{{id, 0}}}), "segment");
  EXPECT_DEATH(made.engine->step({{{id, 4}}}), "segment");
  EXPECT_DEATH(made.engine->step({{{SequenceId{77}, 1}}}), "no such sequence");
  EXPECT_DEATH(made.engine->remove(SequenceId{77}), "no such sequence");
  (void)run_to_end(*made.engine, id);
  EXPECT_DEATH(made.engine->step({{{id, 1}}}), "finished");
}

}  // namespace
}  // namespace mlxcel
