// What the name in tokenizer.ggml.pre stands for: the splitting patterns of a byte-level vocabulary and its
// manners. The names are llama.cpp's; each pattern is the one of the original tokenizer.json.
//
// Pure; any thread.
#pragma once

#include <string_view>
#include <vector>

namespace mlxcel {

struct GgufPreTokenizer {
  std::vector<std::string_view> patterns;
  bool ignore_merges = false;  // a piece that is a token is taken whole
  bool nfc = false;
  bool adds_bos = false;  // where the file does not say
};

// An empty list of patterns means that the name is not known.
GgufPreTokenizer find_gguf_pre_tokenizer(std::string_view name);

}  // namespace mlxcel
