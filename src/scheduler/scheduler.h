// Who runs in the next step. Pure, deterministic logic: it sees the engine through EngineControl, the time
// through arguments, measured step times through StepResult; the same trace gives the same steps.
//
//   schedule(now):  1. one row of every running sequence that waits for its next token, in order (priority,
//   arrival);
//                   2. chunks of running prompts, the one admitted first before the others;
//                   3. new requests in order (priority, arrival), while token budget and blocks last;
//                   4. drafts, from what is left over.
//   the engine runs the step;  apply(result, now) -> what happened, for the streams.
//
// Blocks: a prompt is admitted when all its rows, and all rows that running prompts still miss, fit into free
// and evictable blocks, and 1 % of the pool stays free beside running rows (of dense slots none: no running
// row will ask for a second one). Nobody overtakes the head of the queue. When a running sequence cannot get
// its blocks all the same, the youngest of the lowest priority gives up its own and waits again, in its old
// place; that may be the asking one itself. The first in the order never has to, so the whole always moves.
// Optional rows (drafts, padding, lookahead) never take the last block.
//
// Fairness: let c = min(prefill_chunk, max_batch_tokens - max_running), or the smaller prefill_tokens_min
// where prefill adapts; let T be the rows that this prompt and those admitted before it still miss when it is
// admitted. Its next token comes within ceil(T / c) steps, the step of the admission included, unless it ends
// or is pre-empted before (then the count begins anew; see first_token_steps_max()). apply() asserts it.
//
// A sequence's phase is not stored: num_tokens - num_computed, read from the engine, is what it still misses;
// a segment never has zero rows.
//
// Owner: the engine thread's loop. Threads: that thread only.
// Invariants: each request is in one of two maps (waiting: holds no rows; running), and gets exactly one
// kFinished event.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "scheduler/engine_control.h"
#include "scheduler/prefill_governor.h"
#include "scheduler/request.h"

namespace mlxcel {

struct SchedulerOptions {
  int32_t max_running = 1;          // sequences at once (-np)
  int32_t max_queue = 128;          // requests beyond those
  int32_t max_batch_tokens = 2048;  // rows of one step
  int32_t prefill_chunk = 512;      // rows of one prompt in one step
  // CPU: beside decode rows no more prompt rows than let a row wait decode_wait_factor times its usual step.
  bool adapts_prefill = false;
  double decode_wait_factor = 1.3;
  // But this many always, or a prompt beside endless answers would wait for ever. Few, because on a CPU each
  // row beyond the first costs: 8 rows beside one stream make its step several times longer.
  int32_t prefill_tokens_min = 2;

  Status validate() const;
};

// Drafts wanted for the sequence's next step (0: none), at most `max`. Deterministic, or the steps are not.
using DraftPolicy = std::function<int32_t(SequenceId id, int32_t max)>;

struct ScheduledSegment {
  SequenceId sequence{};
  int32_t num_tokens = 0;  // known tokens to compute, >= 1
  int32_t num_drafts = 0;  // guessed tokens after them, verified in the same step
  int64_t num_blocks = 0;  // the most that its rows take from the pool
  friend bool operator==(const ScheduledSegment&, const ScheduledSegment&) = default;
};

struct ScheduledStep {
  std::vector<ScheduledSegment> segments;  // empty: nothing can run
  int64_t num_spare_blocks = 0;            // what padding and lookahead may take besides
  StepBatch batch() const;                 // without the drafts
  friend bool operator==(const ScheduledStep&, const ScheduledStep&) = default;
};

struct SchedulerCounters {
  uint64_t requests_added = 0, requests_refused = 0;
  std::array<uint64_t, 8> requests_finished{};  // by FinishReason
  uint64_t steps = 0, preemptions = 0;
  uint64_t decode_tokens = 0, prefill_tokens = 0, draft_tokens = 0;  // scheduled rows
  uint64_t cached_prompt_tokens = 0;                                 // reused when first admitted
  uint64_t cached_resumed_tokens = 0;                                // reused after a pre-emption
};

class Scheduler {
 public:
  // REQUIRES: options.validate() is ok; the engine outlives the scheduler.
  Scheduler(EngineControl& engine, const SchedulerOptions& options, DraftPolicy draft_policy = nullptr);

