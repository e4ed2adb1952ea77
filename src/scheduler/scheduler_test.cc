#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <vector>

// Counts what this program allocates, for the test of the steady state. Not inlined: GCC 12 would call malloc
// and operator delete a mismatch.
namespace {
std::atomic<int64_t> num_allocations{0};
}
[[gnu::noinline]] void* operator new(size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace mlxcel {
namespace {

using std::chrono::seconds;

// Counts blocks; nothing is shared. A cached prefix is what the test says.
class CountingEngine : public EngineControl {
 public:
  CountingEngine(int64_t num_blocks, int64_t block_size, int64_t context_length)
      : num_blocks_(num_blocks), block_size_(block_size), context_length_(context_length) {}

  SequenceId add(int64_t num_prompt_tokens, int64_t max_tokens = 1000, int64_t num_cached = 0) {
    const SequenceId id{rows_.size() + 1};
    rows_[id] = {num_prompt_tokens, 0, num_prompt_tokens + max_tokens, num_cached};
    return id;
  }
  bool knows(SequenceId id) const { return rows_.contains(id); }

  // Accepts every draft.
  void run(const ScheduledStep& step, StepResult& result) {
    result.events.clear();
    result.seconds = 1.0;
    for (const ScheduledSegment& segment : step.segments) {
      Row& row = rows_.at(segment.sequence);
      row.num_computed += segment.num_tokens;
      SequenceEvent event;
      event.sequence = segment.sequence;
      event.num_computed = segment.num_tokens;
      for (int32_t draft = 0; row.num_computed == row.num_tokens; ++draft) {
        event.token = 7;
        ++row.num_tokens;
        if (row.num_tokens >= std::min(row.end, rows_max())) event.finish = FinishReason::kMaxTokens;
        if (draft == segment.num_drafts || event.finish != FinishReason::kNone) break;
        result.events.push_back(event);
        ++row.num_computed;
        event.num_computed = 1;
      }
      result.events.push_back(event);
    }
  }

  void use_dense_slots() { is_dense_ = true; }
  int64_t context_length() const override { return context_length_; }
  BlockCounts blocks() const override {
    int64_t held = 0;
    for (const auto& [id, row] : rows_) held += blocks_of(row.num_computed);
    return {num_blocks_ - held, 0, num_blocks_, block_size_, is_dense_};
  }
  int64_t num_tokens(SequenceId id) const override { return rows_.at(id).num_tokens; }
  int64_t num_computed(SequenceId id) const override { return rows_.at(id).num_computed; }
  int64_t blocks_needed(SequenceId id, int64_t num_rows) const override {
    const Row& row = rows_.at(id);
    return blocks_of(row.num_computed + num_rows) - blocks_of(row.num_computed);
  }
  int64_t admit(SequenceId id) override { return rows_.at(id).num_computed = rows_.at(id).num_cached; }
  void preempt(SequenceId id) override { rows_.at(id).num_computed = 0; }
  void release(SequenceId id) override { rows_.at(id) = {}; }

 private:
  struct Row {
    int64_t num_tokens = 0, num_computed = 0, end = 0, num_cached = 0;
  };
  int64_t blocks_of(int64_t rows) const {
    return is_dense_ ? std::min<int64_t>(rows, 1) : (rows + block_size_ - 1) / block_size_;
  }
  int64_t num_blocks_, block_size_, context_length_;
  bool is_dense_ = false;
  std::map<SequenceId, Row> rows_;
};

SchedulerOptions options_of(int32_t max_running, int32_t max_batch_tokens, int32_t prefill_chunk) {
  SchedulerOptions options;
  options.max_running = max_running;
  options.max_batch_tokens = max_batch_tokens;
  options.prefill_chunk = prefill_chunk;
  return options;
}

struct Fixture {
  Fixture(int64_t num_blocks, int64_t block_size, int64_t context, const SchedulerOptions& options,
          DraftPolicy drafts = nullptr)
      : engine(num_blocks, block_size, context), scheduler(engine, options, std::move(drafts)) {}

  SequenceId add(int64_t num_prompt_tokens, int64_t max_tokens = 1000, int32_t priority = 0,
                 int64_t num_cached = 0) {
    const SequenceId id = engine.add(num_prompt_tokens, max_tokens, num_cached);
    EXPECT_TRUE(scheduler.add(id, {priority, std::nullopt}, now).ok());
    return id;
  }
  // One step; its segments as (sequence, tokens).
  std::vector<std::pair<int, int>> step() {
    const ScheduledStep& planned = scheduler.schedule(now);
    std::vector<std::pair<int, int>> segments;
    for (const ScheduledSegment& segment : planned.segments) {
      segments.emplace_back(static_cast<int>(segment.sequence), segment.num_tokens);
    }
    now += seconds(1);
    if (!segments.empty()) {
      engine.run(planned, result);
      scheduler.apply(std::move(result), now);
    }
    EXPECT_TRUE(scheduler.check_integrity().ok());
    return segments;
  }
  const SchedulerEvent* find_event(SchedulerEvent::Kind kind, SequenceId id) const {
    for (const SchedulerEvent& event : scheduler.events()) {
      if (event.kind == kind && event.sequence == id) return &event;
    }
    return nullptr;
  }

  CountingEngine engine;
  Scheduler scheduler;
  StepResult result;
  Timestamp now{};
};
using Segments = std::vector<std::pair<int, int>>;
using Kind = SchedulerEvent::Kind;

TEST(Scheduler, DecodeRowsThenOldPromptsThenNewOnes) {
  Fixture f(100, 4, 200, options_of(3, 10, 6));
  f.add(1);
  EXPECT_EQ(f.step(), (Segments{{1, 1}}));
  f.add(14);
  f.add(5);
  EXPECT_EQ(f.step(), (Segments{{1, 1}, {2, 6}, {3, 3}}));
  EXPECT_EQ(f.step(), (Segments{{1, 1}, {2, 6}, {3, 2}}));
  EXPECT_EQ(f.step(), (Segments{{1, 1}, {3, 1}, {2, 2}}));
  EXPECT_EQ(f.step(), (Segments{{1, 1}, {2, 1}, {3, 1}}));
}

TEST(Scheduler, PriorityThenArrival) {
  Fixture f(100, 4, 200, options_of(1, 100, 100));
  f.add(5, 1, 2);
  f.add(5, 1, 1);
  f.add(5, 1, 1);
  EXPECT_EQ(f.step(), (Segments{{2, 5}}));
  EXPECT_EQ(f.step(), (Segments{{3, 5}}));
  EXPECT_EQ(f.step(), (Segments{{1, 5}}));
  EXPECT_EQ(f.step(), Segments{});
  EXPECT_FALSE(f.scheduler.has_work());
}

TEST(Scheduler, ChunksAddUpAndNoneIsEmpty) {  // known failures A-04, B-PFX-17
  for (int64_t total = 1; total <= 24; ++total) {
    for (int64_t cached = 0; cached < total; ++cached) {
      for (int32_t chunk = 1; chunk <= 9; ++chunk) {
        Fixture f(100, 4, 200, options_of(1, 100, chunk));
        const SequenceId id = f.add(total, 1, 0, cached);
        int64_t sum = 0;
        int num_steps = 0;
        for (; f.scheduler.has_work(); ++num_steps) {
          for (const auto& [sequence, tokens] : f.step()) {
            ASSERT_GE(tokens, 1);
            ASSERT_LE(tokens, chunk);
            sum += tokens;
          }
        }
        ASSERT_EQ(sum, total - cached);
        ASSERT_EQ(num_steps, (total - cached + chunk - 1) / chunk);
        ASSERT_EQ(f.find_event(Kind::kFinished, id)->record.num_cached_tokens, cached);
      }
    }
  }
}

TEST(Scheduler, RefusesWhatCanNeverFitWithBothNumbers) {  // known failure B-ROB-05
  Fixture f(1000, 4, 64, options_of(4, 100, 100));
  EXPECT_TRUE(f.scheduler.can_add(63).ok());
  for (const int64_t length : {64, 65, 640}) {
    const Status status = f.scheduler.can_add(length);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().kind, ErrorKind::kInvalidArgument);
    EXPECT_NE(status.error().one_line().find("64"), std::string::npos);
    EXPECT_NE(status.error().one_line().find(std::to_string(length) + " tokens"), std::string::npos);
  }
  EXPECT_FALSE(f.scheduler.can_add(0).ok());
  Fixture small(10, 4, 64, options_of(4, 100, 100));
  EXPECT_TRUE(small.scheduler.can_add(39).ok());
  EXPECT_NE(small.scheduler.can_add(40).error().one_line().find("blocks"), std::string::npos);
  const SequenceId id = small.engine.add(40);
  EXPECT_FALSE(small.scheduler.add(id, {}, small.now).ok());
  EXPECT_EQ(small.scheduler.counters().requests_refused, 1u);
  EXPECT_FALSE(small.scheduler.has_work());
}

TEST(Scheduler, PromptOfContextMinusOneGivesOneToken) {
  Fixture f(16, 4, 64, options_of(1, 100, 100));
  const SequenceId id = f.add(63);
  EXPECT_EQ(f.step(), (Segments{{1, 63}}));
  EXPECT_NE(f.find_event(Kind::kFinished, id), nullptr);
}

TEST(Scheduler, QueueHasABound) {  // known failure A-28
  SchedulerOptions options = options_of(1, 100, 100);
  options.max_queue = 2;
  Fixture f(100, 4, 200, options);
  f.add(5);
  f.add(5);
  f.add(5);
  const Status status = f.scheduler.add(f.engine.add(5), {}, f.now);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, ErrorKind::kResourceExhausted);
  EXPECT_EQ(f.scheduler.num_waiting(), 3);
}

TEST(Scheduler, TheYoungestOfTheLowestPriorityGivesWay) {
  Fixture f(6, 4, 24, options_of(3, 100, 100));
  const SequenceId first = f.add(4, 20, 1), second = f.add(4, 20, 0), third = f.add(4, 20, 0);
  f.step();                              // one block each
  for (int i = 0; i < 4; ++i) f.step();  // and another: the pool is full
  EXPECT_EQ(f.scheduler.num_running(), 3);
  EXPECT_EQ(f.engine.blocks().free, 0);
  EXPECT_EQ(f.step(), (Segments{{2, 1}, {3, 1}}));
  EXPECT_NE(f.find_event(Kind::kPreempted, first), nullptr);
  EXPECT_EQ(f.scheduler.num_waiting(), 1);
  for (int i = 0; i < 4; ++i) f.step();
  EXPECT_NE(f.find_event(Kind::kPreempted, third), nullptr);
  int64_t finished = 0;
  std::map<SequenceId, int64_t> tokens;
  for (int i = 0; i < 200 && f.scheduler.has_work(); ++i) {
    f.step();
    for (const SchedulerEvent& event : f.scheduler.events()) {
      if (event.kind != Kind::kFinished) continue;
      ++finished;
      tokens[event.sequence] = event.record.num_generated_tokens;
    }
  }
  EXPECT_EQ(finished, 3);
  EXPECT_EQ(tokens, (std::map<SequenceId, int64_t>{{first, 20}, {second, 20}, {third, 20}}));
}

TEST(Scheduler, KeepsOnePercentFreeBesideRunningRows) {
  Fixture f(300, 1, 1000, options_of(3, 1000, 1000));
  f.add(100);
  f.step();
  f.add(197);  // 1 missing row of the first + 197 + 3 > 200
  EXPECT_EQ(f.step(), (Segments{{1, 1}}));
  EXPECT_EQ(f.scheduler.num_waiting(), 1);
  Fixture alone(300, 1, 1000, options_of(3, 1000, 1000));
  alone.add(299);
  EXPECT_EQ(alone.step(), (Segments{{1, 299}}));
}

// A slot that was kept free would never be used: with two of them only one request ran at a time.
TEST(Scheduler, EveryDenseSlotIsUsedAndItsRowsAreTheLimit) {
  CountingEngine engine(2, 100, 1000);
  engine.use_dense_slots();
  Scheduler scheduler(engine, options_of(2, 1000, 1000));
  EXPECT_EQ(engine.rows_max(), 100);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(scheduler.add(engine.add(50), {}, Timestamp{}).ok());
  EXPECT_EQ(scheduler.schedule(Timestamp{}).segments.size(), 2u);
  EXPECT_TRUE(scheduler.can_add(99).ok());
  const Status too_long = scheduler.can_add(100);
  ASSERT_FALSE(too_long.ok());
  EXPECT_EQ(too_long.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_NE(too_long.error().to_string().find("100"), std::string::npos);
}

TEST(Scheduler, NobodyOvertakesTheHeadOfTheQueue) {
  Fixture f(20, 1, 1000, options_of(3, 1000, 1000));
  f.add(10, 5);
  f.step();
  f.add(15, 1);
  f.add(1, 1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(f.step(), (Segments{{1, 1}}));
  EXPECT_EQ(f.step(), (Segments{{2, 15}, {3, 1}}));
}

TEST(Scheduler, DraftsTakeWhatIsLeftOver) {
  const DraftPolicy eight = [](SequenceId, int32_t max) { return std::min(8, max); };
  {  // the token budget, and waiting prompts first
    Fixture f(100, 100, 100, options_of(3, 12, 12), eight);
    f.add(3);
    f.step();
    EXPECT_EQ(f.scheduler.schedule(f.now).segments[0].num_drafts, 8);
  }
  {
    Fixture f(100, 100, 100, options_of(3, 12, 12), eight);
    f.add(3);
    f.step();
    f.add(7);
    const ScheduledStep& step = f.scheduler.schedule(f.now);
    ASSERT_EQ(step.segments.size(), 2u);
    EXPECT_EQ(step.segments[0].num_drafts, 4);
    EXPECT_EQ(step.segments[1].num_tokens, 7);
  }
  {  // never the last block: rows 3 and 4 are in the block that the row has anyway
    Fixture f(2, 4, 100, options_of(3, 12, 12), eight);
    f.add(2);
    f.step();
    const ScheduledStep& step = f.scheduler.schedule(f.now);
    EXPECT_EQ(step.segments[0].num_drafts, 1);
    EXPECT_EQ(step.segments[0].num_blocks, 0);
    EXPECT_EQ(step.num_spare_blocks, 0);
  }
  {  // the context
    Fixture f(100, 4, 10, options_of(3, 12, 12), eight);
    f.add(6);
    f.step();
    EXPECT_EQ(f.scheduler.schedule(f.now).segments[0].num_drafts, 3);
  }
}

TEST(Scheduler, SeveralTokensOfOneSegment) {
  Fixture f(100, 4, 100, options_of(3, 12, 12), [](SequenceId, int32_t max) { return std::min(2, max); });
  const SequenceId id = f.add(3, 8);
  f.step();
  f.step();
  EXPECT_EQ(std::count_if(f.scheduler.events().begin(), f.scheduler.events().end(),
                          [](const SchedulerEvent& event) { return event.kind == Kind::kOutput; }),
            3);
  f.step();
  f.step();
  ASSERT_NE(f.find_event(Kind::kFinished, id), nullptr);
  EXPECT_EQ(f.find_event(Kind::kFinished, id)->record.num_generated_tokens, 8);
}

TEST(Scheduler, CancelWorksInQueuePromptAndText) {
  Fixture f(100, 4, 100, options_of(2, 12, 6));
  const SequenceId in_text = f.add(2), in_prompt = f.add(40), waiting = f.add(5);
  f.step();
  for (const SequenceId id : {in_text, in_prompt, waiting}) EXPECT_TRUE(f.scheduler.cancel(id));
  EXPECT_EQ(f.step(), Segments{});
  for (const SequenceId id : {in_text, in_prompt, waiting}) {
    ASSERT_NE(f.find_event(Kind::kFinished, id), nullptr);
    EXPECT_EQ(f.find_event(Kind::kFinished, id)->output.finish, FinishReason::kCancelled);
    EXPECT_FALSE(f.scheduler.cancel(id));
  }
  EXPECT_EQ(f.engine.blocks().free, 100);
  EXPECT_EQ(f.scheduler.counters().requests_finished[static_cast<size_t>(FinishReason::kCancelled)], 3u);
}

TEST(Scheduler, CancelDuringAStepEndsWithIt) {
  Fixture f(100, 4, 100, options_of(2, 12, 6));
  const SequenceId id = f.add(2);
  const ScheduledStep& step = f.scheduler.schedule(f.now);
  EXPECT_TRUE(f.scheduler.cancel(id));
  f.engine.run(step, f.result);
  f.scheduler.apply(std::move(f.result), f.now);
  EXPECT_EQ(f.find_event(Kind::kOutput, id), nullptr);
  EXPECT_EQ(f.find_event(Kind::kFinished, id)->output.finish, FinishReason::kCancelled);
}

TEST(Scheduler, DeadlinesEndRequestsWhereverTheyAre) {
  Fixture f(100, 4, 100, options_of(1, 12, 12));
  const SequenceId running = f.engine.add(5), waiting = f.engine.add(5);
  ASSERT_TRUE(f.scheduler.add(running, {0, seconds(2)}, f.now).ok());
  ASSERT_TRUE(f.scheduler.add(waiting, {0, seconds(1)}, f.now).ok());
  EXPECT_EQ(f.step(), (Segments{{1, 5}}));
  EXPECT_EQ(f.step(), (Segments{{1, 1}}));
  ASSERT_NE(f.find_event(Kind::kFinished, waiting), nullptr);
  EXPECT_EQ(f.step(), Segments{});
  ASSERT_NE(f.find_event(Kind::kFinished, running), nullptr);
  EXPECT_TRUE(f.find_event(Kind::kFinished, running)->output.error.has_value());
}

TEST(Scheduler, AFailingRowEndsAlone) {
  Fixture f(100, 4, 100, options_of(2, 12, 6));
  const SequenceId good = f.add(2), bad = f.add(2);
  f.engine.run(f.scheduler.schedule(f.now), f.result);
  f.result.events[1].error = make_error(ErrorKind::kInternal, "it broke");
  f.result.events[1].finish = FinishReason::kError;
  f.scheduler.apply(std::move(f.result), f.now);
  EXPECT_NE(f.find_event(Kind::kOutput, good), nullptr);
  ASSERT_NE(f.find_event(Kind::kFinished, bad), nullptr);
  EXPECT_EQ(f.find_event(Kind::kFinished, bad)->output.error->what, "it broke");
  EXPECT_EQ(f.step(), (Segments{{1, 1}}));
}

TEST(Scheduler, RecordsTheStoryOfARequest) {
  Fixture f(100, 4, 100, options_of(1, 12, 12));
  f.add(5, 2);
  const SequenceId id = f.add(20, 3);
  while (f.scheduler.has_work()) f.step();
  const RequestRecord& record = f.find_event(Kind::kFinished, id)->record;
  EXPECT_EQ(record.queued_at, seconds(0));
  EXPECT_EQ(record.scheduled_at, seconds(2));
  EXPECT_EQ(record.first_token_at, seconds(4));
  EXPECT_EQ(record.last_token_at, seconds(6));
  EXPECT_EQ(record.finished_at, seconds(6));
  EXPECT_EQ(record.preempted_at, std::nullopt);
  EXPECT_EQ(record.num_prompt_tokens, 20);
  EXPECT_EQ(record.num_generated_tokens, 3);
}

TEST(Scheduler, PrefillBesideDecodeIsMeasured) {
  SchedulerOptions options = options_of(4, 1000, 500);
  options.adapts_prefill = true;
  options.decode_wait_factor = 1.5;
  options.prefill_tokens_min = 8;
  Fixture f(1000, 4, 2000, options);
  f.add(100);
  EXPECT_EQ(f.step(), (Segments{{1, 100}}));  // 1 s: 10 ms per prompt row
  EXPECT_EQ(f.step(), (Segments{{1, 1}}));    // 1 s per step
  f.add(600);
  EXPECT_EQ(f.step(), (Segments{{1, 1}, {2, 50}}));
  EXPECT_EQ(f.scheduler.first_token_steps_max(SequenceId{2}), 600 / 8);
}

TEST(Scheduler, OptionsAreChecked) {
  EXPECT_TRUE(SchedulerOptions{}.validate().ok());
  EXPECT_FALSE(options_of(0, 10, 10).validate().ok());
  EXPECT_FALSE(options_of(10, 10, 10).validate().ok());
  EXPECT_TRUE(options_of(9, 10, 10).validate().ok());
  EXPECT_FALSE(options_of(1, 10, 0).validate().ok());
  SchedulerOptions options;
  options.decode_wait_factor = 1.0;
  EXPECT_FALSE(options.validate().ok());
  options = options_of(4, 11, 10);
  options.adapts_prefill = true;
  options.prefill_tokens_min = 8;
  EXPECT_FALSE(options.validate().ok());
}

TEST(Scheduler, DecodeStepsAllocateNothing) {
  Fixture f(1000, 16, 4000, options_of(8, 100, 100));
  for (int i = 0; i < 8; ++i) f.add(10);
  for (int i = 0; i < 20; ++i) f.step();
  StepResult result;
  f.engine.run(f.scheduler.schedule(f.now), result);
  const StepResult same = result;
  f.scheduler.apply(std::move(result), f.now);
  result = same;
  const ScheduledStep& step = f.scheduler.schedule(f.now);
  ASSERT_EQ(step.segments.size(), 8u);
  f.engine.run(step, result);
  const int64_t before = num_allocations;
  f.scheduler.apply(std::move(result), f.now);
  f.scheduler.schedule(f.now);
  EXPECT_EQ(num_allocations, before);
}

}  // namespace
}  // namespace mlxcel
