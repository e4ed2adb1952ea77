// GGUF vocabularies against the goldens of the same tokenizers, and what their loader refuses.
#include <cstring>
#include <map>

#include "tokenizer/gguf_patterns.h"
#include "tokenizer/golden_test_util.h"
#include "tokenizer/pre_tokenizer.h"

namespace mlxcel {
namespace {

// Reads the metadata of the fixtures' files; a real reader with checks lives elsewhere and is not of this
// layer.
class MetadataReader {
 public:
  explicit MetadataReader(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  GgufVocabulary read() {
    GgufVocabulary v;
    EXPECT_EQ(take(4), "GGUF");
    EXPECT_EQ(number<uint32_t>(), 3U);
    number<uint64_t>();  // tensors
    const auto count = number<uint64_t>();
    for (uint64_t i = 0; i < count; ++i) read_entry(v);
    return v;
  }

 private:
  template <typename T>
  T number() {
    T value{};
    const std::string raw = take(sizeof(T));
    std::memcpy(&value, raw.data(), sizeof(T));
    return value;
  }
  std::string take(size_t size) {
    EXPECT_LE(position_ + size, bytes_.size());
    position_ += size;
    return bytes_.substr(position_ - size, size);
  }
  std::string text() { return take(number<uint64_t>()); }

  static constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  static constexpr uint32_t kString = 8;
  static constexpr uint32_t kArray = 9;

  void read_entry(GgufVocabulary& v) {
    const std::string key = text();
    const auto type = number<uint32_t>();
    if (type == kArray) return read_array(key, v);
    if (type == kString) {
      const std::string value = text();
      if (key == "tokenizer.ggml.model") v.model = value;
      if (key == "tokenizer.ggml.pre") v.pre = value;
      return;
    }
    const std::string raw = take(kSizes[type]);
    uint32_t value = 0;
    std::memcpy(&value, raw.data(), std::min(raw.size(), sizeof value));
    const auto id = static_cast<TokenId>(value);
    if (key == "tokenizer.ggml.bos_token_id") v.bos = id;
    if (key == "tokenizer.ggml.eos_token_id") v.eos = id;
    if (key == "tokenizer.ggml.unknown_token_id") v.unknown = id;
    if (key == "tokenizer.ggml.padding_token_id") v.padding = id;
    if (key == "tokenizer.ggml.add_bos_token") v.add_bos = value != 0;
    if (key == "tokenizer.ggml.add_eos_token") v.add_eos = value != 0;
    if (key == "tokenizer.ggml.add_space_prefix") v.add_space_prefix = value != 0;
    if (key == "tokenizer.ggml.remove_extra_whitespaces") v.remove_extra_whitespaces = value != 0;
  }

  void read_array(const std::string& key, GgufVocabulary& v) {
    const auto type = number<uint32_t>();
    const auto count = number<uint64_t>();
    for (uint64_t i = 0; i < count; ++i) {
      if (type == kString) {
        std::string value = text();
        if (key == "tokenizer.ggml.tokens") v.tokens.push_back(std::move(value));
        if (key == "tokenizer.ggml.merges") v.merges.push_back(std::move(value));
      } else if (key == "tokenizer.ggml.scores") {
        v.scores.push_back(number<float>());
      } else if (key == "tokenizer.ggml.token_type") {
        v.types.push_back(number<int32_t>());
      } else if (key == "tokenizer.ggml.precompiled_charsmap") {
        v.precompiled_charsmap.push_back(static_cast<std::byte>(take(1)[0]));
      } else {
        take(kSizes[type]);
      }
    }
  }
  std::string bytes_;
  size_t position_ = 0;
};

std::shared_ptr<const Tokenizer> load_fixture(const std::string& folder) {
  auto loaded = load_tokenizer_gguf(MetadataReader(folder + "/vocab.gguf").read(), folder);
  EXPECT_TRUE(loaded.ok()) << loaded.error().to_string();
  return loaded.ok() ? loaded.value() : nullptr;
}

class ByteLevelGgufTest : public testing::TestWithParam<const char*> {};

TEST_P(ByteLevelGgufTest, EqualsTokenizerJson) {
  const std::string folder = golden::shared_folder(GetParam());
  if (!golden::has_file(folder + "/vocab.gguf")) GTEST_SKIP() << "not run: ../shared is absent";
  const auto tokenizer = load_fixture(folder);
  ASSERT_NE(tokenizer, nullptr);
  // DeepSeek's tokenizer.json has no post-processor, but its GGUF says add_bos_token, and that is what counts
  // there.
  const bool has_more_bos = std::string(GetParam()) == "deepseek_v3";
  size_t count = 0;
  for (golden::Case c : golden::read_cases(folder + "/golden.json", "cases")) {
    if (has_more_bos && c.options.add_special) c.options.add_special = false;
    golden::check_case(tokenizer, c);
    ++count;
  }
  EXPECT_GT(count, 50U);
}

TEST(ByteLevelGguf, AddsBosWhereTheMetadataSaySo) {
  const std::string folder = golden::shared_folder("deepseek_v3");
  if (!golden::has_file(folder + "/vocab.gguf")) GTEST_SKIP() << "not run: ../shared is absent";
  const auto tokenizer = load_fixture(folder);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->encode("", {.add_special = true}), (std::vector<TokenId>{tokenizer->bos().value()}));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ByteLevelGgufTest,
                         testing::Values("smollm2", "llama3", "qwen3", "deepseek_v3", "mistral_tekken"),
                         [](const auto& parameter) { return std::string(parameter.param); });

class SentencePieceGgufTest : public testing::TestWithParam<const char*> {};

// The sentencepiece library never looks for special tokens in text.
TEST_P(SentencePieceGgufTest, EqualsTheSentencePieceLibrary) {
  const std::string folder = golden::shared_folder(GetParam());
  if (!golden::has_file(folder + "/golden_sentencepiece.json"))
    GTEST_SKIP() << "not run: ../shared is absent";
  const auto tokenizer = load_fixture(folder);
  ASSERT_NE(tokenizer, nullptr);
  size_t count = 0;
  for (const golden::Case& c : golden::read_cases(folder + "/golden_sentencepiece.json", "cases")) {
    EXPECT_EQ(tokenizer->encode(c.text, {.add_special = false, .parse_special = false}), c.ids) << c.name;
    EXPECT_EQ(tokenizer->decode(c.ids), c.decoded) << c.name;
    ++count;
  }
  EXPECT_GT(count, 50U);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, SentencePieceGgufTest, testing::Values("mistral_v3_sp", "unigram_t5"),
                         [](const auto& parameter) { return std::string(parameter.param); });

class ScoreBpeGgufTest : public testing::TestWithParam<const char*> {};

TEST_P(ScoreBpeGgufTest, GivesTheIdsOfTokenizerJson) {
  const std::string folder = golden::shared_folder(GetParam());
  if (!golden::has_file(folder + "/vocab.gguf")) GTEST_SKIP() << "not run: ../shared is absent";
  const auto tokenizer = load_fixture(folder);
  ASSERT_NE(tokenizer, nullptr);
  size_t count = 0;
  for (const golden::Case& c : golden::read_cases(folder + "/golden.json", "cases")) {
    EXPECT_EQ(tokenizer->encode(c.input, c.options), c.ids) << c.name;
    ++count;
  }
  EXPECT_GT(count, 50U);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ScoreBpeGgufTest, testing::Values("mistral_v3_sp", "gemma3_like"),
                         [](const auto& parameter) { return std::string(parameter.param); });

// ---- without outside data

GgufVocabulary tiny_byte_level() {
  GgufVocabulary v;
  v.model = "gpt2";
  v.pre = "gpt-2";
  v.tokens = {"a", "b", "ab", "\xC4\xA0", "<|end|>"};
  v.types = {1, 1, 1, 1, 3};
  v.merges = {"a b"};
  v.eos = 4;
  return v;
}

std::string load_error(const GgufVocabulary& v) {
  const auto loaded = load_tokenizer_gguf(v, "x.gguf");
  return loaded.ok() ? std::string("loaded") : loaded.error().to_string();
}

TEST(GgufTest, EncodesWithATinyVocabulary) {
  const auto loaded = load_tokenizer_gguf(tiny_byte_level(), "x.gguf");
  ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
  const auto& tokenizer = *loaded.value();
  EXPECT_EQ(tokenizer.encode("ab ba<|end|>"), (std::vector<TokenId>{2, 3, 1, 0, 4}));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{2, 3, 4}, true), "ab ");
  EXPECT_EQ(tokenizer.eos(), 4);
  EXPECT_TRUE(tokenizer.is_special(4));
  EXPECT_EQ(tokenizer.description(), "byte-level BPE, 5 tokens");
}

