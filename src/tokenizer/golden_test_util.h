// Reading of the golden tokenizer files, shared by the tests of this folder.
//
// Owner: tests. Threads: one.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include "base/json.h"
#include "tokenizer/base64.h"
#include "tokenizer/tokenizer.h"

namespace mlxcel::golden {

inline std::string shared_folder(const std::string& name) {
  return std::string(MLXCEL_SHARED_DIR) + "/fixtures/tokenizers/" + name;
}
inline bool has_file(const std::string& path) { return std::filesystem::exists(path); }

struct Case {
  std::string name;
  std::string text;   // what the input counts as
  std::string input;  // what is given to encode(): may be ill-formed
  EncodeOptions options;
  bool has_text = false;
  std::vector<TokenId> ids;
  std::string decoded, decoded_skip_special;
  bool has_stream = false;
  std::vector<std::string> stream;
  std::string flush;
  bool has_quirk = false;
  bool same_as_hf = true;
};

inline std::string text_member(const JsonValue& value, const char* key) {
  const JsonValue* member = value.find(key);
  return member != nullptr && member->is_string() ? member->as_string() : std::string();
}
inline bool flag_member(const JsonValue& value, const char* key, bool fallback) {
  const JsonValue* member = value.find(key);
  return member != nullptr && member->is_bool() ? member->as_bool() : fallback;
}

inline Case parse_case(const JsonValue& value) {
  Case c;
  c.name = text_member(value, "name");
  c.has_text = value.find("text") != nullptr;
  c.text = c.input = text_member(value, "text");
  if (value.find("bytes_b64") != nullptr)
    c.input = decode_base64(text_member(value, "bytes_b64")).value_or("");
  c.options.add_special = flag_member(value, "add_special", false);
  c.options.parse_special = flag_member(value, "parse_special", true);
  for (const JsonValue& id : value.find("ids")->as_array())
    c.ids.push_back(static_cast<TokenId>(id.as_int()));
  c.decoded = flag_member(value, "decoded", false) ? c.text : text_member(value, "decoded");
  c.decoded_skip_special =
      value.find("decoded_skip_special") != nullptr ? text_member(value, "decoded_skip_special") : c.decoded;
  if (const JsonValue* stream = value.find("stream")) {
    c.has_stream = true;
    for (const JsonValue& piece : stream->as_array()) c.stream.push_back(piece.as_string());
  }
  c.flush = text_member(value, "flush");
  c.has_quirk = value.find("quirk") != nullptr;
  c.same_as_hf = flag_member(value, "same_as_hf", true);
  return c;
}

inline std::vector<Case> read_cases(const std::string& path, const char* list) {
  const auto file = parse_json_file(path);
  std::vector<Case> cases;
  if (!file.ok()) {
    ADD_FAILURE() << file.error().to_string();
    return cases;
  }
  if (const JsonValue* values = file.value().find(list))
    for (const JsonValue& value : values->as_array()) cases.push_back(parse_case(value));
  return cases;
}

// Encoding, both decodings and the stream of one case.
inline void check_case(const std::shared_ptr<const Tokenizer>& tokenizer, const Case& c) {
  if (c.has_text) {
    EXPECT_EQ(tokenizer->encode(c.input, c.options), c.ids)
        << c.name << ": encode of " << c.text.substr(0, 80);
  }
  EXPECT_EQ(tokenizer->decode(c.ids), c.decoded) << c.name << ": decode";
  EXPECT_EQ(tokenizer->decode(c.ids, true), c.decoded_skip_special) << c.name << ": decode without specials";
  if (!c.has_stream) return;
  StreamDecoder stream(tokenizer);
  std::vector<std::string> pieces;
  for (const TokenId id : c.ids) pieces.push_back(stream.push(id));
  EXPECT_EQ(pieces, c.stream) << c.name << ": stream";
  EXPECT_EQ(stream.flush(), c.flush) << c.name << ": flush";
}

}  // namespace mlxcel::golden
