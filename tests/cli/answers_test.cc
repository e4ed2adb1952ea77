// The commands that run a model: answers against golden files, and answers that nothing may change.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/file.h"
#include "program.h"

namespace mlxcel {
namespace {

constexpr const char* kQuestion = "What is the capital of France?";

std::vector<std::string> joined(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Generate, PrintsTheAnswerAndNothingElse) {
  const RunResult result = run_program({"generate", "-m", tiny_chat(), "-p", kQuestion, "--temp", "0"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "The capital of France is Paris.\n");
  EXPECT_EQ(result.err, "");
}

TEST(Run, OneShotForms) {
  const std::string answer = "The capital of France is Paris.\n";
  EXPECT_EQ(run_program({"run", "-m", tiny_chat(), "-p", kQuestion}).out, answer);
  EXPECT_EQ(run_program({"run", tiny_chat(), kQuestion}).out, answer);
  EXPECT_EQ(run_program({"run", "-m", tiny_chat(), kQuestion}).out, answer);
  EXPECT_EQ(run_program({"run", tiny_chat()}, {.input = kQuestion}).out, answer);
  EXPECT_EQ(
      run_program({"run", tiny_chat(), "-p", "What is the capital", "-f", "-"}, {.input = "of France?"}).code,
      0);
  EXPECT_EQ(run_program({"run", kQuestion}, {.environment = {{"MLXCEL_MODEL", tiny_chat()}}}).code,
            3);  // the word is a model
}

// Twenty chats, each token id of the answer, at the default precision and in f32.
void expect_golden(const std::vector<std::string>& flags) {
  const JsonValue golden = *parse_json_file(tiny_chat() + "/golden.json");
  for (const JsonValue& c : golden.find("cases")->as_array()) {
    const JsonArray& messages = c.find("messages")->as_array();
    std::vector<std::string> words = {"generate", "-m", tiny_chat(), "--json", "-n", "48"};
    if (messages.size() == 1) {
      words = joined(words, {"-p", messages[0].find("content")->as_string()});
    } else {  // the prompt as it was rendered
      words = joined(words, {"--raw", "-p", c.find("prompt")->as_string()});
    }
    const RunResult result = run_program(joined(words, flags));
    ASSERT_EQ(result.code, 0) << result.err;
    const JsonValue json = result.json();
    EXPECT_EQ(*json.find("tokens"), *c.find("ids")) << c.find("text")->as_string();
    EXPECT_EQ(json.find("text")->as_string(), c.find("text")->as_string());
    EXPECT_EQ(json.find("usage")->find("prompt_tokens")->as_int(),
              static_cast<int64_t>(c.find("prompt_ids")->as_array().size()));
  }
}

TEST(Generate, GoldenAnswersAtTheDefaultPrecision) { expect_golden({}); }
TEST(Generate, GoldenAnswersInF32) {
  expect_golden({"--activation-precision", "f32", "-ctk", "f32", "-ctv", "f32"});
}

TEST(Generate, NothingChangesASampledAnswer) {
  const std::vector<std::string> base = {
      "generate", "-m",     tiny_chat(),   "-p", "Tell me a story about a dog.",
      "--temp",   "0.9",    "--seed",      "7",  "-n",
      "40",       "--json", "--ignore-eos"};
  const JsonValue expected = *run_program(base).json().find("tokens");
  EXPECT_EQ(expected.as_array().size(), 40u);
  const std::vector<std::vector<std::string>> arms = {
      {},
      {"-t", "1"},
      {"-t", "2"},
      {"--prefill-chunk", "1"},
      {"--prefill-chunk", "7"},
      {"--decode-storage-backend", "dense"},
      {"--decode-storage-backend", "paged", "--kv-block-size", "1"},
      {"--decode-storage-backend", "paged", "--kv-block-size", "64"},
      {"--isa", "scalar"},
      {"--backend", "reference"}};
  for (const auto& arm : arms) {
    EXPECT_EQ(*run_program(joined(base, arm)).json().find("tokens"), expected)
        << fmt::format("{}", fmt::join(arm, " "));
  }
  EXPECT_EQ(*run_program(base, {.environment = {{"MLXCEL_FORCE_PADDED_PREFILL", "1"}}}).json().find("tokens"),
            expected);
  std::vector<std::string> other = base;
  other[8] = "8";
  EXPECT_NE(*run_program(other).json().find("tokens"), expected);
}

TEST(Generate, StopsWhereItIsTold) {
  const std::vector<std::string> base = {"generate", "-m", tiny_chat(), "-p", kQuestion, "--json"};
  const JsonValue at_text = run_program(joined(base, {"--stop", "of Fra", "--stop", "never"})).json();
  EXPECT_EQ(at_text.find("text")->as_string(), "The capital ");
  EXPECT_EQ(at_text.find("stop")->as_string(), "of Fra");
  const JsonValue at_count = run_program(joined(base, {"-n", "3"})).json();
  EXPECT_EQ(at_count.find("tokens")->as_array().size(), 3u);
  const JsonValue forced = run_program(joined(base, {"--min-tokens", "12", "-n", "16"})).json();
  EXPECT_GE(forced.find("tokens")->as_array().size(), 12u);
}

TEST(Generate, TheContextEndsAnAnswer) {
  const RunResult result =
      run_program({"generate", "-m", tiny_chat(), "-p", kQuestion, "-c", "48", "--ignore-eos", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const JsonValue json = result.json();
  EXPECT_LE(json.find("usage")->find("total_tokens")->as_int(), 49);
  const RunResult too_long = run_program({"generate", "-m", tiny_chat(), "-p", kQuestion, "-c", "20"});
  EXPECT_EQ(too_long.code, 2);
  EXPECT_TRUE(contains(too_long.err, "20")) << too_long.err;
}

TEST(Generate, SystemAndMarkersInContent) {
  EXPECT_EQ(run_program({"generate", "-m", tiny_chat(), "-p", kQuestion, "--system", "You are terse."}).code,
            0);
  // Marker text of a user is text: more tokens than the marker itself.
  const JsonValue json =
      run_program({"generate", "-m", tiny_chat(), "-p", "<|im_end|>", "-n", "1", "--json"}).json();
  const JsonValue plain = run_program({"generate", "-m", tiny_chat(), "-p", "a", "-n", "1", "--json"}).json();
  EXPECT_GT(json.find("usage")->find("prompt_tokens")->as_int(),
            plain.find("usage")->find("prompt_tokens")->as_int() + 2);
}

TEST(Generate, VerboseTalksOnStderrOnly) {
  const RunResult result = run_program({"generate", "-m", tiny_chat(), "-p", kQuestion, "-v"});
  EXPECT_EQ(result.out, "The capital of France is Paris.\n");
  for (const char* word :
       {"model", "device", "kv cache", "context", "sampling  greedy", "ready in", "tokens/s"})
    EXPECT_TRUE(contains(result.err, word)) << result.err;
}

TEST(Generate, CtrlCEndsWith130) {
  const RunResult result = run_program(
      {"generate", "-m", tiny_chat(), "-p", "Count.", "--ignore-eos", "-n", "1900", "--backend", "reference"},
      {.interrupt_at_first_output = true});
  EXPECT_EQ(result.code, 130) << result.err;
  EXPECT_TRUE(result.out.ends_with("\n"));
}

// ---- score

struct Tensor {
  std::vector<int64_t> shape;
  std::string bytes;
};
// The tensors of a safetensors file, enough for golden files.
std::map<std::string, Tensor> read_safetensors(const std::string& path) {
  const std::string data = *read_file(path);
  uint64_t size = 0;
  std::memcpy(&size, data.data(), sizeof size);
  const JsonValue header = *parse_json(std::string_view(data).substr(8, size), path);
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, entry] : header.as_object()) {
    if (name == "__metadata__") continue;
    Tensor tensor;
    for (const JsonValue& d : entry.find("shape")->as_array()) tensor.shape.push_back(d.as_int());
    const auto begin = static_cast<size_t>(entry.find("data_offsets")->as_array()[0].as_int());
    const auto end = static_cast<size_t>(entry.find("data_offsets")->as_array()[1].as_int());
    tensor.bytes = data.substr(8 + size + begin, end - begin);
    tensors[name] = std::move(tensor);
  }
  return tensors;
}
template <typename T>
std::vector<T> values_of(const Tensor& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

TEST(Score, LogitsAgainstTheGoldenFiles) {
  const ScratchFolder scratch;
  for (const char* name :
       {"llama", "qwen3", "gguf-llama-q4_0", "gguf-qwen2-q8_0", "mlx-llama-4bit-g64", "mixtral"}) {
    const auto golden = read_safetensors(fixture(name) + "/golden.safetensors");
    const double tolerance =
        parse_json_file(fixture(name) + "/golden.json")->find("suggested_atol")->as_double();
    for (int i = 0; i < 3; ++i) {
      const auto ids = values_of<int32_t>(golden.at(fmt::format("input_ids.{}", i)));
      const auto expected = values_of<float>(golden.at(fmt::format("logits.{}", i)));
      const std::string path = scratch / "logits.safetensors";
      const RunResult result = run_program(
          {"score", "-m", fixture(name), "--tokens", fmt::format("{}", fmt::join(ids, ",")), "--logits-out",
           path, "--activation-precision", "f32", "-ctk", "f32", "-ctv", "f32", "--json"});
      ASSERT_EQ(result.code, 0) << name << "\n" << result.err;
      const auto written = read_safetensors(path);
      EXPECT_EQ(values_of<int32_t>(written.at("input_ids")), ids);
      const auto found = values_of<float>(written.at("logits"));
      ASSERT_EQ(found.size(), expected.size()) << name;
      double largest = 0.0;
      for (size_t k = 0; k < found.size(); ++k)
        largest =
            std::max(largest, std::fabs(static_cast<double>(found[k]) - static_cast<double>(expected[k])));
      EXPECT_LE(largest, tolerance) << name << " prompt " << i;
      // Cut anywhere, the same bits.
      const std::string cut = scratch / "cut.safetensors";
      ASSERT_EQ(run_program({"score", "-m", fixture(name), "--tokens", fmt::format("{}", fmt::join(ids, ",")),
                             "--logits-out", cut, "--activation-precision", "f32", "-ctk", "f32", "-ctv",
                             "f32", "--prefill-chunk", "3"})
                    .code,
                0);
      EXPECT_EQ(*read_file(cut), *read_file(path)) << name;
    }
  }
}

TEST(Score, WindowsScoreEachTokenOnce) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "The capital of France is Paris. ";
  const auto score = [&](const std::vector<std::string>& flags) {
    const RunResult result =
        run_program(joined({"score", "-m", tiny_chat(), "--file", "-", "--json"}, flags), {.input = text});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.json();
  };
  const JsonValue whole = score({});
  const auto tokens = static_cast<int64_t>(whole.find("tokens")->as_array().size());
  EXPECT_GT(tokens, 200);
  EXPECT_EQ(whole.find("num_scored")->as_int(), tokens - 1);
  EXPECT_TRUE(whole.find("logprobs")->as_array()[0].is_null());
  const double mean = whole.find("total_logprob")->as_double() / static_cast<double>(tokens - 1);
  EXPECT_NEAR(whole.find("perplexity")->as_double(), std::exp(-mean), 1e-9);
  for (const auto& [window, stride] :
       std::vector<std::pair<int, int>>{{64, 32}, {64, 63}, {50, 1}, {100, 99}}) {
    const JsonValue cut = score({"--window", std::to_string(window), "--stride", std::to_string(stride)});
    EXPECT_EQ(cut.find("num_scored")->as_int(), tokens - 1) << window << " " << stride;
    // Tokens of the first window do not know of the others.
    for (int i = 1; i < window; ++i) {
      EXPECT_EQ(cut.find("logprobs")->as_array()[static_cast<size_t>(i)],
                whole.find("logprobs")->as_array()[static_cast<size_t>(i)]);
    }
  }
  EXPECT_EQ(run_program({"score", "-m", tiny_chat(), "--file", "-", "--window", "16", "--stride", "16"},
                        {.input = text})
                .code,
            2);
  const RunResult plain = run_program({"score", "-m", tiny_chat(), "The capital of France is Paris."});
  EXPECT_TRUE(contains(plain.out, "perplexity")) << plain.err;
}

// ---- bench

TEST(Bench, OneObjectWithTheDocumentedKeys) {
  for (const int batch : {1, 4}) {
    const RunResult result = run_program(
        {"bench", "decode", "-m", fixture("gguf-llama-q4_0"), "--prompt-tokens", "24", "--gen-tokens", "8",
         "--batch", std::to_string(batch), "--threads", "2", "--repeats", "3", "--json"});
    ASSERT_EQ(result.code, 0) << result.err;
    const JsonValue json = result.json();
    for (const char* key : {"prefill_tok_s", "decode_tok_s", "load_s", "rss_mib"})
      EXPECT_GT(json.find(key)->as_double(), 0.0) << key;
    EXPECT_EQ(json.find("batch")->as_int(), batch);
    EXPECT_EQ(json.find("threads")->as_int(), 2);
    EXPECT_EQ(json.find("decode_tok_s_runs")->as_array().size(), 3u);
    EXPECT_EQ(json.find("kv_storage")->as_string(), batch == 1 ? "dense" : "paged");
  }
  const RunResult table =
      run_program({"bench", "decode", "-m", fixture("llama"), "--prompt-tokens", "8", "--gen-tokens", "4"});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_TRUE(contains(table.out, "pp8")) << table.out;
  EXPECT_TRUE(contains(table.out, "tg4")) << table.out;
}

}  // namespace
}  // namespace mlxcel
