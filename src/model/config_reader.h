// Reads a model's config.json (or GGUF metadata in the same shape) and remembers which keys were read, so
// that a key nobody understood is an error and not a silently different model.
//
// Errors are sticky: the first one is kept, later reads return their fallback or zero, and status() or
// finish() hands it out. That keeps family files free of error plumbing. Keys are looked up in "text_config"
// first (multi-modal checkpoints nest the language model there), then at the top; null counts as missing; 3.0
// is an integer.
//
// Owner: one load; borrows the JSON. Threads: one.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace mlxcel {

class ConfigReader {
 public:
  // `source_names` (may be null): what the file itself calls a key, for messages about GGUF metadata.
  ConfigReader(const JsonValue& config, std::string where,
               const std::map<std::string, std::string>* source_names = nullptr);

  const std::string& where() const { return where_; }
  // The value of a set key, marked as understood; nullptr when missing or null.
  const JsonValue* value(std::string_view key);
  bool has(std::string_view key) const { return find(key) != nullptr; }
  // The file names the key, be it with null (which some families read as "switched off").
  bool mentions(std::string_view key) const;
  int64_t integer(std::string_view key, std::optional<int64_t> fallback = std::nullopt);
  // An integer in [low, high]; for every count that sizes something.
  int count(std::string_view key, int64_t low, int64_t high, std::optional<int64_t> fallback = std::nullopt);
  double number(std::string_view key, std::optional<double> fallback = std::nullopt);
  bool boolean(std::string_view key, std::optional<bool> fallback = std::nullopt);
  std::string string(std::string_view key, std::optional<std::string> fallback = std::nullopt);
  std::vector<std::string> strings(std::string_view key);
  std::vector<int64_t> integers(std::string_view key);

  // These keys do not change what this family computes.
  void ignore(std::initializer_list<std::string_view> keys);
  // The key may be missing or null, or must equal `only`.
  void require(std::string_view key, const JsonValue& only);
  // Records an error about a key (the first one wins).
  void reject(std::string_view key, std::string expected, std::string hint = {});
  void fail(Error error);

  bool failed() const { return error_.has_value(); }
  Status status() const;
  // status(), then: every key must have been read, be inert everywhere, or hold a neutral value.
  Status finish();
  // A reader's own name of a key ("llama.attention.head_count" for GGUF).
  std::string source_name(std::string_view key) const;

 private:
  const JsonValue* find(std::string_view key) const;
  std::optional<Error> unknown_key(const JsonValue& object) const;

  const JsonValue& config_;
  const JsonValue* text_ = nullptr;  // text_config
  std::string where_;
  const std::map<std::string, std::string>* source_names_;
  std::set<std::string, std::less<>> understood_;
  std::optional<Error> error_;
};

}  // namespace mlxcel
