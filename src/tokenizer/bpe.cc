// Byte-pair encoding with a heap of candidate merges over a linked list of symbols: n symbols cost at most
// about 3n heap operations, whatever the text.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/model.h"
#include "tokenizer/word_cache.h"

namespace mlxcel {
namespace {

struct MergeTarget {
  uint32_t rank = 0;
  TokenId id = 0;
};
using MergeTable = PairTable<MergeTarget>;
using Candidate = ModelScratch::Candidate;
using Symbol = ModelScratch::Symbol;

// The heap's top is the lowest rank, from the left among equals.
bool comes_later(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

template <typename Forbidden>
void push_candidate(const MergeTable& merges, int32_t left, ModelScratch& scratch,
                    const Forbidden& is_forbidden) {
  if (left < 0) return;
  const Symbol& symbol = scratch.symbols[static_cast<size_t>(left)];
  if (symbol.next < 0) return;
  const MergeTarget* target = merges.find(symbol.id, scratch.symbols[static_cast<size_t>(symbol.next)].id);
  if (target == nullptr || is_forbidden(target->id)) return;
  scratch.heap.push_back({target->rank, left, target->id});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), comes_later);
  ++scratch.heap_pushes;
}

void add_symbol(TokenId id, ModelScratch& scratch) {
  const auto index = static_cast<int32_t>(scratch.symbols.size());
  if (index > 0) scratch.symbols.back().next = index;
  scratch.symbols.push_back({id, index - 1, -1, false});
}

// Merges to tokens for which is_forbidden(id) holds are left out.
template <typename Forbidden>
void merge_all(const MergeTable& merges, ModelScratch& scratch, const Forbidden& is_forbidden) {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<Candidate>& heap = scratch.heap;
  heap.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    const MergeTarget* target = merges.find(symbols[i].id, symbols[i + 1].id);
    if (target != nullptr && !is_forbidden(target->id))
      heap.push_back({target->rank, static_cast<int32_t>(i), target->id});
  }
  scratch.heap_pushes += heap.size();
  std::make_heap(heap.begin(), heap.end(), comes_later);
  while (!heap.empty()) {
    const Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    heap.pop_back();
    Symbol& left = symbols[static_cast<size_t>(top.position)];
    if (left.is_merged || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    // A candidate is stale when its neighbours merged otherwise since; what counts is the token it would
    // make.
    const MergeTarget* target = merges.find(left.id, right.id);
    if (target == nullptr || target->id != top.id) continue;
    left.id = top.id;
    left.next = right.next;
    right.is_merged = true;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = top.position;
    push_candidate(merges, left.previous, scratch, is_forbidden);
    push_candidate(merges, top.position, scratch, is_forbidden);
  }
}

// Where a text without word splitting may be cut all the same: before a U+2581 that no merge joins to the
// character in front of it. Cutting there changes no id, keeps words short and lets the cache work.
class SafeCuts {
 public:
  static constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

  void add_merge(std::string_view left, std::string_view right) {
    if (!right.starts_with(kSpaceSymbol) || left.empty()) return;
    size_t begin = left.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(left[begin]) & 0xC0) == 0x80) --begin;
    joined_.push_back(decode_utf8(left, begin).code);
  }
  void finish(bool is_usable) {
    is_usable_ = is_usable;
    std::sort(joined_.begin(), joined_.end());
    joined_.erase(std::unique(joined_.begin(), joined_.end()), joined_.end());
  }
  // End of the stretch that begins at `begin`.
  size_t next(std::string_view text, size_t begin) const {
    if (!is_usable_) return text.size();
    for (size_t at = text.find(kSpaceSymbol, begin + 1); at != std::string_view::npos;
         at = text.find(kSpaceSymbol, at + 1)) {
      size_t last = at - 1;
      while (last > begin && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
      if (!std::binary_search(joined_.begin(), joined_.end(), decode_utf8(text, last).code)) return at;
    }
    return text.size();
  }

 private:
  std::vector<char32_t> joined_;
  bool is_usable_ = false;
};