TEST(GgufTest, RefusesWhatItDoesNotKnow) {
  GgufVocabulary v = tiny_byte_level();
  v.pre = "next-year";
  EXPECT_NE(load_error(v).find("next-year"), std::string::npos);
  v = tiny_byte_level();
  v.model = "rwkv";
  EXPECT_NE(load_error(v).find("rwkv"), std::string::npos);
}

TEST(GgufTest, RefusesDamagedVocabularies) {
  GgufVocabulary v = tiny_byte_level();
  v.types.pop_back();
  EXPECT_NE(load_error(v).find("token_type"), std::string::npos);
  v = tiny_byte_level();
  v.eos = 5;
  EXPECT_NE(load_error(v).find("eos"), std::string::npos);
  v = tiny_byte_level();
  v.merges = {"ab"};
  EXPECT_NE(load_error(v).find("merges[0]"), std::string::npos);
  v = tiny_byte_level();
  v.merges = {"a c"};
  EXPECT_NE(load_error(v).find("merge"), std::string::npos);
  v = tiny_byte_level();
  v.tokens.clear();
  EXPECT_NE(load_error(v).find("empty"), std::string::npos);
  v = tiny_byte_level();
  v.model = "llama";
  EXPECT_NE(load_error(v).find("scores"), std::string::npos);
  v.model = "t5";
  v.scores.assign(v.tokens.size(), 0.0F);
  v.precompiled_charsmap.assign(3, std::byte{1});
  EXPECT_NE(load_error(v).find("character map"), std::string::npos);
}

