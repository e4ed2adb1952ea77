#include <algorithm>
#include <cmath>
#include <utility>

#include "chat/jinja/evaluator.h"

namespace mlxcel::jinja {

Value Evaluator::evaluate(const Expression& expression) {
  runtime_.step();
  if (expression.kind == ExpressionKind::kConstant) return expression.constant;
  if (expression.kind == ExpressionKind::kName) {
    runtime_.line = expression.line;
    return evaluate_name(expression);
  }
  const Frame frame(*this);
  switch (expression.kind) {
    case ExpressionKind::kList:
    case ExpressionKind::kTuple:
      return evaluate_list(expression);
    case ExpressionKind::kDict:
      return evaluate_dict(expression);
    case ExpressionKind::kConditional:
      return evaluate_conditional(expression);
    case ExpressionKind::kOr:
    case ExpressionKind::kAnd:
      return evaluate_logic(expression);
    case ExpressionKind::kNot:
      return Value::boolean(!is_truthy(evaluate(*expression.items[0])));
    case ExpressionKind::kCompare:
      return evaluate_compare(expression);
    case ExpressionKind::kBinary:
      return evaluate_binary(expression);
    case ExpressionKind::kConcat:
      return evaluate_concat(expression);
    case ExpressionKind::kNegate:
      return apply_negate(evaluate(*expression.items[0]));
    case ExpressionKind::kPlus:
      return apply_plus(evaluate(*expression.items[0]));
    case ExpressionKind::kAttribute: {
      const Value object = evaluate(*expression.items[0]);
      runtime_.line = expression.line;
      return get_attribute(runtime_, object, expression.text);
    }
    case ExpressionKind::kItem:
      return evaluate_item(expression);
    case ExpressionKind::kCall:
      return evaluate_call(expression);
    case ExpressionKind::kFilter:
      return evaluate_filter(expression);
    case ExpressionKind::kTest:
      return evaluate_test(expression);
    case ExpressionKind::kConstant:
    case ExpressionKind::kName:
    case ExpressionKind::kNamespaceReference:
    case ExpressionKind::kSlice:
      break;
  }
  MLXCEL_CHECK(false && "the parser leaves targets and slices in their own places");
  return Value();
}

Value Evaluator::evaluate_name(const Expression& expression) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    if (const Value* value = scope->find(expression.name)) return *value;
  }
  const auto name = static_cast<size_t>(expression.name);
  if (!globals_[name].is_none()) return globals_[name];
  return runtime_.undefined("'" + template_.names()[name] + "' is undefined");
}

Value Evaluator::evaluate_list(const Expression& expression) {
  std::vector<Value> items;
  items.reserve(expression.items.size());
  for (const Expression* item : expression.items) items.push_back(evaluate(*item));
  return expression.kind == ExpressionKind::kList ? runtime_.list(std::move(items))
                                                  : runtime_.tuple(std::move(items));
}

Value Evaluator::evaluate_dict(const Expression& expression) {
  DictObject dict;
  for (size_t i = 0; i + 1 < expression.items.size(); i += 2) {
    Value key = evaluate(*expression.items[i]);
    runtime_.step(container_weight(key) / 4);
    dict.set(std::move(key), evaluate(*expression.items[i + 1]));
  }
  return runtime_.dict(std::move(dict));
}

Value Evaluator::evaluate_conditional(const Expression& expression) {
  if (is_truthy(evaluate(*expression.items[0]))) return evaluate(*expression.items[1]);
  if (expression.items[2] != nullptr) return evaluate(*expression.items[2]);
  return runtime_.undefined("the inline if-expression evaluated to false and no else section was defined");
}

// A chain `a or b or c` leans left; it is walked in a loop so that its length needs no stack.
Value Evaluator::evaluate_logic(const Expression& expression) {
  std::vector<const Expression*> chain;
  const Expression* left = &expression;
  for (; left->kind == expression.kind; left = left->items[0]) chain.push_back(left);
  Value value = evaluate(*left);
  const bool stops_at = expression.kind == ExpressionKind::kOr;
  while (!chain.empty() && is_truthy(value) != stops_at) {
    value = evaluate(*chain.back()->items[1]);
    chain.pop_back();
  }
  return value;
}

Value Evaluator::evaluate_binary(const Expression& expression) {
  std::vector<const Expression*> chain;
  const Expression* left = &expression;
  for (; left->kind == ExpressionKind::kBinary; left = left->items[0]) chain.push_back(left);
  Value value = evaluate(*left);
  for (; !chain.empty(); chain.pop_back()) {
    const Value right = evaluate(*chain.back()->items[1]);
    runtime_.step();
    runtime_.line = chain.back()->line;
    value = apply_binary(runtime_, chain.back()->binary, value, right);
  }
  return value;
}

