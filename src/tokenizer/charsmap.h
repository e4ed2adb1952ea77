// A precompiled character map of SentencePiece: a double-array trie over UTF-8 and the NUL-ended
// replacements. Layout: little-endian u32 size of the trie in bytes, the trie's u32 units, the replacements.
// Source: darts-clone's unit layout and sentencepiece's normalizer.cc, as publicly described.
//
// Owner: a normalizer. Threads: immutable. Every index from the file is checked at every step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace mlxcel {

class Charsmap {
 public:
  static Result<Charsmap> parse(std::string_view bytes, const std::string& where);

  struct Match {
    size_t size = 0;  // bytes of the text that are replaced
    std::string_view replacement;
  };
  std::optional<Match> shortest_prefix(std::string_view text) const { return prefix(text, false); }
  std::optional<Match> longest_prefix(std::string_view text) const { return prefix(text, true); }

 private:
  std::optional<Match> prefix(std::string_view text, bool longest) const;
  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace mlxcel