TEST(GgufTest, WordPieceMarksWordStarts) {
  GgufVocabulary v;
  v.model = "bert";
  v.tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "\xE2\x96\x81un", "aff", "able", "\xE2\x96\x81!"};
  v.types = {3, 2, 3, 3, 1, 1, 1, 1};
  v.bos = 2;
  v.separator = 3;
  v.unknown = 1;
  const auto loaded = load_tokenizer_gguf(v, "x.gguf");
  ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
  const auto& tokenizer = *loaded.value();
  EXPECT_EQ(tokenizer.encode("UNaffable! \xC3\xBC", {.add_special = true}),
            (std::vector<TokenId>{2, 4, 5, 6, 7, 1, 3}));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{2, 4, 5, 6, 7, 3}, true), "unaffable !");
}

TEST(GgufTest, EveryKnownNameCompiles) {
  for (const char* name :
       {"default",    "llama3",      "llama-bpe",    "qwen2",          "qwen35",      "smollm",
        "gpt-2",      "deepseek-v3", "deepseek-llm", "deepseek-coder", "tekken",      "gpt-4o",
        "o200k",      "dbrx",        "falcon",       "command-r",      "starcoder",   "refact",
        "olmo",       "kimi-k2",     "bloom",        "viking",         "seed-coder",  "bailingmoe",
        "exaone-moe", "jais-2",      "tiny_aya",     "stablelm2",      "chatglm-bpe", "mpt"}) {
    const GgufPreTokenizer pre = find_gguf_pre_tokenizer(name);
    ASSERT_FALSE(pre.patterns.empty()) << name;
    const auto splitter = make_pattern_splitter(pre.patterns, name);
    EXPECT_TRUE(splitter.ok()) << splitter.error().to_string();
  }
}

}  // namespace
}  // namespace mlxcel
