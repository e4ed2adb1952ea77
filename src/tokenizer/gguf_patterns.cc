// Sources: the tokenizer.json files of the models named in the rows; llama.cpp's llama-vocab.cpp for the
// names and for which of them take whole pieces; Kimi K2's published tokenizer code for its pattern.
#include "tokenizer/gguf_patterns.h"

#include "tokenizer/pre_tokenizer.h"

namespace mlxcel {
namespace {

constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kThreeDigits = R"([0-9][0-9][0-9])";

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4oPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kKimiK2Pattern =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseekV3Cjk = R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
constexpr std::string_view kDeepseekV3Pattern =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kUpToThreeDigits = R"(\p{N}{1,3})";
constexpr std::string_view kSeedCoderPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBailingPattern =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kExaoneMoePattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kJais2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr std::string_view kAyaDigits = R"(\d{1,3}(?=(?:\d{3})*\b))";
constexpr std::string_view kBloomPattern = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr std::string_view kFalconPunctuation = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr std::string_view kDefaultPunctuation = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr std::string_view kDigits = R"(\p{N}+)";

constexpr std::string_view kLineBreak = R"([\r\n])";
constexpr std::string_view kDeepseekCjk = R"([\x{4e00}-\x{9fa5}\x{0800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";
constexpr std::string_view kSpacedLetters = R"(\s?\p{L}+)";
constexpr std::string_view kSpacedPunctuation = R"(\s?\p{P}+)";
// Letters with case, as DeepSeek LLM's file spells them out.
constexpr std::string_view kDeepseekLlmLetters =
    R"(\s?[A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+)";
constexpr std::string_view kDeepseekLlmPunctuation =
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)";
constexpr std::string_view kSpacesAtEnd = R"(\s+$)";

enum class Kind {
  kLlama3,
  kLlama3Plain,
  kQwen2,
  kQwen2Nfc,
  kQwen35,
  kGpt2,
  kGpt2Nfc,
  kGpt2Digits,
  kGpt4o,
  kTekken,
  kKimiK2,
  kDeepseekV3,
  kDeepseekLlm,
  kDeepseekCoder,
  kFalcon,
  kBloom,
  kViking,
  kSeedCoder,
  kBailing,
  kExaoneMoe,
  kJais2,
  kTinyAya,
  kDefault,
};

struct Row {
  std::string_view name;
  Kind kind;
};
constexpr Row kRows[] = {
    {"default", Kind::kDefault},
    {"llama3", Kind::kLlama3},
    {"llama-v3", Kind::kLlama3},
    {"llama-bpe", Kind::kLlama3},
    {"falcon3", Kind::kLlama3},
    {"falcon-h1", Kind::kLlama3},
    {"pixtral", Kind::kLlama3},
    {"midm-2.0", Kind::kLlama3},
    {"lfm2", Kind::kLlama3},
    {"dbrx", Kind::kLlama3Plain},
    {"smaug-bpe", Kind::kLlama3Plain},
    {"glm4", Kind::kLlama3Plain},
    {"chatglm-bpe", Kind::kLlama3Plain},
    {"qwen2", Kind::kQwen2Nfc},
    {"deepseek-r1-qwen", Kind::kQwen2Nfc},
    {"megrez", Kind::kQwen2Nfc},
    {"stablelm2", Kind::kQwen2Nfc},
    {"hunyuan", Kind::kQwen2},
    {"solar-open", Kind::kQwen2},
    {"grok-2", Kind::kQwen2},
    {"qwen35", Kind::kQwen35},
    {"gpt-2", Kind::kGpt2},
    {"gpt2", Kind::kGpt2},
    {"phi-2", Kind::kGpt2},
    {"jina-es", Kind::kGpt2},
    {"jina-de", Kind::kGpt2},
    {"jina-v2-es", Kind::kGpt2},
    {"jina-v2-de", Kind::kGpt2},
    {"gigachat", Kind::kGpt2},
    {"a.x-4.0", Kind::kGpt2},
    {"mellum", Kind::kGpt2},
    {"modern-bert", Kind::kGpt2},
    {"exaone4", Kind::kGpt2},
    {"jais", Kind::kGpt2},
    {"trillion", Kind::kGpt2},
    {"granite-docling", Kind::kGpt2},
    {"mpt", Kind::kGpt2Nfc},
    {"olmo", Kind::kGpt2Nfc},
    {"smollm", Kind::kGpt2Digits},
    {"starcoder", Kind::kGpt2Digits},
    {"refact", Kind::kGpt2Digits},
    {"command-r", Kind::kGpt2Digits},
    {"codeshell", Kind::kGpt2Digits},
    {"exaone", Kind::kGpt2Digits},
    {"minerva-7b", Kind::kGpt2Digits},
    {"gpt-4o", Kind::kGpt4o},
    {"o200k", Kind::kGpt4o},
    {"llama4", Kind::kGpt4o},
    {"kanana2", Kind::kGpt4o},
    {"minimax-m2", Kind::kGpt4o},
    {"tekken", Kind::kTekken},
    {"kimi-k2", Kind::kKimiK2},
    {"deepseek-v3", Kind::kDeepseekV3},
    {"hunyuan-dense", Kind::kDeepseekV3},
    {"deepseek-llm", Kind::kDeepseekLlm},
    {"deepseek-coder", Kind::kDeepseekCoder},
    {"falcon", Kind::kFalcon},
    {"bloom", Kind::kBloom},
    {"gpt3-finnish", Kind::kBloom},
    {"poro-chat", Kind::kBloom},
    {"viking", Kind::kViking},
    {"seed-coder", Kind::kSeedCoder},
    {"bailingmoe", Kind::kBailing},
    {"bailingmoe2", Kind::kBailing},
    {"llada-moe", Kind::kBailing},
    {"exaone-moe", Kind::kExaoneMoe},
    {"jais-2", Kind::kJais2},
    {"tiny_aya", Kind::kTinyAya},
    {"cohere2moe", Kind::kTinyAya},
};

std::vector<std::string_view> patterns_of(Kind kind) {
  switch (kind) {
    case Kind::kLlama3:
    case Kind::kLlama3Plain:
      return {kLlama3Pattern};
    case Kind::kQwen2:
    case Kind::kQwen2Nfc:
      return {kQwen2Pattern};
    case Kind::kQwen35:
      return {kQwen35Pattern};
    case Kind::kGpt2:
    case Kind::kGpt2Nfc:
      return {gpt2_pattern()};
    case Kind::kGpt2Digits:
      return {kDigit, gpt2_pattern()};
    case Kind::kGpt4o:
      return {kGpt4oPattern};
    case Kind::kTekken:
      return {kTekkenPattern};
    case Kind::kKimiK2:
      return {kKimiK2Pattern};
    case Kind::kDeepseekV3:
      return {kUpToThreeDigits, kDeepseekV3Cjk, kDeepseekV3Pattern};
    case Kind::kDeepseekLlm:
      return {kLineBreak, kDeepseekLlmLetters, kDeepseekLlmPunctuation, kSpacesAtEnd, kDeepseekCjk, kDigits};
    case Kind::kDeepseekCoder:
      return {kLineBreak, kSpacedLetters, kSpacedPunctuation, kDeepseekCjk, kDigit};
    case Kind::kFalcon:
      return {kFalconPunctuation, gpt2_pattern(), kThreeDigits};
    case Kind::kBloom:
      return {kBloomPattern};
    case Kind::kViking:
      return {kBloomPattern, kDigit};
    case Kind::kSeedCoder:
      return {kSeedCoderPattern};
    case Kind::kBailing:
      return {kBailingPattern};
    case Kind::kExaoneMoe:
      return {kExaoneMoePattern};
    case Kind::kJais2:
      return {kJais2Pattern};
    case Kind::kTinyAya:
      return {kAyaDigits, kGpt4oPattern};
    case Kind::kDefault:
      return {kDefaultPunctuation, gpt2_pattern(), kDigits, kThreeDigits};
  }
  return {};
}

}  // namespace

GgufPreTokenizer find_gguf_pre_tokenizer(std::string_view name) {
  GgufPreTokenizer result;
  for (const Row& row : kRows) {
    if (row.name != name) continue;
    result.patterns = patterns_of(row.kind);
    result.ignore_merges = row.kind == Kind::kLlama3 || row.kind == Kind::kTekken || row.kind == Kind::kGpt4o;
    result.nfc = row.kind == Kind::kQwen2Nfc || row.kind == Kind::kGpt2Nfc || row.kind == Kind::kQwen35;
    result.adds_bos = row.kind == Kind::kLlama3 || row.kind == Kind::kTekken;
  }
  return result;
}

}  // namespace mlxcel
