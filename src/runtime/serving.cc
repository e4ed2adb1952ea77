#include "runtime/serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/environment.h"
#include "base/log.h"
#include "runtime/choice_stream.h"
#include "runtime/engine_adapter.h"
#include "runtime/serving_metrics.h"
#include "scheduler/scheduler.h"

namespace mlxcel {

namespace {

double to_seconds(Timestamp t) { return static_cast<double>(t.count()) * 1e-9; }
Timestamp to_timestamp(double seconds) { return Timestamp(static_cast<int64_t>(seconds * 1e9)); }

// One request inside the loop. Its choices become sequences: choice 0 first, the others when its prompt has
// been computed, so that they find its rows in the prefix cache instead of computing them again.
struct ActiveRequest {
  RequestId id = 0;
  GenerationRequest request;
  EventSink sink;
  double queued_at = 0.0;
  int num_started = 0, num_ended = 0;
  bool is_cancelled = false;
  std::vector<Logprobs> prompt_logprobs;
  size_t num_prompt_logprobs = 0;
};

struct ActiveChoice {
  std::shared_ptr<ActiveRequest> owner;
  int choice = 0;
  std::unique_ptr<ChoiceStream> stream;
  RequestTimings timings;
  double last_token_at = 0.0;
  int64_t cached_tokens = 0;
  std::string phase = "queued";
  bool has_prompt_logprobs = false;
  bool has_ended = false;  // its last event was given out; the scheduler may still have to let go
};

class Loop final : public ServingLoop {
 public:
  explicit Loop(ServingOptions options) : options_(std::move(options)), started_at_(monotonic_seconds()) {
    thread_ = std::thread([this] { run(); });
  }
  ~Loop() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  State state() const override { return state_.load(std::memory_order_acquire); }
  double load_progress() const override { return progress_.load(std::memory_order_relaxed); }
  std::optional<Error> failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  Status wait_until_ready() override {
    std::unique_lock lock(mutex_);
    loaded_.wait(lock, [this] { return state() != State::kLoading; });
    if (failure_) return *failure_;
    return ok_status();
  }
  const TextModel& text() const override { return session_.text; }
  const ModelInfo& info() const override { return info_; }

  Result<RequestId> submit(GenerationRequest request, EventSink sink) override {
    MLXCEL_RETURN_IF_ERROR(check(request));
    const std::lock_guard lock(mutex_);
    if (state() != State::kReady || stopping_) {
      return make_error(ErrorKind::kResourceExhausted, "the server is shutting down");
    }
    if (num_waiting_ >= options_.max_queue) {
      return make_error(ErrorKind::kResourceExhausted, "the queue is full", {},
                        fmt::format("at most {} waiting requests", options_.max_queue),
                        fmt::format("{}", num_waiting_), "try again in a moment");
    }
    ++num_waiting_;
    auto active = std::make_shared<ActiveRequest>();
    active->id = ++last_id_;
    active->request = std::move(request);
    active->sink = std::move(sink);
    active->queued_at = monotonic_seconds();
    inbox_.push_back(active);
    wake_.notify_all();
    return active->id;
  }
  void cancel(RequestId id) override {
    {
      const std::lock_guard lock(mutex_);
      cancels_.push_back(id);
    }
    wake_.notify_all();
  }
  ServingSnapshot snapshot() const override {
    const std::lock_guard lock(mutex_);
    ServingSnapshot copy = snapshot_;
    copy.uptime_seconds = monotonic_seconds() - started_at_;
    return copy;
  }
  Status reset_prefix_cache() override {
    const std::lock_guard lock(mutex_);
    reset_requested_ = true;
    wake_.notify_all();
    return ok_status();
  }
  void drain() override {
    State ready = State::kReady;
    state_.compare_exchange_strong(ready, State::kDraining);
    wake_.notify_all();
  }
  bool is_idle() const override {
    const std::lock_guard lock(mutex_);
    return inbox_.empty() && is_idle_;
  }

 private:
  // ---- loading ----

  void run() {
    if (const Status loaded = load(); !loaded.ok()) {
      const std::lock_guard lock(mutex_);
      failure_ = loaded.error();
      state_.store(State::kFailed, std::memory_order_release);
      loaded_.notify_all();
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      state_.store(State::kReady, std::memory_order_release);
      loaded_.notify_all();
    }
    serve();
  }

