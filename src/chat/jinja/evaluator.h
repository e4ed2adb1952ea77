// Runs a parsed template. Statements in evaluator.cc, expressions in evaluator_expression.cc.
//
// Owner: one render. Threads: one. Invariant: at most kFramesPerDepth * max_depth nested evaluations, so that
// neither a deep template nor deep recursion of its macros can overrun the stack.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chat/jinja/ast.h"

namespace mlxcel::jinja {

struct Scope {
  explicit Scope(Scope* parent_scope) : parent(parent_scope) {}
  Scope* parent;
  std::vector<std::pair<NameId, Value>> variables;
  bool is_captured = false;  // a macro refers to it: it must live until the render ends

  const Value* find(NameId name) const;
  void set(NameId name, Value value);
};

struct MacroObject {
  const MacroNode* node;
  Scope* scope;
};

struct LoopObject {
  std::vector<Value> items;  // while it runs
  Charge charge;
  int64_t length = 0;
  int64_t index0 = -1;
  int64_t depth0 = 0;
  bool is_active = true;
  Value last_changed;  // undefined until loop.changed() was called
  const Statement* node = nullptr;
  Scope* scope = nullptr;  // around the loop
};

class Evaluator : public Runtime::Calls {
 public:
  Evaluator(const Template& source, Runtime& runtime);
  // Variables of the context, before run().
  Scope& root() { return root_; }
  // Renders the whole template into `output`; the spans are those of {% generation %}.
  void run(Text& output, std::vector<RenderedPrompt::Span>& spans);

  Value call_macro(MacroObject& macro, Arguments arguments) override;
  Value call_loop(LoopObject& loop, const Value& items) override;
  Value call_block(const std::string& name) override;

 private:
  static constexpr int kFramesPerDepth = 8;
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  class Frame;
  class Capture;  // collects output as a string
  class Inner;    // a scope inside the current one

  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow execute_if(const Statement& statement);
  Flow execute_inner(const Statement& statement);
  void execute_output(const Statement& statement);
  Flow execute_for(const Statement& statement, const Value& iterable, int64_t depth0);
  std::vector<Value> loop_items(const Statement& statement, const Value& iterable);
  // Whether any iteration reached the end of the body.
  bool execute_iterations(const Statement& statement, LoopObject& loop, const Value& loop_value);
  void execute_macro(const Statement& statement);
  void execute_call_block(const Statement& statement);
  Flow execute_set_block(const Statement& statement);
  Flow execute_filter_block(const Statement& statement);
  Flow execute_with(const Statement& statement);
  Flow execute_autoescape(const Statement& statement);
  void execute_block(const Statement& statement);
  void execute_generation(const Statement& statement);
  void assign(const Expression& target, const Value& value);
  void bind_parameters(const MacroNode& node, Arguments& arguments, Scope& scope);
  void bind_special_parameters(const MacroNode& node, Arguments& arguments, size_t used, Scope& scope);
  void emit(const Text& text);
  void emit_value(const Value& value);
  Value captured(Text text);
  MacroObject& capture_macro(const MacroNode& node);

  Value evaluate(const Expression& expression);
  Value evaluate_name(const Expression& expression);
  Value evaluate_list(const Expression& expression);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_logic(const Expression& expression);
  Value evaluate_compare(const Expression& expression);
  Value evaluate_binary(const Expression& expression);
  Value evaluate_concat(const Expression& expression);
  Value evaluate_item(const Expression& expression);
  Value evaluate_call(const Expression& expression);
  Value evaluate_filter(const Expression& expression);
  Value evaluate_test(const Expression& expression);
  Value evaluate_conditional(const Expression& expression);
  Arguments evaluate_arguments(const CallParts& call);
  bool compare(Comparison comparison, const Value& a, const Value& b);

  const Template& template_;
  Runtime& runtime_;
  Scope root_;
  Scope* scope_;
  Text* output_ = nullptr;  // of the innermost capture
  Text* root_output_ = nullptr;
  std::vector<RenderedPrompt::Span>* spans_ = nullptr;
  Value filter_subject_;
  std::vector<Value> globals_;  // by name id; none where there is no such global
  NameId loop_name_, caller_name_, varargs_name_, kwargs_name_, self_name_;
  int frames_ = 0;
  int calls_ = 0;
};

// Counts nested statements, expressions and calls.
class Evaluator::Frame {
 public:
  explicit Frame(Evaluator& evaluator) : frames_(evaluator.frames_) {
    if (++frames_ > kFramesPerDepth * evaluator.runtime_.limits().max_depth) {
      fail_limit("the template recurses too deep");
    }
  }
  ~Frame() { --frames_; }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

 private:
  int& frames_;
};

}  // namespace mlxcel::jinja
