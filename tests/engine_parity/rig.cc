#include "engine_parity/rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <utility>

#include "engine/engine.h"
#include "golden/driver.h"
#include "runtime/engine_adapter.h"

namespace mlxcel::engine_parity {

namespace {

constexpr int64_t kContext = 256;
constexpr int64_t kStepsMax = 20000;  // of one run: more is a hang

// Lends a runner to an engine, which wants one of its own.
class LentRunner final : public ModelRunner {
 public:
  explicit LentRunner(ModelRunner& lender) : lender_(lender) {}
  const RunnerCapabilities& capabilities() const override { return lender_.capabilities(); }
  const KvLayout& kv_layout() const override { return lender_.kv_layout(); }
  const ModelSpec& spec() const override { return lender_.spec(); }
  ActivationPrecision precision() const override { return lender_.precision(); }
  std::string description() const override { return lender_.description(); }
  uint64_t resident_bytes() const override { return lender_.resident_bytes(); }
  Result<std::unique_ptr<KvStorage>> create_kv_storage(KvStorageKind kind, const KvBudget& budget) override {
    return lender_.create_kv_storage(kind, budget);
  }
  Ticket submit(const ForwardBatch& batch, KvStorage& storage) override {
    return lender_.submit(batch, storage);
  }
  Result<StepOutputs> wait(Ticket ticket) override { return lender_.wait(ticket); }
  Result<StateSnapshot> snapshot(int32_t slot) override { return lender_.snapshot(slot); }
  Status restore(int32_t slot, const StateSnapshot& state) override { return lender_.restore(slot, state); }

 private:
  ModelRunner& lender_;
};

SequenceRequest sequence_request(const Ask& ask) {
  SequenceRequest request;
  request.prompt = ask.prompt;
  request.sampling = ask.sampling;
  request.stop.max_tokens = ask.max_tokens;
  return request;
}

// One run of many asks.
class Run {
 public:
  Run(Model& model, const Way& way, const std::vector<Ask>& asks) : way_(way), asks_(asks) {
    EngineOptions options = way.engine;
    options.context_length = kContext;
    options.max_waiting = static_cast<int64_t>(asks.size());
    ModelRunner& runner = model.runner(way.num_threads);
    if (way.pool_blocks > 0) {
      options.kv_bytes = way.pool_blocks * options.block_size * runner.kv_layout().bytes_per_row();
    }
    options.on_choice = [this](SequenceId id, int64_t position, std::span<const float> logits) {
      Told& told = outcome_.told[ask_of_.at(id)];
      const Ask& ask = asks_[ask_of_.at(id)];
      EXPECT_EQ(position, static_cast<int64_t>(ask.prompt.size() + told.logits.size())) << way_.name;
      told.logits.emplace_back(logits.begin(), logits.end());
    };
    engine_ = Engine::create(std::make_unique<LentRunner>(runner), options).value();
    adapter_.emplace(*engine_);
    DraftPolicy drafts;
    if (way.drafts > 0) {
      drafts = [this](SequenceId id, int32_t most) {
        return engine_->propose_drafts(id, std::min(most, way_.drafts));
      };
    }
    scheduler_.emplace(*adapter_, way.scheduler, drafts);
    outcome_.told.resize(asks.size());
  }

  Outcome run() {
    for (step_ = 0; num_ended_ < asks_.size(); ++step_) {
      if (step_ > kStepsMax) {
        ADD_FAILURE() << way_.name << ": no end";
        break;
      }
      add_arrivals();
      step();
      check_books();
    }
    EXPECT_EQ(engine_->kv_use().held, 0) << way_.name;
    outcome_.engine = engine_->counters();
    outcome_.scheduler = scheduler_->counters();
    outcome_.prefix = engine_->prefix_counters();
    return std::move(outcome_);
  }

