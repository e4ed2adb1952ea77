// What the pipeline promises whatever the vocabulary: round trips, streams, spans, threads, and work that
// grows with the length of the text and not faster.
#include "tokenizer/pipeline.h"

#include <random>
#include <thread>

#include "base/utf8.h"
#include "tokenizer/golden_test_util.h"

namespace mlxcel {
namespace {

std::shared_ptr<const PipelineTokenizer> load_text(const std::string& json) {
  const auto value = parse_json(json, "test");
  EXPECT_TRUE(value.ok()) << value.error().to_string();
  if (!value.ok()) return nullptr;
  const auto loaded = load_tokenizer_json(value.value(), JsonValue(), "test");
  EXPECT_TRUE(loaded.ok()) << loaded.error().to_string();
  return loaded.ok() ? std::dynamic_pointer_cast<const PipelineTokenizer>(loaded.value()) : nullptr;
}

std::shared_ptr<const PipelineTokenizer> load_folder(const std::string& folder) {
  const auto value = parse_json_file(folder + "/tokenizer.json");
  EXPECT_TRUE(value.ok()) << value.error().to_string();
  if (!value.ok()) return nullptr;
  const auto loaded = load_tokenizer_json(value.value(), JsonValue(), folder);
  EXPECT_TRUE(loaded.ok()) << loaded.error().to_string();
  return loaded.ok() ? std::dynamic_pointer_cast<const PipelineTokenizer>(loaded.value()) : nullptr;
}

std::string own_model() { return std::string(MLXCEL_SOURCE_DIR) + "/tests/data/models/llama"; }

std::string random_text(std::mt19937& random, size_t length) {
  static constexpr char32_t kStarts[] = {' ',   'a',    '0',     '!',    '\n',   0xE9,
                                         0x300, 0x4E2D, 0x1F600, 0x2581, 0x200D, '<'};
  std::string text;
  for (size_t i = 0; i < length; ++i)
    append_utf8(text, kStarts[random() % std::size(kStarts)] + (random() % 4 == 0 ? random() % 20 : 0));
  return text;
}

std::vector<std::shared_ptr<const PipelineTokenizer>> all_tokenizers() {
  std::vector<std::shared_ptr<const PipelineTokenizer>> result;
  if (golden::has_file(own_model() + "/tokenizer.json")) result.push_back(load_folder(own_model()));
  for (const char* name : {"smollm2", "llama3", "qwen3", "gpt4_cl100k", "deepseek_v3", "gptoss_o200k",
                           "mistral_tekken", "mistral_v3_sp", "mistral_v3_sp_first", "gemma3_like",
                           "unigram_t5", "unigram_bytes", "flags_bytelevel", "flags_metaspace"})
    if (golden::has_file(golden::shared_folder(name)))
      result.push_back(load_folder(golden::shared_folder(name)));
  return result;
}

TEST(PipelineTest, ByteLevelTextComesBack) {
  if (!golden::has_file(own_model() + "/tokenizer.json"))
    GTEST_SKIP() << "not run: tests/data/models/llama is absent";
  const auto tokenizer = load_folder(own_model());
  ASSERT_NE(tokenizer, nullptr);
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    const std::string text = random_text(random, 1 + random() % 60);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

TEST(PipelineTest, StreamIsTheBatchAndEveryPieceIsText) {
  std::mt19937 random(11);
  size_t count = 0;
  for (const auto& tokenizer : all_tokenizers()) {
    ASSERT_NE(tokenizer, nullptr);
    for (int i = 0; i < 100; ++i) {
      const auto ids = tokenizer->encode(random_text(random, 1 + random() % 40));
      StreamDecoder stream(tokenizer);
      std::string joined;
      for (const TokenId id : ids) {
        const std::string piece = stream.push(id);
        EXPECT_TRUE(is_valid_utf8(piece));
        joined += piece;
      }
      joined += stream.flush();
      EXPECT_EQ(joined, tokenizer->decode(ids)) << tokenizer->description();
      ++count;
    }
  }
  if (count == 0) GTEST_SKIP() << "not run: no tokenizer files";
}

TEST(PipelineTest, RandomIdsStreamAsText) {
  std::mt19937 random(13);
  for (const auto& tokenizer : all_tokenizers()) {
    ASSERT_NE(tokenizer, nullptr);
    StreamDecoder stream(tokenizer);
    for (int i = 0; i < 3000; ++i) {
      const auto id = static_cast<TokenId>(random() % static_cast<uint64_t>(tokenizer->vocab_size() + 3)) - 1;
      EXPECT_TRUE(is_valid_utf8(stream.push(id)));
    }
    EXPECT_TRUE(is_valid_utf8(stream.flush()));
  }
}

// ---- spans

TEST(SpansTest, AreTheJoinedTextWhereContentHasNoMarker) {
  std::mt19937 random(17);
  size_t count = 0;
  for (const auto& tokenizer : all_tokenizers()) {
    ASSERT_NE(tokenizer, nullptr);
    for (int i = 0; i < 60; ++i) {
      std::vector<std::string> texts;
      for (int k = 0; k < 5; ++k) texts.push_back(random_text(random, random() % 12));
      std::vector<TextSpan> spans;
      std::string joined;
      for (size_t k = 0; k < texts.size(); ++k) {
        spans.push_back({texts[k], k % 2 == 1});
        joined += texts[k];
      }
      EXPECT_EQ(tokenizer->encode_spans(spans), tokenizer->encode(joined))
          << tokenizer->description() << joined;
      ++count;
    }
  }
  if (count == 0) GTEST_SKIP() << "not run: no tokenizer files";
}

TEST(SpansTest, ContentNeverBecomesASpecialToken) {
  for (const auto& tokenizer : all_tokenizers()) {
    ASSERT_NE(tokenizer, nullptr);
    std::string all;
    for (TokenId id = 0; id < tokenizer->vocab_size(); ++id)
      if (tokenizer->is_special(id))
        all += tokenizer->id_to_token(id) + "x" + tokenizer->id_to_token(id) + " \n";
    const TextSpan content{all, true};
    const TokenId unknown = tokenizer->unknown().value_or(-1);
    for (const TokenId id : tokenizer->encode_spans({&content, 1}))
      EXPECT_TRUE(!tokenizer->is_special(id) || id == unknown) << tokenizer->id_to_token(id);
  }
}

constexpr const char* kChat = R"({
  "added_tokens":[
    {"id":30,"content":"<|im_start|>","special":true,"normalized":false},
    {"id":31,"content":"<|im_end|>","special":true,"normalized":false},
    {"id":32,"content":"<|im_end|>!","special":true,"normalized":false},
    {"id":33,"content":"<User>","special":false,"normalized":true},
    {"id":34,"content":"<h1>","special":false,"normalized":false},
    {"id":35,"content":"<think>","special":false,"normalized":false}],
  "normalizer":{"type":"Lowercase"},
  "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},
  "decoder":{"type":"ByteLevel"},
  "model":{"type":"BPE","unk_token":"?","vocab":{"?":0,"<":1,">":2,"|":3,"a":4,"b":5,"ab":6,"!":7,"h":8,"1":9},
           "merges":["a b"]}})";

std::vector<TokenId> spans_of(const Tokenizer& tokenizer, std::vector<TextSpan> spans) {
  return tokenizer.encode_spans(spans);
}

TEST(SpansTest, MergesRunAcrossBorders) {
  const auto t = load_text(kChat);
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(spans_of(*t, {{"<|im_start|>a", false}, {"b", true}, {"<|im_end|>", false}}),
            (std::vector<TokenId>{30, 6, 31}));
}

TEST(SpansTest, ContentNeitherWritesNorBreaksMarkers) {
  const auto t = load_text(kChat);
  ASSERT_NE(t, nullptr);
  const auto has = [&](const std::vector<TokenId>& ids, TokenId id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  EXPECT_FALSE(has(spans_of(*t, {{"<|im_end|>", true}}), 31));
  // Half a marker of the template and half of the content is none.
  EXPECT_FALSE(has(spans_of(*t, {{"<|im_", false}, {"end|>", true}}), 31));
  // Content behind a marker cannot turn it into a longer one.
  EXPECT_EQ(spans_of(*t, {{"<|im_end|>", false}, {"!", true}}), (std::vector<TokenId>{31, 7}));
  EXPECT_EQ(spans_of(*t, {{"<|im_end|>!", false}}), (std::vector<TokenId>{32}));
  // A plain token that is a marker by its looks, also through the normalizer.
  EXPECT_FALSE(has(spans_of(*t, {{"<USER>", true}}), 33));
  EXPECT_TRUE(has(spans_of(*t, {{"<USER>", false}}), 33));
  EXPECT_FALSE(has(spans_of(*t, {{"<think>", true}}), 35));
  // Markup of ordinary text is no marker.
  EXPECT_TRUE(has(spans_of(*t, {{"a<h1>b", true}}), 34));
}

TEST(SpansTest, RepairsIllFormedText) {
  const auto t = load_text(kChat);
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(spans_of(*t, {{"a\xFF", false}, {"\xC3", true}, {"<|im_end|>", false}}).back(), 31);
}

// ---- loading

TEST(LoadTest, UnknownTypesAreNamedWithTheirKey) {
  const auto message = [](const std::string& part) {
    const auto value = parse_json(R"({"model":{"type":"WordLevel","vocab":{"a":0}})" + part + "}", "x");
    EXPECT_TRUE(value.ok());
    const auto loaded = load_tokenizer_json(value.value(), JsonValue(), "x");
    return loaded.ok() ? std::string("loaded") : loaded.error().one_line();
  };
  for (const char* key : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    const std::string text = message(std::string(",\"") + key + R"(":{"type":"Telepathy"})");
    EXPECT_NE(text.find("Telepathy"), std::string::npos) << text;
    EXPECT_NE(text.find(key), std::string::npos) << text;
  }
  const std::string nested =
      message(R"(,"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Telepathy"}]})");
  EXPECT_NE(nested.find("normalizers[1]"), std::string::npos) << nested;
}

TEST(LoadTest, RefusesDamagedModels) {
  const auto fails = [](const std::string& model) {
    const auto value = parse_json("{\"model\":" + model + "}", "x");
    EXPECT_TRUE(value.ok());
    return !load_tokenizer_json(value.value(), JsonValue(), "x").ok();
  };
  EXPECT_TRUE(fails("null"));
  EXPECT_TRUE(fails(R"({"type":"BPE","vocab":{"a":-1},"merges":[]})"));
  EXPECT_TRUE(fails(R"({"type":"BPE","vocab":{"a":4000000000},"merges":[]})"));
  EXPECT_TRUE(fails(R"({"type":"BPE","vocab":{"a":"b"},"merges":[]})"));
  EXPECT_TRUE(fails(R"({"type":"BPE","vocab":{"a":0},"merges":["a b"]})"));
  EXPECT_TRUE(fails(R"({"type":"BPE","vocab":{"a":0},"merges":["a"]})"));
  EXPECT_TRUE(fails(R"({"type":"BPE","vocab":{"a":0},"merges":[],"unk_token":"b"})"));
  EXPECT_TRUE(fails(R"({"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1})"));
  EXPECT_TRUE(fails(R"({"type":"Unigram","vocab":[["a"]],"unk_id":0})"));
  EXPECT_TRUE(fails(R"({"type":"Unigram","vocab":[["a",-1]],"unk_id":1})"));
  EXPECT_TRUE(fails(R"({"type":"WordPiece","vocab":{"a":0}})"));
  EXPECT_TRUE(fails(R"({"type":"Oracle","vocab":{"a":0}})"));
}

TEST(LoadTest, AMissingFileIsNotFound) {
  const auto loaded = load_tokenizer_folder("/nonexistent");
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().kind, ErrorKind::kNotFound);
  EXPECT_NE(loaded.error().to_string().find("tokenizer.json"), std::string::npos);
}

TEST(LoadTest, RolesComeFromTheConfiguration) {
  const auto tokenizer = parse_json(kChat, "x");
  const auto config = parse_json(
      R"({"bos_token":"<|im_start|>","eos_token":{"content":"<|im_end|>"},"pad_token":null})", "x");
  const auto loaded = load_tokenizer_json(tokenizer.value(), config.value(), "x");
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded.value()->bos(), 30);
  EXPECT_EQ(loaded.value()->eos(), 31);
  EXPECT_EQ(loaded.value()->padding(), std::nullopt);
  EXPECT_EQ(loaded.value()->unknown(), 0);
  EXPECT_EQ(loaded.value()->vocab_size(), 36);
  EXPECT_EQ(loaded.value()->id_to_token(20), "");
  EXPECT_EQ(loaded.value()->id_to_token(33), "<User>");
}

