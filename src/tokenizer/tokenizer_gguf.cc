// The vocabularies of GGUF files: byte-level BPE ("gpt2"), SentencePiece BPE ("llama"), Unigram ("t5") and
// WordPiece
// ("bert"). Source: the keys tokenizer.ggml.* of the GGUF specification.
#include <algorithm>

#include "tokenizer/gguf_patterns.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/tokenizer.h"

namespace mlxcel {
namespace {

// tokenizer.ggml.token_type
enum TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";
// What sentencepiece prints for an unknown token.
constexpr std::string_view kUnknownSurface = " \xE2\x81\x87 ";

class GgufLoader {
 public:
  GgufLoader(const GgufVocabulary& source, std::string where) : source_(source), where_(std::move(where)) {}

  Result<std::shared_ptr<const Tokenizer>> load() {
    MLXCEL_RETURN_IF_ERROR(check());
    if (source_.model == "gpt2") {
      MLXCEL_RETURN_IF_ERROR(load_byte_level());
    } else if (source_.model == "llama") {
      MLXCEL_RETURN_IF_ERROR(load_sentencepiece_bpe());
    } else if (source_.model == "t5") {
      MLXCEL_RETURN_IF_ERROR(load_unigram());
    } else if (source_.model == "bert") {
      MLXCEL_RETURN_IF_ERROR(load_wordpiece());
    } else {
      return make_error(ErrorKind::kUnsupported, "vocabulary model is unknown",
                        where_ + ": tokenizer.ggml.model", "gpt2, llama, t5 or bert", source_.model);
    }
    NamedTokens named{source_.bos, source_.eos, unknown_, source_.padding};
    auto tokenizer = std::make_shared<PipelineTokenizer>(std::move(parts_));
    tokenizer->set_named_tokens(named);
    return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
  }

 private:
  size_t size() const { return source_.tokens.size(); }
  int32_t type(size_t id) const { return source_.types.empty() ? int32_t{kNormal} : source_.types[id]; }

  Status check() {
    if (source_.tokens.empty())
      return make_error(ErrorKind::kInvalidData, "vocabulary is empty", where_ + ": tokenizer.ggml.tokens");
    if (!source_.types.empty() && source_.types.size() != size())
      return make_error(ErrorKind::kInvalidData, "vocabulary has not one type per token",
                        where_ + ": tokenizer.ggml.token_type", std::to_string(size()),
                        std::to_string(source_.types.size()));
    const std::pair<std::string_view, std::optional<TokenId>> ids[] = {
        {"bos", source_.bos},
        {"eos", source_.eos},
        {"eot", source_.eot},
        {"unknown", source_.unknown},
        {"seperator", source_.separator},
        {"padding", source_.padding}};  // the specification's own spelling
    for (const auto& [name, id] : ids)
      if (id && (*id < 0 || static_cast<size_t>(*id) >= size()))
        return make_error(ErrorKind::kInvalidData, "token id is not in the vocabulary",
                          where_ + ": tokenizer.ggml." + std::string(name) + "_token_id",
                          "0.." + std::to_string(size() - 1), std::to_string(*id));
    unknown_ = source_.unknown;
    for (size_t id = 0; id < size() && !unknown_; ++id)
      if (type(id) == kUnknown) unknown_ = static_cast<TokenId>(id);
    return ok_status();
  }

  Result<Vocabulary> vocabulary() const {
    Vocabulary result;
    result.reserve(size(), size() * 8);
    for (size_t id = 0; id < size(); ++id)
      MLXCEL_RETURN_IF_ERROR(result.add(source_.tokens[id], static_cast<int64_t>(id), where_));
    return result;
  }

  // Control and unknown tokens are special, user-defined ones are found in any text.
  void add_tokens(bool has_unknown_surface) {
    for (size_t id = 0; id < size(); ++id) {
      const int32_t t = type(id);
      if ((t != kUnknown && t != kControl && t != kUserDefined) || source_.tokens[id].empty()) continue;
      AddedToken token;
      token.content = source_.tokens[id];
      token.id = static_cast<TokenId>(id);
      token.special = t != kUserDefined;
      if (t == kUnknown && has_unknown_surface) token.surface = std::string(kUnknownSurface);
      parts_.added_tokens.push_back(std::move(token));
    }
  }

  void add_surround(bool bos_by_default, bool eos_by_default) {
    if (source_.add_bos.value_or(bos_by_default) && source_.bos)
      parts_.surround.before.push_back(*source_.bos);
    if (source_.add_eos.value_or(eos_by_default) && source_.eos)
      parts_.surround.after.push_back(*source_.eos);
  }

  Status load_byte_level() {
    const std::string name = source_.pre.empty() ? "default" : source_.pre;
    const GgufPreTokenizer pre = find_gguf_pre_tokenizer(name);
    if (pre.patterns.empty())
      return make_error(
          ErrorKind::kUnsupported, "pre-tokenizer is unknown", where_ + ": tokenizer.ggml.pre",
          "a name that this build knows", source_.pre,
          "use the model's Hugging Face folder, whose tokenizer.json holds the rules themselves");
    if (pre.nfc) parts_.normalizer = make_nfc_normalizer();
    MLXCEL_ASSIGN_OR_RETURN(parts_.pre_tokenizer.splitter, make_pattern_splitter(pre.patterns, where_));
    parts_.pre_tokenizer.ends_in_bytes = true;
    std::vector<Merge> merges;
    merges.reserve(source_.merges.size());
    for (const std::string& merge : source_.merges) {
      const size_t space = merge.find(' ', 1);
      if (space == std::string::npos)
        return make_error(ErrorKind::kInvalidData, "merge is malformed",
                          where_ + ": tokenizer.ggml.merges[" + std::to_string(merges.size()) + "]",
                          "\"a b\"", merge);
      const std::string_view text = merge;
      merges.push_back({text.substr(0, space), text.substr(space + 1)});
    }
    if (merges.empty())
      return make_error(ErrorKind::kInvalidData, "byte-level vocabulary has no merges",
                        where_ + ": tokenizer.ggml.merges");
    BpeOptions options;
    options.pieces_are_bytes = true;
    options.ignore_merges = pre.ignore_merges;
    MLXCEL_ASSIGN_OR_RETURN(Vocabulary tokens, vocabulary());
    MLXCEL_ASSIGN_OR_RETURN(parts_.model,
                            make_bpe_model(std::move(tokens), merges, std::move(options), where_));
    parts_.decoder = DecoderChain::byte_level();
    add_tokens(false);
    add_surround(pre.adds_bos, false);
    return ok_status();
  }

