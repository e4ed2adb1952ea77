// Text to token ids and back, exactly as the checkpoint's own tokenizer does it: byte-level BPE,
// SentencePiece-style BPE with byte fallback, Unigram, WordPiece; normalisers, pre-tokenizers, added tokens
// and post-processors of tokenizer.json, and both kinds of GGUF vocabularies.
//
// Owner: shared_ptr<const Tokenizer>. Threads: encode and decode are const and free for all threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace mlxcel {

using TokenId = int32_t;

struct EncodeOptions {
  bool add_special = false;   // run the post-processor (BOS, EOS, [CLS] ...)
  bool parse_special = true;  // false: special added tokens in the text are plain text
};

// A piece of a rendered chat prompt. Only template text may form special tokens; what a user typed is plain
// text even where it spells a marker. Merges run across the borders: the ids are those of the joined text
// otherwise.
struct TextSpan {
  std::string_view text;
  bool is_content = false;  // came from a message, a tool result, a document
};

// Metadata of a GGUF vocabulary, filled by whoever opened the file (runtime/), so that this layer needs no
// reader.
struct GgufVocabulary {
  std::string model;  // tokenizer.ggml.model: "gpt2", "llama", "t5", "bert"
  std::string pre;    // tokenizer.ggml.pre: "llama-bpe", "qwen2", "smollm", ...
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;       // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<std::string> merges;  // "a b"
  std::optional<TokenId> bos, eos, eot, unknown, separator, padding;
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
  std::vector<std::byte> precompiled_charsmap;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Invalid UTF-8 is repaired first (each maximal ill-formed subpart becomes U+FFFD). Near-linear in the
  // length.
  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const = 0;
  // The pieces of one prompt; see TextSpan. Never adds BOS or EOS (a rendered template has its own).
  virtual std::vector<TokenId> encode_spans(std::span<const TextSpan> spans) const = 0;
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special = false) const = 0;

  virtual int64_t vocab_size() const = 0;  // ids are 0..vocab_size-1 (holes count)
  virtual std::optional<TokenId> token_to_id(std::string_view token) const = 0;
  virtual std::string id_to_token(TokenId id) const = 0;  // as in the vocabulary; empty for a hole
  virtual bool is_special(TokenId id) const = 0;
  virtual std::optional<TokenId> bos() const = 0;  // from tokenizer_config.json or the GGUF metadata
  virtual std::optional<TokenId> eos() const = 0;
  virtual std::optional<TokenId> unknown() const = 0;
  virtual std::optional<TokenId> padding() const = 0;
  virtual std::string description() const = 0;  // "byte-level BPE, 49152 tokens"

 protected:
  friend class StreamDecoder;
  class DecodeState {  // of one stream
   public:
    virtual ~DecodeState() = default;
    // Appends what has become certain after `id`; never half a character.
    virtual void push(TokenId id, std::string& out) = 0;
    virtual void flush(std::string& out) = 0;
  };
  virtual std::unique_ptr<DecodeState> new_decode_state(bool skip_special) const = 0;
};

// Incremental decoding: the concatenation of all pieces equals decode() of all ids, each piece is valid
// UTF-8, and nothing complete is held back. One exception: where byte tokens (<0xE4>) form a run that is no
// valid UTF-8, decode() of a tokenizer.json spoils the whole run, as the reference library does; a stream has
// sent its good characters by then. No text encodes to such a run.
class StreamDecoder {
 public:
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = false);
  std::string push(TokenId id);
  std::string flush();  // at the end: an incomplete tail becomes U+FFFD

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<Tokenizer::DecodeState> state_;
};

// tokenizer.json (and tokenizer_config.json, may be null) of a Hugging Face folder. Errors name the key.
Result<std::shared_ptr<const Tokenizer>> load_tokenizer_json(const JsonValue& tokenizer,
                                                             const JsonValue& config,
                                                             const std::string& where);
Result<std::shared_ptr<const Tokenizer>> load_tokenizer_gguf(const GgufVocabulary& vocabulary,
                                                             const std::string& where);
// Folder with tokenizer.json; kNotFound naming what is missing.
Result<std::shared_ptr<const Tokenizer>> load_tokenizer_folder(const std::string& folder);

}  // namespace mlxcel