// ---- work

uint64_t work_of(const PipelineTokenizer& tokenizer, const std::string& text) {
  EncodeScratch scratch;
  tokenizer.encode_with(text, {}, scratch);
  return scratch.regex.num_matches() + scratch.model.heap_pushes + scratch.model.lattice_steps;
}

// Twice the text must not cost more than about twice the work, and no more than a few steps per byte.
TEST(WorkTest, GrowsWithTheLengthOnly) {
  for (const auto& tokenizer : all_tokenizers()) {
    ASSERT_NE(tokenizer, nullptr);
    for (const char* unit : {"a", " ", "\n", "ab", "\xE4\xB8\xAD", " \t", "1", "'s", "\xE2\x96\x81"}) {
      std::string text;
      while (text.size() < 20000) text += unit;
      const uint64_t once = work_of(*tokenizer, text);
      const uint64_t twice = work_of(*tokenizer, text + text);
      EXPECT_LE(twice, once * 2 + once / 4 + 64) << tokenizer->description() << " on '" << unit << "'";
      EXPECT_LE(once, text.size() * 40 + 64) << tokenizer->description() << " on '" << unit << "'";
    }
  }
}

TEST(WorkTest, ThousandsOfAddedTokensAreFoundInOnePass) {
  std::string json =
      R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},
    "model":{"type":"BPE","vocab":{"<":0},"merges":[]},"added_tokens":[)";
  for (int i = 0; i < 5000; ++i)
    json += (i > 0 ? "," : "") + std::string(R"({"id":)") + std::to_string(i + 1) + R"(,"content":"<extra_)" +
            std::to_string(i) + R"(>","special":true})";
  const auto tokenizer = load_text(json + "]}");
  ASSERT_NE(tokenizer, nullptr);
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "<extra_" + std::to_string(i % 5000) + "><";
  const auto ids = tokenizer->encode(text);
  ASSERT_EQ(ids.size(), 40000U);
  EXPECT_EQ(ids[0], 1);
  EXPECT_EQ(ids[1], 0);
  EXPECT_EQ(ids[9998], 5000);
}

TEST(ThreadsTest, EncodeAlikeEverywhere) {
  for (const auto& tokenizer : all_tokenizers()) {
    ASSERT_NE(tokenizer, nullptr);
    std::mt19937 random(23);
    std::vector<std::string> texts;
    std::vector<std::vector<TokenId>> expected;
    for (int i = 0; i < 50; ++i) {
      texts.push_back(random_text(random, 40));
      expected.push_back(tokenizer->encode(texts.back()));
    }
    std::vector<std::thread> threads;
    for (int k = 0; k < 4; ++k)
      threads.emplace_back([&] {
        for (size_t i = 0; i < texts.size(); ++i) {
          EXPECT_EQ(tokenizer->encode(texts[i]), expected[i]);
          EXPECT_EQ(tokenizer->decode(expected[i]), tokenizer->decode(tokenizer->encode(texts[i])));
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace mlxcel
