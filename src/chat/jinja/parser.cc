#include "chat/jinja/parser.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace mlxcel::jinja {

NameId Template::intern(std::string_view name) {
  const auto [it, added] = ids_.try_emplace(std::string(name), static_cast<NameId>(names_.size()));
  if (added) names_.emplace_back(name);
  return it->second;
}

NameId Template::find_name(std::string_view name) const {
  const auto it = ids_.find(std::string(name));
  return it == ids_.end() ? -1 : it->second;
}

void parse_template(std::string_view source, const TemplateLimits& limits, Template& result) {
  if (source.size() > limits.max_source_bytes) fail_limit("the template is too long");
  Parser(tokenize(source), limits, result).run();
}

Parser::Nesting::Nesting(Parser& parser) : depth_(parser.depth_) {
  if (++depth_ > parser.limits_.max_depth) {
    --depth_;
    throw Failure{ErrorKind::kResourceExhausted, "the template is nested too deep", parser.current().line};
  }
}

void Parser::run() {
  result_.body = parse_body({});
  if (current().kind != TokenKind::kEnd) fail_expected("end of template");
}

const Token& Parser::next() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}
bool Parser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  next();
  return true;
}
bool Parser::skip_operator(std::string_view op) {
  if (!current().is_operator(op)) return false;
  next();
  return true;
}
const Token& Parser::expect_name() {
  if (current().kind != TokenKind::kName) fail_expected("name");
  return next();
}
void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_expected(name);
}
void Parser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail_expected(op);
}
void Parser::expect(TokenKind kind, std::string_view description) {
  if (current().kind != kind) fail_expected(description);
  next();
}
bool Parser::at_any_name(Words names) const {
  return current().kind == TokenKind::kName &&
         std::find(names.begin(), names.end(), current().text) != names.end();
}
void Parser::fail_syntax(std::string what, int line) const {
  throw Failure{ErrorKind::kInvalidData, std::move(what), line == 0 ? current().line : line};
}
void Parser::fail_expected(std::string_view expected) const {
  fail_syntax("expected '" + std::string(expected) + "', got '" + current().description() + "'");
}

Statement* Parser::statement(StatementKind kind, int line) {
  if (result_.num_nodes() > kMaxNodes) fail_limit("the template has too many parts");
  Statement* node = result_.new_statement();
  node->kind = kind;
  node->line = line;
  return node;
}

Body Parser::parse_body(Words end_names) {
  const Nesting nesting(*this);
  Body body;
  while (current().kind != TokenKind::kEnd) {
    if (current().kind == TokenKind::kData || current().kind == TokenKind::kVariableBegin) {
      body.push_back(parse_output());
      continue;
    }
    expect(TokenKind::kBlockBegin, "begin of statement block");
    if (at_any_name(end_names)) return body;
    body.push_back(parse_statement());
    expect(TokenKind::kBlockEnd, "end of statement block");
  }
  return body;
}

Statement* Parser::parse_output() {
  Statement* node = statement(StatementKind::kOutput, current().line);
  while (true) {
    if (current().kind == TokenKind::kData) {
      Expression* text = string_constant(current().text, current().line);
      text->is_data = true;
      next();
      node->expressions.push_back(text);
    } else if (current().kind == TokenKind::kVariableBegin) {
      next();
      node->expressions.push_back(parse_tuple(false, true));
      expect(TokenKind::kVariableEnd, "end of print statement");
    } else {
      return node;
    }
  }
}

Body Parser::parse_statements(Words end_names, bool drop_end) {
  skip_operator(":");
  expect(TokenKind::kBlockEnd, "end of statement block");
  Body body = parse_body(end_names);
  if (current().kind == TokenKind::kEnd) {
    std::string wanted;
    for (const std::string_view name : end_names)
      wanted += (wanted.empty() ? "'" : " or '") + std::string(name) + "'";
    fail_syntax("unexpected end of template, looking for " + wanted + " of '" + open_tags_.back() + "'");
  }
  if (drop_end) next();
  return body;
}

