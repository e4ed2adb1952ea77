#include "simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

namespace mlxcel::sim {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

constexpr int64_t kStepsMax = 20000;  // a history that is not over by then never will be

struct Client {
  FakeRequest request;
  RequestOptions options;
  Timestamp arrival{};
  int64_t cancel_after_steps = -1;  // of the simulation, after it arrived; -1: never
  int64_t reads_one_in = 1;         // reads its queue empty in one of so many steps
  int64_t unread_max = 0;           // tokens its queue holds; 0: any number
  // What happened.
  SequenceId id{};
  bool is_added = false, is_scheduled = false, is_running = false, is_finished = false, is_cancelled = false;
  uint64_t queue_place = 0;
  int64_t steps_since_arrival = 0, steps_since_admission = 0, unread = 0;
  bool waits_for_token = false;  // since its last admission
  std::vector<TokenId> text;
};

class Simulation {
 public:
  Simulation(uint64_t seed, const SimulationOptions& options)
      : random_(seed),
        sim_options_(options),
        engine_options_(draw_engine_options(options)),
        scheduler_options_(draw_scheduler_options()),
        engine_(engine_options_, seed + 1),
        scheduler_(engine_, scheduler_options_, draw_draft_policy()) {
    draw_clients();
  }

  Outcome run() {
    for (int64_t step = 0; !failure_ && (num_arrived_ < clients_.size() || scheduler_.has_work()); ++step) {
      if (step == kStepsMax) fail("the history does not end");
      deliver_arrivals();
      cancel_some();
      one_step();
    }
    check_end();
    outcome_.failure = failure_;
    outcome_.coverage.engine = engine_.counters();
    outcome_.coverage.requests = clients_.size();
    outcome_.coverage.preemptions = scheduler_.counters().preemptions;
    outcome_.coverage.cached_tokens = scheduler_.counters().cached_prompt_tokens;
    outcome_.coverage.resumed_cached_tokens = scheduler_.counters().cached_resumed_tokens;
    return outcome_;
  }

 private:
  template <typename... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    if (!failure_) failure_ = fmt::format(format, std::forward<Args>(args)...);
  }

  FakeEngineOptions draw_engine_options(const SimulationOptions& options) {
    FakeEngineOptions drawn;
    drawn.block_size = static_cast<int32_t>(random_.between(1, 8));
    drawn.num_blocks = static_cast<int32_t>(random_.between(2, random_.one_in(4) ? 150 : 20));
    drawn.context_length = random_.between(8, 90);
    drawn.row_error_one_in = random_.one_in(3) ? random_.between(5, 60) : 0;
    drawn.step_error_one_in = random_.one_in(5) ? random_.between(5, 40) : 0;
    drawn.padding = random_.one_in(2) ? random_.between(2, 8) : 1;
    drawn.shares_running_prompts = random_.one_in(2);
    drawn.block_order_seed = options.block_order_seed;
    drawn.forgets_copies = options.forgets_copies;
    return drawn;
  }

  SchedulerOptions draw_scheduler_options() {
    SchedulerOptions drawn;
    drawn.max_running = static_cast<int32_t>(random_.between(1, 6));
    drawn.max_queue = static_cast<int32_t>(random_.between(0, 12));
    drawn.adapts_prefill = random_.one_in(2);
    drawn.prefill_tokens_min = static_cast<int32_t>(random_.between(1, 4));
    drawn.max_batch_tokens =
        drawn.max_running + drawn.prefill_tokens_min + static_cast<int32_t>(random_.between(0, 24));
    drawn.prefill_chunk = static_cast<int32_t>(random_.between(1, 30));
    return drawn;
  }

  DraftPolicy draw_draft_policy() {
    const auto drafts = static_cast<int32_t>(random_.between(0, 4));
    if (drafts == 0) return nullptr;
    return [drafts](SequenceId id, int32_t max) {
      return std::min(max, static_cast<int32_t>(static_cast<uint64_t>(id) % 3 == 0 ? 0 : drafts));
    };
  }