constexpr TokenId kNoToken = -1;

class CachingModel : public Model {
 protected:
  using Model::Model;
  // What is in the cache holds whether special tokens are forbidden or not.
  bool may_cache(const std::vector<TokenId>& ids, size_t first, const ModelScratch& scratch) const {
    return !scratch.has_skipped_special &&
           std::none_of(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end(),
                        [&](TokenId id) { return is_known_special(id); });
  }
  WordCache cache_;
};

class BpeModel : public CachingModel {
 public:
  BpeModel(Vocabulary vocabulary, BpeOptions options)
      : CachingModel(std::move(vocabulary)), options_(std::move(options)) {}

  Status initialize(std::span<const Merge> merges, const std::string& where) {
    if (merges.size() > std::numeric_limits<uint32_t>::max())
      return make_error(ErrorKind::kInvalidData, "too many merges", where + ".merges");
    merges_.reserve(merges.size());
    std::string joined;
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const Merge& merge = merges[rank];
      std::string_view tail = merge.right;
      if (!options_.continuing_prefix.empty())
        tail.remove_prefix(std::min(tail.size(), options_.continuing_prefix.size()));
      joined.assign(merge.left).append(tail);
      const auto left = vocabulary_.find(merge.left);
      const auto right = vocabulary_.find(merge.right);
      const auto target = vocabulary_.find(joined);
      if (!left || !right || !target)
        return make_error(ErrorKind::kInvalidData, "merge uses a token that is not in the vocabulary",
                          where + ".merges[" + std::to_string(rank) + "]", "three tokens of the vocabulary",
                          std::string(merge.left) + " + " + std::string(merge.right));
      merges_.set(*left, *right, {static_cast<uint32_t>(rank), *target});
      cuts_.add_merge(merge.left, merge.right);
    }
    const bool has_affixes = !options_.continuing_prefix.empty() || !options_.end_suffix.empty();
    cuts_.finish(!options_.pieces_are_bytes && !has_affixes &&
                 vocabulary_.find(SafeCuts::kSpaceSymbol).has_value());
    is_byte_fast_ = options_.pieces_are_bytes && !has_affixes && !options_.byte_fallback;
    return initialize_tokens(where);
  }

  void encode(std::string_view piece, std::vector<TokenId>& out, ModelScratch& scratch) const override {
    MLXCEL_CHECK(piece.size() < static_cast<size_t>(std::numeric_limits<int32_t>::max()));
    if (options_.ignore_merges) {
      const auto whole = options_.pieces_are_bytes ? raw_ids_.find(piece) : vocabulary_.find(piece);
      if (whole && !is_forbidden(*whole, scratch)) {
        out.push_back(*whole);
        return;
      }
    }
    for (size_t begin = 0; begin < piece.size();) {
      const size_t end = cuts_.next(piece, begin);
      encode_stretch(piece.substr(begin, end - begin), out, scratch);
      begin = end;
    }
  }

  std::string_view kind() const override {
    return options_.pieces_are_bytes ? "byte-level BPE"
           : options_.byte_fallback  ? "BPE with byte fallback"
                                     : "BPE";
  }
  std::optional<TokenId> unknown() const override { return unknown_; }

 private:
  Status initialize_tokens(const std::string& where) {
    if (options_.unknown_token) {
      unknown_ = vocabulary_.find(*options_.unknown_token);
      if (!unknown_)
        return make_error(ErrorKind::kInvalidData, "unknown token is not in the vocabulary",
                          where + ".unk_token", "a token of the vocabulary", *options_.unknown_token);
    }
    for (size_t i = 0; i < 256; ++i) {
      const auto byte = static_cast<unsigned char>(i);
      std::string symbol;
      append_utf8(symbol, byte_to_alphabet(byte));
      byte_symbols_[i] = vocabulary_.find(symbol).value_or(kNoToken);
      byte_tokens_[i] = vocabulary_.byte_token(byte).value_or(kNoToken);
    }
    if (options_.pieces_are_bytes && options_.ignore_merges) {
      for (int64_t id = 0; id < vocabulary_.size(); ++id) {
        const std::string* token = vocabulary_.token(static_cast<TokenId>(id));
        if (token == nullptr) continue;
        // Two ids with one text: the vocabulary's own answer counts.
        if (const auto raw = from_byte_alphabet(*token)) raw_ids_.set(*raw, *vocabulary_.find(*token));
      }
    }
    return ok_status();
  }

  void encode_stretch(std::string_view text, std::vector<TokenId>& out, ModelScratch& scratch) const {
    const bool is_cached = text.size() <= WordCache::kWordBytesMax;
    const uint64_t hash = is_cached ? hash_bytes(text) : 0;
    if (is_cached && cache_.find(text, hash, out)) return;
    scratch.symbols.clear();
    scratch.has_skipped_special = false;
    if (is_byte_fast_) {
      add_bytes(text, scratch);
    } else if (options_.pieces_are_bytes) {
      add_characters(to_byte_alphabet(text), scratch);
    } else {
      add_characters(text, scratch);
    }
    merge_all(merges_, scratch, [&](TokenId id) { return is_forbidden(id, scratch); });
    const size_t first = out.size();
    for (int32_t i = scratch.symbols.empty() ? -1 : 0; i >= 0;
         i = scratch.symbols[static_cast<size_t>(i)].next)
      out.push_back(scratch.symbols[static_cast<size_t>(i)].id);
    if (is_cached && may_cache(out, first, scratch))
      cache_.insert(text, hash, out.data() + first, out.size() - first);
  }

  // Unknown bytes: the unknown token, once for a run if it fuses; without one they vanish, as in the library.
  void add_bytes(std::string_view text, ModelScratch& scratch) const {
    bool has_pending = false;
    for (const char c : text) {
      const TokenId id = byte_symbols_[static_cast<unsigned char>(c)];
      if (id != kNoToken) {
        if (has_pending) add_symbol(*unknown_, scratch);
        has_pending = false;
        add_symbol(id, scratch);
      } else if (unknown_) {
        if (has_pending && !options_.fuse_unknown) add_symbol(*unknown_, scratch);
        has_pending = true;
      }
    }
    if (has_pending) add_symbol(*unknown_, scratch);
  }

  void add_characters(std::string_view text, ModelScratch& scratch) const {
    bool has_pending = false;
    std::string affixed;
    for (size_t position = 0; position < text.size();) {
      const size_t end = position + decode_utf8(text, position).size;
      std::string_view symbol = text.substr(position, end - position);
      if ((position > 0 && !options_.continuing_prefix.empty()) ||
          (end == text.size() && !options_.end_suffix.empty())) {
        affixed.assign(position > 0 ? options_.continuing_prefix : "").append(symbol);
        if (end == text.size()) affixed += options_.end_suffix;
        symbol = affixed;
      }
      position = end;
      if (const auto id = vocabulary_.find(symbol)) {
        if (has_pending) add_symbol(*unknown_, scratch);
        has_pending = false;
        add_symbol(*id, scratch);
        continue;
      }
      // The library leaves a pending unknown token waiting here, so it comes behind the bytes.
      if (options_.byte_fallback && add_byte_tokens(symbol, scratch)) continue;
      if (!unknown_) continue;
      if (has_pending && !options_.fuse_unknown) add_symbol(*unknown_, scratch);
      has_pending = true;
    }
    if (has_pending) add_symbol(*unknown_, scratch);
  }

  bool add_byte_tokens(std::string_view symbol, ModelScratch& scratch) const {
    for (const char c : symbol)
      if (byte_tokens_[static_cast<unsigned char>(c)] == kNoToken) return false;
    for (const char c : symbol) add_symbol(byte_tokens_[static_cast<unsigned char>(c)], scratch);
    return true;
  }

  BpeOptions options_;
  MergeTable merges_;
  SafeCuts cuts_;
  StringTable raw_ids_;  // by raw bytes; only where whole pieces are looked up
  std::array<TokenId, 256> byte_symbols_{};
  std::array<TokenId, 256> byte_tokens_{};
  std::optional<TokenId> unknown_;
  bool is_byte_fast_ = false;
};

