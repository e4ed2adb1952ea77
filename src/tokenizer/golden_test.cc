// Every golden case of every tokenizer.json: ids, both decodings, the stream.
#include "tokenizer/golden_test_util.h"

namespace mlxcel {
namespace {

class GoldenTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = golden::shared_folder(GetParam());
    if (!golden::has_file(folder_ + "/golden.json")) GTEST_SKIP() << "not run: ../shared is absent";
    const auto file = parse_json_file(folder_ + "/tokenizer.json");
    ASSERT_TRUE(file.ok()) << file.error().to_string();
    auto loaded = load_tokenizer_json(file.value(), JsonValue(), folder_);
    ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
    tokenizer_ = loaded.value();
  }
  std::string folder_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_P(GoldenTest, EncodesAndDecodesEveryCase) {
  const auto cases = golden::read_cases(folder_ + "/golden.json", "cases");
  ASSERT_GT(cases.size(), 50U);
  for (const golden::Case& c : cases) golden::check_case(tokenizer_, c);
}

TEST_P(GoldenTest, DecodesIdsThatNoTextHas) {
  const auto cases = golden::read_cases(folder_ + "/golden.json", "decode_only");
  ASSERT_GT(cases.size(), 20U);
  for (const golden::Case& c : cases) golden::check_case(tokenizer_, c);
}

TEST_P(GoldenTest, LoadsAsFolder) {
  const auto loaded = load_tokenizer_folder(folder_);
  ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
  EXPECT_EQ(loaded.value()->vocab_size(), tokenizer_->vocab_size());
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GoldenTest,
                         testing::Values("smollm2", "llama3", "qwen3", "gpt4_cl100k", "deepseek_v3",
                                         "gptoss_o200k", "mistral_tekken", "mistral_v3_sp",
                                         "mistral_v3_sp_first", "gemma3_like", "unigram_t5", "unigram_bytes",
                                         "flags_bytelevel", "flags_metaspace"),
                         [](const auto& parameter) { return std::string(parameter.param); });

}  // namespace
}  // namespace mlxcel
