#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>

#include "chat/jinja/parser.h"

namespace mlxcel::jinja {

Expression* Parser::expression(ExpressionKind kind, int line) {
  if (result_.num_nodes() > kMaxNodes) fail_limit("the template has too many parts");
  Expression* node = result_.new_expression();
  node->kind = kind;
  node->line = line;
  return node;
}

Expression* Parser::finish(Expression* node) {
  int depth = 0;
  const auto consider = [&](const Expression* child, int extra) {
    if (child != nullptr) depth = std::max(depth, child->depth + extra);
  };
  // The left side of a chain of equal operators is evaluated in a loop, so it adds no depth.
  const bool is_chain = node->kind == ExpressionKind::kBinary || node->kind == ExpressionKind::kOr ||
                        node->kind == ExpressionKind::kAnd;
  for (size_t i = 0; i < node->items.size(); ++i) {
    const bool continues = is_chain && i == 0 && node->items[0]->kind == node->kind;
    consider(node->items[i], continues ? 0 : 1);
  }
  if (node->call != nullptr) {
    for (const Expression* e : node->call->positional) consider(e, 1);
    for (const auto& [key, e] : node->call->keywords) consider(e, 1);
    consider(node->call->more_positional, 1);
    consider(node->call->more_keywords, 1);
  }
  node->depth = std::max(depth, 1);
  if (node->depth > limits_.max_depth) {
    throw Failure{ErrorKind::kResourceExhausted, "an expression of the template is nested too deep",
                  node->line};
  }
  return node;
}

Expression* Parser::binary(ExpressionKind kind, Expression* left, Expression* right, int line) {
  Expression* node = expression(kind, line);
  node->items = {left, right};
  return finish(node);
}

Expression* Parser::constant(Value value, int line) {
  Expression* node = expression(ExpressionKind::kConstant, line);
  node->constant = std::move(value);
  return node;
}

Expression* Parser::string_constant(std::string text, int line) {
  auto object = std::make_shared<StringObject>();
  object->text = Text(std::move(text));
  return constant(Value::object(Kind::kString, std::move(object)), line);
}

Expression* Parser::parse_expression(bool with_conditional) {
  const Nesting nesting(*this);
  return with_conditional ? parse_conditional() : parse_or();
}

Expression* Parser::parse_conditional() {
  int line = current().line;
  Expression* value = parse_or();
  while (skip_name("if")) {
    ++conditional_depth_;
    Expression* node = expression(ExpressionKind::kConditional, line);
    Expression* test = parse_or();
    const Nesting nesting(*this);
    Expression* otherwise = skip_name("else") ? parse_conditional() : nullptr;
    node->items = {test, value, otherwise};
    value = finish(node);
    line = current().line;
    --conditional_depth_;
  }
  return value;
}

Expression* Parser::parse_or() {
  const int line = current().line;
  Expression* left = parse_and();
  while (skip_name("or")) left = binary(ExpressionKind::kOr, left, parse_and(), line);
  return left;
}

Expression* Parser::parse_and() {
  const int line = current().line;
  Expression* left = parse_not();
  while (skip_name("and")) left = binary(ExpressionKind::kAnd, left, parse_not(), line);
  return left;
}

Expression* Parser::parse_not() {
  if (!current().is_name("not")) return parse_compare();
  const Nesting nesting(*this);
  Expression* node = expression(ExpressionKind::kNot, next().line);
  node->items = {parse_not()};
  return finish(node);
}

bool Parser::parse_comparison(Comparison& comparison) {
  static constexpr std::pair<std::string_view, Comparison> kOperators[] = {
      {"==", Comparison::kEqual},  {"!=", Comparison::kNotEqual},  {"<", Comparison::kLess},
      {">", Comparison::kGreater}, {"<=", Comparison::kLessEqual}, {">=", Comparison::kGreaterEqual}};
  for (const auto& [text, value] : kOperators) {
    if (!skip_operator(text)) continue;
    comparison = value;
    return true;
  }
  comparison = Comparison::kIn;
  if (skip_name("in")) return true;
  if (!current().is_name("not") || !look(1).is_name("in")) return false;
  next();
  next();
  comparison = Comparison::kNotIn;
  return true;
}

Expression* Parser::parse_compare() {
  const int line = current().line;
  Expression* first = parse_sum();
  Comparison comparison{};
  if (!parse_comparison(comparison)) return first;
  Expression* node = expression(ExpressionKind::kCompare, line);
  node->items = {first};
  do {
    node->comparisons.push_back(comparison);
    node->items.push_back(parse_sum());
  } while (parse_comparison(comparison));
  return finish(node);
}

Expression* Parser::parse_sum() {
  const int line = current().line;
  Expression* left = parse_concat();
  while (current().is_operator("+") || current().is_operator("-")) {
    const bool is_add = next().text == "+";
    left = binary(ExpressionKind::kBinary, left, parse_concat(), line);
    left->binary = is_add ? BinaryOperator::kAdd : BinaryOperator::kSubtract;
  }
  return left;
}

Expression* Parser::parse_concat() {
  const int line = current().line;
  Expression* first = parse_product();
  if (!current().is_operator("~")) return first;
  Expression* node = expression(ExpressionKind::kConcat, line);
  node->items = {first};
  while (skip_operator("~")) node->items.push_back(parse_product());
  return finish(node);
}

Expression* Parser::parse_product() {
  const int line = current().line;
  Expression* left = parse_power();
  while (true) {
    BinaryOperator op{};
    if (skip_operator("*")) {
      op = BinaryOperator::kMultiply;
    } else if (skip_operator("/")) {
      op = BinaryOperator::kDivide;
    } else if (skip_operator("//")) {
      op = BinaryOperator::kFloorDivide;
    } else if (skip_operator("%")) {
      op = BinaryOperator::kModulo;
    } else {
      return left;
    }
    left = binary(ExpressionKind::kBinary, left, parse_power(), line);
    left->binary = op;
  }
}

Expression* Parser::parse_power() {
  const int line = current().line;
  Expression* left = parse_unary(true);
  while (skip_operator("**")) {  // left-associative in Jinja, unlike Python
    left = binary(ExpressionKind::kBinary, left, parse_unary(true), line);
    left->binary = BinaryOperator::kPower;
  }
  return left;
}

Expression* Parser::parse_unary(bool with_filter) {
  const int line = current().line;
  Expression* node = nullptr;
  if (current().is_operator("-") || current().is_operator("+")) {
    const Nesting nesting(*this);
    node = expression(next().text == "-" ? ExpressionKind::kNegate : ExpressionKind::kPlus, line);
    node->items = {parse_unary(false)};
    finish(node);
  } else {
    node = parse_primary();
  }
  node = parse_postfix(node);
  return with_filter ? parse_filters(node) : node;
}

Expression* Parser::parse_number() {
  const Token& token = next();
  if (token.kind == TokenKind::kFloat) {
    double value = 0;
    parse_python_float(token.text, value);
    return constant(Value::floating(value), token.line);
  }
  int64_t value = 0;
  if (parse_python_integer(token.text, 0, value)) return constant(Value::integer(value), token.line);
  if (token.text.size() > 1 && token.text[0] == '0' && token.text[1] > '9') {
    fail_limit("an integer of the template is too large");
  }
  auto object = std::make_shared<StringObject>();
  object->text = Text(token.text);
  return constant(Value::object(Kind::kBigInteger, std::move(object)), token.line);
}

Expression* Parser::parse_primary(bool with_namespace) {
  const Token& token = current();
  if (token.kind == TokenKind::kName) {
    next();
    const std::string& name = token.text;
    if (name == "true" || name == "True") return constant(Value::boolean(true), token.line);
    if (name == "false" || name == "False") return constant(Value::boolean(false), token.line);
    if (name == "none" || name == "None") return constant(Value::none(), token.line);
    Expression* node = expression(ExpressionKind::kName, token.line);
    if (with_namespace && skip_operator(".")) {
      node->kind = ExpressionKind::kNamespaceReference;
      node->text = expect_name().text;
    }
    node->name = result_.intern(name);
    for (MacroNode* macro : open_macros_) {
      macro->uses_caller |= name == "caller";
      macro->uses_varargs |= name == "varargs";
      macro->uses_kwargs |= name == "kwargs";
    }
    return node;
  }
  if (token.kind == TokenKind::kString) {
    std::string text;
    while (current().kind == TokenKind::kString) text += next().text;
    return string_constant(std::move(text), token.line);
  }
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return parse_number();
  if (skip_operator("(")) {
    const Nesting nesting(*this);
    Expression* node = parse_tuple(false, true, {}, true);
    expect_operator(")");
    return node;
  }
  const Nesting nesting(*this);
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  fail_syntax("unexpected '" + token.description() + "'");
}

bool Parser::at_tuple_end(Words end_names) const {
  return current().kind == TokenKind::kVariableEnd || current().kind == TokenKind::kBlockEnd ||
         current().is_operator(")") || at_any_name(end_names);
}

Expression* Parser::parse_tuple(bool simplified, bool with_conditional, Words end_names, bool in_parentheses,
                                bool with_namespace) {
  const int line = current().line;
  std::vector<Expression*> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_operator(",");
    if (at_tuple_end(end_names)) break;
    items.push_back(simplified ? parse_primary(with_namespace) : parse_expression(with_conditional));
    if (!current().is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return items[0];
    if (!in_parentheses) fail_syntax("expected an expression, got '" + current().description() + "'");
  }
  Expression* node = expression(ExpressionKind::kTuple, line);
  node->items = std::move(items);
  return finish(node);
}

Expression* Parser::parse_list() {
  Expression* node = expression(ExpressionKind::kList, next().line);
  while (!current().is_operator("]")) {
    if (!node->items.empty()) expect_operator(",");
    if (current().is_operator("]")) break;
    node->items.push_back(parse_expression());
  }
  expect_operator("]");
  return finish(node);
}

Expression* Parser::parse_dict() {
  Expression* node = expression(ExpressionKind::kDict, next().line);
  while (!current().is_operator("}")) {
    if (!node->items.empty()) expect_operator(",");
    if (current().is_operator("}")) break;
    node->items.push_back(parse_expression());
    expect_operator(":");
    node->items.push_back(parse_expression());
  }
  expect_operator("}");
  return finish(node);
}

Expression* Parser::parse_postfix(Expression* node) {
  while (true) {
    if (current().is_operator(".") || current().is_operator("[")) {
      node = parse_subscript(node);
    } else if (current().is_operator("(")) {
      node = parse_call(node);
    } else {
      return node;
    }
  }
}

Expression* Parser::parse_filters(Expression* node) {
  while (true) {
    if (current().is_operator("|")) {
      node = parse_filter(node, false);
    } else if (current().is_name("is")) {
      node = parse_test(node);
    } else if (current().is_operator("(")) {
      node = parse_call(node);
    } else {
      return node;
    }
  }
}

Expression* Parser::parse_subscript(Expression* node) {
  const Token& token = next();
  if (token.text == ".") {
    const Token& name = next();
    if (name.kind == TokenKind::kName) {
      Expression* attribute = expression(ExpressionKind::kAttribute, token.line);
      attribute->text = name.text;
      attribute->items = {node};
      return finish(attribute);
    }
    if (name.kind != TokenKind::kInteger) fail_syntax("expected name or number", name.line);
    int64_t index = 0;
    if (!parse_python_integer(name.text, 0, index)) fail_syntax("index is too large", name.line);
    return binary(ExpressionKind::kItem, node, constant(Value::integer(index), name.line), token.line);
  }
  std::vector<Expression*> keys;
  while (!current().is_operator("]")) {
    if (!keys.empty()) expect_operator(",");
    keys.push_back(parse_subscribed());
  }
  expect_operator("]");
  if (keys.size() == 1) return binary(ExpressionKind::kItem, node, keys[0], token.line);
  Expression* tuple = expression(ExpressionKind::kTuple, token.line);
  for (const Expression* key : keys) {
    if (key->kind == ExpressionKind::kSlice) fail_syntax("a slice cannot be part of a tuple", token.line);
  }
  tuple->items = std::move(keys);
  return binary(ExpressionKind::kItem, node, finish(tuple), token.line);
}

Expression* Parser::parse_subscribed() {
  const int line = current().line;
  Expression* start = nullptr;
  if (!current().is_operator(":")) {
    start = parse_expression();
    if (!current().is_operator(":")) return start;
  }
  Expression* node = expression(ExpressionKind::kSlice, line);
  node->items = {start, nullptr, nullptr};
  for (size_t part = 1; part <= 2 && skip_operator(":"); ++part) {
    if (!current().is_operator(":") && !current().is_operator("]") && !current().is_operator(",")) {
      node->items[part] = parse_expression();
    }
  }
  return finish(node);
}

Expression* Parser::parse_call(Expression* node) {
  Expression* call = expression(ExpressionKind::kCall, current().line);
  call->items = {node};
  call->call = result_.new_call();
  parse_call_arguments(*call->call);
  return finish(call);
}

void Parser::parse_call_arguments(CallParts& call) {
  const int line = current().line;
  const auto ensure = [&](bool condition) {
    if (!condition) fail_syntax("invalid syntax for function call expression", line);
  };
  expect_operator("(");
  for (bool is_first = true; !current().is_operator(")"); is_first = false) {
    if (!is_first) {
      expect_operator(",");
      if (current().is_operator(")")) break;
    }
    if (skip_operator("*")) {
      ensure(call.more_positional == nullptr && call.more_keywords == nullptr);
      call.more_positional = parse_expression();
    } else if (skip_operator("**")) {
      ensure(call.more_keywords == nullptr);
      call.more_keywords = parse_expression();
    } else if (current().kind == TokenKind::kName && look(1).is_operator("=")) {
      ensure(call.more_keywords == nullptr);
      std::string name = next().text;
      next();
      for (const auto& [key, value] : call.keywords) {
        if (key == name) fail_syntax("keyword argument repeated: " + name, line);
      }
      call.keywords.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(call.more_positional == nullptr && call.more_keywords == nullptr && call.keywords.empty());
      call.positional.push_back(parse_expression());
    }
  }
  expect_operator(")");
}

Expression* Parser::parse_filter(Expression* node, bool start_inline) {
  while (current().is_operator("|") || start_inline) {
    if (!start_inline) next();
    start_inline = false;
    const Token& token = expect_name();
    std::string name = token.text;
    while (skip_operator(".")) name += "." + expect_name().text;
    Expression* filter = expression(ExpressionKind::kFilter, token.line);
    filter->items = {node};
    filter->builtin = find_filter(name);
    if (filter->builtin == nullptr && conditional_depth_ == 0) {
      fail_syntax("no filter named '" + name + "'", token.line);
    }
    filter->text = std::move(name);
    filter->call = result_.new_call();
    if (current().is_operator("(")) parse_call_arguments(*filter->call);
    node = finish(filter);
  }
  return node;
}

Expression* Parser::parse_test(Expression* node) {
  const int line = next().line;
  const bool is_negated = skip_name("not");
  Expression* test = expression(ExpressionKind::kTest, line);
  test->items = {node};
  test->text = expect_name().text;
  while (skip_operator(".")) test->text += "." + expect_name().text;
  test->call = result_.new_call();
  test->builtin = find_test(test->text);
  if (test->builtin == nullptr && conditional_depth_ == 0)
    fail_syntax("no test named '" + test->text + "'", line);
  const Token& after = current();
  const bool starts_argument = after.kind == TokenKind::kName || after.kind == TokenKind::kString ||
                               after.kind == TokenKind::kInteger || after.kind == TokenKind::kFloat ||
                               after.is_operator("[") || after.is_operator("{");
  if (after.is_operator("(")) {
    parse_call_arguments(*test->call);
  } else if (starts_argument && !at_any_name({"else", "or", "and"})) {
    if (after.is_name("is")) fail_syntax("you cannot chain multiple tests with is");
    test->call->positional.push_back(parse_postfix(parse_primary()));
  }
  finish(test);
  if (!is_negated) return test;
  Expression* negated = expression(ExpressionKind::kNot, line);
  negated->items = {test};
  return finish(negated);
}

}  // namespace mlxcel::jinja