// A merge exists wherever two symbols join to a token. Characters that are part of some token without being
// one themselves get numbers above the vocabulary, so that pairs stay pairs of numbers.
class ScoreBpeModel : public CachingModel {
 public:
  ScoreBpeModel(Vocabulary vocabulary, std::optional<TokenId> unknown)
      : CachingModel(std::move(vocabulary)), unknown_(unknown) {}

  void initialize(const std::vector<float>& scores, const std::vector<bool>& may_merge) {
    const std::vector<uint32_t> ranks = dense_ranks(scores);
    first_character_ = static_cast<TokenId>(vocabulary_.size());
    for (int64_t id = 0; id < vocabulary_.size(); ++id) {
      const std::string* token = vocabulary_.token(static_cast<TokenId>(id));
      const auto index = static_cast<size_t>(id);
      if (token == nullptr || !may_merge[index] || vocabulary_.find(*token) != static_cast<TokenId>(id))
        continue;
      for (size_t cut = decode_utf8(*token, 0).size; cut < token->size();
           cut += decode_utf8(*token, cut).size) {
        const std::string_view left = std::string_view(*token).substr(0, cut);
        const std::string_view right = std::string_view(*token).substr(cut);
        const TokenId a = symbol_for(left);
        const TokenId b = symbol_for(right);
        if (a == kNoToken || b == kNoToken) continue;
        merges_.set(a, b, {ranks[index], static_cast<TokenId>(id)});
        cuts_.add_merge(left, right);
      }
    }
    cuts_.finish(vocabulary_.find(SafeCuts::kSpaceSymbol).has_value());
    for (size_t i = 0; i < 256; ++i)
      byte_tokens_[i] = vocabulary_.byte_token(static_cast<unsigned char>(i)).value_or(kNoToken);
  }