  Status check_scores() const {
    if (source_.scores.size() == size()) return ok_status();
    return make_error(ErrorKind::kInvalidData, "vocabulary has not one score per token",
                      where_ + ": tokenizer.ggml.scores", std::to_string(size()),
                      std::to_string(source_.scores.size()));
  }

  Status set_sentencepiece_normalizer() {
    SentencePieceOptions options;
    options.add_space_prefix = source_.add_space_prefix.value_or(true);
    options.remove_extra_spaces = source_.remove_extra_whitespaces.value_or(false);
    const std::string charsmap(reinterpret_cast<const char*>(source_.precompiled_charsmap.data()),
                               source_.precompiled_charsmap.size());
    options.charsmap = charsmap;
    MLXCEL_ASSIGN_OR_RETURN(
        parts_.normalizer,
        make_sentencepiece_normalizer(options, where_ + ": tokenizer.ggml.precompiled_charsmap"));
    parts_.decoder = DecoderChain::sentencepiece(options.add_space_prefix || options.remove_extra_spaces);
    return ok_status();
  }

  Status load_sentencepiece_bpe() {
    MLXCEL_RETURN_IF_ERROR(check_scores());
    MLXCEL_RETURN_IF_ERROR(set_sentencepiece_normalizer());
    std::vector<bool> may_merge(size());
    for (size_t id = 0; id < size(); ++id) may_merge[id] = type(id) == kNormal || type(id) == kUserDefined;
    MLXCEL_ASSIGN_OR_RETURN(Vocabulary tokens, vocabulary());
    MLXCEL_ASSIGN_OR_RETURN(
        parts_.model, make_score_bpe_model(std::move(tokens), source_.scores, may_merge, unknown_, where_));
    add_tokens(true);
    add_surround(true, false);
    return ok_status();
  }

  Status load_unigram() {
    MLXCEL_RETURN_IF_ERROR(check_scores());
    MLXCEL_RETURN_IF_ERROR(set_sentencepiece_normalizer());
    std::vector<bool> is_piece(size());
    std::vector<bool> is_user_defined(size());
    bool has_bytes = false;
    for (size_t id = 0; id < size(); ++id) {
      is_piece[id] = type(id) == kNormal || type(id) == kUserDefined;
      is_user_defined[id] = type(id) == kUserDefined;
      has_bytes = has_bytes || type(id) == kByte;
    }
    UnigramOptions options;
    options.unknown = unknown_;
    options.byte_fallback = has_bytes;
    options.single_precision = true;
    MLXCEL_ASSIGN_OR_RETURN(Vocabulary tokens, vocabulary());
    std::vector<double> scores(source_.scores.begin(), source_.scores.end());
    MLXCEL_ASSIGN_OR_RETURN(parts_.model, make_unigram_model(std::move(tokens), std::move(scores), is_piece,
                                                             is_user_defined, options, where_));
    add_tokens(true);
    add_surround(false, true);
    return ok_status();
  }

  // A vocabulary without capital letters was trained on lower-cased text.
  bool has_capital_letters() const {
    for (size_t id = 0; id < size(); ++id) {
      if (type(id) != kNormal || source_.tokens[id].starts_with('[')) continue;
      if (std::any_of(source_.tokens[id].begin(), source_.tokens[id].end(),
                      [](char c) { return c >= 'A' && c <= 'Z'; }))
        return true;
    }
    return false;
  }

  Status load_wordpiece() {
    WordPieceOptions options;
    if (!unknown_)
      return make_error(ErrorKind::kInvalidData, "WordPiece vocabulary has no unknown token",
                        where_ + ": tokenizer.ggml.unknown_token_id");
    options.unknown_token = source_.tokens[static_cast<size_t>(*unknown_)];
    options.continuing_prefix.clear();
    options.word_prefix = std::string(kSpaceSymbol);
    MLXCEL_ASSIGN_OR_RETURN(Vocabulary tokens, vocabulary());
    MLXCEL_ASSIGN_OR_RETURN(parts_.model, make_wordpiece_model(std::move(tokens), options, where_));
    parts_.normalizer = make_bert_normalizer(!has_capital_letters());
    parts_.pre_tokenizer.splitter = make_bert_splitter();
    parts_.decoder = DecoderChain::wordpiece_marked_starts();
    add_tokens(false);
    if (source_.add_bos.value_or(true) && source_.bos) parts_.surround.before.push_back(*source_.bos);
    const auto last = source_.separator ? source_.separator : source_.eos;
    if (source_.add_eos.value_or(true) && last) parts_.surround.after.push_back(*last);
    return ok_status();
  }

  const GgufVocabulary& source_;
  std::string where_;
  PipelineParts parts_;
  std::optional<TokenId> unknown_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> load_tokenizer_gguf(const GgufVocabulary& vocabulary,
                                                             const std::string& where) {
  return GgufLoader(vocabulary, where).load();
}

}  // namespace mlxcel
