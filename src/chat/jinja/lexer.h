// Cuts a template's source into tokens as Jinja 3 does with trim_blocks and lstrip_blocks on and
// keep_trailing_newline off.
// Pure function; any thread. Errors are Failures with kInvalidData and a line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mlxcel::jinja {

enum class TokenKind : unsigned char {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,   // text: the value, escapes resolved
  kInteger,  // text: as written, without underscores
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  int line = 0;

  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool is_operator(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
  std::string description() const;
};

// The last token is kEnd.
std::vector<Token> tokenize(std::string_view source);

}  // namespace mlxcel::jinja