  void encode(std::string_view piece, std::vector<TokenId>& out, ModelScratch& scratch) const override {
    MLXCEL_CHECK(piece.size() < static_cast<size_t>(std::numeric_limits<int32_t>::max()));
    for (size_t begin = 0; begin < piece.size();) {
      const size_t end = cuts_.next(piece, begin);
      encode_stretch(piece.substr(begin, end - begin), out, scratch);
      begin = end;
    }
  }
  std::string_view kind() const override { return "SentencePiece BPE"; }
  std::optional<TokenId> unknown() const override { return unknown_; }

 private:
  // Rank 0 is the best score; equal scores share a rank, so that the leftmost pair goes first.
  static std::vector<uint32_t> dense_ranks(const std::vector<float>& scores) {
    std::vector<uint32_t> order(scores.size());
    std::iota(order.begin(), order.end(), uint32_t{0});
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
    std::vector<uint32_t> ranks(scores.size());
    uint32_t rank = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0 && scores[order[i]] != scores[order[i - 1]]) ++rank;
      ranks[order[i]] = rank;
    }
    return ranks;
  }

  TokenId symbol_for(std::string_view text) {
    if (const auto id = vocabulary_.find(text)) return *id;
    if (decode_utf8(text, 0).size != text.size()) return kNoToken;
    if (const auto id = characters_.find(text)) return *id;
    const auto id = static_cast<TokenId>(vocabulary_.size() + static_cast<int64_t>(characters_.size()));
    characters_.set(text, id);
    character_texts_.emplace_back(text);
    return id;
  }

  void encode_stretch(std::string_view text, std::vector<TokenId>& out, ModelScratch& scratch) const {
    // A run of unknown characters is one unknown token; no run crosses a cut, which lies before a known
    // symbol.
    const bool is_cached = text.size() <= WordCache::kWordBytesMax;
    const uint64_t hash = is_cached ? hash_bytes(text) : 0;
    if (is_cached && cache_.find(text, hash, out)) return;
    scratch.symbols.clear();
    scratch.has_skipped_special = false;
    std::vector<std::string_view> unknown_texts;  // of the symbols that stand for no number at all
    for (size_t position = 0; position < text.size();) {
      const size_t size = decode_utf8(text, position).size;
      const std::string_view symbol = text.substr(position, size);
      auto id = vocabulary_.find(symbol);
      if (!id) id = characters_.find(symbol);
      if (!id) unknown_texts.push_back(symbol);
      add_symbol(id.value_or(kUnknownCharacter), scratch);
      position += size;
    }
    merge_all(merges_, scratch, [&](TokenId id) { return is_forbidden(id, scratch); });
    const size_t first = out.size();
    size_t num_unknown = 0;
    bool was_unknown = false;
    for (int32_t i = scratch.symbols.empty() ? -1 : 0; i >= 0;
         i = scratch.symbols[static_cast<size_t>(i)].next) {
      const TokenId id = scratch.symbols[static_cast<size_t>(i)].id;
      if (id < first_character_) {
        out.push_back(id);
        was_unknown = false;
        continue;
      }
      const std::string_view symbol =
          id == kUnknownCharacter
              ? unknown_texts[num_unknown++]
              : std::string_view(character_texts_[static_cast<size_t>(id - first_character_)]);
      if (append_bytes(symbol, out)) {
        was_unknown = false;
      } else if (unknown_ && !was_unknown) {
        out.push_back(*unknown_);
        was_unknown = true;
      }
    }
    if (is_cached && may_cache(out, first, scratch))
      cache_.insert(text, hash, out.data() + first, out.size() - first);
  }

  bool append_bytes(std::string_view symbol, std::vector<TokenId>& out) const {
    for (const char c : symbol)
      if (byte_tokens_[static_cast<unsigned char>(c)] == kNoToken) return false;
    for (const char c : symbol) out.push_back(byte_tokens_[static_cast<unsigned char>(c)]);
    return true;
  }

  static constexpr TokenId kUnknownCharacter = std::numeric_limits<TokenId>::max();
  std::optional<TokenId> unknown_;
  MergeTable merges_;
  SafeCuts cuts_;
  StringTable characters_;
  std::vector<std::string> character_texts_;  // by number above the vocabulary
  TokenId first_character_ = 0;
  std::array<TokenId, 256> byte_tokens_{};
};

}  // namespace

Result<std::unique_ptr<Model>> make_bpe_model(Vocabulary vocabulary, std::span<const Merge> merges,
                                              BpeOptions options, const std::string& where) {
  auto model = std::make_unique<BpeModel>(std::move(vocabulary), std::move(options));
  MLXCEL_RETURN_IF_ERROR(model->initialize(merges, where));
  return std::unique_ptr<Model>(std::move(model));
}

Result<std::unique_ptr<Model>> make_score_bpe_model(Vocabulary vocabulary, std::vector<float> scores,
                                                    const std::vector<bool>& may_merge,
                                                    std::optional<TokenId> unknown,
                                                    const std::string& where) {
  const auto size = static_cast<size_t>(vocabulary.size());
  if (scores.size() != size || may_merge.size() != size)
    return make_error(ErrorKind::kInvalidData, "vocabulary has not one score per token", where,
                      std::to_string(size), std::to_string(scores.size()));
  for (float& score : scores)
    if (score != score) return make_error(ErrorKind::kInvalidData, "token score is not a number", where);
  auto model = std::make_unique<ScoreBpeModel>(std::move(vocabulary), unknown);
  model->initialize(scores, may_merge);
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace mlxcel
