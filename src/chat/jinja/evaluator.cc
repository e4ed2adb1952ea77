#include "chat/jinja/evaluator.h"

#include <algorithm>
#include <optional>

namespace mlxcel::jinja {

const Value* Scope::find(NameId name) const {
  for (const auto& [key, value] : variables) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Scope::set(NameId name, Value value) {
  for (auto& [key, current] : variables) {
    if (key != name) continue;
    current = std::move(value);
    return;
  }
  variables.emplace_back(name, std::move(value));
}

class Evaluator::Capture {
 public:
  explicit Capture(Evaluator& evaluator) : evaluator_(evaluator), outer_(evaluator.output_) {
    evaluator_.output_ = &text_;
  }
  ~Capture() { evaluator_.output_ = outer_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  Text take() { return std::move(text_); }

 private:
  Evaluator& evaluator_;
  Text* outer_;
  Text text_;
};

class Evaluator::Inner {
 public:
  Inner(Evaluator& evaluator, Scope* parent)
      : evaluator_(evaluator), outer_(evaluator.scope_), scope_(std::make_unique<Scope>(parent)) {
    evaluator_.scope_ = scope_.get();
  }
  ~Inner() {
    evaluator_.scope_ = outer_;
    if (scope_->is_captured) evaluator_.runtime_.adopt(std::move(scope_));
  }
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;
  Scope& scope() { return *scope_; }
  // A fresh scope for the next iteration; the old one stays when a macro refers to it.
  void renew() {
    if (!scope_->is_captured) {
      scope_->variables.clear();
      return;
    }
    Scope* parent = scope_->parent;
    evaluator_.runtime_.adopt(std::move(scope_));
    scope_ = std::make_unique<Scope>(parent);
    evaluator_.scope_ = scope_.get();
  }

 private:
  Evaluator& evaluator_;
  Scope* outer_;
  std::unique_ptr<Scope> scope_;
};

Evaluator::Evaluator(const Template& source, Runtime& runtime)
    : template_(source),
      runtime_(runtime),
      root_(nullptr),
      scope_(&root_),
      globals_(source.names().size()),
      loop_name_(source.find_name("loop")),
      caller_name_(source.find_name("caller")),
      varargs_name_(source.find_name("varargs")),
      kwargs_name_(source.find_name("kwargs")),
      self_name_(source.find_name("self")) {
  runtime_.calls = this;
  for (const FunctionObject& function : global_functions()) {
    const NameId name = source.find_name(function.name);
    if (name < 0) continue;
    globals_[static_cast<size_t>(name)] =
        Value::object(Kind::kFunction, std::make_shared<FunctionObject>(function));
  }
  if (self_name_ >= 0) root_.set(self_name_, Value::object(Kind::kBlocks, nullptr));
}

void Evaluator::run(Text& output, std::vector<RenderedPrompt::Span>& spans) {
  root_output_ = output_ = &output;
  spans_ = &spans;
  execute(template_.body);
}

void Evaluator::emit(const Text& text) {
  if (text.empty()) return;
  runtime_.step_bytes(text.size());
  if (output_ == root_output_) {
    if (output_->size() + text.size() > runtime_.limits().max_output_bytes) {
      fail_limit("the rendered prompt is too long");
    }
  } else {
    runtime_.check_bytes(output_->size() + text.size());
  }
  output_->append(text);
}

void Evaluator::emit_value(const Value& value) {
  if (runtime_.autoescape) return emit(escape_markup(runtime_, value));
  if (value.is_string()) return emit(value.text());
  if (!value.is_undefined()) emit(to_text(runtime_, value));
}

Value Evaluator::captured(Text text) {
  text.set_markup(runtime_.autoescape);
  return runtime_.string(std::move(text));
}

Evaluator::Flow Evaluator::execute(const Body& body) {
  for (const Statement* statement : body) {
    const Flow flow = execute(*statement);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::execute(const Statement& statement) {
  const Frame frame(*this);
  runtime_.step();
  runtime_.line = statement.line;
  switch (statement.kind) {
    case StatementKind::kOutput:
      execute_output(statement);
      return Flow::kNormal;
    case StatementKind::kIf:
      return execute_if(statement);
    case StatementKind::kFor: {
      const Value iterable = evaluate(*statement.expressions[0]);
      return execute_for(statement, iterable, 0);
    }
    case StatementKind::kSet:
      assign(*statement.targets[0], evaluate(*statement.expressions[0]));
      return Flow::kNormal;
    case StatementKind::kMacro:
      execute_macro(statement);
      return Flow::kNormal;
    case StatementKind::kCallBlock:
      execute_call_block(statement);
      return Flow::kNormal;
    case StatementKind::kBlock:
      execute_block(statement);
      return Flow::kNormal;
    case StatementKind::kGeneration:
      execute_generation(statement);
      return Flow::kNormal;
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
    default:
      return execute_inner(statement);
  }
}

Evaluator::Flow Evaluator::execute_inner(const Statement& statement) {
  switch (statement.kind) {
    case StatementKind::kSetBlock:
      return execute_set_block(statement);
    case StatementKind::kFilterBlock:
      return execute_filter_block(statement);
    case StatementKind::kWith:
      return execute_with(statement);
    case StatementKind::kAutoescape:
      return execute_autoescape(statement);
    default:
      evaluate(*statement.expressions[0]);
      fail("{% " + statement.text + " %} is not possible: a chat template has no other templates to load");
  }
}

void Evaluator::execute_output(const Statement& statement) {
  for (const Expression* expression : statement.expressions) {
    if (expression->is_data) {
      emit(expression->constant.text());
    } else {
      emit_value(evaluate(*expression));
    }
  }
}

Evaluator::Flow Evaluator::execute_if(const Statement& statement) {
  for (const auto& [test, body] : statement.branches) {
    if (is_truthy(evaluate(*test))) return execute(body);
  }
  return execute(statement.otherwise);
}

std::vector<Value> Evaluator::loop_items(const Statement& statement, const Value& iterable) {
  std::vector<Value> items = runtime_.collect(iterable);
  const Expression* test = statement.expressions[1];
  if (test == nullptr) return items;
  std::vector<Value> kept;
  Inner inner(*this, scope_);
  for (const Value& item : items) {
    inner.renew();
    assign(*statement.targets[0], item);
    if (is_truthy(evaluate(*test))) kept.push_back(item);
  }
  return kept;
}

Evaluator::Flow Evaluator::execute_for(const Statement& statement, const Value& iterable, int64_t depth0) {
  auto loop = std::make_shared<LoopObject>();
  loop->items = loop_items(statement, iterable);
  loop->length = static_cast<int64_t>(loop->items.size());
  loop->charge = runtime_.charge(loop->items.size() * sizeof(Value));
  loop->depth0 = depth0;
  loop->node = &statement;
  loop->scope = scope_;
  loop->last_changed = runtime_.undefined("loop.changed was not called");
  const bool completed = execute_iterations(statement, *loop, Value::object(Kind::kLoop, loop));
  // The loop variable may outlive its loop in a namespace; it must not keep values, which may refer to loops
  // in turn.
  loop->is_active = false;
  loop->items.clear();
  loop->last_changed = Value::none();
  if (completed) return Flow::kNormal;
  // Jinja runs the else unless an iteration reached the end of the body: a break or continue does not count.
  const Inner inner(*this, scope_);
  return execute(statement.otherwise);  // a break here leaves the loop around this one
}

bool Evaluator::execute_iterations(const Statement& statement, LoopObject& loop, const Value& loop_value) {
  Inner inner(*this, scope_);
  bool completed = false;
  for (size_t i = 0; i < loop.items.size(); ++i) {
    runtime_.step();
    inner.renew();
    loop.index0 = static_cast<int64_t>(i);
    if (loop_name_ >= 0) scope_->set(loop_name_, loop_value);
    assign(*statement.targets[0], loop.items[i]);
    const Flow flow = execute(statement.body);
    if (flow == Flow::kBreak) return completed;
    completed |= flow == Flow::kNormal;
  }
  return completed;
}

Value Evaluator::call_loop(LoopObject& loop, const Value& items) {
  if (!loop.node->recursive) fail("the loop is not marked 'recursive'");
  if (!loop.is_active) fail("the loop has ended");
  const Frame frame(*this);
  if (++calls_ > runtime_.limits().max_depth) fail_limit("the template's loops recurse too deep");
  Capture capture(*this);
  Scope* outer = std::exchange(scope_, loop.scope);
  execute_for(*loop.node, items, loop.depth0 + 1);
  scope_ = outer;
  --calls_;
  return captured(capture.take());
}

void Evaluator::assign(const Expression& target, const Value& value) {
  if (target.kind == ExpressionKind::kName) {
    if (target.name == loop_name_ && loop_name_ >= 0 && scope_ != &root_) {
      fail("cannot assign to the special loop variable");
    }
    scope_->set(target.name, value);
    return;
  }
  if (target.kind == ExpressionKind::kNamespaceReference) {
    const Value object = evaluate_name(target);
    if (!object.is(Kind::kNamespace)) fail("cannot assign attribute on non-namespace object");
    if (target.text.starts_with('_')) {
      fail("chat templates cannot store underscore-prefixed attributes on a namespace, but got '" +
           target.text + "'");
    }
    object.as<NamespaceObject>().attributes.set(runtime_.string(target.text), value);
    return;
  }
  const std::vector<Value> items = runtime_.collect(value);
  if (items.size() != target.items.size()) {
    fail((items.size() < target.items.size() ? "not enough values to unpack (expected "
                                             : "too many values to unpack (expected ") +
         std::to_string(target.items.size()) + ")");
  }
  for (size_t i = 0; i < items.size(); ++i) assign(*target.items[i], items[i]);
}

MacroObject& Evaluator::capture_macro(const MacroNode& node) {
  for (Scope* scope = scope_; scope != nullptr && !scope->is_captured; scope = scope->parent)
    scope->is_captured = true;
  return runtime_.keep(std::make_unique<MacroObject>(MacroObject{&node, scope_}));
}

void Evaluator::execute_macro(const Statement& statement) {
  scope_->set(statement.name, Value::arena(Kind::kMacro, &capture_macro(*statement.macro)));
}

void Evaluator::execute_call_block(const Statement& statement) {
  const Expression& call = *statement.expressions[0];
  const Value callee = evaluate(*call.items[0]);
  Arguments arguments = evaluate_arguments(*call.call);
  arguments.keywords.emplace_back("caller", Value::arena(Kind::kMacro, &capture_macro(*statement.macro)));
  runtime_.line = statement.line;
  emit_value(call_value(runtime_, callee, std::move(arguments)));
}

Value Evaluator::call_macro(MacroObject& macro, Arguments arguments) {
  const Frame frame(*this);
  if (++calls_ > runtime_.limits().max_depth) fail_limit("the template's macros recurse too deep");
  const int line = runtime_.line;
  Capture capture(*this);
  {
    Scope* outer = std::exchange(scope_, macro.scope);
    {
      Inner inner(*this, macro.scope);
      bind_parameters(*macro.node, arguments, inner.scope());
      execute(macro.node->body);
    }
    scope_ = outer;
  }
  --calls_;
  runtime_.line = line;
  return captured(capture.take());
}

void Evaluator::bind_parameters(const MacroNode& node, Arguments& arguments, Scope& scope) {
  const size_t count = node.parameters.size();
  const size_t given = std::min(count, arguments.positional.size());
  std::vector<std::optional<Value>> values(count);
  for (size_t i = 0; i < given; ++i) values[i] = arguments.positional[i];
  for (size_t i = given; i < count; ++i) {
    auto& keywords = arguments.keywords;
    const auto it = std::find_if(keywords.begin(), keywords.end(),
                                 [&](const auto& entry) { return entry.first == node.parameter_names[i]; });
    if (it == keywords.end()) continue;
    values[i] = it->second;
    keywords.erase(it);
  }
  bind_special_parameters(node, arguments, given, scope);
  const size_t first_default = count - node.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    if (values[i].has_value()) {
      scope.set(node.parameters[i], *values[i]);
    } else if (i >= first_default) {
      scope.set(node.parameters[i], evaluate(*node.defaults[i - first_default]));
    } else {
      scope.set(node.parameters[i],
                runtime_.undefined("parameter '" + node.parameter_names[i] + "' was not provided"));
    }
  }
}

void Evaluator::bind_special_parameters(const MacroNode& node, Arguments& arguments, size_t used,
                                        Scope& scope) {
  auto& keywords = arguments.keywords;
  if (node.uses_caller && !node.has_caller_parameter) {
    const auto it = std::find_if(keywords.begin(), keywords.end(),
                                 [](const auto& entry) { return entry.first == "caller"; });
    scope.set(caller_name_, it == keywords.end() ? runtime_.undefined("no caller defined") : it->second);
    if (it != keywords.end()) keywords.erase(it);
  }
  if (node.uses_kwargs) {
    DictObject rest;
    for (auto& [key, value] : keywords) rest.set(runtime_.string(key), value);
    scope.set(kwargs_name_, runtime_.dict(std::move(rest)));
  } else if (!keywords.empty()) {
    fail("macro '" + node.name + "' takes no keyword argument '" + keywords.front().first + "'");
  }
  if (node.uses_varargs) {
    std::vector<Value> rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(used),
                            arguments.positional.end());
    scope.set(varargs_name_, runtime_.tuple(std::move(rest)));
  } else if (arguments.positional.size() > used) {
    fail("macro '" + node.name + "' takes not more than " + std::to_string(node.parameters.size()) +
         " argument(s)");
  }
}

Evaluator::Flow Evaluator::execute_set_block(const Statement& statement) {
  Capture capture(*this);
  Flow flow = Flow::kNormal;
  {
    const Inner inner(*this, scope_);
    flow = execute(statement.body);
  }
  if (flow != Flow::kNormal) return flow;
  Value value = captured(capture.take());
  if (statement.filter != nullptr) {
    const Value outer = std::exchange(filter_subject_, value);
    value = evaluate(*statement.filter);
    filter_subject_ = outer;
  }
  assign(*statement.targets[0], value);
  return flow;
}

Evaluator::Flow Evaluator::execute_filter_block(const Statement& statement) {
  Flow flow = Flow::kNormal;
  Value value;
  {
    Capture capture(*this);
    const Inner inner(*this, scope_);
    flow = execute(statement.body);
    if (flow != Flow::kNormal) return flow;
    const Value outer = std::exchange(filter_subject_, captured(capture.take()));
    value = evaluate(*statement.filter);
    filter_subject_ = outer;
  }
  emit_value(value);
  return flow;
}

Evaluator::Flow Evaluator::execute_with(const Statement& statement) {
  std::vector<Value> values;
  for (const Expression* expression : statement.expressions) values.push_back(evaluate(*expression));
  const Inner inner(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(*statement.targets[i], values[i]);
  return execute(statement.body);
}

Evaluator::Flow Evaluator::execute_autoescape(const Statement& statement) {
  const bool outer = std::exchange(runtime_.autoescape, is_truthy(evaluate(*statement.expressions[0])));
  const Inner inner(*this, scope_);
  const Flow flow = execute(statement.body);
  runtime_.autoescape = outer;
  return flow;
}

void Evaluator::execute_block(const Statement& statement) {
  if (++calls_ > runtime_.limits().max_depth) fail_limit("the template's blocks recurse too deep");
  {
    // A block sees the template's own variables; those of a loop around it only when it is "scoped".
    const Inner inner(*this, statement.scoped ? scope_ : &root_);
    execute(statement.body);
  }
  --calls_;
}

Value Evaluator::call_block(const std::string& name) {
  const Frame frame(*this);
  Capture capture(*this);
  execute_block(*template_.blocks.at(name));
  return captured(capture.take());
}

void Evaluator::execute_generation(const Statement& statement) {
  // Inside a macro or a captured block the place in the prompt is not known yet; transformers then counts
  // from what is rendered so far, and so do we.
  const size_t captured_before = output_->size();
  const size_t begin = root_output_->size();
  {
    const Inner inner(*this, scope_);
    execute(statement.body);
  }
  spans_->push_back({begin, begin + (output_->size() - captured_before)});
}

}  // namespace mlxcel::jinja