Statement* Parser::parse_statement() {
  if (current().kind != TokenKind::kName) fail_syntax("tag name expected");
  using Parse = Statement* (Parser::*)();
  static constexpr std::pair<std::string_view, Parse> kTags[] = {
      {"for", &Parser::parse_for},
      {"if", &Parser::parse_if},
      {"set", &Parser::parse_set},
      {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block},
      {"filter", &Parser::parse_filter_block},
      {"with", &Parser::parse_with},
      {"autoescape", &Parser::parse_autoescape},
      {"block", &Parser::parse_block},
      {"generation", &Parser::parse_generation},
      {"print", &Parser::parse_print},
      {"break", &Parser::parse_loop_control},
      {"continue", &Parser::parse_loop_control},
      {"extends", &Parser::parse_load},
      {"include", &Parser::parse_load},
      {"import", &Parser::parse_load},
      {"from", &Parser::parse_load},
  };
  for (const auto& [name, parse] : kTags) {
    if (current().text != name) continue;
    open_tags_.emplace_back(name);
    Statement* node = (this->*parse)();
    open_tags_.pop_back();
    return node;
  }
  fail_syntax("encountered unknown tag '" + current().text + "'" +
              (open_tags_.empty() ? "" : ", the innermost open block is '" + open_tags_.back() + "'"));
}

Statement* Parser::parse_for() {
  Statement* node = statement(StatementKind::kFor, next().line);
  node->targets.push_back(parse_target(true, false, {"in"}));
  expect_name("in");
  node->expressions.push_back(parse_tuple(false, false, {"recursive"}));
  node->expressions.push_back(skip_name("if") ? parse_expression() : nullptr);
  node->recursive = skip_name("recursive");
  ++loop_depth_;
  node->body = parse_statements({"endfor", "else"}, false);
  --loop_depth_;
  if (next().text == "else") node->otherwise = parse_statements({"endfor"}, true);
  return node;
}

Statement* Parser::parse_if() {
  Statement* node = statement(StatementKind::kIf, next().line);
  ++conditional_depth_;
  while (true) {
    Expression* test = parse_tuple(false, false);
    node->branches.emplace_back(test, parse_statements({"elif", "else", "endif"}, false));
    const std::string tag = next().text;
    if (tag == "elif") continue;
    if (tag == "else") node->otherwise = parse_statements({"endif"}, true);
    break;
  }
  --conditional_depth_;
  return node;
}

Statement* Parser::parse_set() {
  Statement* node = statement(StatementKind::kSet, next().line);
  node->targets.push_back(parse_target(true, true));
  if (skip_operator("=")) {
    node->expressions.push_back(parse_tuple(false, true));
    return node;
  }
  node->kind = StatementKind::kSetBlock;
  node->filter = parse_filter(nullptr, false);
  node->body = parse_statements({"endset"}, true);
  return node;
}

Expression* Parser::parse_target(bool with_tuple, bool with_namespace, Words end_names) {
  Expression* target =
      with_tuple ? parse_tuple(true, true, end_names, false, with_namespace) : parse_primary(with_namespace);
  check_assignable(*target);
  return target;
}

void Parser::check_assignable(const Expression& target) const {
  if (target.kind == ExpressionKind::kTuple) {
    for (const Expression* item : target.items) check_assignable(*item);
    return;
  }
  if (target.kind != ExpressionKind::kName && target.kind != ExpressionKind::kNamespaceReference) {
    fail_syntax("cannot assign to this expression", target.line);
  }
}

void Parser::parse_signature(MacroNode& macro) {
  expect_operator("(");
  while (!current().is_operator(")")) {
    if (!macro.parameters.empty()) expect_operator(",");
    const std::string name = expect_name().text;
    if (skip_operator("=")) {
      macro.defaults.push_back(parse_expression());
    } else if (!macro.defaults.empty()) {
      fail_syntax("non-default argument follows default argument");
    }
    macro.parameters.push_back(result_.intern(name));
    macro.parameter_names.push_back(name);
    if (name == "caller") macro.has_caller_parameter = true;
  }
  expect_operator(")");
}

