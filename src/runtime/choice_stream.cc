#include "runtime/choice_stream.h"

namespace mlxcel {

ChoiceStream::ChoiceStream(std::shared_ptr<const Tokenizer> tokenizer, const GenerationRequest& request)
    : tokenizer_(std::move(tokenizer)),
      stop_strings_(request.stop_strings),
      include_stop_string_(request.include_stop_string),
      decoder_(tokenizer_, request.skip_special_tokens),
      matcher_(request.stop_strings) {}

bool ChoiceStream::push(TokenId token, std::optional<Logprobs> logprobs, bool is_end_token,
                        GenerationEvent& event) {
  ++num_tokens_;
  const TokenId one[] = {token};
  event.tokens.push_back({token, tokenizer_->decode(one, false), std::move(logprobs)});
  if (is_end_token) return true;
  event.text += matcher_.push(decoder_.push(token));
  if (!matcher_.matched()) return true;
  const std::string& matched = stop_strings_[*matcher_.matched()];
  if (include_stop_string_) event.text += matched;
  event.matched_stop = matched;
  event.finish = FinishReason::kStopString;
  return false;
}

void ChoiceStream::flush(GenerationEvent& event) {
  event.text += matcher_.push(decoder_.flush());
  event.text += matcher_.flush();
}

}  // namespace mlxcel
