// One sequence to its end: chunked prefill, incremental decoding, stop strings, timings.
#include <algorithm>

#include "base/environment.h"
#include "engine/stop_matcher.h"
#include "runtime/model_session.h"

namespace mlxcel {
namespace {

class Generation {
 public:
  Generation(ModelSession& session, SequenceId sequence, const GenerateOptions& options,
             const std::function<bool(std::string_view)>& on_text)
      : engine_(*session.engine),
        sequence_(sequence),
        options_(options),
        on_text_(on_text),
        decoder_(session.text.tokenizer, options.skip_special_tokens),
        matcher_(options.stop_strings) {}

  Result<GenerateResult> run() {
    begin_ = monotonic_seconds();
    result_.prompt_tokens = static_cast<int64_t>(engine_.tokens(sequence_).size());
    result_.cached_tokens = engine_.num_computed(sequence_);
    while (result_.finish == FinishReason::kNone) MLXCEL_RETURN_IF_ERROR(step());
    if (result_.finish != FinishReason::kStopString && result_.finish != FinishReason::kCancelled) {
      give(matcher_.push(decoder_.flush()));
      give(matcher_.flush());
    }
    const double end = monotonic_seconds();
    result_.decode_seconds = first_token_ > 0.0 ? end - first_token_ : 0.0;
    if (first_token_ == 0.0) result_.prefill_seconds = end - begin_;
    return std::move(result_);
  }

 private:
  Status step() {
    const auto known = static_cast<int64_t>(engine_.tokens(sequence_).size());
    const int64_t pending = known - engine_.num_computed(sequence_);
    MLXCEL_CHECK(pending >= 1);
    const auto chunk = static_cast<int32_t>(std::min<int64_t>(pending, std::max(options_.prefill_chunk, 1)));
    StepResult step = engine_.step({{SegmentPlan{sequence_, chunk}}});
    MLXCEL_CHECK(step.events.size() == 1);
    SequenceEvent& event = step.events.front();
    if (event.error) return std::move(*event.error);
    result_.finish = event.finish;
    if (event.token) take(*event.token, std::move(event.logprobs));
    // A long prompt must be cancellable before its first token.
    if (!event.token && result_.finish == FinishReason::kNone && !on_text_({}))
      result_.finish = FinishReason::kCancelled;
    return ok_status();
  }

  void take(TokenId token, std::optional<Logprobs> logprobs) {
    if (first_token_ == 0.0) {
      first_token_ = monotonic_seconds();
      result_.first_token_seconds = first_token_ - begin_;
      result_.prefill_seconds = result_.first_token_seconds;
    }
    result_.tokens.push_back(token);
    if (logprobs) result_.logprobs.push_back(std::move(*logprobs));
    // The token that ended the answer is no part of its text.
    const bool is_end = result_.finish == FinishReason::kEos || result_.finish == FinishReason::kStopToken;
    const bool goes_on = is_end || give(matcher_.push(decoder_.push(token)));
    if (const std::optional<size_t> match = matcher_.matched()) {
      result_.finish = FinishReason::kStopString;
      result_.matched_stop = options_.stop_strings[*match];
    } else if (!goes_on && result_.finish == FinishReason::kNone) {
      result_.finish = FinishReason::kCancelled;
    }
  }

  // False: the receiver wants no more.
  bool give(const std::string& text) {
    result_.text += text;
    return on_text_(text);
  }

  Engine& engine_;
  SequenceId sequence_;
  const GenerateOptions& options_;
  const std::function<bool(std::string_view)>& on_text_;
  StreamDecoder decoder_;
  StopMatcher matcher_;
  GenerateResult result_;
  double begin_ = 0.0, first_token_ = 0.0;
};

}  // namespace

Result<GenerateResult> generate(ModelSession& session, SequenceId sequence, const GenerateOptions& options,
                                const std::function<bool(std::string_view)>& on_text) {
  return Generation(session, sequence, options, on_text).run();
}

}  // namespace mlxcel