 private:
  bool has_arrived(const Ask& ask) const {
    if (ask.step > step_) return false;
    if (!ask.after) return true;
    const Told& before = outcome_.told[*ask.after];
    return before.finish != FinishReason::kNone || (!ask.after_its_end && !before.tokens.empty());
  }
  void add_arrivals() {
    for (size_t i = 0; i < asks_.size(); ++i) {
      if (added_.contains(i) || !has_arrived(asks_[i])) continue;
      const SequenceId id = engine_->add(sequence_request(asks_[i])).value();
      added_.insert(i);
      ask_of_[id] = i;
      const Status taken = scheduler_->add(id, RequestOptions{}, now());
      EXPECT_TRUE(taken.ok()) << taken.error().one_line();
    }
  }
  Timestamp now() const { return std::chrono::milliseconds(step_); }

  void step() {
    const ScheduledStep& plan = scheduler_->schedule(now());
    if (plan.segments.empty()) return take(scheduler_->events());
    StepBatch batch;
    for (const ScheduledSegment& s : plan.segments)
      batch.segments.push_back({s.sequence, s.num_tokens, s.num_drafts});
    outcome_.most_segments = std::max(outcome_.most_segments, batch.segments.size());
    StepResult result = engine_->step(batch);
    take(scheduler_->apply(std::move(result), now()));
  }
  void take(std::span<const SchedulerEvent> events) {
    for (const SchedulerEvent& e : events) {
      const size_t i = ask_of_.at(e.sequence);
      Told& told = outcome_.told[i];
      if (e.output.token) told.tokens.push_back(*e.output.token);
      if (e.kind == SchedulerEvent::Kind::kScheduled) told.num_cached = e.record.num_cached_tokens;
      if (e.kind == SchedulerEvent::Kind::kFinished) {
        told.finish = e.output.finish;
        ++num_ended_;
        EXPECT_FALSE(e.output.error) << way_.name << ": " << e.output.error->one_line();
        continue;
      }
      const std::optional<int64_t> most = asks_[i].cancel_after_tokens;
      if (most && static_cast<int64_t>(told.tokens.size()) >= *most) scheduler_->cancel(e.sequence);
    }
  }
  void check_books() const {
    const Status engine = engine_->check_integrity(), scheduler = scheduler_->check_integrity();
    ASSERT_TRUE(engine.ok()) << way_.name << ": " << engine.error().one_line();
    ASSERT_TRUE(scheduler.ok()) << way_.name << ": " << scheduler.error().one_line();
    const KvUse use = engine_->kv_use();
    ASSERT_EQ(use.free + use.held + use.cached, use.total) << way_.name;
  }