  Status load() {
    SessionOptions session = options_.session;
    const auto outer = session.runner.progress;
    session.runner.progress = [this, outer](uint64_t done, uint64_t total) {
      if (total > 0)
        progress_.store(static_cast<double>(done) / static_cast<double>(total), std::memory_order_relaxed);
      if (outer) outer(done, total);
    };
    session.engine.max_sequences = options_.max_rows;
    session.engine.max_waiting = options_.max_queue;
    session.engine.prefix_cache = options_.prefix_cache;
    session.engine.lookahead = options_.lookahead && !options_.force_sync;
    MLXCEL_ASSIGN_OR_RETURN(session_, open_session(session));
    adapter_.emplace(*session_.engine);
    MLXCEL_ASSIGN_OR_RETURN(const SchedulerOptions scheduler, scheduler_options());
    scheduler_.emplace(*adapter_, scheduler, draft_policy());
    rows_max_ = adapter_->rows_max();
    fill_info();
    const std::lock_guard lock(mutex_);
    update_snapshot(0.0);
    return ok_status();
  }

  Result<SchedulerOptions> scheduler_options() const {
    SchedulerOptions s;
    s.max_running = options_.max_rows;
    // Choices beyond the first are started by the loop, so they need room in the scheduler's queue as well.
    s.max_queue = options_.max_queue + 128;
    s.adapts_prefill = options_.max_batch_tokens == 0;
    if (options_.max_batch_tokens > 0) s.max_batch_tokens = static_cast<int32_t>(options_.max_batch_tokens);
    s.max_batch_tokens = std::max(s.max_batch_tokens, options_.max_rows + 1);
    if (options_.prefill_chunk > 0) s.prefill_chunk = options_.prefill_chunk;
    s.prefill_tokens_min = std::min(s.prefill_tokens_min, s.prefill_chunk);
    MLXCEL_RETURN_IF_ERROR(s.validate());
    return s;
  }
  DraftPolicy draft_policy() {
    if (options_.draft_kind != "ngram") return nullptr;
    return [this](SequenceId id, int32_t most) {
      return session_.engine->propose_drafts(id, std::min(most, options_.draft_max));
    };
  }

  void fill_info() {
    const ModelRunner& runner = session_.engine->runner();
    const ModelSpec& spec = runner.spec();
    info_.path = options_.session.model_path;
    info_.id = options_.alias.empty() ? std::string(path_basename(info_.path)) : options_.alias;
    info_.family = spec.family;
    info_.architecture = spec.architecture;
    info_.quantisation = session_.quantisation;
    info_.device = runner.description();
    const KvLayout& kv = runner.kv_layout();
    info_.kv_type = kv.key_type == kv.value_type
                        ? std::string(kv_type_name(kv.key_type))
                        : fmt::format("{}/{}", kv_type_name(kv.key_type), kv_type_name(kv.value_type));
    info_.storage = session_.engine->block_pool() != nullptr ? "paged" : "dense";
    info_.precision = std::string(activation_precision_name(runner.precision()));
    info_.context_length = session_.engine->context_length();
    info_.vocab_size = spec.vocab_size;
    info_.max_rows = options_.max_rows;
    info_.parameters = spec.num_parameters_estimate();
    info_.weight_bytes = runner.resident_bytes();
    info_.memory = session_.memory.describe();
    info_.warnings = session_.warnings;
    info_.load_seconds = session_.load_seconds;
    info_.created = unix_time();
  }

  // ---- requests ----

  Status check(const GenerationRequest& r) const {
    if (r.prompt.empty()) {
      return make_error(ErrorKind::kInvalidArgument, "the prompt has no tokens", "prompt", "at least 1", "0");
    }
    MLXCEL_RETURN_IF_ERROR(r.sampling.validate());
    const int64_t vocab = info_.vocab_size;
    for (const TokenId id : r.prompt) {
      if (id < 0 || id >= vocab) {
        return make_error(ErrorKind::kInvalidArgument, "the prompt holds a token the model does not have",
                          "prompt", fmt::format("ids below {}", vocab), fmt::format("{}", id));
      }
    }
    return check_context(static_cast<int64_t>(r.prompt.size()));
  }
  Status check_context(int64_t num_prompt) const {
    const int64_t most = rows_max_;
    if (num_prompt + 1 <= most) return ok_status();
    return make_error(
        ErrorKind::kInvalidArgument,
        fmt::format("the prompt has {} tokens and the context holds {}, one of them for the answer",
                    num_prompt, most),
        "context_length_exceeded", {}, {}, "shorten the prompt, or start the server with a larger -c");
  }

