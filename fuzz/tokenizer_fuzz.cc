// Bytes to a tokenizer, and bytes to text: loading never crashes, and whatever loads encodes and decodes any
// text without breaking its promises.
//
// Input: the first line chooses; "J" and a tokenizer.json, a NUL, a text; anything else is a text for the
// built-in tokenizers. Regular expressions are part of the JSON.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

namespace {

using mlxcel::TokenId;
using mlxcel::Tokenizer;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_text(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text) {
  const std::vector<TokenId> ids = tokenizer->encode(text, {.add_special = true, .parse_special = true});
  for (const TokenId id : ids) require(id >= 0 && id < tokenizer->vocab_size());
  require(mlxcel::is_valid_utf8(tokenizer->decode(ids)));
  mlxcel::StreamDecoder stream(tokenizer);
  std::string joined;
  for (const TokenId id : ids) {
    const std::string piece = stream.push(id);
    require(mlxcel::is_valid_utf8(piece));
    joined += piece;
  }
  joined += stream.flush();
  require(mlxcel::is_valid_utf8(joined));
  const mlxcel::TextSpan content{text, true};
  for (const TokenId id : tokenizer->encode_spans({&content, 1})) require(!tokenizer->is_special(id));
}

std::shared_ptr<const Tokenizer> built_in(std::string_view json) {
  const auto value = mlxcel::parse_json(json, "built-in");
  require(value.ok());
  auto loaded = mlxcel::load_tokenizer_json(value.value(), mlxcel::JsonValue(), "built-in");
  require(loaded.ok());
  return loaded.value();
}

const std::vector<std::shared_ptr<const Tokenizer>>& built_ins() {
  static const std::vector<std::shared_ptr<const Tokenizer>> kTokenizers = {
      built_in(R"({"added_tokens":[{"id":4,"content":"<|x|>","special":true,"rstrip":true,"lstrip":true}],
        "normalizer":{"type":"NFKC"},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true},
        "decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3},"merges":["a b"]}})"),
      built_in(R"({"normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"BertPreTokenizer"},
        "decoder":{"type":"WordPiece"},
        "model":{"type":"WordPiece","unk_token":"[UNK]","vocab":{"[UNK]":0,"a":1,"##b":2,"c":3}}})"),
      built_in(R"({"pre_tokenizer":{"type":"Metaspace","prepend_scheme":"first","split":true},
        "decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Metaspace"}]},
        "model":{"type":"Unigram","unk_id":0,"byte_fallback":true,
                 "vocab":[["<unk>",0],["▁",-1],["a",-2],["▁a",-1.5],["<0xC3>",-9]]}})")};
  return kTokenizers;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Longer inputs find nothing more and run slowly.
  if (size > size_t{1} << 16) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (!input.starts_with('J')) {
    for (const auto& tokenizer : built_ins()) check_text(tokenizer, input);
    return 0;
  }
  const size_t end = std::min(input.find('\0'), input.size());
  const auto json = mlxcel::parse_json(input.substr(1, end - 1), "fuzz");
  if (!json.ok()) return 0;
  const auto loaded = mlxcel::load_tokenizer_json(json.value(), mlxcel::JsonValue(), "fuzz");
  if (!loaded.ok()) return 0;
  check_text(loaded.value(),
             end < input.size() ? input.substr(end + 1) : std::string_view("plain text, 12 <b>"));
  return 0;
}
