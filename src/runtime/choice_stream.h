// The text side of one choice: tokens in, certain text out; stop strings, held tails, log-probabilities.
//
// Owner: the serving loop's request. Threads: the engine thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/stop_matcher.h"
#include "runtime/serving.h"

namespace mlxcel {

class ChoiceStream {
 public:
  ChoiceStream(std::shared_ptr<const Tokenizer> tokenizer, const GenerationRequest& request);
  // Adds a token's text to `event`. False: a stop string matched, so the choice has ended (event.finish is
  // set). An end token (EOS or stop id) contributes no text.
  bool push(TokenId token, std::optional<Logprobs> logprobs, bool is_end_token, GenerationEvent& event);
  // At the end without a stop string: releases what was held back.
  void flush(GenerationEvent& event);
  int64_t num_tokens() const { return num_tokens_; }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::string> stop_strings_;
  bool include_stop_string_;
  StreamDecoder decoder_;
  StopMatcher matcher_;
  int64_t num_tokens_ = 0;
};

}  // namespace mlxcel
