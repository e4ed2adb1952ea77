// Regular expressions of tokenizer files. The patterns are written for Oniguruma (Ruby syntax, Unicode); they
// are translated to PCRE2 (UTF, UCP, JIT) so that every construct keeps its Oniguruma meaning or is refused
// while loading.
//
// Owner: a pre-tokenizer, normalizer or decoder, immutable. Threads: find() is free for all, each thread with
// its own RegexScratch. REQUIRES: subjects are valid UTF-8 (they are matched without being checked again).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace mlxcel {

// The PCRE2 form of an Oniguruma pattern; kUnsupported names the construct that has no equal.
Result<std::string> translate_oniguruma(std::string_view pattern);
// A pattern that matches exactly `text`.
std::string quote_for_regex(std::string_view text);

struct RegexMatch {
  size_t begin = 0;
  size_t end = 0;
};

// What one encode() call needs to match; made once, used for all patterns.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;
  uint64_t num_matches() const { return num_matches_; }  // calls of find(), for tests that count work

 private:
  friend class Regex;
  struct State;
  State& state();
  std::unique_ptr<State> state_;  // made at the first match: most calls of a decoder need none
  uint64_t num_matches_ = 0;
};

class Regex {
 public:
  // `where` names the key in the tokenizer file.
  static Result<Regex> compile(std::string_view pattern, const std::string& where);
  static Result<Regex> compile_literal(std::string_view text, const std::string& where);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // First match at or behind `offset`. A pattern that backtracks beyond the limits counts as not matching: a
  // hostile file costs bounded time and its text stays unsplit.
  std::optional<RegexMatch> find(std::string_view subject, size_t offset, RegexScratch& scratch) const;

 private:
  struct Code;
  static Result<Regex> compile_translated(const std::string& translated, std::string_view pattern,
                                          const std::string& where);
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace mlxcel
