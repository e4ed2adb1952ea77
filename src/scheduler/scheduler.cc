#include "scheduler/scheduler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/checked.h"

namespace mlxcel {
namespace {

Status check_range(std::string_view field, int64_t value, int64_t low) {
  if (value >= low) return ok_status();
  return make_error(ErrorKind::kInvalidArgument, "a scheduler option is too small", std::string(field),
                    "at least " + std::to_string(low), std::to_string(value));
}

Error cannot_fit(std::string what, int64_t limit, int64_t num_prompt_tokens) {
  return make_error(
      ErrorKind::kInvalidArgument, std::move(what), "prompt",
      "at most " + std::to_string(limit - 1) + " tokens, so that one more fits into " + std::to_string(limit),
      std::to_string(num_prompt_tokens) + " tokens", "shorten the prompt");
}

}  // namespace

Status SchedulerOptions::validate() const {
  MLXCEL_RETURN_IF_ERROR(check_range("max_running", max_running, 1));
  MLXCEL_RETURN_IF_ERROR(check_range("max_queue", max_queue, 0));
  MLXCEL_RETURN_IF_ERROR(check_range("prefill_chunk", prefill_chunk, 1));
  MLXCEL_RETURN_IF_ERROR(check_range("prefill_tokens_min", prefill_tokens_min, 1));
  // A row of each running sequence and some of a prompt fit into every step.
  const int64_t prompt_rows = adapts_prefill ? prefill_tokens_min : 1;
  MLXCEL_RETURN_IF_ERROR(check_range("max_batch_tokens", max_batch_tokens, max_running + prompt_rows));
  if (!(decode_wait_factor > 1.0)) {
    return make_error(ErrorKind::kInvalidArgument, "a scheduler option is too small", "decode_wait_factor",
                      "above 1", std::to_string(decode_wait_factor));
  }
  return ok_status();
}

StepBatch ScheduledStep::batch() const {
  StepBatch batch;
  batch.segments.reserve(segments.size());
  for (const ScheduledSegment& segment : segments) {
    batch.segments.push_back({segment.sequence, segment.num_tokens});
  }
  return batch;
}

Scheduler::Scheduler(EngineControl& engine, const SchedulerOptions& options, DraftPolicy draft_policy)
    : engine_(engine),
      options_(options),
      draft_policy_(std::move(draft_policy)),
      governor_(options.decode_wait_factor, options.prefill_tokens_min),
      blocks_kept_free_(engine.blocks().is_dense ? 0 : ceil_div(engine.blocks().total, 100)),
      rows_max_(engine.rows_max()) {
  MLXCEL_CHECK(options.validate().ok());
}

Status Scheduler::can_add(int64_t num_prompt_tokens) const {
  if (num_prompt_tokens < 1) {
    return make_error(ErrorKind::kInvalidArgument, "the prompt is empty", "prompt", "at least 1 token",
                      "0 tokens");
  }
  if (num_prompt_tokens >= engine_.context_length()) {
    return cannot_fit("the prompt exceeds the context length", engine_.context_length(), num_prompt_tokens);
  }
  if (num_prompt_tokens >= rows_max_) {
    return cannot_fit("the prompt needs more key/value blocks than there are", rows_max_, num_prompt_tokens);
  }
  const int64_t num_requests = num_running() + num_waiting(),
                limit = int64_t{options_.max_running} + options_.max_queue;
  if (num_requests >= limit) {
    return make_error(ErrorKind::kResourceExhausted, "the queue is full", "",
                      "fewer than " + std::to_string(limit) + " requests", std::to_string(num_requests),
                      "try again later");
  }
  return ok_status();
}

Status Scheduler::add(SequenceId id, const RequestOptions& options, Timestamp now) {
  const int64_t num_tokens = engine_.num_tokens(id);
  if (Status status = can_add(num_tokens); !status.ok()) {
    ++counters_.requests_refused;
    return status;
  }
  const Order order{options.priority, num_arrivals_++};
  MLXCEL_CHECK_MSG(requests_.emplace(id, order).second, "a sequence was added twice");
  Request request;
  request.id = id;
  request.deadline = options.deadline;
  request.record.queued_at = now;
  request.record.num_prompt_tokens = num_tokens;
  waiting_.emplace(order, std::move(request));
  ++counters_.requests_added;
  return ok_status();
}

bool Scheduler::cancel(SequenceId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return false;
  Requests& where = running_.contains(found->second) ? running_ : waiting_;
  where.at(found->second).is_cancelled = true;
  return true;
}

int64_t Scheduler::missing_rows(const Request& request) const {
  const int64_t missing = engine_.num_tokens(request.id) - engine_.num_computed(request.id);
  MLXCEL_CHECK_MSG(missing >= 1, "a sequence that has not ended misses no row");
  return missing;
}

int64_t Scheduler::prefill_tokens_guaranteed() const {
  const int64_t tokens = std::min(options_.prefill_chunk, options_.max_batch_tokens - options_.max_running);
  return options_.adapts_prefill ? std::min<int64_t>(tokens, options_.prefill_tokens_min) : tokens;
}

int64_t Scheduler::first_token_steps_max(SequenceId id) const {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return 0;
  const auto row = running_.find(found->second);
  return row == running_.end() ? 0 : row->second.first_token_steps_max;
}

void Scheduler::emit(SchedulerEvent::Kind kind, Timestamp at, const Request& request, SequenceEvent output) {
  events_.push_back({kind, request.id, at, std::move(output), request.record});
}

void Scheduler::finish(Requests& from, Requests::iterator request, FinishReason reason,
                       std::optional<Error> error, Timestamp now) {
  SequenceEvent output;
  output.sequence = request->second.id;
  output.finish = reason;
  output.error = std::move(error);
  request->second.record.finished_at = now;
  ++counters_.requests_finished[static_cast<size_t>(reason)];
  emit(SchedulerEvent::Kind::kFinished, now, request->second, std::move(output));
  engine_.release(request->second.id);
  requests_.erase(request->second.id);
  from.erase(request);
}

void Scheduler::end_cancelled_and_late(Timestamp now) {
  for (Requests* requests : {&running_, &waiting_}) {
    for (auto next = requests->begin(); next != requests->end();) {
      const auto request = next++;
      if (request->second.is_cancelled) {
        finish(*requests, request, FinishReason::kCancelled, std::nullopt, now);
      } else if (request->second.deadline && now >= *request->second.deadline) {
        finish(*requests, request, FinishReason::kError,
               make_error(ErrorKind::kResourceExhausted, "the deadline of the request has passed"), now);
      }
    }
  }
}

// All other sequences are out of the way and it still does not fit: only its own answer can say so.
void Scheduler::end_without_room(Requests& from, Requests::iterator request, int64_t num_rows,
                                 Timestamp now) {
  const int64_t needed = engine_.blocks_needed(request->second.id, num_rows);
  finish(from, request, FinishReason::kError,
         make_error(ErrorKind::kResourceExhausted,
                    "the key/value cache has too few blocks for this sequence alone", "",
                    std::to_string(needed) + " blocks", std::to_string(blocks_available_)),
         now);
  refresh_blocks();
}

void Scheduler::refresh_blocks() { blocks_available_ = engine_.blocks().available(); }

// What all running sequences still take for the tokens they have, planned or not.
int64_t Scheduler::blocks_missing() const {
  int64_t blocks = 0;
  for (const auto& [order, row] : running_) blocks += engine_.blocks_needed(row.id, missing_rows(row));
  return blocks;
}

void Scheduler::preempt(Requests::iterator victim, Timestamp now) {
  Request& request = victim->second;
  auto& segments = step_.segments;
  const auto segment =
      std::find_if(segments.begin(), segments.end(),
                   [&request](const ScheduledSegment& planned) { return planned.sequence == request.id; });
  if (segment != segments.end()) {
    blocks_planned_ -= segment->num_blocks;
    if (segment - segments.begin() < num_decode_rows_) {
      --num_decode_rows_;
    } else {
      prefill_planned_ -= segment->num_tokens;
      prefill_left_ += segment->num_tokens;
    }
    segments.erase(segment);
  }
  engine_.preempt(request.id);
  refresh_blocks();
  has_preempted_ = true;
  ++counters_.preemptions;
  ++request.record.num_preemptions;
  request.record.preempted_at = now;
  emit(SchedulerEvent::Kind::kPreempted, now, request);
  waiting_.insert(running_.extract(victim));
}

// Pre-empts until `row` can append num_rows rows. False: it had to go itself. The victim is the last in the
// order, so the first one never is while there is another.
bool Scheduler::make_room(Requests::iterator row, int64_t num_rows, Timestamp now) {
  while (engine_.blocks_needed(row->second.id, num_rows) > blocks_available_ - blocks_planned_) {
    const auto victim = std::prev(running_.end());
    if (running_.size() == 1) {
      end_without_room(running_, row, num_rows, now);
      return false;
    }
    const bool is_itself = victim == row;
    preempt(victim, now);
    if (is_itself) return false;
  }
  return true;
}

void Scheduler::push_segment(const Request& request, int64_t num_tokens) {
  const int64_t num_blocks = engine_.blocks_needed(request.id, num_tokens);
  step_.segments.push_back({request.id, static_cast<int32_t>(num_tokens), 0, num_blocks});
  blocks_planned_ += num_blocks;
}

const ScheduledStep& Scheduler::schedule(Timestamp now) {
  MLXCEL_CHECK_MSG(!is_step_open_, "the step before was not applied");
  events_.clear();
  step_.segments.clear();
  has_preempted_ = false;
  blocks_planned_ = num_decode_rows_ = prefill_planned_ = 0;
  end_cancelled_and_late(now);
  refresh_blocks();
  plan_decode(now);
  prefill_left_ = options_.max_batch_tokens - num_decode_rows_;
  if (options_.adapts_prefill && num_decode_rows_ > 0) {
    prefill_left_ = std::min(prefill_left_, governor_.tokens_max(num_decode_rows_));
  }
  plan_prefill(now);
  admit_waiting(now);
  int64_t blocks = 0, tokens = 0;
  for (const ScheduledSegment& segment : step_.segments) {
    blocks += segment.num_blocks;
    tokens += segment.num_tokens;
  }
  MLXCEL_CHECK_MSG(blocks == blocks_planned_ && tokens == num_decode_rows_ + prefill_planned_,
                   "the sums of the step are wrong");
  plan_drafts();
  is_step_open_ = !step_.segments.empty();
  counters_.steps += is_step_open_ ? 1 : 0;
  counters_.decode_tokens += static_cast<uint64_t>(num_decode_rows_);
  counters_.prefill_tokens += static_cast<uint64_t>(prefill_planned_);
  return step_;
}

void Scheduler::plan_decode(Timestamp now) {
  for (auto row = running_.begin(); row != running_.end(); ++row) {
    if (missing_rows(row->second) > 1) continue;
    if (!make_room(row, 1, now)) return;  // it was the last one
    push_segment(row->second, 1);
    ++num_decode_rows_;
  }
}

void Scheduler::plan_prefill(Timestamp now) {
  prompts_.clear();
  for (const auto& [order, row] : running_) {
    if (missing_rows(row) > 1) prompts_.emplace_back(row.admission, order);
  }
  std::sort(prompts_.begin(), prompts_.end());
  for (const auto& [admission, order] : prompts_) {
    const auto row = running_.find(order);  // it may have given way to one before it
    if (row != running_.end() && prefill_left_ > 0) plan_chunk(row, now);
  }
}

void Scheduler::plan_chunk(Requests::iterator row, Timestamp now) {
  const SequenceId id = row->second.id;
  int64_t rows = std::min({missing_rows(row->second), int64_t{options_.prefill_chunk}, prefill_left_});
  // What the fairness bound needs in this step is worth a pre-emption, more is not.
  const int64_t due = std::clamp<int64_t>(prefill_tokens_guaranteed() - prefill_planned_, 0, rows);
  if (due > 0 && !make_room(row, due, now)) return;
  const auto fits = [&](int64_t n) {
    return engine_.blocks_needed(id, n) <= blocks_available_ - blocks_planned_;
  };
  if (!fits(rows)) {
    int64_t low = due;  // fits; `rows` does not
    while (rows - low > 1) {
      const int64_t middle = low + (rows - low) / 2;
      (fits(middle) ? low : rows) = middle;
    }
    rows = low;
  }
  if (rows == 0) return;
  push_segment(row->second, rows);
  prefill_planned_ += rows;
  prefill_left_ -= rows;
}

void Scheduler::admit_waiting(Timestamp now) {
  // Who just gave way would take its blocks back and the next row would ask for them again.
  if (has_preempted_) return;
  while (!waiting_.empty() && num_running() < options_.max_running && prefill_left_ > 0) {
    if (!admit_head(now)) return;
  }
}

// False: the head has to wait, and so has everybody behind it.
bool Scheduler::admit_head(Timestamp now) {
  const auto head = waiting_.begin();
  const int64_t num_cached = engine_.admit(head->second.id);
  refresh_blocks();
  const int64_t missing = missing_rows(head->second);
  const int64_t needed = engine_.blocks_needed(head->second.id, missing);
  const int64_t kept_free = running_.empty() ? 0 : blocks_kept_free_;
  if (needed + blocks_missing() + kept_free > blocks_available_) {
    if (running_.empty()) {
      end_without_room(waiting_, head, missing, now);
      return true;
    }
    engine_.preempt(head->second.id);
    refresh_blocks();
    return false;
  }
  const auto row = running_.insert(waiting_.extract(head)).position;
  Request& request = row->second;
  if (request.record.scheduled_at) {
    counters_.cached_resumed_tokens += static_cast<uint64_t>(num_cached);
  } else {
    counters_.cached_prompt_tokens += static_cast<uint64_t>(num_cached);
    request.record.num_cached_tokens = num_cached;
    request.record.scheduled_at = now;
    emit(SchedulerEvent::Kind::kScheduled, now, request);
  }
  int64_t rows_before_token = -num_decode_rows_;  // those have their row in this step
  for (const auto& [order, other] : running_) rows_before_token += missing_rows(other);
  request.admission = num_admissions_++;
  request.step_admitted = counters_.steps + 1;
  request.first_token_steps_max = ceil_div(rows_before_token, prefill_tokens_guaranteed());
  request.has_token_since_admission = false;
  const int64_t rows = std::min({missing, int64_t{options_.prefill_chunk}, prefill_left_});
  push_segment(request, rows);
  prefill_planned_ += rows;
  prefill_left_ -= rows;
  return true;
}

void Scheduler::plan_drafts() {
  // One block always stays, and while somebody waits drafts get only what costs no block.
  int64_t spare = std::max<int64_t>(0, blocks_available_ - blocks_missing() - 1);
  int64_t tokens_left = options_.max_batch_tokens - num_decode_rows_ - prefill_planned_;
  for (int64_t i = 0; draft_policy_ && i < num_decode_rows_; ++i) {
    ScheduledSegment& segment = step_.segments[static_cast<size_t>(i)];
    const int64_t most = std::min(tokens_left, rows_max_ - engine_.num_tokens(segment.sequence));
    if (most <= 0) continue;
    const int64_t wanted = draft_policy_(segment.sequence, static_cast<int32_t>(most));
    int64_t drafts = std::clamp<int64_t>(wanted, 0, most);
    const int64_t blocks_for_drafts = waiting_.empty() ? spare : 0;
    const auto extra_blocks = [&] {
      return engine_.blocks_needed(segment.sequence, 1 + drafts) - segment.num_blocks;
    };
    while (drafts > 0 && extra_blocks() > blocks_for_drafts) --drafts;
    const int64_t extra = extra_blocks();
    segment.num_drafts = static_cast<int32_t>(drafts);
    segment.num_blocks += extra;
    spare -= extra;
    tokens_left -= drafts;
    counters_.draft_tokens += static_cast<uint64_t>(drafts);
  }
  step_.num_spare_blocks = spare;
}

std::span<const SchedulerEvent> Scheduler::apply(StepResult&& result, Timestamp now) {
  MLXCEL_CHECK_MSG(is_step_open_, "there is no step to apply");
  is_step_open_ = false;
  int64_t num_drafts = 0;
  auto event = result.events.begin();
  for (const ScheduledSegment& segment : step_.segments) {
    num_drafts += segment.num_drafts;
    int64_t rows = 0;
    bool has_failed = false;
    const auto first = event;
    for (; event != result.events.end() && event->sequence == segment.sequence; ++event) {
      rows += event->num_computed;
      has_failed = has_failed || event->error.has_value();
      if (requests_.contains(event->sequence)) apply_event(std::move(*event), now);
    }
    MLXCEL_CHECK_MSG(event != first, "a segment of the step has no event");
    MLXCEL_CHECK_MSG(
        has_failed || (rows >= segment.num_tokens && rows <= segment.num_tokens + segment.num_drafts),
        "the rows of a segment were not computed");
  }
  MLXCEL_CHECK_MSG(event == result.events.end(), "an event belongs to no segment of the step");
  governor_.observe(num_decode_rows_ + num_drafts, prefill_planned_, result.seconds);
  return events_;
}

void Scheduler::apply_event(SequenceEvent&& event, Timestamp now) {
  const auto row = running_.find(requests_.at(event.sequence));
  MLXCEL_CHECK(row != running_.end());
  Request& request = row->second;
  if (request.is_cancelled) return finish(running_, row, FinishReason::kCancelled, std::nullopt, now);
  if (event.error) return finish(running_, row, FinishReason::kError, std::move(event.error), now);
  const FinishReason reason = event.finish;
  if (event.token) {
    const auto steps = static_cast<int64_t>(counters_.steps - request.step_admitted + 1);
    MLXCEL_CHECK_MSG(request.has_token_since_admission || steps <= request.first_token_steps_max,
                     "the fairness bound is broken");
    request.has_token_since_admission = true;
    ++request.record.num_generated_tokens;
    if (!request.record.first_token_at) request.record.first_token_at = now;
    request.record.last_token_at = now;
  }
  if (event.token || !event.logits.empty()) {
    emit(SchedulerEvent::Kind::kOutput, now, request, std::move(event));
  }
  if (reason != FinishReason::kNone) finish(running_, row, reason, std::nullopt, now);
}

Status Scheduler::check_integrity() const {
  if (requests_.size() != running_.size() + waiting_.size()) {
    return make_error(ErrorKind::kInternal, "a request is in no queue or in two", "",
                      std::to_string(running_.size() + waiting_.size()), std::to_string(requests_.size()));
  }
  for (const Requests* requests : {&running_, &waiting_}) {
    for (const auto& [order, request] : *requests) {
      const auto found = requests_.find(request.id);
      if (found == requests_.end() || found->second != order) {
        return make_error(ErrorKind::kInternal, "the index of requests is wrong");
      }
      const int64_t computed = engine_.num_computed(request.id), tokens = engine_.num_tokens(request.id);
      if (computed < 0 || computed >= tokens || (requests == &waiting_ && computed != 0)) {
        return make_error(ErrorKind::kInternal, "a request's rows do not suit its place", "",
                          "below " + std::to_string(tokens) + ", none while it waits",
                          std::to_string(computed));
      }
    }
  }
  return ok_status();
}

}  // namespace mlxcel
