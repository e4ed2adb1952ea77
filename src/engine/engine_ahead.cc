// Rows written ahead of the truth: lookahead (the row of a token nobody has looked at yet) and drafts (rows
// of guessed tokens). Both go back through trim on every path.
#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "engine/engine_impl.h"

namespace mlxcel {

// Removes the row of lookahead, if there is one: it is not wanted after all, or its place is.
void EngineImpl::settle(EngineRow& row) {
  if (!row.ahead) return;
  row.ahead.reset();
  MLXCEL_CHECK_MSG(row.cache->trim(1) == 1, "the row of lookahead could not be trimmed");
  ++counters_.lookahead_rows_trimmed;
}

// Runs the rows of the tokens that this step has just made. Optional work: a row without a block is left out,
// the last block stays free, and an error of the backend undoes it.
void EngineImpl::look_ahead(std::vector<Work>& works) {
  if (!options_.lookahead || !runner_->capabilities().can_trim || !runner_->kv_layout().can_trim()) return;
  works_ahead_.clear();
  for (const Work& work : works) {
    EngineRow* next = work.row;
    if (!work.event.token || work.event.error || next->ahead) continue;
    if (next->num_tokens() > rows_limit() || rope_regime(next->num_tokens()) != next->rope_regime) continue;
    if (next->num_computed() + 1 != next->num_tokens()) continue;
    Result<AppendPlan> plan = next->cache->plan_append(1);
    if (!plan.ok() || (pool_ && !plan->new_blocks().empty() && pool_->num_free() == 0)) continue;
    Work ahead;
    ahead.row = next;
    ahead.first_position = ahead.old_computed = next->num_computed();
    ahead.num_rows = 1;
    ahead.plan = std::move(plan).value();
    works_ahead_.push_back(std::move(ahead));
  }
  if (works_ahead_.empty()) return;
  commit(works_ahead_);
  const ForwardBatch forward{inputs_, segments_, copies_, requests_, {}};
  const Result<StepOutputs> outputs = runner_->wait(runner_->submit(forward, *storage_));
  for (Work& work : works_ahead_) {
    EngineRow& next = *work.row;
    // Nothing was asked of a row that only wants its prompt computed: no token is due.
    if (!outputs.ok() || work.num_outputs == 0) {
      undo_rows(work, 1);
      continue;
    }
    const Output& output = outputs->outputs[work.first_output];
    next.ahead = EngineRow::Ahead{output.argmax, {output.logits.begin(), output.logits.end()}};
    ++counters_.lookahead_rows;
    if (next.finish != FinishReason::kNone) settle(next);  // the token turned out to be the last
  }
}

int32_t EngineImpl::propose_drafts(SequenceId id, int32_t most) {
  EngineRow& asked = row(id);
  asked.drafts.clear();
  if (!runner_->capabilities().can_trim || !runner_->kv_layout().can_trim()) return 0;
  // One token must remain to be computed, and the guesses' rows must fit the context and the same rope
  // regime.
  if (asked.num_computed() + 1 != asked.num_tokens() || asked.wants_prompt_logits) return 0;
  int64_t room = std::min<int64_t>(most, rows_limit() - asked.num_tokens());
  if (asked.stop.max_tokens >= 0) room = std::min(room, asked.stop.max_tokens - asked.num_generated() - 1);
  while (room > 0 && rope_regime(asked.num_tokens() + room) != asked.rope_regime) --room;
  if (room <= 0) return 0;
  if (!asked.drafter) asked.drafter = std::make_unique<NgramDrafter>();
  asked.drafts = asked.drafter->propose(asked.tokens, static_cast<int32_t>(room));
  return static_cast<int32_t>(asked.drafts.size());
}

// Each position's own choice, with its own random numbers, decides: a guess that equals it is accepted and
// the next position counts; the first that differs ends it. Rows behind the newest token but one are trimmed.
void EngineImpl::verify_drafts(Work& work, const StepOutputs& outputs) {
  EngineRow& row = *work.row;
  const size_t first = work.first_output + work.num_outputs - static_cast<size_t>(work.num_drafts) - 1;
  int32_t accepted = 0;
  for (int64_t k = 0; k <= work.num_drafts; ++k) {
    SequenceEvent& event = k == 0 ? work.event : work.more.emplace_back();
    event.sequence = work.event.sequence;
    if (k > 0) event.num_computed = 1;  // the row of the guess that was right
    if (!choose_token(work, outputs.outputs[first + static_cast<size_t>(k)], event)) {
      // A position without a token: what was accepted before it stands, the failing position is the row's
      // error.
      break;
    }
    if (event.finish != FinishReason::kNone || k == work.num_drafts) break;
    if (*event.token != row.drafts[static_cast<size_t>(k)]) break;
    ++accepted;
  }
  row.drafts.clear();
  if (work.num_drafts == 0) return;
  const int64_t surplus = std::max<int64_t>(0, row.num_computed() - (row.num_tokens() - 1));
  undo_rows(work, surplus);
  ++counters_.drafts;
  counters_.draft_tokens += static_cast<uint64_t>(work.num_drafts);
  counters_.accepted_tokens += static_cast<uint64_t>(accepted);
  row.drafter->report(static_cast<int32_t>(work.num_drafts), accepted);
}

}  // namespace mlxcel