  std::vector<TokenId> draw_tokens(int64_t count) {
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(random_.between(1, 23)));
    return tokens;
  }

  // A family's beginning and something of its own; or the next turn of a conversation: all that was said, and
  // more.
  std::vector<TokenId> draw_prompt(const std::vector<std::vector<TokenId>>& families) {
    if (!clients_.empty() && random_.one_in(3)) {
      const Client& earlier = clients_[static_cast<size_t>(random_.between(0, std::ssize(clients_) - 1))];
      std::vector<TokenId> prompt = earlier.request.prompt;
      if (std::ssize(prompt) < engine_.rows_max()) {
        const LoneRun run = run_alone(earlier.request, engine_.rows_max());
        prompt.insert(prompt.end(), run.tokens.begin(), run.tokens.end());
      }
      const std::vector<TokenId> more = draw_tokens(random_.between(0, 6));
      prompt.insert(prompt.end(), more.begin(), more.end());
      return prompt;
    }
    std::vector<TokenId> prompt = families[static_cast<size_t>(random_.between(0, std::ssize(families) - 1))];
    prompt.resize(static_cast<size_t>(random_.between(1, std::ssize(prompt))));
    if (random_.one_in(4)) return prompt;
    const std::vector<TokenId> more = draw_tokens(random_.between(1, 12));
    prompt.insert(prompt.end(), more.begin(), more.end());
    return prompt;
  }

  void draw_clients() {
    std::vector<std::vector<TokenId>> families;
    for (int64_t i = random_.between(1, 4); i > 0; --i)
      families.push_back(draw_tokens(random_.between(1, 50)));
    const int64_t priorities = random_.between(1, 3), pause_ms = random_.between(0, 200);
    const bool are_cancelled = random_.one_in(2), have_deadlines = random_.one_in(4),
               are_slow = random_.one_in(3);
    Timestamp arrival{};
    for (int64_t i = random_.between(3, 40); i > 0; --i) {
      Client client;
      client.request = {draw_prompt(families), random_.next(), random_.between(1, 60)};
      client.options.priority = static_cast<int32_t>(random_.between(1, priorities));
      arrival += milliseconds(random_.between(0, pause_ms));
      client.arrival = arrival;
      if (are_cancelled && random_.one_in(3)) client.cancel_after_steps = random_.between(0, 25);
      if (have_deadlines && random_.one_in(3)) {
        client.options.deadline = arrival + milliseconds(random_.between(0, 3000));
      }
      if (are_slow && random_.one_in(2)) {
        client.reads_one_in = random_.between(1, 8);
        client.unread_max = random_.between(1, 8);
      }
      clients_.push_back(std::move(client));
    }
  }

  Client* find(SequenceId id) {
    const auto found = std::find_if(clients_.begin(), clients_.end(), [id](const Client& client) {
      return client.is_added && client.id == id;
    });
    return found == clients_.end() ? nullptr : &*found;
  }

  void deliver_arrivals() {
    for (; num_arrived_ < clients_.size() && clients_[num_arrived_].arrival <= now_; ++num_arrived_) {
      Client& client = clients_[num_arrived_];
      const auto length = std::ssize(client.request.prompt);
      const bool is_too_long = length + 1 > engine_options_.context_length;
      const bool is_too_big = length + 1 > int64_t{engine_options_.num_blocks} * engine_options_.block_size;
      const bool is_full = scheduler_.num_running() + scheduler_.num_waiting() >=
                           scheduler_options_.max_running + scheduler_options_.max_queue;
      client.id = engine_.add(client.request);
      const Status status = scheduler_.add(client.id, client.options, now_);
      if (status.ok() == (is_too_long || is_too_big || is_full))
        fail("request {} is not refused rightly", num_arrived_);
      if (!status.ok()) {
        engine_.remove(client.id);
        client.is_finished = true;
        const bool is_hopeless = status.error().kind == ErrorKind::kInvalidArgument;
        if (is_hopeless != (is_too_long || is_too_big))
          fail("request {} is refused with another reason", num_arrived_);
        ++(is_too_long  ? outcome_.coverage.refused_for_context
           : is_too_big ? outcome_.coverage.refused_for_blocks
                        : outcome_.coverage.refused_for_queue);
        continue;
      }
      client.is_added = true;
      client.queue_place = num_arrived_;
    }
  }

  void cancel(Client& client) {
    if (client.is_cancelled) return;
    client.is_cancelled = true;
    if (!scheduler_.cancel(client.id))
      fail("sequence {} cannot be cancelled", static_cast<uint64_t>(client.id));
    ++(!client.is_running    ? outcome_.coverage.cancelled_waiting
       : client.text.empty() ? outcome_.coverage.cancelled_in_prompt
                             : outcome_.coverage.cancelled_in_text);
  }

  void cancel_some() {
    for (Client& client : clients_) {
      if (!client.is_added || client.is_finished) continue;
      if (client.steps_since_arrival++ == client.cancel_after_steps) cancel(client);
      if (random_.one_in(client.reads_one_in)) client.unread = 0;
    }
  }

  void one_step() {
    const ScheduledStep& step = scheduler_.schedule(now_);
    if (sim_options_.prints_steps) print_step(step);
    check_cancelled_are_gone();
    check_step(step);
    if (failure_) return;
    if (step.segments.empty()) {
      handle_events(scheduler_.events());
      now_ += milliseconds(20);
      return;
    }
    note_admissions(step);
    ++outcome_.coverage.steps;
    StepResult result = engine_.step(step);
    now_ += duration_cast<Timestamp>(std::chrono::duration<double>(result.seconds));
    handle_events(scheduler_.apply(std::move(result), now_));
    check_integrity();
  }

  void print_step(const ScheduledStep& step) {
    const BlockCounts blocks = engine_.blocks();
    fmt::print("{:7} ms  running {} waiting {}  free {} evictable {}  spare {} |", now_.count() / 1000000,
               scheduler_.num_running(), scheduler_.num_waiting(), blocks.free, blocks.evictable,
               step.num_spare_blocks);
    for (const ScheduledSegment& segment : step.segments) {
      fmt::print(" #{}:{}+{}", static_cast<uint64_t>(segment.sequence), segment.num_tokens,
                 segment.num_drafts);
    }
    fmt::print("\n");
  }

  void check_step(const ScheduledStep& step) {
    int64_t tokens = 0, blocks = 0, draft_blocks = 0;
    std::set<SequenceId> seen;
    const auto hash = [this](uint64_t value) {
      outcome_.steps_hash = Random(outcome_.steps_hash ^ value).next();
    };
    hash(step.segments.size());
    for (const ScheduledSegment& segment : step.segments) {
      for (const int64_t value : {static_cast<int64_t>(segment.sequence), int64_t{segment.num_tokens},
                                  int64_t{segment.num_drafts}, segment.num_blocks}) {
        hash(static_cast<uint64_t>(value));
      }
      const int64_t missing = engine_.num_tokens(segment.sequence) - engine_.num_computed(segment.sequence);
      if (!seen.insert(segment.sequence).second) fail("a sequence has two segments in one step");
      if (segment.num_tokens < 1 || segment.num_tokens > missing)
        fail("a segment has {} rows", segment.num_tokens);
      if (segment.num_drafts < 0 || (segment.num_drafts > 0 && missing != 1)) fail("drafts beside a prompt");
      tokens += segment.num_tokens + segment.num_drafts;
      blocks += segment.num_blocks;
      draft_blocks += segment.num_blocks - engine_.blocks_needed(segment.sequence, segment.num_tokens);
    }
    if (tokens > scheduler_options_.max_batch_tokens) fail("a step has {} rows", tokens);
    if (scheduler_.num_running() > scheduler_options_.max_running) fail("too many sequences run");
    const int64_t blocks_left = engine_.blocks().available() - blocks - step.num_spare_blocks;
    if (blocks_left < 0) fail("more blocks are planned than there are");
    if (draft_blocks + step.num_spare_blocks > 0 && blocks_left == 0)
      fail("optional rows may take the last block");
    if (step.segments.empty() && scheduler_.has_work() && scheduler_.num_running() > 0) fail("nobody moves");
    check_integrity();
  }

  // Who runs now and did not before. Nobody may have overtaken one that still waits.
  void note_admissions(const ScheduledStep& step) {
    for (const SchedulerEvent& event : scheduler_.events()) {
      if (event.kind == SchedulerEvent::Kind::kPreempted) find(event.sequence)->is_running = false;
    }
    for (const ScheduledSegment& segment : step.segments) {
      Client& client = *find(segment.sequence);
      if (client.is_running) continue;
      client.is_running = client.waits_for_token = true;
      client.steps_since_admission = 0;
      for (const Client& other : clients_) {
        const bool waits = other.is_added && !other.is_finished && engine_.knows(other.id) &&
                           engine_.num_computed(other.id) == 0 && !other.is_running && !is_in(step, other.id);
        if (waits && std::pair(other.options.priority, other.queue_place) <
                         std::pair(client.options.priority, client.queue_place)) {
          fail("sequence {} overtakes sequence {}", static_cast<uint64_t>(client.id),
               static_cast<uint64_t>(other.id));
        }
      }
    }
    for (Client& client : clients_) client.steps_since_admission += client.is_running ? 1 : 0;
    check_promises();
    check_reserve();
  }

  // Whoever is admitted finds room for all rows that are missing, and 1 % of the pool beside other rows.
  void check_reserve() {
    int64_t blocks_missing = 0, num_running = 0;
    bool has_new = false;
    for (const Client& client : clients_) {
      if (!client.is_running || !engine_.knows(client.id)) continue;
      const int64_t missing = engine_.num_tokens(client.id) - engine_.num_computed(client.id);
      blocks_missing += engine_.blocks_needed(client.id, missing);
      has_new = has_new || client.steps_since_admission == 1;
      ++num_running;
    }
    if (num_running > 1) blocks_missing += (engine_options_.num_blocks + 99) / 100;
    if (has_new && blocks_missing > engine_.blocks().available())
      fail("a sequence is admitted without room for it");
  }

  static bool is_in(const ScheduledStep& step, SequenceId id) {
    return std::any_of(step.segments.begin(), step.segments.end(),
                       [id](const ScheduledSegment& segment) { return segment.sequence == id; });
  }

  // The fairness bound is no larger than what all that runs would need.
  void check_promises() {
    int64_t missing = 0;
    for (const Client& client : clients_) {
      if (client.is_running && engine_.knows(client.id)) {
        missing += engine_.num_tokens(client.id) - engine_.num_computed(client.id);
      }
    }
    const int64_t rows = scheduler_.prefill_tokens_guaranteed();
    for (const Client& client : clients_) {
      if (!client.is_running || !engine_.knows(client.id) || client.steps_since_admission != 1) continue;
      const int64_t promised = scheduler_.first_token_steps_max(client.id);
      if (promised < 1 || promised > (missing + rows - 1) / rows)
        fail("the fairness bound is {} steps", promised);
    }
  }

  void handle_events(std::span<const SchedulerEvent> events) {
    for (const SchedulerEvent& event : events) {
      Client* client = find(event.sequence);
      if (client == nullptr || client->is_finished) return fail("an event comes after the final one");
      switch (event.kind) {
        case SchedulerEvent::Kind::kScheduled:
          if (client->is_scheduled) fail("a sequence is scheduled for the first time twice");
          client->is_scheduled = true;
          break;
        case SchedulerEvent::Kind::kPreempted:
          if (engine_.knows(client->id) && engine_.num_computed(client->id) != 0)
            fail("rows stay after a pre-emption");
          break;
        case SchedulerEvent::Kind::kOutput:
          handle_token(*client, event.output.token.value());
          break;
        case SchedulerEvent::Kind::kFinished:
          handle_end(*client, event);
          break;
      }
    }
  }

  void handle_token(Client& client, TokenId token) {
    if (!client.is_scheduled) fail("a token comes before its sequence is scheduled");
    client.text.push_back(token);
    ++outcome_.coverage.tokens;
    if (client.waits_for_token) {
      const int64_t promised = scheduler_.first_token_steps_max(client.id);
      // 0: ended in this step, the scheduler has forgotten it.
      if (promised > 0 && client.steps_since_admission > promised) fail("a first token is late");
      outcome_.coverage.bounds_met_exactly +=
          client.steps_since_admission == promised && promised > 1 ? 1 : 0;
    }
    client.waits_for_token = false;
    if (client.unread_max > 0 && ++client.unread > client.unread_max && engine_.knows(client.id)) {
      outcome_.coverage.slow_clients += client.is_cancelled ? 0 : 1;
      cancel(client);
    }
  }

  void handle_end(Client& client, const SchedulerEvent& event) {
    client.is_finished = true;
    client.is_running = false;
    if (engine_.knows(client.id)) fail("an ended sequence keeps its rows");
    const LoneRun alone = run_alone(client.request, engine_.rows_max());
    const FinishReason reason = event.output.finish;
    const auto length = std::ssize(client.text);
    const bool is_prefix = length <= std::ssize(alone.tokens) &&
                           std::equal(client.text.begin(), client.text.end(), alone.tokens.begin());
    if (!is_prefix) fail("sequence {}: another text than alone", static_cast<uint64_t>(client.id));
    if (event.record.num_generated_tokens != length) fail("the count of tokens is wrong");
    Coverage& coverage = outcome_.coverage;
    if (reason == FinishReason::kCancelled) {
      if (!client.is_cancelled) fail("nobody cancelled sequence {}", static_cast<uint64_t>(client.id));
    } else if (reason == FinishReason::kError) {
      const bool is_late = event.output.error->kind == ErrorKind::kResourceExhausted;
      if (is_late && !(client.options.deadline && now_ >= *client.options.deadline)) {
        fail("sequence {}: {}", static_cast<uint64_t>(client.id), event.output.error->one_line());
      }
      ++(is_late ? coverage.deadlines : coverage.failed);
    } else {
      if (reason != alone.finish || length != std::ssize(alone.tokens)) {
        fail("sequence {} ends otherwise than alone", static_cast<uint64_t>(client.id));
      }
      ++(reason == FinishReason::kEos         ? coverage.finished_by_end
         : reason == FinishReason::kMaxTokens ? coverage.finished_by_length
                                              : coverage.finished_by_context);
    }
  }

  // A cancellation takes one step at most, and the blocks are back at once.
  void check_cancelled_are_gone() {
    for (const Client& client : clients_) {
      if (client.is_cancelled && engine_.knows(client.id)) {
        fail("sequence {} runs on after its cancellation", static_cast<uint64_t>(client.id));
      }
    }
  }

  void check_integrity() {
    for (const Status& status : {engine_.check_integrity(), scheduler_.check_integrity()}) {
      if (!status.ok()) fail("{}", status.error().one_line());
    }
  }

  void check_end() {
    if (failure_) return;
    for (size_t i = 0; i < clients_.size(); ++i) {
      if (!clients_[i].is_finished) fail("request {} has no final event", i);
    }
    if (const int64_t in_use = engine_.drain(); in_use != 0) fail("{} blocks stay in use", in_use);
  }

  Random random_;
  SimulationOptions sim_options_;
  FakeEngineOptions engine_options_;
  SchedulerOptions scheduler_options_;
  FakeEngine engine_;
  Scheduler scheduler_;
  std::vector<Client> clients_;  // by arrival
  size_t num_arrived_ = 0;
  Timestamp now_{};
  std::optional<std::string> failure_;
  Outcome outcome_;
};

}  // namespace

