// A parsed template: expressions and statements in arenas, names numbered.
//
// Owner: Template owns every node; nodes refer to each other without owning, so a long chain of nodes is
// freed without recursion. Threads: immutable after parsing, read by all. Invariant: no expression or block
// nests deeper than TemplateLimits::max_depth (a left-leaning chain of operators counts once: it is evaluated
// in a loop).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "chat/chat_template.h"
#include "chat/jinja/runtime.h"
#include "chat/jinja/value.h"

namespace mlxcel::jinja {

using NameId = int32_t;

enum class ExpressionKind : uint8_t {
  kConstant,
  kName,
  kNamespaceReference,  // target only: name.attribute
  kList,
  kTuple,
  kDict,         // items: key, value, key, value ...
  kConditional,  // items: test, then, otherwise (may be null)
  kOr,
  kAnd,
  kNot,
  kCompare,  // items[0] op[0] items[1] op[1] items[2] ...
  kBinary,
  kConcat,
  kNegate,
  kPlus,
  kAttribute,
  kItem,
  kSlice,  // as an item's key; items: start, stop, step (each may be null)
  kCall,
  kFilter,  // items[0]: subject, null inside a filter block or a set block
  kTest,
};

enum class Comparison : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

struct Expression;
struct CallParts {
  std::vector<Expression*> positional;
  std::vector<std::pair<std::string, Expression*>> keywords;
  Expression* more_positional = nullptr;  // *arguments
  Expression* more_keywords = nullptr;    // **arguments
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  BinaryOperator binary = BinaryOperator::kAdd;
  bool is_data = false;  // template text outside tags: never escaped
  int line = 0;
  int depth = 1;
  NameId name = -1;
  std::string text;  // attribute, filter or test name
  Value constant;
  std::vector<Expression*> items;
  std::vector<Comparison> comparisons;
  CallParts* call = nullptr;
  const BuiltinEntry* builtin = nullptr;  // nullptr: no such filter or test, an error when it is reached
};

enum class StatementKind : uint8_t {
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kAutoescape,
  kBlock,
  kBreak,
  kContinue,
  kGeneration,
  kLoad,  // extends, include, import: there is no loader, so reaching one is an error
};

struct Statement;
using Body = std::vector<Statement*>;

// A macro, or the body of a {% call %} block.
struct MacroNode {
  std::string name;
  std::vector<NameId> parameters;
  std::vector<std::string> parameter_names;
  std::vector<Expression*> defaults;  // of the last parameters
  Body body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
  bool has_caller_parameter = false;
};

struct Statement {
  StatementKind kind = StatementKind::kOutput;
  int line = 0;
  bool recursive = false;  // for
  bool scoped = false;     // block
  std::string text;        // block name
  std::vector<Expression*>
      expressions;                   // output; set: value; for: iterable, test (may be null); with: values
  std::vector<Expression*> targets;  // set, for, with
  std::vector<std::pair<Expression*, Body>> branches;  // if, elif
  Body body;                                           // for, blocks
  Body otherwise;                                      // else of if and for
  Expression* filter = nullptr;                        // filter block, set block
  MacroNode* macro = nullptr;                          // macro, call block
  NameId name = -1;                                    // macro
};

class Template {
 public:
  Body body;
  std::map<std::string, Statement*> blocks;

  Expression* new_expression() { return &expressions_.emplace_back(); }
  Statement* new_statement() { return &statements_.emplace_back(); }
  MacroNode* new_macro() { return &macros_.emplace_back(); }
  CallParts* new_call() { return &calls_.emplace_back(); }
  size_t num_nodes() const { return expressions_.size() + statements_.size(); }
  NameId intern(std::string_view name);
  const std::vector<std::string>& names() const { return names_; }
  NameId find_name(std::string_view name) const;  // -1: not used in the template

 private:
  std::deque<Expression> expressions_;
  std::deque<Statement> statements_;
  std::deque<MacroNode> macros_;
  std::deque<CallParts> calls_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, NameId> ids_;
};

// Throws a Failure: kInvalidData with the line for a syntax error, kResourceExhausted at a limit.
void parse_template(std::string_view source, const TemplateLimits& limits, Template& result);

}  // namespace mlxcel::jinja
