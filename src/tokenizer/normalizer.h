// Normalizers of tokenizer.json: text to text before splitting.
//
// Owner: the pipeline. Threads: immutable; each call brings its scratch. REQUIRES: valid UTF-8 in, ENSURES:
// valid UTF-8 out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/regex.h"

namespace mlxcel {

// Text and, for each of its bytes, the offset in the original text that it came from. Origins are kept only
// where somebody asks for them (Metaspace "first", spans); they never fall from one byte to the next.
struct NormalizedText {
  std::string text;
  std::vector<uint32_t> origins;  // empty, or one per byte of text
  bool has_origins = false;

  static NormalizedText from(std::string_view original, bool with_origins);
};

// Builds the next text from pieces of the last one.
class TextBuilder {
 public:
  TextBuilder(const NormalizedText& source, NormalizedText& out);
  // Appends `text`; all of it comes from the byte `source_position` of the source.
  void append(std::string_view text, size_t source_position);
  // Appends source bytes [begin, end) as they are.
  void copy(size_t begin, size_t end);

 private:
  const NormalizedText& source_;
  NormalizedText& out_;
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& text, RegexScratch& scratch) const = 0;
};

// Null or absent gives nullptr. An unknown type is an error that names the key and the type.
Result<std::unique_ptr<const Normalizer>> parse_normalizer(const JsonValue* value, const std::string& where);

// What GGUF vocabularies imply.
std::unique_ptr<const Normalizer> make_nfc_normalizer();
std::unique_ptr<const Normalizer> make_bert_normalizer(bool lower_case);
// SentencePiece's own normalisation: the longest prefix of the map, space runs, the prefix space, U+2581 for
// spaces.
struct SentencePieceOptions {
  bool add_space_prefix = true;
  bool remove_extra_spaces = false;
  std::string_view charsmap;  // may be empty
};
Result<std::unique_ptr<const Normalizer>> make_sentencepiece_normalizer(const SentencePieceOptions& options,
                                                                        const std::string& where);

}  // namespace mlxcel
