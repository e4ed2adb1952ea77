// Tokens that are found in the text before the model sees it: special ones (control, chat markers) and plain
// ones.
//
// Owner: the pipeline. Threads: immutable. The search is a trie walk from each position whose byte can begin
// a token: at most the length of the longest token per byte of text, however many tokens there are.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/trie.h"

namespace mlxcel {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool single_word = false;  // only between characters that are no word characters
  bool lstrip = false;       // takes the white space on its left
  bool rstrip = false;
  bool normalized = false;  // is looked for in the normalised text
  bool special = false;
  std::optional<std::string> surface;  // what it decodes to, where that is not its content
};

// True for tokens that only a template may write: special ones, and plain ones that look like markers
// (<|...|>, <think>, [TOOL]) unless they are markup of ordinary text (<h1>, <table>).
bool is_marker(const AddedToken& token);

struct AddedMatch {
  size_t begin = 0;  // with the white space it takes
  size_t end = 0;
  TokenId id = 0;
};

class AddedTokenMatcher {
 public:
  // `patterns[i]` is what tokens[i] looks like in the text that is searched.
  void build(std::vector<AddedToken> tokens, const std::vector<std::string>& patterns);
  bool empty() const { return trie_.empty(); }

  // Matches from the left, the longest at each place. With parse_special false, special tokens are passed
  // over; the text they cover is not searched again, as in the library.
  std::vector<AddedMatch> find_all(std::string_view text, bool parse_special) const;

  // The same, but a marker counts only where is_template(begin, end) holds for its text. Elsewhere it is no
  // token, and the next shorter one or the next place is tried: content can neither be nor break a marker.
  using TemplateTest = std::function<bool(size_t begin, size_t end)>;
  std::vector<AddedMatch> find_all(std::string_view text, const TemplateTest& is_template) const;

 private:
  enum class Verdict { kTake, kPassOver };
  struct Found {
    size_t length = 0;
    int32_t number = -1;
  };
  template <typename Allow, typename Judge>
  std::vector<AddedMatch> search(std::string_view text, Allow&& allow, Judge&& judge) const;
  std::vector<AddedToken> tokens_;
  std::vector<bool> is_marker_;
  Trie trie_;
};

}  // namespace mlxcel