  SequenceRequest sequence_request(const ActiveRequest& active, int choice) const {
    const GenerationRequest& r = active.request;
    SequenceRequest s;
    s.prompt = r.prompt;
    s.sampling = r.sampling;
    s.sampling.choice_index = static_cast<uint32_t>(choice);
    s.stop = r.stop;
    s.stop.eos_ids = session_.text.eos_ids;
    s.num_logprobs = r.num_logprobs;
    s.wants_prompt_logits = r.wants_prompt_logprobs && choice == 0;
    s.use_prefix_cache = r.use_prefix_cache;
    s.cache_salt = r.cache_salt;
    return s;
  }

  // A failed start ends the choice with its error.
  void start_choice(const std::shared_ptr<ActiveRequest>& active) {
    const int choice = active->num_started++;
    auto record = std::make_unique<ActiveChoice>();
    record->owner = active;
    record->choice = choice;
    record->stream = std::make_unique<ChoiceStream>(session_.text.tokenizer, active->request);
    record->timings.queued = active->queued_at;
    auto id = session_.engine->add(sequence_request(*active, choice));
    std::optional<Error> error;
    if (!id.ok()) {
      error = id.error();
    } else {
      RequestOptions options;
      options.priority = -active->request.priority;
      if (active->request.deadline_seconds > 0.0) {
        options.deadline = to_timestamp(active->queued_at + active->request.deadline_seconds);
      }
      if (const Status taken = scheduler_->add(*id, options, to_timestamp(monotonic_seconds()));
          !taken.ok()) {
        session_.engine->remove(*id);
        error = taken.error();
      }
    }
    if (error) {
      GenerationEvent event;
      event.finish = FinishReason::kError;
      event.error = std::move(error);
      return end_choice(*record, std::move(event));
    }
    choices_.emplace(static_cast<uint64_t>(*id), std::move(record));
  }

  void take_inbox(std::deque<std::shared_ptr<ActiveRequest>>& arrivals, std::vector<RequestId>& cancels) {
    for (const std::shared_ptr<ActiveRequest>& active : arrivals) {
      active_.emplace(active->id, active);
      start_choice(active);
    }
    for (const RequestId id : cancels) {
      const auto it = active_.find(id);
      if (it == active_.end()) continue;
      it->second->is_cancelled = true;
      const std::shared_ptr<ActiveRequest> active = it->second;
      for (auto& [sequence, choice] : choices_) {
        if (choice->owner == active && !choice->has_ended) scheduler_->cancel(SequenceId{sequence});
      }
      end_unstarted(active);
    }
  }

  // Choices that were not started yet end with the request.
  void end_unstarted(const std::shared_ptr<ActiveRequest>& active) {
    while (active->num_started < active->request.num_choices) {
      ActiveChoice never;
      never.owner = active;
      never.choice = active->num_started++;
      never.timings.queued = active->queued_at;
      GenerationEvent event;
      event.finish = FinishReason::kCancelled;
      end_choice(never, std::move(event));
    }
  }

  // ---- events ----

  void end_choice(ActiveChoice& choice, GenerationEvent event) {
    ActiveRequest& owner = *choice.owner;
    choice.has_ended = true;
    ++owner.num_ended;
    event.choice = choice.choice;
    event.is_last = owner.num_ended == owner.request.num_choices;
    event.prompt_tokens = static_cast<int64_t>(owner.request.prompt.size());
    event.cached_tokens = choice.cached_tokens;
    event.generated_tokens = choice.stream ? choice.stream->num_tokens() : 0;
    choice.timings.finished = monotonic_seconds();
    event.timings = choice.timings;
    metrics_.observe_finished(choice.timings, event.finish, event.prompt_tokens, event.cached_tokens,
                              event.generated_tokens);
    const bool last = event.is_last;
    owner.sink(std::move(event));
    if (last) active_.erase(owner.id);
  }

  void on_scheduler_event(const SchedulerEvent& e) {
    const auto it = choices_.find(static_cast<uint64_t>(e.sequence));
    if (it == choices_.end()) return;
    ActiveChoice& choice = *it->second;
    switch (e.kind) {
      case SchedulerEvent::Kind::kScheduled:
        choice.phase = "prefill";
        choice.timings.first_scheduled = to_seconds(e.at);
        choice.cached_tokens = e.record.num_cached_tokens;
        break;
      case SchedulerEvent::Kind::kPreempted:
        choice.phase = "preempted";
        break;
      case SchedulerEvent::Kind::kOutput:
        on_output(e.sequence, choice, e.output);
        break;
      case SchedulerEvent::Kind::kFinished:
        on_finished(choice, e.output);
        choices_.erase(it);
        break;
    }
  }

