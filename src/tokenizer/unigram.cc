// Unigram: the best row of pieces by the sum of their scores, by Viterbi over the positions of the text.
#include <algorithm>
#include <array>
#include <limits>

#include "base/utf8.h"
#include "tokenizer/model.h"
#include "tokenizer/trie.h"

namespace mlxcel {
namespace {

// How much worse than the worst piece an unknown character is: the constant of sentencepiece's unigram_model.
constexpr double kUnknownPenalty = 10.0;
// What a user-defined symbol gets per byte above the best piece, less this: sentencepiece's constant.
constexpr float kUserDefinedPenalty = 0.1F;

class UnigramModel : public Model {
 public:
  UnigramModel(Vocabulary vocabulary, std::vector<double> scores, const UnigramOptions& options)
      : Model(std::move(vocabulary)), scores_(std::move(scores)), options_(options) {}

  void initialize(const std::vector<bool>& is_piece, const std::vector<bool>& is_user_defined) {
    double lowest = std::numeric_limits<double>::max();
    double highest = std::numeric_limits<double>::lowest();
    for (size_t i = 0; i < scores_.size(); ++i) {
      if (!is_piece[i] || is_user_defined[i]) continue;
      lowest = std::min(lowest, scores_[i]);
      highest = std::max(highest, scores_[i]);
    }
    if (lowest > highest) lowest = highest = 0;
    unknown_score_ = lowest - kUnknownPenalty;
    if (options_.single_precision)
      unknown_score_ = static_cast<float>(lowest) - static_cast<float>(kUnknownPenalty);
    std::vector<std::pair<std::string, int32_t>> keys;
    for (size_t i = 0; i < scores_.size(); ++i) {
      const std::string* token = vocabulary_.token(static_cast<TokenId>(i));
      if (token == nullptr || !is_piece[i]) continue;
      keys.emplace_back(*token, static_cast<int32_t>(i));
      if (is_user_defined[i])
        scores_[i] = static_cast<float>(token->size()) * static_cast<float>(highest) - kUserDefinedPenalty;
    }
    pieces_.build(std::move(keys));
    for (size_t i = 0; i < 256; ++i)
      byte_tokens_[i] = vocabulary_.byte_token(static_cast<unsigned char>(i)).value_or(-1);
  }

  void encode(std::string_view text, std::vector<TokenId>& out, ModelScratch& scratch) const override {
    fill_lattice(text, scratch);
    emit_best_path(text, out, scratch);
  }

  std::string_view kind() const override { return "Unigram"; }
  std::optional<TokenId> unknown() const override { return options_.unknown; }

 private:
  static constexpr TokenId kUnknown = -1;

  double add(double a, double b) const {
    return options_.single_precision ? static_cast<double>(static_cast<float>(a) + static_cast<float>(b))
                                     : a + b;
  }

  void fill_lattice(std::string_view text, ModelScratch& scratch) const {
    auto& lattice = scratch.lattice;
    lattice.assign(text.size() + 1, {});
    const auto offer = [&](size_t begin, size_t end, TokenId id, double score) {
      const double total = add(score, lattice[begin].score);
      auto& node = lattice[end];
      if (node.begin >= 0 && total <= node.score) return;
      node = {total, static_cast<int64_t>(begin), id};
    };
    for (size_t begin = 0; begin < text.size();) {
      const size_t size = decode_utf8(text, begin).size;
      bool has_single = false;
      pieces_.for_each_prefix(text.substr(begin), [&](size_t length, int32_t id) {
        ++scratch.lattice_steps;
        // A piece that ends inside a character can only come from a vocabulary that is not text; it leads
        // nowhere.
        if (begin + length < text.size() && (static_cast<unsigned char>(text[begin + length]) & 0xC0) == 0x80)
          return;
        if (is_forbidden(id, scratch)) return;
        offer(begin, begin + length, id, scores_[static_cast<size_t>(id)]);
        has_single = has_single || length == size;
      });
      if (!has_single) offer(begin, begin + size, kUnknown, unknown_score_);
      begin += size;
    }
  }

  void emit_best_path(std::string_view text, std::vector<TokenId>& out, ModelScratch& scratch) const {
    const auto first = static_cast<std::ptrdiff_t>(out.size());
    for (size_t end = text.size(); end > 0;) {
      const auto& node = scratch.lattice[end];
      auto begin = static_cast<size_t>(node.begin);
      if (!is_unknown(node.id)) {
        out.push_back(node.id);
        end = begin;
        continue;
      }
      while (begin > 0 && is_unknown(scratch.lattice[begin].id))
        begin = static_cast<size_t>(scratch.lattice[begin].begin);
      append_unknown_reversed(text.substr(begin, end - begin), out, scratch);
      end = begin;
    }
    std::reverse(out.begin() + first, out.end());
  }

