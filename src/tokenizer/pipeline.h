// The one tokenizer there is: added tokens, normalizer, pre-tokenizer, model, surrounding tokens, decoder.
// The loaders of tokenizer.json and of GGUF vocabularies fill its parts.
//
// Owner: shared_ptr<const Tokenizer>. Threads: encode and decode are const and free for all.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace mlxcel {

struct PipelineParts {
  std::unique_ptr<const Normalizer> normalizer;  // may be null
  ParsedPreTokenizer pre_tokenizer;
  std::unique_ptr<Model> model;
  std::vector<AddedToken> added_tokens;
  Surround surround;
  DecoderChain decoder;
  DecoderMode batch_mode;
};

// Tokens by their role, as the model's configuration names them.
struct NamedTokens {
  std::optional<TokenId> bos, eos, unknown, padding;
};

// What one encode() call uses; tests read the counters.
struct EncodeScratch {
  RegexScratch regex;
  ModelScratch model;
};

class PipelineTokenizer : public Tokenizer {
 public:
  explicit PipelineTokenizer(PipelineParts parts);
  // Before the tokenizer is shared.
  void set_named_tokens(const NamedTokens& tokens) { named_ = tokens; }

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const override;
  std::vector<TokenId> encode_spans(std::span<const TextSpan> spans) const override;
  std::string decode(std::span<const TokenId> ids, bool skip_special = false) const override;

  int64_t vocab_size() const override { return static_cast<int64_t>(tokens_.size()); }
  std::optional<TokenId> token_to_id(std::string_view token) const override;
  std::string id_to_token(TokenId id) const override;
  bool is_special(TokenId id) const override;
  std::optional<TokenId> bos() const override { return named_.bos; }
  std::optional<TokenId> eos() const override { return named_.eos; }
  std::optional<TokenId> unknown() const override { return named_.unknown; }
  std::optional<TokenId> padding() const override { return named_.padding; }
  std::string description() const override;

  std::vector<TokenId> encode_with(std::string_view text, const EncodeOptions& options,
                                   EncodeScratch& scratch) const;

 protected:
  std::unique_ptr<DecodeState> new_decode_state(bool skip_special) const override;

 private:
  class StreamState;
  class ContentRanges;
  struct Job;
  void encode_text(std::string_view text, Job& job) const;
  void encode_section(std::string_view text, size_t offset, Job& job) const;
  void encode_pieces(Pieces pieces, Job& job) const;
  const std::string* text_of(TokenId id, bool skip_special) const;

  PipelineParts parts_;
  NamedTokens named_;
  AddedTokenMatcher raw_matcher_;
  AddedTokenMatcher normalized_matcher_;
  StringTable added_ids_;
  struct Token {
    const std::string* text = nullptr;  // what it decodes to; nullptr: a hole
    int32_t added = -1;                 // number of the added token
    bool is_special = false;
  };
  std::vector<Token> tokens_;
  std::vector<std::string> added_texts_;  // what added tokens decode to; never grows after construction
};

}  // namespace mlxcel