  const Way& way_;
  const std::vector<Ask>& asks_;
  std::unique_ptr<Engine> engine_;
  std::optional<EngineAdapter> adapter_;
  std::optional<Scheduler> scheduler_;
  std::set<size_t> added_;
  std::map<SequenceId, size_t> ask_of_;
  size_t num_ended_ = 0;
  int64_t step_ = 0;
  Outcome outcome_;
};

}  // namespace

Model::Model(const std::string& fixture) : fixture_(fixture) {}

ModelRunner& Model::runner(int num_threads) {
  const auto n = static_cast<size_t>(num_threads);
  if (runners_.size() <= n) runners_.resize(n + 1);
  if (!runners_[n]) {
    RunnerOptions options;
    options.num_threads = num_threads;
    options.max_position = kContext;
    runners_[n] = create_cpu_runner(golden::load_fixture(fixture_), options).value();
  }
  return *runners_[n];
}

Way plain(std::string name) {
  Way way;
  way.name = std::move(name);
  way.engine.block_size = 16;
  way.engine.max_sequences = 1;
  way.engine.force_padded_prefill = false;
  return way;
}

Outcome serve(Model& model, const Way& way, const std::vector<Ask>& asks) {
  Way complete = way;
  complete.scheduler.max_running = static_cast<int32_t>(way.engine.max_sequences);
  complete.scheduler.max_queue = static_cast<int32_t>(asks.size()) + 1;
  return Run(model, complete, asks).run();
}

Outcome serve_forked(Model& model, const Way& way, const Ask& ask, const SamplingParams& second) {
  EngineOptions options = way.engine;
  options.context_length = kContext;
  Outcome outcome;
  outcome.told.resize(2);
  std::vector<SequenceId> ids;
  options.on_choice = [&](SequenceId id, int64_t, std::span<const float> logits) {
    outcome.told[id == ids[0] ? 0 : 1].logits.emplace_back(logits.begin(), logits.end());
  };
  const auto engine =
      Engine::create(std::make_unique<LentRunner>(model.runner(way.num_threads)), options).value();
  ids.push_back(engine->add(sequence_request(ask)).value());
  StepBatch prompt;
  prompt.segments.push_back({ids[0], static_cast<int32_t>(ask.prompt.size()) - 1, 0});
  EXPECT_FALSE(engine->step(prompt).events.at(0).error);
  ids.push_back(engine->fork(ids[0], second).value());
  while (engine->finish_reason(ids[0]) == FinishReason::kNone) {
    StepBatch batch;
    for (const SequenceId id : ids) batch.segments.push_back({id, 1, 0});
    const StepResult result = engine->step(batch);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_FALSE(result.events[i].error);
      outcome.told[i].tokens.push_back(result.events[i].token.value());
    }
    EXPECT_TRUE(engine->check_integrity().ok());
  }
  outcome.engine = engine->counters();
  return outcome;
}

// The engine alone, one step for the prompt and one for each token.
Told lone(Model& model, const Ask& ask) {
  EngineOptions options;
  options.storage = KvStorageKind::kDense;
  options.context_length = kContext;
  options.force_padded_prefill = false;
  Told told;
  options.on_choice = [&told](SequenceId, int64_t, std::span<const float> logits) {
    told.logits.emplace_back(logits.begin(), logits.end());
  };
  const auto engine = Engine::create(std::make_unique<LentRunner>(model.runner()), options).value();
  const SequenceId id = engine->add(sequence_request(ask)).value();
  while (engine->finish_reason(id) == FinishReason::kNone) {
    const int64_t missing = static_cast<int64_t>(engine->tokens(id).size()) - engine->num_computed(id);
    StepBatch batch;
    batch.segments.push_back({id, static_cast<int32_t>(missing), 0});
    for (const SequenceEvent& e : engine->step(batch).events) {
      EXPECT_FALSE(e.error) << e.error->one_line();
      if (e.error) return told;
      told.tokens.push_back(*e.token);
    }
  }
  told.finish = engine->finish_reason(id);
  return told;
}

std::string difference(const Ask& ask, const Told& want, const Told& found) {
  const bool is_part = ask.cancel_after_tokens.has_value();
  if (!is_part && found.tokens.size() != want.tokens.size()) {
    return std::to_string(found.tokens.size()) + " tokens instead of " + std::to_string(want.tokens.size());
  }
  // A token that came with the step of the cancellation was chosen and not told.
  if (found.logits.size() < found.tokens.size() || found.logits.size() > want.logits.size() ||
      (!is_part && found.logits.size() != found.tokens.size())) {
    return std::to_string(found.logits.size()) + " rows of logits for " +
           std::to_string(found.tokens.size()) + " tokens";
  }
  for (size_t t = 0; t < found.logits.size(); ++t) {
    for (size_t i = 0; i < want.logits[t].size(); ++i) {
      const float a = want.logits[t][i], b = found.logits[t][i];
      if (std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b)) continue;
      return "token " + std::to_string(t) + " behind " + std::to_string(ask.prompt.size()) + ", logit " +
             std::to_string(i) + ": " + std::to_string(a) + " against " + std::to_string(b);
    }
    if (t < found.tokens.size() && found.tokens[t] != want.tokens[t])
      return "token " + std::to_string(t) + " has equal logits and is another";
  }
  return "";
}

}  // namespace mlxcel::engine_parity
