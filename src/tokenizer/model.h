// The models of tokenizer.json: pieces of text to ids. Byte-pair encoding by merge rank or by score, Unigram,
// WordPiece and WordLevel.
//
// Owner: the pipeline. Threads: encode() is const and free for all; caches inside lock for themselves.
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
#include "tokenizer/hash_tables.h"
#include "tokenizer/tokenizer.h"

namespace mlxcel {

// The tokens by id and back.
class Vocabulary {
 public:
  // Ids may have holes. Of two equal tokens the later id wins.
  Status add(std::string_view token, int64_t id, const std::string& where);
  void reserve(size_t count, size_t bytes);
  std::optional<TokenId> find(std::string_view token) const { return ids_.find(token); }
  const std::string* token(TokenId id) const;                            // nullptr for a hole
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }  // largest id + 1
  // "<0x41>" and so on; each byte is looked up on its own.
  std::optional<TokenId> byte_token(unsigned char byte) const;

 private:
  std::vector<std::string> tokens_;
  std::vector<bool> is_used_;
  StringTable ids_;
};

// "<0x0A>"
std::string byte_token_name(unsigned char byte);

// What one encode() call needs: buffers that are reused from piece to piece, and counters of the work done,
// so that tests can hold it against the length of the input.
struct ModelScratch {
  struct Symbol {
    TokenId id = 0;
    int32_t previous = -1;
    int32_t next = -1;
    bool is_merged = false;  // became part of its left neighbour
  };
  struct Candidate {
    uint32_t rank = 0;
    int32_t position = 0;
    TokenId id = 0;
  };
  struct LatticeNode {
    double score = 0;
    int64_t begin = -1;  // -1: not reached
    TokenId id = 0;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::vector<LatticeNode> lattice;
  // Set for text that nobody may write special tokens in: then no piece of it becomes one, not even where the
  // model's own vocabulary holds its text.
  bool forbids_special = false;
  bool has_skipped_special = false;  // of the current word
  uint64_t heap_pushes = 0;
  uint64_t lattice_steps = 0;
};

class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of one piece. REQUIRES: valid UTF-8, or raw bytes for a byte-level model; not empty.
  virtual void encode(std::string_view piece, std::vector<TokenId>& out, ModelScratch& scratch) const = 0;
  virtual std::string_view kind() const = 0;  // "byte-level BPE", "Unigram", ...
  virtual std::optional<TokenId> unknown() const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  // The special tokens by id, before the model is shared; the unknown token may always come out.
  void set_special(std::vector<bool> is_special) {
    is_special_ = std::move(is_special);
    if (const auto id = unknown(); id && is_known_special(*id)) is_special_[static_cast<size_t>(*id)] = false;
  }

 protected:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  bool is_known_special(TokenId id) const {
    return static_cast<size_t>(id) < is_special_.size() && is_special_[static_cast<size_t>(id)];
  }
  bool is_forbidden(TokenId id, ModelScratch& scratch) const {
    if (!scratch.forbids_special || !is_known_special(id)) return false;
    scratch.has_skipped_special = true;
    return true;
  }
  Vocabulary vocabulary_;

 private:
  std::vector<bool> is_special_;
};

// model of tokenizer.json. `pieces_are_bytes`: the pre-tokenizer ends in ByteLevel and leaves the alphabet to
// us.
Result<std::unique_ptr<Model>> parse_model(const JsonValue* value, const std::string& where,
                                           bool pieces_are_bytes);

struct Merge {
  std::string_view left;
  std::string_view right;
};
struct BpeOptions {
  std::optional<std::string> unknown_token;
  std::string continuing_prefix;
  std::string end_suffix;
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  bool pieces_are_bytes = false;
};
Result<std::unique_ptr<Model>> make_bpe_model(Vocabulary vocabulary, std::span<const Merge> merges,
                                              BpeOptions options, const std::string& where);
// SentencePiece's BPE: the pair whose joined token has the best score merges first, from the left among
// equals. may_merge[id] is false for tokens that text never forms (control, unknown, bytes, unused).
Result<std::unique_ptr<Model>> make_score_bpe_model(Vocabulary vocabulary, std::vector<float> scores,
                                                    const std::vector<bool>& may_merge,
                                                    std::optional<TokenId> unknown, const std::string& where);

struct UnigramOptions {
  std::optional<TokenId> unknown;
  bool byte_fallback = false;
  // SentencePiece adds up in float and gives user-defined symbols the best score; the tokenizers library uses
  // double.
  bool single_precision = false;
};
// is_piece[id] is false for tokens that text never forms; is_user_defined marks symbols that always win.
Result<std::unique_ptr<Model>> make_unigram_model(Vocabulary vocabulary, std::vector<double> scores,
                                                  const std::vector<bool>& is_piece,
                                                  const std::vector<bool>& is_user_defined,
                                                  const UnigramOptions& options, const std::string& where);

struct WordPieceOptions {
  std::string unknown_token = "[UNK]";
  std::string continuing_prefix = "##";
  std::string word_prefix;  // GGUF vocabularies mark the start of a word instead
  int64_t word_characters_max = 100;
};
Result<std::unique_ptr<Model>> make_wordpiece_model(Vocabulary vocabulary, const WordPieceOptions& options,
                                                    const std::string& where);

}  // namespace mlxcel
