// Recursive-descent parser for Jinja 3's grammar; statements in parser.cc, expressions in
// parser_expression.cc. Owner: parse_template. Threads: one.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/ast.h"
#include "chat/jinja/lexer.h"

namespace mlxcel::jinja {

constexpr size_t kMaxNodes = 300'000;  // of one template; about 250 bytes each

class Parser {
 public:
  Parser(std::vector<Token> tokens, const TemplateLimits& limits, Template& result)
      : tokens_(std::move(tokens)), limits_(limits), result_(result) {}
  void run();

 private:
  using Words = std::initializer_list<std::string_view>;
  // Counts the parser's own recursion; expressions and blocks nest at most max_depth deep.
  class Nesting {
   public:
    explicit Nesting(Parser& parser);
    ~Nesting() { --depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    int& depth_;
  };

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& look(size_t ahead) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next();
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view op);
  const Token& expect_name();
  void expect_name(std::string_view name);
  void expect_operator(std::string_view op);
  void expect(TokenKind kind, std::string_view description);
  bool at_any_name(Words names) const;
  [[noreturn]] void fail_syntax(std::string what, int line = 0) const;
  [[noreturn]] void fail_expected(std::string_view expected) const;

  // Statements.
  Body parse_body(Words end_names);
  Body parse_statements(Words end_names, bool drop_end);
  Statement* parse_output();
  Statement* parse_statement();
  Statement* parse_for();
  Statement* parse_if();
  Statement* parse_set();
  Statement* parse_macro();
  Statement* parse_call_block();
  Statement* parse_filter_block();
  Statement* parse_with();
  Statement* parse_autoescape();
  Statement* parse_block();
  Statement* parse_generation();
  Statement* parse_print();
  Statement* parse_loop_control();
  Statement* parse_load();
  void parse_signature(MacroNode& macro);
  void parse_macro_body(MacroNode& macro, std::string_view end_name);
  Body parse_function_body(std::string_view end_name);
  Expression* parse_target(bool with_tuple, bool with_namespace, Words end_names = {});
  void check_assignable(const Expression& target) const;
  Statement* statement(StatementKind kind, int line);

  // Expressions.
  Expression* parse_expression(bool with_conditional = true);
  Expression* parse_conditional();
  Expression* parse_or();
  Expression* parse_and();
  Expression* parse_not();
  Expression* parse_compare();
  bool parse_comparison(Comparison& comparison);
  Expression* parse_sum();
  Expression* parse_concat();
  Expression* parse_product();
  Expression* parse_power();
  Expression* parse_unary(bool with_filter);
  Expression* parse_primary(bool with_namespace = false);
  Expression* parse_number();
  Expression* parse_tuple(bool simplified, bool with_conditional, Words end_names = {},
                          bool in_parentheses = false, bool with_namespace = false);
  Expression* parse_list();
  Expression* parse_dict();
  Expression* parse_postfix(Expression* node);
  Expression* parse_filters(Expression* node);
  Expression* parse_subscript(Expression* node);
  Expression* parse_subscribed();
  Expression* parse_call(Expression* node);
  void parse_call_arguments(CallParts& call);
  Expression* parse_filter(Expression* node, bool start_inline);
  Expression* parse_test(Expression* node);
  bool at_tuple_end(Words end_names) const;

  Expression* expression(ExpressionKind kind, int line);
  Expression* binary(ExpressionKind kind, Expression* left, Expression* right, int line);
  Expression* constant(Value value, int line);
  Expression* string_constant(std::string text, int line);
  // Sets the depth from the children and checks it.
  Expression* finish(Expression* node);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  const TemplateLimits& limits_;
  Template& result_;
  int depth_ = 0;
  int loop_depth_ = 0;         // loops that a break here would leave
  int conditional_depth_ = 0;  // inside an if: an unknown filter is an error only when it is reached
  std::vector<MacroNode*> open_macros_;
  std::vector<std::string> open_tags_;
};

}  // namespace mlxcel::jinja