  // The unknown token's own text, matched as a piece, counts as unknown too.
  bool is_unknown(TokenId id) const {
    return id == kUnknown || (options_.unknown && id == *options_.unknown);
  }

  // A run of unknown characters: a token that has just this text, its bytes, or one unknown token.
  void append_unknown_reversed(std::string_view run, std::vector<TokenId>& out, ModelScratch& scratch) const {
    if (!options_.single_precision) {
      const auto id = vocabulary_.find(run);
      if (id && !is_forbidden(*id, scratch)) {
        out.push_back(*id);
        return;
      }
    }
    bool has_bytes = options_.byte_fallback;
    for (const char c : run) has_bytes = has_bytes && byte_tokens_[static_cast<unsigned char>(c)] >= 0;
    if (has_bytes) {
      for (auto c = run.rbegin(); c != run.rend(); ++c)
        out.push_back(byte_tokens_[static_cast<unsigned char>(*c)]);
    } else if (options_.unknown) {
      out.push_back(*options_.unknown);
    }
  }

  std::vector<double> scores_;
  UnigramOptions options_;
  double unknown_score_ = 0;
  Trie pieces_;
  std::array<TokenId, 256> byte_tokens_{};
};

class WordPieceModel : public Model {
 public:
  WordPieceModel(Vocabulary vocabulary, const WordPieceOptions& options, TokenId unknown)
      : Model(std::move(vocabulary)), options_(options), unknown_(unknown) {
    for (int64_t id = 0; id < vocabulary_.size(); ++id)
      if (const std::string* token = vocabulary_.token(static_cast<TokenId>(id)))
        token_bytes_max_ = std::max(token_bytes_max_, token->size());
  }

  // Greedy: the longest token at each place; a word with a place where none fits is unknown as a whole.
  void encode(std::string_view word, std::vector<TokenId>& out, ModelScratch& scratch) const override {
    if (static_cast<int64_t>(count_code_points(word)) > options_.word_characters_max) {
      out.push_back(unknown_);
      return;
    }
    const size_t first = out.size();
    std::string candidate;
    for (size_t begin = 0; begin < word.size();) {
      const std::string& prefix = begin == 0 ? options_.word_prefix : options_.continuing_prefix;
      size_t end = std::min(word.size(), begin + token_bytes_max_);
      std::optional<TokenId> found;
      for (; end > begin; --end) {
        if (end < word.size() && (static_cast<unsigned char>(word[end]) & 0xC0) == 0x80) continue;
        ++scratch.lattice_steps;
        candidate.assign(prefix).append(word.substr(begin, end - begin));
        found = vocabulary_.find(candidate);
        if (found && is_forbidden(*found, scratch)) found.reset();
        if (found) break;
      }
      if (!found) {
        out.resize(first);
        out.push_back(unknown_);
        return;
      }
      out.push_back(*found);
      begin = end;
    }
  }
  std::string_view kind() const override { return "WordPiece"; }
  std::optional<TokenId> unknown() const override { return unknown_; }

 private:
  WordPieceOptions options_;
  TokenId unknown_;
  size_t token_bytes_max_ = 0;
};

}  // namespace

Result<std::unique_ptr<Model>> make_unigram_model(Vocabulary vocabulary, std::vector<double> scores,
                                                  const std::vector<bool>& is_piece,
                                                  const std::vector<bool>& is_user_defined,
                                                  const UnigramOptions& options, const std::string& where) {
  const auto size = static_cast<size_t>(vocabulary.size());
  if (scores.size() != size || is_piece.size() != size || is_user_defined.size() != size)
    return make_error(ErrorKind::kInvalidData, "vocabulary has not one score per token", where,
                      std::to_string(size), std::to_string(scores.size()));
  for (const double score : scores)
    if (score != score) return make_error(ErrorKind::kInvalidData, "token score is not a number", where);
  auto model = std::make_unique<UnigramModel>(std::move(vocabulary), std::move(scores), options);
  model->initialize(is_piece, is_user_defined);
  return std::unique_ptr<Model>(std::move(model));
}

Result<std::unique_ptr<Model>> make_wordpiece_model(Vocabulary vocabulary, const WordPieceOptions& options,
                                                    const std::string& where) {
  const auto unknown = vocabulary.find(options.unknown_token);
  if (!unknown)
    return make_error(ErrorKind::kInvalidData, "unknown token is not in the vocabulary", where + ".unk_token",
                      "a token of the vocabulary", options.unknown_token);
  return std::unique_ptr<Model>(std::make_unique<WordPieceModel>(std::move(vocabulary), options, *unknown));
}

}  // namespace mlxcel