Value Evaluator::evaluate_concat(const Expression& expression) {
  std::vector<Value> values;
  values.reserve(expression.items.size());
  bool is_markup = false;
  for (const Expression* item : expression.items) {
    values.push_back(evaluate(*item));
    is_markup |= values.back().is_string() && values.back().text().is_markup();
  }
  is_markup &= runtime_.autoescape;
  Text result;
  for (const Value& value : values) {
    const Text piece = is_markup ? escape_markup(runtime_, value) : to_text(runtime_, value);
    runtime_.check_bytes(result.size() + piece.size());
    result.append(piece);
  }
  result.set_markup(is_markup);
  return runtime_.string(std::move(result));
}

bool Evaluator::compare(Comparison comparison, const Value& a, const Value& b) {
  const auto is_nan = [](const Value& v) { return v.is(Kind::kFloat) && std::isnan(v.as_double()); };
  runtime_.step();
  runtime_.step(std::min(container_weight(a), container_weight(b)) / 4);
  switch (comparison) {
    case Comparison::kEqual:
      return equal(a, b);
    case Comparison::kNotEqual:
      return !equal(a, b);
    case Comparison::kLess:
      return less(a, b);
    case Comparison::kGreater:
      return less(b, a);
    case Comparison::kLessEqual:
      return !less(b, a) && !is_nan(a) && !is_nan(b);
    case Comparison::kGreaterEqual:
      return !less(a, b) && !is_nan(a) && !is_nan(b);
    case Comparison::kIn:
      return contains(runtime_, b, a);
    case Comparison::kNotIn:
      return !contains(runtime_, b, a);
  }
  return false;
}

Value Evaluator::evaluate_compare(const Expression& expression) {
  Value left = evaluate(*expression.items[0]);
  for (size_t i = 0; i < expression.comparisons.size(); ++i) {
    Value right = evaluate(*expression.items[i + 1]);
    runtime_.line = expression.line;
    if (!compare(expression.comparisons[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::evaluate_item(const Expression& expression) {
  const Value object = evaluate(*expression.items[0]);
  const Expression& key = *expression.items[1];
  if (key.kind != ExpressionKind::kSlice) {
    const Value index = evaluate(key);
    runtime_.line = expression.line;
    return get_item(runtime_, object, index);
  }
  Value parts[3];
  for (size_t i = 0; i < 3; ++i) {
    if (key.items[i] != nullptr) parts[i] = evaluate(*key.items[i]);
  }
  runtime_.line = expression.line;
  return get_slice(runtime_, object, parts[0], parts[1], parts[2]);
}

Arguments Evaluator::evaluate_arguments(const CallParts& call) {
  Arguments arguments;
  for (const Expression* e : call.positional) arguments.positional.push_back(evaluate(*e));
  for (const auto& [key, e] : call.keywords) arguments.keywords.emplace_back(key, evaluate(*e));
  if (call.more_positional != nullptr) {
    for (Value& value : runtime_.collect(evaluate(*call.more_positional))) {
      arguments.positional.push_back(std::move(value));
    }
  }
  if (call.more_keywords == nullptr) return arguments;
  const Value more = evaluate(*call.more_keywords);
  if (!more.is(Kind::kDict)) fail("argument after ** must be a mapping");
  for (const auto& [key, value] : more.dict().items) {
    if (!key.is_string()) fail("keywords must be strings");
    for (const auto& [name, unused] : arguments.keywords) {
      if (name == key.str()) fail("got multiple values for keyword argument '" + name + "'");
    }
    arguments.keywords.emplace_back(key.str(), value);
  }
  return arguments;
}

Value Evaluator::evaluate_call(const Expression& expression) {
  const Value callee = evaluate(*expression.items[0]);
  Arguments arguments = evaluate_arguments(*expression.call);
  runtime_.line = expression.line;
  return call_value(runtime_, callee, std::move(arguments));
}

Value Evaluator::evaluate_filter(const Expression& expression) {
  const Value subject = expression.items[0] == nullptr ? filter_subject_ : evaluate(*expression.items[0]);
  const Arguments arguments = evaluate_arguments(*expression.call);
  runtime_.line = expression.line;
  if (expression.builtin == nullptr) fail("no filter named '" + expression.text + "'");
  return expression.builtin->function(runtime_, subject, arguments);
}

Value Evaluator::evaluate_test(const Expression& expression) {
  const Value subject = evaluate(*expression.items[0]);
  const Arguments arguments = evaluate_arguments(*expression.call);
  runtime_.line = expression.line;
  if (expression.builtin == nullptr) fail("no test named '" + expression.text + "'");
  return expression.builtin->function(runtime_, subject, arguments);
}

}  // namespace mlxcel::jinja