  // Why a request could not be taken now; the caller answers before any stream is opened. What can never fit:
  // kInvalidArgument with both numbers. A full queue: kResourceExhausted.
  Status can_add(int64_t num_prompt_tokens) const;
  // Takes a sequence that the engine knows. On an error nothing was taken, and the caller removes it from the
  // engine.
  Status add(SequenceId id, const RequestOptions& options, Timestamp now);
  // Ends the request at the next schedule() or apply(), whichever comes first, wherever it is by then. False:
  // it has ended already (its kFinished event was given out).
  bool cancel(SequenceId id);

  // REQUIRES: the step before was applied. Valid until the next call. Events of its own (ended by cancel or
  // deadline, pre-empted, admitted) are in events() and in the next apply()'s answer. When the step is empty,
  // apply() is not called.
  const ScheduledStep& schedule(Timestamp now);
  // REQUIRES: at least one event per segment, in their order (with drafts: one per accepted token). A
  // segment's rows were computed, all of them, or its event has an error. Returns all events since schedule()
  // began.
  std::span<const SchedulerEvent> apply(StepResult&& result, Timestamp now);
  std::span<const SchedulerEvent> events() const { return events_; }

  bool has_work() const { return !requests_.empty(); }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  const SchedulerCounters& counters() const { return counters_; }
  // The c of the fairness bound.
  int64_t prefill_tokens_guaranteed() const;
  // The fairness bound that was promised to a running sequence at its (last) admission; 0 for others.
  int64_t first_token_steps_max(SequenceId id) const;
  // The two maps, the index and the engine's numbers agree.
  Status check_integrity() const;

 private:
  struct Order {
    int32_t priority = 0;
    uint64_t arrival = 0;
    friend auto operator<=>(const Order&, const Order&) = default;
  };
  struct Request {
    SequenceId id{};
    std::optional<Timestamp> deadline;
    bool is_cancelled = false;
    RequestRecord record;
    // While running:
    uint64_t admission = 0;  // counts up
    uint64_t step_admitted = 0;
    int64_t first_token_steps_max = 0;
    bool has_token_since_admission = false;
  };
  using Requests = std::map<Order, Request>;

  int64_t missing_rows(const Request& request) const;
  void emit(SchedulerEvent::Kind kind, Timestamp at, const Request& request, SequenceEvent output = {});
  void finish(Requests& from, Requests::iterator request, FinishReason reason, std::optional<Error> error,
              Timestamp now);
  void end_cancelled_and_late(Timestamp now);
  void end_without_room(Requests& from, Requests::iterator request, int64_t num_rows, Timestamp now);
  void preempt(Requests::iterator victim, Timestamp now);
  bool make_room(Requests::iterator row, int64_t num_rows, Timestamp now);
  void refresh_blocks();
  int64_t blocks_missing() const;
  void push_segment(const Request& request, int64_t num_tokens);
  void plan_decode(Timestamp now);
  void plan_prefill(Timestamp now);
  void plan_chunk(Requests::iterator row, Timestamp now);
  void admit_waiting(Timestamp now);
  bool admit_head(Timestamp now);
  void plan_drafts();
  void apply_event(SequenceEvent&& event, Timestamp now);

  EngineControl& engine_;
  SchedulerOptions options_;
  DraftPolicy draft_policy_;
  PrefillGovernor governor_;
  int64_t blocks_kept_free_;  // beside running rows; 0 when dense
  int64_t rows_max_;          // of a sequence
  Requests waiting_, running_;
  std::unordered_map<SequenceId, Order> requests_;  // never iterated for decisions
  uint64_t num_arrivals_ = 0, num_admissions_ = 0;
  std::vector<SchedulerEvent> events_;
  SchedulerCounters counters_;

  // The step that is being planned or runs.
  ScheduledStep step_;
  bool is_step_open_ = false;
  bool has_preempted_ = false;
  int64_t blocks_available_ = 0, blocks_planned_ = 0;
  int64_t num_decode_rows_ = 0, prefill_planned_ = 0, prefill_left_ = 0;
  std::vector<std::pair<uint64_t, Order>> prompts_;  // scratch: by admission
};

}  // namespace mlxcel
