#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/checked.h"
#include "base/log.h"
#include "engine/engine_impl.h"

namespace mlxcel {

namespace {
constexpr TokenId kPaddingToken = 0;
}  // namespace

StepResult EngineImpl::step(const StepBatch& batch) {
  StepResult result;
  std::vector<Work> works(batch.segments.size());
  for (size_t i = 0; i < works.size(); ++i) plan_segment(batch.segments[i], works[i]);
  for (Work& work : works) plan_padding(work);
  log_decode_rows(works);
  commit(works);
  Result<StepOutputs> outputs = StepOutputs{};
  if (!segments_.empty()) {
    ++counters_.steps;
    const ForwardBatch forward{inputs_, segments_, copies_, requests_, {}};
    outputs = runner_->wait(runner_->submit(forward, *storage_));
  }
  for (Work& work : works) {
    if (work.uses_ahead) {
      finish_ahead(work);
      continue;
    }
    if (!work.plan) continue;
    if (!outputs.ok()) {
      undo_rows(work, work.rows_written());
      fail(work, outputs.error());
      continue;
    }
    if (work.num_padding > 0) {  // before anything else reads the cache
      undo_rows(work, work.num_padding);
      counters_.padded_rows_trimmed += static_cast<uint64_t>(work.num_padding);
    }
    finish_segment(work, *outputs);
  }
  look_ahead(works);
  for (Work& work : works) {
    result.events.push_back(std::move(work.event));
    for (SequenceEvent& more : work.more) result.events.push_back(std::move(more));
  }
  if (outputs.ok()) result.seconds = outputs->seconds;
  return result;
}

void EngineImpl::plan_segment(const SegmentPlan& segment, Work& work) {
  work.event.sequence = segment.sequence;
  EngineRow& planned = row(segment.sequence);
  work.row = &planned;
  MLXCEL_CHECK_MSG(planned.finish == FinishReason::kNone, "a finished sequence was scheduled");
  MLXCEL_CHECK_MSG(
      segment.num_tokens >= 1 && segment.num_tokens <= planned.num_tokens() - planned.num_computed(),
      "a segment is empty or has more tokens than the sequence still needs");
  work.old_computed = planned.num_computed();
  work.num_rows = segment.num_tokens;
  work.num_drafts = std::min<int64_t>(segment.num_drafts, static_cast<int64_t>(planned.drafts.size()));
  if (planned.ahead && segment.num_tokens == 1 && work.num_drafts == 0 &&
      rope_regime(planned.num_tokens()) == planned.rope_regime) {
    work.uses_ahead = true;
    work.first_position = work.old_computed;
    work.makes_token = planned.stop.max_tokens != 0;
    return;
  }
  settle(planned);
  // Rows that were rotated for another length are wrong now: compute them again, in this step.
  const int regime = rope_regime(planned.num_tokens());
  if (regime != planned.rope_regime && work.old_computed > 0) {
    MLXCEL_CHECK_MSG(planned.cache->trim(work.old_computed) == work.old_computed,
                     "rows could not be trimmed");
    work.num_rows += work.old_computed;
  }
  planned.rope_regime = regime;
  work.first_position = planned.num_computed();
  if (work.end() != planned.num_tokens()) work.num_drafts = 0;
  plan_rows(work);
}

// Drafts are optional: without room for them the row goes on without.
void EngineImpl::plan_rows(Work& work) {
  EngineRow& planned = *work.row;
  if (Status ready = ensure_cache(planned); !ready.ok()) return fail(work, std::move(ready).error());
  make_room(planned, work.num_rows + work.num_drafts);
  Result<AppendPlan> plan = planned.cache->plan_append(work.num_rows + work.num_drafts);
  if (!plan.ok() && work.num_drafts > 0) {
    work.num_drafts = 0;
    plan = planned.cache->plan_append(work.num_rows);
  }
  if (!plan.ok()) return fail(work, std::move(plan).error());
  work.plan = std::move(plan).value();
}

// Padding is optional: it never takes the last block, and every row has its plan before any is padded.
void EngineImpl::plan_padding(Work& work) {
  if (padding_multiple_ <= 1 || !work.plan || work.num_rows < 2 || work.num_drafts > 0) return;
  const int64_t padding = round_up(work.num_rows, padding_multiple_) - work.num_rows;
  if (padding == 0 || work.end() + padding > budget_.context_length) return;
  work.plan.reset();
  Result<AppendPlan> padded = work.row->cache->plan_append(work.num_rows + padding);
  if (padded.ok() && (!pool_ || pool_->num_free() > 0)) {
    work.plan = std::move(padded).value();
    work.num_padding = padding;
    return;
  }
  if (padded.ok()) padded = AppendPlan();  // gives its blocks back before the smaller plan takes them
  Result<AppendPlan> plain = work.row->cache->plan_append(work.num_rows);
  MLXCEL_CHECK_MSG(plain.ok(), "blocks that were just given back are gone");
  work.plan = std::move(plain).value();
}

void EngineImpl::commit(std::vector<Work>& works) {
  inputs_.clear();
  segments_.clear();
  copies_.clear();
  requests_.clear();
  for (Work& work : works) {
    if (!work.plan) continue;
    const std::vector<BlockCopy> copies = work.row->cache->commit_append(std::move(*work.plan));
    copies_.insert(copies_.end(), copies.begin(), copies.end());
    build_segment(work);
  }
  counters_.kv_block_copies += copies_.size();
}

void EngineImpl::build_segment(Work& work) {
  const EngineRow& built = *work.row;
  const auto begin = static_cast<int32_t>(inputs_.size());
  for (int64_t p = work.first_position; p < work.end(); ++p) {
    inputs_.push_back(Input::token(built.tokens[static_cast<size_t>(p)]));
  }
  for (int64_t k = 0; k < work.num_drafts; ++k)
    inputs_.push_back(Input::token(built.drafts[static_cast<size_t>(k)]));
  inputs_.insert(inputs_.end(), static_cast<size_t>(work.num_padding), Input::token(kPaddingToken));
  Segment segment;
  segment.input_begin = begin;
  segment.num_inputs = static_cast<int32_t>(work.rows_written());
  segment.first_position = work.first_position;
  segment.kv = built.cache->view();
  segment.total_length = built.num_tokens();
  segments_.push_back(segment);
  request_outputs(work, begin);
}

// The last real row makes the token; with prompt logits every new row of the prompt is asked for as well.
void EngineImpl::request_outputs(Work& work, int32_t input_begin) {
  const EngineRow& asked = *work.row;
  work.makes_token = work.end() == asked.num_tokens() && asked.stop.max_tokens != 0;
  work.first_output = requests_.size();
  if (asked.wants_prompt_logits) {
    for (int64_t p = work.old_computed; p < std::min(work.end(), asked.num_prompt); ++p) {
      requests_.push_back({input_begin + static_cast<int32_t>(p - work.first_position), true, false});
    }
  }
  const auto last = input_begin + static_cast<int32_t>(work.num_rows - 1);
  const bool has_last = requests_.size() > work.first_output && requests_.back().input == last;
  if (work.makes_token && !has_last) {
    // Always with logits: a row of NaN must be seen, and on a host backend they are only a view.
    requests_.push_back({last, true, false});
    for (int32_t k = 1; k <= work.num_drafts; ++k) requests_.push_back({last + k, true, false});
  }
  work.num_outputs = requests_.size() - work.first_output;
}

void EngineImpl::log_decode_rows(const std::vector<Work>& works) const {
  if (!log_enabled(LogLevel::kDebug)) return;
  int64_t num_visible = 0, num_requests = 0;
  for (const Work& work : works) {
    if ((!work.plan && !work.uses_ahead) || work.num_rows != 1 || work.first_position < work.row->num_prompt)
      continue;
    const KvView view = work.row->cache->view();
    // The rows this token attends to, itself included.
    num_visible += work.first_position + 1 - view.first_visible + view.num_pinned;
    ++num_requests;
  }
  if (num_requests == 0) return;
  log_debug("{} decode: {} visible KV tokens across {} request(s)", pool_ ? "paged" : "dense", num_visible,
            num_requests);
}

void EngineImpl::undo_rows(Work& work, int64_t num_rows) {
  MLXCEL_CHECK_MSG(work.row->cache->trim(num_rows) == num_rows, "rows written ahead could not be trimmed");
}

void EngineImpl::fail(Work& work, Error error) {
  work.event.finish = FinishReason::kError;
  work.event.error = std::move(error);
}

void EngineImpl::finish_segment(Work& work, const StepOutputs& outputs) {
  EngineRow& done = *work.row;
  SequenceEvent& event = work.event;
  const size_t num_prompt_outputs = done.wants_prompt_logits
                                        ? static_cast<size_t>(std::max<int64_t>(
                                              0, std::min(work.end(), done.num_prompt) - work.old_computed))
                                        : 0;
  if (num_prompt_outputs > 0) {
    event.first_logits_position = work.old_computed;
    for (size_t i = 0; i < num_prompt_outputs; ++i) {
      const std::span<const float> logits = outputs.outputs[work.first_output + i].logits;
      event.logits.insert(event.logits.end(), logits.begin(), logits.end());
    }
  }
  const bool ends_prompt = work.old_computed < done.num_prompt && work.end() >= done.num_prompt;
  if (work.makes_token) {
    verify_drafts(work, outputs);
    if (event.error) return;
  } else if (work.end() == done.num_tokens()) {
    event.finish = done.finish = FinishReason::kMaxTokens;  // max_tokens 0: only the prompt was wanted
  }
  event.num_computed = static_cast<int32_t>(work.end() - work.old_computed);
  if (ends_prompt) share_prompt(done);
  counters_.prompt_tokens +=
      static_cast<uint64_t>(std::max<int64_t>(0, std::min(work.end(), done.num_prompt) - work.old_computed));
}

// A token computed by the step before.
void EngineImpl::finish_ahead(Work& work) {
  EngineRow& done = *work.row;
  Output output;
  const EngineRow::Ahead ahead = *std::exchange(done.ahead, std::nullopt);  // its row counts from here on
  output.argmax = ahead.argmax;
  output.logits = ahead.logits;
  if (!choose_token(work, output, work.event)) return;
  work.event.num_computed = 1;
}

// False: no token can be chosen there; the rows from that position on are gone and the event has the error.
bool EngineImpl::choose_token(Work& work, const Output& output, SequenceEvent& event) {
  EngineRow& chosen = *work.row;
  if (options_.on_choice) options_.on_choice(work.event.sequence, chosen.num_tokens(), output.logits);
  const std::span<const TokenId> suppressed = chosen.suppressed_now();
  TokenId token = Sampler::kNoToken;
  if (!chosen.sampler.params().is_plain_greedy() || !suppressed.empty()) {
    token = chosen.sampler.sample(output.logits, chosen.num_tokens(), chosen.prompt(), chosen.generated(),
                                  suppressed);
  } else if (output.logits[static_cast<size_t>(output.argmax)] > -std::numeric_limits<float>::infinity()) {
    token = output.argmax;  // false for NaN: a row without a finite logit has no answer
  }
  if (token < 0 || token >= runner_->spec().vocab_size) {
    if (&event == &work.event) {
      undo_rows(work, chosen.num_computed() - work.first_position);
      event.logits.clear();
    }
    event.finish = FinishReason::kError;
    event.error = make_error(ErrorKind::kInternal, "no token can be chosen", "",
                             "a finite logit that is not suppressed", "none",
                             "the checkpoint or its quantisation may be damaged");
    return false;
  }
  if (chosen.num_logprobs >= 0) event.logprobs = compute_logprobs(output.logits, token, chosen.num_logprobs);
  chosen.tokens.push_back(token);
  ++counters_.generated_tokens;
  event.token = token;
  event.finish = chosen.finish = chosen.finish_after_token(rows_limit());
  return true;
}

}  // namespace mlxcel