  void take_prompt_logits(ActiveChoice& choice, const SequenceEvent& output) {
    if (output.logits.empty()) return;
    const std::vector<TokenId>& prompt = choice.owner->request.prompt;
    const auto vocab = static_cast<size_t>(info_.vocab_size);
    const std::span<const float> all(output.logits);
    for (size_t i = 0; (i + 1) * vocab <= all.size(); ++i) {
      const size_t next = static_cast<size_t>(output.first_logits_position) + i + 1;
      if (next >= prompt.size()) break;
      // A pre-empted prompt is computed again; its positions count once.
      if (next != choice.owner->num_prompt_logprobs + 1) continue;
      ++choice.owner->num_prompt_logprobs;
      choice.owner->prompt_logprobs.push_back(
          compute_logprobs(all.subspan(i * vocab, vocab), prompt[next], choice.owner->request.num_logprobs));
    }
  }

  // A token that ends by an end rule contributes no text of its own.
  static bool is_end(FinishReason r) { return r == FinishReason::kEos || r == FinishReason::kStopToken; }

  // Every choice of the request gets them once, with its first token.
  static void give_prompt_logprobs(ActiveChoice& choice, GenerationEvent& event) {
    if (choice.has_prompt_logprobs) return;
    choice.has_prompt_logprobs = true;
    event.prompt_logprobs = choice.owner->prompt_logprobs;
  }

  GenerationEvent event_for(ActiveChoice& choice, const SequenceEvent& output) {
    GenerationEvent event;
    event.choice = choice.choice;
    if (output.token) give_prompt_logprobs(choice, event);
    return event;
  }

  void note_token(ActiveChoice& choice) {
    const double now = monotonic_seconds();
    if (choice.timings.first_token == 0.0) {
      choice.timings.first_token = now;
      metrics_.observe("mlxcel_time_to_first_token_seconds", now - choice.timings.queued);
    } else {
      metrics_.observe("mlxcel_inter_token_latency_seconds", now - choice.last_token_at);
    }
    choice.last_token_at = now;
    choice.phase = "decode";
  }

  void on_output(SequenceId id, ActiveChoice& choice, const SequenceEvent& output) {
    if (choice.has_ended) return;
    take_prompt_logits(choice, output);
    if (!output.token) return;
    const bool first = choice.timings.first_token == 0.0;
    note_token(choice);
    GenerationEvent event = event_for(choice, output);
    const bool goes_on = choice.stream->push(*output.token, output.logprobs, is_end(output.finish), event);
    if (!goes_on) {
      end_choice(choice, std::move(event));
      scheduler_->cancel(id);
    } else if (output.finish == FinishReason::kNone) {
      event.timings = choice.timings;
      event.prompt_tokens = static_cast<int64_t>(choice.owner->request.prompt.size());
      event.cached_tokens = choice.cached_tokens;
      event.generated_tokens = choice.stream->num_tokens();
      event.timings.finished = choice.last_token_at;
      choice.owner->sink(std::move(event));
    } else {
      pending_text_[static_cast<uint64_t>(id)] = std::move(event);  // its kFinished follows at once
    }
    if (first && choice.choice == 0 && !choice.owner->is_cancelled) to_start_.push_back(choice.owner);
  }

  void on_finished(ActiveChoice& choice, const SequenceEvent& output) {
    GenerationEvent event;
    const auto pending = pending_text_.find(static_cast<uint64_t>(output.sequence));
    const bool had_pending = pending != pending_text_.end();
    if (had_pending) {
      event = std::move(pending->second);
      pending_text_.erase(pending);
    }
    if (choice.has_ended) return;
    if (!had_pending && output.token) {
      take_prompt_logits(choice, output);
      note_token(choice);
      event = event_for(choice, output);
      if (!choice.stream->push(*output.token, output.logprobs, is_end(output.finish), event)) {
        return finish_with(choice, std::move(event));
      }
    } else if (!had_pending) {
      take_prompt_logits(choice, output);
      give_prompt_logprobs(choice, event);
    }
    event.finish = output.finish;
    event.error = output.error;
    if (output.finish != FinishReason::kError) choice.stream->flush(event);
    finish_with(choice, std::move(event));
  }
  void finish_with(ActiveChoice& choice, GenerationEvent event) {
    const std::shared_ptr<ActiveRequest> owner = choice.owner;
    end_choice(choice, std::move(event));
    if (choice.choice != 0) return;
    // Choice 0 is over; the others must not wait for a first token that has been.
    if (owner->is_cancelled) {
      end_unstarted(owner);
    } else {
      to_start_.push_back(owner);
    }
  }

