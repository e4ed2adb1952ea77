// Pre-tokenizers of tokenizer.json: cut normalised text into the pieces that the model encodes one by one.
//
// Owner: the pipeline. Threads: immutable; each call brings its scratch.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/regex.h"

namespace mlxcel {

struct PieceRange {
  size_t begin = 0;
  size_t end = 0;
};

// The text of one section (between two added tokens) and its pieces, in order, none empty.
struct Pieces {
  std::string text;
  std::vector<PieceRange> ranges;
  bool is_text_start = false;  // the section begins where the whole input begins (Metaspace "first")
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces, RegexScratch& scratch) const = 0;
};

struct ParsedPreTokenizer {
  std::unique_ptr<const PreTokenizer> splitter;  // may be null
  bool ends_in_bytes =
      false;  // the last step is ByteLevel: pieces are raw bytes, the model maps them to its alphabet
  bool needs_text_start = false;
};

// Null or absent gives an empty result. An unknown type is an error that names the key and the type.
Result<ParsedPreTokenizer> parse_pre_tokenizer(const JsonValue* value, const std::string& where);

// What GGUF vocabularies imply: a row of patterns, each isolating its matches in the pieces of the one
// before.
Result<std::unique_ptr<const PreTokenizer>> make_pattern_splitter(
    const std::vector<std::string_view>& patterns, const std::string& where);
std::unique_ptr<const PreTokenizer> make_bert_splitter();
// The pattern of GPT-2, which ByteLevel uses.
std::string_view gpt2_pattern();

}  // namespace mlxcel
