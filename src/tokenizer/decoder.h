// Decoders of tokenizer.json as a row of steps through which tokens flow, one after the other, as they are
// generated. Batch decoding is the same row run over all tokens.
//
// Owner: DecoderChain by the pipeline (immutable, all threads); DecoderRun by one stream (one thread).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace mlxcel {

// Takes tokens in parts: the first part of a token has begins_token set, more parts may follow. Every part is
// valid UTF-8 on its own.
class DecoderSink {
 public:
  virtual ~DecoderSink() = default;
  virtual void part(std::string_view text, bool begins_token) = 0;
  virtual void finish() = 0;  // no more tokens
};

struct DecoderMode {
  // Batch decoding of the tokenizers library looks at a whole run of byte tokens: one bad byte spoils the
  // run. A stream cannot wait for the end of the run, and SentencePiece does not: they take characters as
  // they come.
  bool waits_for_byte_runs = false;
};

class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  virtual std::unique_ptr<DecoderSink> start(DecoderSink& next, const DecoderMode& mode) const = 0;
};

class DecoderChain {
 public:
  // Null or absent: tokens joined by spaces, as the library does. Unknown types are errors naming key and
  // type.
  static Result<DecoderChain> parse(const JsonValue* value, const std::string& where);
  static DecoderChain byte_level();
  // U+2581 to spaces, byte tokens to characters, one leading space dropped if the encoder added it.
  static DecoderChain sentencepiece(bool strips_space);
  // Word starts carry U+2581 (GGUF), or continuations carry the prefix.
  static DecoderChain wordpiece_marked_starts();

  const std::vector<std::unique_ptr<const DecoderStep>>& steps() const { return steps_; }

 private:
  std::vector<std::unique_ptr<const DecoderStep>> steps_;
};

// One pass through a chain. `chain` must outlive it.
class DecoderRun {
 public:
  DecoderRun(const DecoderChain& chain, const DecoderMode& mode);
  void push(std::string_view token);  // output is appended to text()
  void finish();
  std::string& text() { return text_->text; }

 private:
  struct TextSink : DecoderSink {
    std::string text;
    void part(std::string_view piece, bool) override { text += piece; }
    void finish() override {}
  };
  std::unique_ptr<TextSink> text_;
  std::vector<std::unique_ptr<DecoderSink>> sinks_;  // from the last step to the first
};

}  // namespace mlxcel
