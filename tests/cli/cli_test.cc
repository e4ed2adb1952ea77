// Exit codes, help, errors, and the commands that need no weights.
#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "program.h"

namespace mlxcel {
namespace {

TEST(Help, OnePagePerCommand) {
  const RunResult all = run_program({"--help"});
  EXPECT_EQ(all.code, 0);
  EXPECT_EQ(all.err, "");
  EXPECT_LT(all.out.find("Examples:"), all.out.find("Commands:"));
  for (const char* command : {"run", "generate", "inspect", "tokenize", "template", "score", "bench decode",
                              "bench serve", "list", "pull", "version"}) {
    EXPECT_TRUE(contains(all.out, command));
    std::string word = command;
    std::vector<std::string> words;
    if (const size_t blank = word.find(' '); blank != std::string::npos) {
      words.push_back(word.substr(0, blank));
      word = word.substr(blank + 1);
    }
    words.push_back(word);
    words.push_back("--help");
    const RunResult one = run_program(words);
    EXPECT_EQ(one.code, 0) << command;
    EXPECT_TRUE(contains(one.out, "Usage: mlxcel " + std::string(command))) << one.out;
  }
}

TEST(Help, GroupsAndWords) {
  EXPECT_TRUE(contains(run_program({"run", "--help=sampling"}).out, "--top-k"));
  EXPECT_FALSE(contains(run_program({"run", "--help=sampling"}).out, "--threads"));
  EXPECT_TRUE(contains(run_program({"run", "--help=all"}).out, "MLXCEL_HOME"));
  EXPECT_TRUE(contains(run_program({"--help=stride"}).out, "mlxcel score"));
  EXPECT_EQ(run_program({"run", "--help=zebra"}).code, 2);
}

TEST(Help, NothingAtAllIsAUsageError) { EXPECT_EQ(run_program({}).code, 2); }

TEST(Version, TextAndJson) {
  const RunResult text = run_program({"--version"});
  EXPECT_EQ(text.code, 0);
  EXPECT_TRUE(text.out.starts_with("mlxcel "));
  const JsonValue json = run_program({"version", "--json"}).json();
  EXPECT_TRUE(json.find("version")->is_string());
  EXPECT_FALSE(json.find("isas")->as_array().empty());
}

TEST(Memory, WhatCannotFitIsRefusedWithTheNumbersUnlessForced) {
  const std::vector<std::string> words = {"generate", "-m", tiny_chat(), "-p", "Hi", "-n", "1"};
  std::vector<std::string> huge = words;
  huge.insert(huge.end(), {"--kv-memory", "900TiB"});
  const RunResult refused = run_program(huge);
  EXPECT_EQ(refused.code, 4);
  EXPECT_TRUE(contains(refused.err, "900.0 TiB")) << refused.err;
  EXPECT_TRUE(contains(refused.err, "weights")) << refused.err;
  EXPECT_TRUE(contains(refused.err, "--force")) << refused.err;
  huge.push_back("--force");
  EXPECT_EQ(run_program(huge).code, 0);
  std::vector<std::string> share = words;
  share.insert(share.end(), {"--kv-memory", "1%", "--verbose"});
  const RunResult part = run_program(share);
  EXPECT_EQ(part.code, 0) << part.err;
  EXPECT_TRUE(contains(part.err, "memory    weights ")) << part.err;
}

struct Usage {
  std::vector<std::string> words;
  int code;
  const char* says;
};

TEST(Errors, CodesAndWords) {
  const std::string model = tiny_chat();
  const std::vector<Usage> cases = {
      {{"genrate"}, 2, "did you mean 'mlxcel generate'?"},
      {{"generate", "--tempp", "1"}, 2, "did you mean '--temp'?"},
      {{"generate", "-m", model, "-p", "x", "--temp", "hot"},
       2,
       "expected a number from 0 to 100, found 'hot'"},
      {{"generate", "-m", model, "-p", "x", "--temp", "1", "--temp", "2"}, 2, "more than once"},
      {{"generate", "-p", "x"}, 2, "-m MODEL"},
      {{"generate", "-m", "no/such-model", "-p", "x"}, 3, "owner/name"},
      {{"generate", "-m", "./no/such/folder", "-p", "x"}, 3, ".gguf file"},
      {{"generate", "-m", model, "-p", "x", "-c", "100000"}, 2, "expected at most 2048, found 100000"},
      {{"generate", "-m", fixture("gguf-llama-q4_0"), "-p", "x", "--chat-template", "{% if %}"},
       3,
       "template"},
      {{"inspect", source_path("tests")}, 3, "config.json"},
      {{"template", "-m", model}, 2, "--messages FILE"},
      {{"template", "-m", model, "--messages", "/no/such/file"}, 2, "/no/such/file"},
      {{"tokenize", "-m", model, "--decode", "abc"}, 2, "token ids"},
      {{"tokenize", "-m", model, "--decode", "99999999"}, 2, "from 0 to"},
      {{"score", "-m", model, "--tokens", "1,2,x"}, 2, "--tokens"},
      {{"bench", "decode", "-m", model, "--isa", "avx9000"}, 2, "--isa"},
      {{"bench"}, 2, "bench decode"},
      {{"pull"}, 2, "OWNER/NAME"},
      {{"pull", "a/b/c"}, 2, "owner/name"},
      {{"pull", "a/b", "--endpoint", "http://127.0.0.1:1", "--retries", "0"}, 1, "127.0.0.1"},
  };
  for (const Usage& c : cases) {
    const RunResult result = run_program(c.words);
    EXPECT_EQ(result.code, c.code) << fmt::format("{}", fmt::join(c.words, " ")) << "\n" << result.err;
    EXPECT_TRUE(contains(result.err, c.says)) << fmt::format("{}", fmt::join(c.words, " ")) << "\n"
                                              << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_LE(std::count(result.err.begin(), result.err.end(), '\n'), 3) << result.err;
  }
}

TEST(Errors, TheEnvironmentIsCheckedLikeFlags) {
  const RunResult bad =
      run_program({"generate", "-m", tiny_chat(), "-p", "x"}, {.environment = {{"MLXCEL_TEMP", "warm"}}});
  EXPECT_EQ(bad.code, 2);
  EXPECT_TRUE(contains(bad.err, "MLXCEL_TEMP"));
  const RunResult boolean = run_program({"list"}, {.environment = {{"MLXCEL_VERBOSE", "perhaps"}}});
  EXPECT_EQ(boolean.code, 2);
}

TEST(Errors, ColoursOnlyWhereTheyAreAskedFor) {
  EXPECT_FALSE(contains(run_program({"inspect", "no/model"}).err, "\x1b["));
  EXPECT_TRUE(contains(run_program({"inspect", "no/model", "--color", "always"}).err, "\x1b["));
}

TEST(Errors, AMissingTokenizerNamesTheFile) {
  const ScratchFolder folder;
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(fixture("llama") + "/" + name, folder / name);
  }
  const RunResult result = run_program({"tokenize", "-m", folder.path(), "hello"});
  EXPECT_EQ(result.code, 3);
  EXPECT_TRUE(contains(result.err, "tokenizer.json")) << result.err;
  EXPECT_EQ(
      run_program({"bench", "decode", "-m", folder.path(), "--prompt-tokens", "4", "--gen-tokens", "2"}).code,
      0);
}

TEST(Errors, NoChatTemplateSaysSo) {
  const ScratchFolder folder;
  std::filesystem::copy(fixture("llama"), folder.path());
  JsonValue config = *parse_json_file(folder / "tokenizer_config.json");
  config.as_object().erase("chat_template");
  ASSERT_TRUE(write_file_atomically(folder / "tokenizer_config.json", to_json(config)).ok());
  const RunResult result = run_program({"generate", "-m", folder.path(), "-p", "x"});
  EXPECT_EQ(result.code, 3);
  EXPECT_TRUE(contains(result.err, "no chat template")) << result.err;
  EXPECT_TRUE(contains(result.err, "--raw")) << result.err;
  EXPECT_EQ(run_program({"generate", "-m", folder.path(), "-p", "x", "--raw", "-n", "2"}).code, 0);
}

TEST(PrintConfig, ShowsValuesAndOrigins) {
  const RunResult result = run_program({"generate", "--temp", "0.5", "--print-config"},
                                       {.environment = {{"LLAMA_ARG_CTX_SIZE", "4K"}}});
  EXPECT_EQ(result.code, 0);
  EXPECT_TRUE(contains(result.out, "--temp")) << result.out;
  EXPECT_TRUE(contains(result.out, "LLAMA_ARG_CTX_SIZE")) << result.out;
  EXPECT_TRUE(contains(result.out, "4096")) << result.out;
  EXPECT_TRUE(contains(result.out, "built-in")) << result.out;
}

TEST(PrintConfig, TheModelsFileAndTheConfigurationAreOrigins) {
  const ScratchFolder folder;
  std::filesystem::copy(tiny_chat(), folder.path(), std::filesystem::copy_options::recursive);
  ASSERT_TRUE(write_file_atomically(folder / "generation_config.json",
                                    R"({"do_sample": true, "temperature": 0.25, "top_k": 11})")
                  .ok());
  ASSERT_TRUE(write_file_atomically(folder / "config.toml", "[generate]\ntop-k = 5\n").ok());
  const auto line_of = [](const std::string& text, const std::string& name) {
    const size_t at = ("\n" + text).find("\n" + name + " ");
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
  };
  for (const char* command : {"generate", "serve", "run"}) {
    const RunResult result = run_program({command, "-m", folder.path(), "--config", folder / "config.toml",
                                          "--top-p", "0.5", "--print-config"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(line_of(result.out, "temp").ends_with("generation_config.json")) << result.out;
    EXPECT_TRUE(contains(line_of(result.out, "temp"), "0.25")) << result.out;
    EXPECT_TRUE(line_of(result.out, "top-p").ends_with("--top-p")) << result.out;
    EXPECT_TRUE(
        line_of(result.out, "top-k")
            .ends_with(std::string(command) == "generate" ? "config.toml:2" : "generation_config.json"))
        << result.out;
  }
}

TEST(Environment, AMisspeltVariableIsNoticedAndNothingElseHappens) {
  const RunResult result = run_program({"version"}, {.environment = {{"MLXCEL_THRAEDS", "2"}}});
  EXPECT_EQ(result.code, 0);
  EXPECT_TRUE(contains(result.err, "did you mean MLXCEL_THREADS?")) << result.err;
  EXPECT_EQ(run_program({"version"}, {.environment = {{"MLXCEL_THREADS", "2"}}}).err, "");
}

TEST(Tokenize, TextToIdsAndBack) {
  const std::string texts = R"(["Hello world", "", "<|im_start|>user", "日本語 😀"])";
  const RunResult encoded = run_program({"tokenize", "-m", tiny_chat(), "--json"}, {.input = texts});
  ASSERT_EQ(encoded.code, 0) << encoded.err;
  const JsonValue ids = encoded.json();
  ASSERT_EQ(ids.as_array().size(), 4u);
  EXPECT_EQ(ids.as_array()[2].as_array()[0].as_int(), 1);
  const RunResult decoded =
      run_program({"tokenize", "-m", tiny_chat(), "--json", "--decode"}, {.input = encoded.out});
  EXPECT_EQ(decoded.json(), *parse_json(texts, "")) << decoded.err;

  const RunResult plain =
      run_program({"tokenize", "-m", tiny_chat(), "--json", "--no-parse-special", "<|im_start|>user"});
  EXPECT_GT(plain.json().as_array()[0].as_array().size(), 2u);
  const RunResult words = run_program({"tokenize", "-m", tiny_chat(), "Hello world"});
  EXPECT_EQ(
      run_program({"tokenize", "-m", tiny_chat(), "--decode", words.out.substr(0, words.out.find(' ')),
                   words.out.substr(words.out.find(' ') + 1, words.out.size() - words.out.find(' ') - 2)})
          .out,
      "Hello world\n");
  EXPECT_EQ(run_program({"tokenize", "-m", tiny_chat(), "--json"}, {.input = "{}"}).code, 2);
  EXPECT_EQ(run_program({"tokenize", "-m", tiny_chat(), "--json"}, {.input = "[1]"}).code, 2);
}

TEST(Template, GoldenPromptsAndIds) {
  const JsonValue golden = *parse_json_file(tiny_chat() + "/golden.json");
  for (const JsonValue& c : golden.find("cases")->as_array()) {
    const RunResult result = run_program({"template", "-m", tiny_chat(), "--messages", "-", "--json"},
                                         {.input = to_json(*c.find("messages"))});
    ASSERT_EQ(result.code, 0) << result.err;
    const JsonValue json = result.json();
    EXPECT_EQ(json.find("text")->as_string(), c.find("prompt")->as_string());
    EXPECT_EQ(*json.find("tokens"), *c.find("prompt_ids"));
  }
  const std::string hello = R"([{"role":"user","content":"Hi <|im_end|>"}])";
  const RunResult without = run_program(
      {"template", "-m", tiny_chat(), "--messages", "-", "--no-generation-prompt"}, {.input = hello});
  EXPECT_TRUE(without.out.ends_with("Hi <|im_end|><|im_end|>\n")) << without.out;
}

TEST(Inspect, TensorsAndMemoryWithoutLoading) {
  const JsonValue json =
      run_program({"inspect", tiny_chat(), "-c", "1K", "--sequences", "3", "--json", "--tensors"}).json();
  EXPECT_EQ(json.find("family")->as_string(), "llama");
  EXPECT_EQ(json.find("layers")->as_int(), 8);
  EXPECT_EQ(json.find("max_position")->as_int(), 2048);
  const JsonValue& memory = *json.find("memory");
  // 8 layers, 2 kv heads of 64, keys and values, 2 bytes each
  EXPECT_EQ(memory.find("kv_bytes_per_token")->as_int(), 8 * 2 * 64 * 2 * 2);
  EXPECT_EQ(memory.find("kv_bytes")->as_int(), int64_t{8 * 2 * 64 * 2 * 2} * 1024 * 3);
  EXPECT_TRUE(json.find("quantisation")->find("mlx 4-bit g64") != nullptr) << to_json(json);
  EXPECT_EQ(static_cast<int64_t>(json.find("tensors")->as_array().size()),
            json.find("num_tensors")->as_int());
  const RunResult text = run_program({"inspect", fixture("gguf-llama-q4_0")});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(contains(text.out, "Q4_0")) << text.out;
}

TEST(List, StoreIsListed) {
  const ScratchFolder home;
  std::filesystem::create_directories(home / "models/own/Tiny");
  std::filesystem::copy(fixture("llama"), home / "models/own/Tiny");
  const RunOptions options{.environment = {{"MLXCEL_HOME", home.path()}}};
  const JsonValue json = run_program({"ls", "--json"}, options).json();
  ASSERT_EQ(json.as_array().size(), 1u);
  EXPECT_EQ(json.as_array()[0].find("name")->as_string(), "own/Tiny");
  EXPECT_TRUE(contains(run_program({"list"}, options).out, "own/Tiny"));
  const RunResult wrong = run_program({"inspect", "own/Tniy"}, options);
  EXPECT_EQ(wrong.code, 3);
  EXPECT_TRUE(contains(wrong.err, "did you mean 'own/Tiny'?")) << wrong.err;
  EXPECT_EQ(run_program({"inspect", "own/Tiny"}, options).code, 0);
  const RunResult empty = run_program({"list"});
  EXPECT_EQ(empty.code, 0);
  EXPECT_EQ(empty.out, "");
  EXPECT_EQ(run_program({"list", "--json"}).out, "[]\n");
}

}  // namespace
}  // namespace mlxcel