void Coverage::add(const Coverage& other) {
  static_assert(sizeof(Coverage) % sizeof(uint64_t) == 0);
  requests += other.requests;
  steps += other.steps;
  tokens += other.tokens;
  preemptions += other.preemptions;
  resumed_cached_tokens += other.resumed_cached_tokens;
  cached_tokens += other.cached_tokens;
  refused_for_queue += other.refused_for_queue;
  refused_for_context += other.refused_for_context;
  refused_for_blocks += other.refused_for_blocks;
  cancelled_waiting += other.cancelled_waiting;
  cancelled_in_prompt += other.cancelled_in_prompt;
  cancelled_in_text += other.cancelled_in_text;
  slow_clients += other.slow_clients;
  deadlines += other.deadlines;
  finished_by_end += other.finished_by_end;
  finished_by_length += other.finished_by_length;
  finished_by_context += other.finished_by_context;
  failed += other.failed;
  bounds_met_exactly += other.bounds_met_exactly;
  engine.copies += other.engine.copies;
  engine.evicted += other.engine.evicted;
  engine.padded_rows_trimmed += other.engine.padded_rows_trimmed;
  engine.drafts_accepted += other.engine.drafts_accepted;
  engine.drafts_rejected += other.engine.drafts_rejected;
  engine.row_errors += other.engine.row_errors;
  engine.step_errors += other.engine.step_errors;
  engine.tails_not_adopted += other.engine.tails_not_adopted;
  engine.adopted_rows += other.engine.adopted_rows;
}

Outcome simulate(uint64_t seed, const SimulationOptions& options) { return Simulation(seed, options).run(); }

}  // namespace mlxcel::sim