// The body is a function of its own: no break or continue reaches out of it.
Body Parser::parse_function_body(std::string_view end_name) {
  const int loops = std::exchange(loop_depth_, 0);
  Body body = parse_statements({end_name}, true);
  loop_depth_ = loops;
  return body;
}

void Parser::parse_macro_body(MacroNode& macro, std::string_view end_name) {
  open_macros_.push_back(&macro);
  macro.body = parse_function_body(end_name);
  open_macros_.pop_back();
}

Statement* Parser::parse_macro() {
  Statement* node = statement(StatementKind::kMacro, next().line);
  node->macro = result_.new_macro();
  node->macro->name = expect_name().text;
  node->name = result_.intern(node->macro->name);
  parse_signature(*node->macro);
  parse_macro_body(*node->macro, "endmacro");
  return node;
}

Statement* Parser::parse_call_block() {
  Statement* node = statement(StatementKind::kCallBlock, next().line);
  node->macro = result_.new_macro();
  node->macro->name = "caller";
  if (current().is_operator("(")) parse_signature(*node->macro);
  Expression* call = parse_expression();
  if (call->kind != ExpressionKind::kCall) fail_syntax("expected call", node->line);
  node->expressions.push_back(call);
  parse_macro_body(*node->macro, "endcall");
  return node;
}

Statement* Parser::parse_filter_block() {
  Statement* node = statement(StatementKind::kFilterBlock, next().line);
  node->filter = parse_filter(nullptr, true);
  node->body = parse_statements({"endfilter"}, true);
  return node;
}

Statement* Parser::parse_with() {
  Statement* node = statement(StatementKind::kWith, next().line);
  while (current().kind != TokenKind::kBlockEnd) {
    if (!node->targets.empty()) expect_operator(",");
    node->targets.push_back(parse_target(true, false));
    expect_operator("=");
    node->expressions.push_back(parse_expression());
  }
  node->body = parse_statements({"endwith"}, true);
  return node;
}

Statement* Parser::parse_autoescape() {
  Statement* node = statement(StatementKind::kAutoescape, next().line);
  node->expressions.push_back(parse_expression());
  node->body = parse_statements({"endautoescape"}, true);
  return node;
}

Statement* Parser::parse_block() {
  Statement* node = statement(StatementKind::kBlock, next().line);
  node->text = expect_name().text;
  node->scoped = skip_name("scoped");
  if (skip_name("required"))
    fail_syntax("a required block needs template inheritance, which has no loader here");
  if (!result_.blocks.emplace(node->text, node).second) {
    fail_syntax("block '" + node->text + "' defined twice", node->line);
  }
  node->body = parse_function_body("endblock");
  skip_name(node->text);
  return node;
}

Statement* Parser::parse_generation() {
  Statement* node = statement(StatementKind::kGeneration, next().line);
  node->body = parse_function_body("endgeneration");
  return node;
}

Statement* Parser::parse_print() {
  Statement* node = statement(StatementKind::kOutput, next().line);
  while (current().kind != TokenKind::kBlockEnd) {
    if (!node->expressions.empty()) expect_operator(",");
    node->expressions.push_back(parse_expression());
  }
  return node;
}

Statement* Parser::parse_loop_control() {
  const Token& token = next();
  if (loop_depth_ == 0) fail_syntax("'" + token.text + "' outside loop", token.line);
  return statement(token.text == "break" ? StatementKind::kBreak : StatementKind::kContinue, token.line);
}

// The tags are read to their end, so that a template which never reaches one works as it does in Jinja.
Statement* Parser::parse_load() {
  Statement* node = statement(StatementKind::kLoad, current().line);
  node->text = next().text;
  node->expressions.push_back(parse_expression());
  while (current().kind == TokenKind::kName || current().is_operator(",")) next();
  return node;
}

}  // namespace mlxcel::jinja
