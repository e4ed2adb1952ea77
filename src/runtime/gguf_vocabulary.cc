#include "runtime/gguf_vocabulary.h"

#include <fmt/format.h>

#include <limits>

namespace mlxcel {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 24;

class VocabularyReader {
 public:
  explicit VocabularyReader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  Error wrong(std::string_view key, std::string expected) const {
    return make_error(ErrorKind::kInvalidData, fmt::format("metadata key {} is malformed", key),
                      checkpoint_.path, std::move(expected));
  }

  // The array under `key`; nullptr when absent.
  Result<const GgufArray*> array(std::string_view key) const {
    const GgufValue* value = checkpoint_.meta(key);
    if (value == nullptr) return nullptr;
    const GgufArray* found = value->array();
    if (found == nullptr || found->size() > kMaxTokens)
      return wrong(key, fmt::format("an array of at most {}", kMaxTokens));
    return found;
  }

  Result<std::vector<std::string>> strings(std::string_view key) const {
    MLXCEL_ASSIGN_OR_RETURN(const GgufArray* found, array(key));
    std::vector<std::string> out;
    if (found == nullptr || found->empty()) return out;
    const std::span<const std::string_view> texts = found->strings();
    if (texts.size() != found->size()) return wrong(key, "an array of strings");
    out.reserve(texts.size());
    for (const std::string_view text : texts) out.emplace_back(text);
    return out;
  }

  Result<std::vector<float>> floats(std::string_view key) const {
    MLXCEL_ASSIGN_OR_RETURN(const GgufArray* found, array(key));
    std::vector<float> out;
    for (size_t i = 0; found != nullptr && i < found->size(); ++i) {
      const GgufValue value = (*found)[i];
      if (value.number() == nullptr) return wrong(key, "an array of numbers");
      out.push_back(static_cast<float>(*value.number()));
    }
    return out;
  }

  Result<std::vector<int32_t>> integers(std::string_view key) const {
    MLXCEL_ASSIGN_OR_RETURN(const GgufArray* found, array(key));
    std::vector<int32_t> out;
    for (size_t i = 0; found != nullptr && i < found->size(); ++i) {
      const GgufValue value = (*found)[i];
      const int64_t* number = value.integer();
      if (number == nullptr || *number < std::numeric_limits<int32_t>::min() ||
          *number > std::numeric_limits<int32_t>::max()) {
        return wrong(key, "an array of 32-bit integers");
      }
      out.push_back(static_cast<int32_t>(*number));
    }
    return out;
  }

  // A token id that lies in the vocabulary; absent and -1 (and its unsigned form) are "none".
  Result<std::optional<TokenId>> token(std::string_view key, size_t vocabulary_size) const {
    const GgufValue* value = checkpoint_.meta(key);
    if (value == nullptr) return std::optional<TokenId>();
    const int64_t* id = value->integer();
    if (id != nullptr && (*id == -1 || *id == int64_t{0xFFFFFFFF})) return std::optional<TokenId>();
    if (id == nullptr || *id < 0 || static_cast<uint64_t>(*id) >= vocabulary_size) {
      return wrong(key, fmt::format("a token id below {}", vocabulary_size));
    }
    return std::optional<TokenId>(static_cast<TokenId>(*id));
  }

  Result<std::optional<bool>> boolean(std::string_view key) const {
    const GgufValue* value = checkpoint_.meta(key);
    if (value == nullptr) return std::optional<bool>();
    if (value->boolean() == nullptr) return wrong(key, "a boolean");
    return std::optional<bool>(*value->boolean());
  }

 private:
  const Checkpoint& checkpoint_;
};

}  // namespace

Result<GgufVocabulary> read_gguf_vocabulary(const Checkpoint& checkpoint) {
  if (checkpoint.meta("tokenizer.ggml.tokens") == nullptr) {
    return make_error(ErrorKind::kNotFound, "the file holds no tokenizer", checkpoint.path,
                      "metadata key tokenizer.ggml.tokens", "none");
  }
  const VocabularyReader reader(checkpoint);
  GgufVocabulary v;
  MLXCEL_ASSIGN_OR_RETURN(v.model, checkpoint.meta_string("tokenizer.ggml.model"));
  MLXCEL_ASSIGN_OR_RETURN(v.pre, checkpoint.meta_string("tokenizer.ggml.pre", ""));
  MLXCEL_ASSIGN_OR_RETURN(v.tokens, reader.strings("tokenizer.ggml.tokens"));
  MLXCEL_ASSIGN_OR_RETURN(v.scores, reader.floats("tokenizer.ggml.scores"));
  MLXCEL_ASSIGN_OR_RETURN(v.types, reader.integers("tokenizer.ggml.token_type"));
  MLXCEL_ASSIGN_OR_RETURN(v.merges, reader.strings("tokenizer.ggml.merges"));
  const size_t size = v.tokens.size();
  MLXCEL_ASSIGN_OR_RETURN(v.bos, reader.token("tokenizer.ggml.bos_token_id", size));
  MLXCEL_ASSIGN_OR_RETURN(v.eos, reader.token("tokenizer.ggml.eos_token_id", size));
  MLXCEL_ASSIGN_OR_RETURN(v.eot, reader.token("tokenizer.ggml.eot_token_id", size));
  MLXCEL_ASSIGN_OR_RETURN(v.unknown, reader.token("tokenizer.ggml.unknown_token_id", size));
  MLXCEL_ASSIGN_OR_RETURN(v.separator,
                          reader.token("tokenizer.ggml.seperator_token_id", size));  // spelt so in the format
  MLXCEL_ASSIGN_OR_RETURN(v.padding, reader.token("tokenizer.ggml.padding_token_id", size));
  MLXCEL_ASSIGN_OR_RETURN(v.add_bos, reader.boolean("tokenizer.ggml.add_bos_token"));
  MLXCEL_ASSIGN_OR_RETURN(v.add_eos, reader.boolean("tokenizer.ggml.add_eos_token"));
  MLXCEL_ASSIGN_OR_RETURN(v.add_space_prefix, reader.boolean("tokenizer.ggml.add_space_prefix"));
  MLXCEL_ASSIGN_OR_RETURN(v.remove_extra_whitespaces,
                          reader.boolean("tokenizer.ggml.remove_extra_whitespaces"));
  MLXCEL_ASSIGN_OR_RETURN(const std::vector<int32_t> charsmap,
                          reader.integers("tokenizer.ggml.precompiled_charsmap"));
  for (const int32_t byte : charsmap) v.precompiled_charsmap.push_back(static_cast<std::byte>(byte & 0xFF));
  return v;
}

}  // namespace mlxcel
