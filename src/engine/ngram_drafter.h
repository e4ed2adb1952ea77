// Prompt lookup: guesses the next tokens of a sequence from what followed the last time its newest tokens
// occurred in it. Right or wrong, a guess changes speed and never text (the engine verifies each with the
// target's own choice).
//
// A governor bounds the price of wrong guesses: the draft length halves when nothing is accepted and doubles
// when all is; at zero it pauses, twice as long after every further failure, up to kPauseMax steps. A wasted
// draft of two tokens costs well under one step's time, so one in kPauseMax steps stays below 3 %.
//
// Owner: the engine's row (draft state belongs to a request). Threads: the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace mlxcel {

using TokenId = int32_t;

class NgramDrafter {
 public:
  static constexpr int32_t kStartLength = 4;
  static constexpr int32_t kPauseMin = 4, kPauseMax = 64;

  // At most `most` tokens that may follow `tokens`; empty: no guess. Remembers `tokens` for later calls; the
  // sequence may have grown or been cut since the last one.
  std::vector<TokenId> propose(std::span<const TokenId> tokens, int32_t most);
  // What became of the last proposal.
  void report(int32_t num_proposed, int32_t num_accepted);
  int32_t length() const { return length_; }

 private:
  static constexpr int kLong = 3, kShort = 2;  // tokens that must match; long ones are tried first
  static uint64_t key_of(std::span<const TokenId> gram);
  void index(std::span<const TokenId> tokens);
  int64_t find(std::span<const TokenId> tokens, int gram) const;

  // Position after the newest occurrence of a gram that does not end the sequence.
  std::unordered_map<uint64_t, int64_t> after_;
  std::vector<TokenId> indexed_;
  int32_t length_ = kStartLength;
  int32_t pause_ = 0, next_pause_ = kPauseMin;
};

}  // namespace mlxcel