  void start_waiting_choices() {
    std::vector<std::shared_ptr<ActiveRequest>> owners;
    owners.swap(to_start_);
    for (const std::shared_ptr<ActiveRequest>& owner : owners) {
      while (!owner->is_cancelled && owner->num_started < owner->request.num_choices) start_choice(owner);
    }
  }

  // ---- the loop ----

  // Waits for something to do. False: stop.
  bool wait_for_work(std::deque<std::shared_ptr<ActiveRequest>>& arrivals, std::vector<RequestId>& cancels,
                     bool& reset) {
    std::unique_lock lock(mutex_);
    const auto has_news = [this] {
      return stopping_ || !inbox_.empty() || !cancels_.empty() || reset_requested_;
    };
    if (!scheduler_->has_work()) {
      is_idle_ = active_.empty() && inbox_.empty();
      if (!has_news()) idle_check();
      wake_.wait(lock, has_news);
    }
    is_idle_ = false;
    arrivals.swap(inbox_);
    cancels.swap(cancels_);
    reset = std::exchange(reset_requested_, false);
    return !stopping_;
  }

  // With nothing running the books must balance: a difference is a bug of ours that must not be carried on
  // with.
  void idle_check() {
    const Status books = session_.engine->check_integrity();
    MLXCEL_CHECK_MSG(books.ok(), books.ok() ? "" : books.error().one_line());
    update_snapshot(0.0);
  }

  void serve() {
    std::deque<std::shared_ptr<ActiveRequest>> arrivals;
    std::vector<RequestId> cancels;
    bool reset = false;
    while (wait_for_work(arrivals, cancels, reset)) {
      if (reset) {
        if (const Status done = session_.engine->reset_prefix_cache(); !done.ok())
          log_warning("{}", done.error().one_line());
      }
      take_inbox(arrivals, cancels);
      arrivals.clear();
      cancels.clear();
      step();
      start_waiting_choices();
    }
    cancel_everything();
  }

  void step() {
    const ScheduledStep& plan = scheduler_->schedule(to_timestamp(monotonic_seconds()));
    if (plan.segments.empty()) {
      for (const SchedulerEvent& e : scheduler_->events()) on_scheduler_event(e);
      const std::lock_guard lock(mutex_);
      update_snapshot(0.0);
      return;
    }
    StepBatch batch;
    int64_t tokens = 0;
    for (const ScheduledSegment& s : plan.segments) {
      batch.segments.push_back({s.sequence, s.num_tokens, s.num_drafts});
      tokens += s.num_tokens + s.num_drafts;
    }
    metrics_.observe("mlxcel_step_tokens", static_cast<double>(tokens));
    const double begin = monotonic_seconds();
    StepResult result = session_.engine->step(batch);
    const double end = monotonic_seconds();
    result.seconds = end - begin;
    for (const SchedulerEvent& e : scheduler_->apply(std::move(result), to_timestamp(end)))
      on_scheduler_event(e);
    log_progress(end, tokens);
    const std::lock_guard lock(mutex_);
    update_snapshot(end - begin);
  }

  void cancel_everything() {
    for (auto& [sequence, choice] : choices_) {
      if (choice->has_ended) continue;
      GenerationEvent event;
      event.finish = FinishReason::kCancelled;
      end_choice(*choice, std::move(event));
    }
  }

  // One line every ten seconds while busy.
  void log_progress(double now, int64_t tokens) {
    tokens_since_log_ += tokens;
    if (last_log_at_ == 0.0) last_log_at_ = now;
    if (now - last_log_at_ < 10.0) return;
    const KvUse kv = session_.engine->kv_use();
    log_info("running {}, waiting {}, {:.1f} rows/s, KV {} of {} blocks held, {} cached",
             scheduler_->num_running(), scheduler_->num_waiting(),
             static_cast<double>(tokens_since_log_) / (now - last_log_at_), kv.held, kv.total, kv.cached);
    last_log_at_ = now;
    tokens_since_log_ = 0;
  }

  // REQUIRES: mutex_ is held.
  void update_snapshot(double step_seconds) {
    const EngineCounters& engine = session_.engine->counters();
    const PrefixCacheCounters& prefix = session_.engine->prefix_counters();
    const SchedulerCounters& scheduler = scheduler_->counters();
    metrics_.set("mlxcel_steps_total", engine.steps);
    metrics_.set("mlxcel_padded_rows_trimmed_total", engine.padded_rows_trimmed);
    metrics_.set("mlxcel_lookahead_rows_trimmed_total", engine.lookahead_rows_trimmed);
    metrics_.set("mlxcel_kv_block_copies_total", engine.kv_block_copies);
    metrics_.set("mlxcel_spec_drafts_total", engine.drafts);
    metrics_.set("mlxcel_spec_draft_tokens_total", engine.draft_tokens);
    metrics_.set("mlxcel_spec_accepted_tokens_total", engine.accepted_tokens);
    metrics_.set("mlxcel_preemptions_total", scheduler.preemptions);
    metrics_.set("mlxcel_prefix_cache_lookups_total", prefix.lookups);
    metrics_.set("mlxcel_prefix_cache_hits_total", prefix.hits);
    metrics_.set("mlxcel_prefix_cache_hit_tokens_total", prefix.hit_tokens);
    metrics_.set("mlxcel_prefix_cache_evictions_total", prefix.blocks_evicted);
    snapshot_.counters = metrics_.counters();
    snapshot_.histograms = metrics_.histograms();
    snapshot_.running = scheduler_->num_running();
    snapshot_.waiting = scheduler_->num_waiting() + static_cast<int64_t>(inbox_.size());
    num_waiting_ = static_cast<int32_t>(snapshot_.waiting);
    const KvUse kv = session_.engine->kv_use();
    snapshot_.kv_blocks_total = kv.total;
    snapshot_.kv_blocks_free = kv.free;
    snapshot_.kv_blocks_held = kv.held;
    snapshot_.kv_blocks_cached = kv.cached;
    snapshot_.kv_block_size = kv.block_size;
    snapshot_.kv_bytes = session_.engine->kv_bytes();
    snapshot_.kv_rows_total = session_.engine->kv_capacity_rows();
    snapshot_.steps = engine.steps;
    if (step_seconds > 0.0) snapshot_.last_step_seconds = step_seconds;
    snapshot_.requests.clear();
    const double now = monotonic_seconds();
    for (const auto& [sequence, choice] : choices_) {
      if (choice->has_ended) continue;
      const SequenceId id{sequence};
      RequestView view;
      view.id = choice->owner->id;
      view.client_id = choice->owner->request.client_id;
      view.phase = choice->phase;
      view.prompt_tokens = static_cast<int64_t>(choice->owner->request.prompt.size());
      view.computed_tokens = session_.engine->num_computed(id);
      view.cached_tokens = choice->cached_tokens;
      view.generated_tokens = choice->stream->num_tokens();
      view.kv_blocks = kv.block_size > 0 ? (view.computed_tokens + kv.block_size - 1) / kv.block_size : 0;
      view.age_seconds = now - choice->timings.queued;
      snapshot_.requests.push_back(std::move(view));
    }
  }

  const ServingOptions options_;
  const double started_at_;
  std::atomic<State> state_{State::kLoading};
  std::atomic<double> progress_{0.0};

  // Written while loading, immutable afterwards (but for the engine, which is this thread's).
  ModelSession session_;
  ModelInfo info_;
  int64_t rows_max_ = 0;  // that one sequence may reach
  std::optional<EngineAdapter> adapter_;
  std::optional<Scheduler> scheduler_;

  // The loop's thread.
  std::map<RequestId, std::shared_ptr<ActiveRequest>> active_;
  std::map<uint64_t, std::unique_ptr<ActiveChoice>> choices_;  // by sequence
  std::unordered_map<uint64_t, GenerationEvent> pending_text_;
  std::vector<std::shared_ptr<ActiveRequest>> to_start_;
  ServingMetrics metrics_;
  double last_log_at_ = 0.0;
  int64_t tokens_since_log_ = 0;

  // Shared.
  mutable std::mutex mutex_;
  std::condition_variable wake_, loaded_;
  std::deque<std::shared_ptr<ActiveRequest>> inbox_;
  std::vector<RequestId> cancels_;
  ServingSnapshot snapshot_;
  std::optional<Error> failure_;
  RequestId last_id_ = 0;
  int32_t num_waiting_ = 0;
  bool stopping_ = false, reset_requested_ = false, is_idle_ = true;

  std::thread thread_;
};

}  // namespace

std::unique_ptr<ServingLoop> ServingLoop::start(ServingOptions options) {
  return std::make_unique<Loop>(std::move(options));
}

}  // namespace mlxcel
