#include <algorithm>
#include <array>
#include <unordered_map>

#include "chat/jinja/filters.h"
#include "chat/jinja/text_operations.h"
#include "chat/jinja/unicode.h"

namespace mlxcel::jinja {

std::vector<Value> attribute_parts(Runtime& runtime, const Value& attribute) {
  if (attribute.is_none()) return {};
  if (!attribute.is_string()) return {attribute};
  std::vector<Value> parts;
  for (Text& part : split(attribute.text(), ".", -1)) {
    int64_t index = 0;
    const bool is_number = !part.empty() && part.bytes().find_first_not_of("0123456789") == std::string::npos;
    if (is_number && parse_python_integer(part.bytes(), 10, index)) {
      parts.push_back(Value::integer(index));
    } else {
      parts.push_back(runtime.string(std::move(part)));
    }
  }
  return parts;
}

Value follow(Runtime& runtime, Value item, const std::vector<Value>& parts, const Value* fallback) {
  for (const Value& part : parts) {
    runtime.step();
    item = get_item(runtime, item, part);
    if (fallback != nullptr && !fallback->is_none() && item.is_undefined()) item = *fallback;
  }
  return item;
}

Value ignore_case(Runtime& runtime, const Value& value) {
  if (!value.is_string()) return value;
  runtime.step_bytes(value.text().size());
  return runtime.string(derived_like(to_lower(value.str()), value.text()));
}

namespace {

// What sort, unique, min, max and groupby compare: an attribute of the item, without case unless asked.
class Key {
 public:
  Key(Runtime& runtime, const Value* attribute, bool case_sensitive)
      : runtime_(runtime), case_sensitive_(case_sensitive) {
    if (attribute != nullptr) parts_ = attribute_parts(runtime, *attribute);
  }
  Value operator()(const Value& item, const Value* fallback = nullptr) const {
    const Value value = follow(runtime_, item, parts_, fallback);
    return case_sensitive_ ? value : ignore_case(runtime_, value);
  }

 private:
  Runtime& runtime_;
  std::vector<Value> parts_;
  bool case_sensitive_;
};

const Value* optional_value(const Parameters& p, size_t i) { return p.set(i) ? &p[i] : nullptr; }

// What a generator over `subject` with these arguments keeps.
std::vector<Value> held_by(const Value& subject, const Arguments& arguments) {
  std::vector<Value> held = arguments.positional;
  for (const auto& [key, value] : arguments.keywords) held.push_back(value);
  held.push_back(subject);
  return held;
}

Value length_filter(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("length", arguments, {});
  return Value::integer(runtime.length(subject));
}

Value list_filter(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("list", arguments, {});
  return runtime.list(runtime.collect(subject));
}

Value default_filter(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("default", arguments, {"default_value", "boolean"});
  if (!subject.is_undefined() && !(p.flag(1, false) && !is_truthy(subject))) return subject;
  return p.given(0) ? p[0] : runtime.string(std::string());
}

Value items_filter(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("items", arguments, {});
  if (!subject.is_undefined() && !subject.is(Kind::kDict)) fail("can only get item pairs from a mapping");
  return runtime.generator("generator", {subject}, [&runtime, subject] {
    std::vector<Value> pairs;
    if (subject.is_undefined()) return pairs;
    for (const auto& [key, value] : subject.dict().items) pairs.push_back(runtime.tuple({key, value}));
    return pairs;
  });
}

Value attr_filter(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("attr", arguments, {"name"}, 1);
  if (!p[0].is_string()) fail("attr: the attribute name must be a string");
  Value result;
  if (find_attribute(runtime, subject, p[0].str(), result)) return result;
  return runtime.undefined("object has no attribute " + string_repr(p[0].str()));
}

Value first(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("first", arguments, {});
  std::vector<Value> items = runtime.collect(subject);
  if (items.empty()) return runtime.undefined("no first item, sequence was empty");
  if (subject.is(Kind::kGenerator)) {  // only the first is consumed
    auto& generator = subject.as<GeneratorObject>();
    generator.items.assign(items.begin() + 1, items.end());
    generator.position = 0;
  }
  return items.front();
}

Value last(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("last", arguments, {});
  if (subject.is(Kind::kGenerator)) fail("'generator' object is not reversible");
  const std::vector<Value> items = runtime.collect(subject);
  return items.empty() ? runtime.undefined("no last item, sequence was empty") : items.back();
}

Value random_filter(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("random", arguments, {});
  if (runtime.length(subject) == 0) return runtime.undefined("no random item, sequence was empty");
  const std::vector<Value> items = runtime.collect(subject);
  runtime.random_state =
      runtime.random_state * 6364136223846793005ULL + 1442695040888963407ULL;  // Knuth's MMIX
  return items[static_cast<size_t>((runtime.random_state >> 33) % items.size())];
}

Value join_filter(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("join", arguments, {"d", "attribute"});
  const Text separator = p.given(0) ? to_text(runtime, p[0]) : Text();
  const std::vector<Value> parts = p.set(1) ? attribute_parts(runtime, p[1]) : std::vector<Value>();
  Text result;
  bool is_first = true;
  for (const Value& item : runtime.collect(subject)) {
    const Value value = follow(runtime, item, parts);
    const Text piece = runtime.autoescape ? escape_markup(runtime, value) : to_text(runtime, value);
    runtime.check_bytes(result.size() + separator.size() + piece.size());
    if (!is_first) result.append(separator);
    is_first = false;
    result.append(piece);
  }
  result.set_markup(runtime.autoescape);
  return runtime.string(std::move(result));
}

Value reverse(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("reverse", arguments, {});
  if (subject.is_string()) {
    return get_slice(runtime, subject, Value::none(), Value::none(), Value::integer(-1));
  }
  std::vector<Value> items = runtime.collect(subject);
  std::reverse(items.begin(), items.end());
  if (subject.is(Kind::kGenerator)) return runtime.list(std::move(items));
  return runtime.generator(std::string(type_name(subject)) + "_reverseiterator", {subject},
                           [items = std::move(items)] { return items; });
}

// Sorts (keys, item) pairs stably; a reverse sort keeps the order of equal items too.
using Keyed = std::pair<std::vector<Value>, Value>;
void sort_keyed(Runtime& runtime, std::vector<Keyed>& rows, bool reverse) {
  const auto before = [&](const Keyed& a, const Keyed& b) {
    runtime.step();
    for (size_t i = 0; i < a.first.size(); ++i) {
      runtime.step(std::min(container_weight(a.first[i]), container_weight(b.first[i])) / 4);
      if (!equal(a.first[i], b.first[i])) return less(a.first[i], b.first[i]);
    }
    return false;
  };
  if (reverse) std::reverse(rows.begin(), rows.end());
  std::stable_sort(rows.begin(), rows.end(), before);
  if (reverse) std::reverse(rows.begin(), rows.end());
}

Value sort_filter(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<Key> keys;
  if (p.set(2) && p[2].is_string()) {
    for (Text& attribute : split(p[2].text(), ",", -1)) {
      const Value name = runtime.string(std::move(attribute));
      keys.emplace_back(runtime, &name, p.flag(1, false));
    }
  } else {
    keys.emplace_back(runtime, optional_value(p, 2), p.flag(1, false));
  }
  std::vector<Keyed> rows;
  for (Value& item : runtime.collect(subject)) {
    std::vector<Value> values;
    for (const Key& key : keys) values.push_back(key(item));
    rows.emplace_back(std::move(values), std::move(item));
  }
  sort_keyed(runtime, rows, p.flag(0, false));
  std::vector<Value> items;
  for (Keyed& row : rows) items.push_back(std::move(row.second));
  return runtime.list(std::move(items));
}

Value dictsort(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (subject.is_undefined()) fail_undefined(subject);
  if (!subject.is(Kind::kDict)) fail("dictsort needs a mapping");
  const std::string by = p.given(1) && p[1].is_string() ? p[1].str() : "key";
  if (by != "key" && by != "value") fail("you can only sort by either \"key\" or \"value\"");
  const Key key(runtime, nullptr, p.flag(0, false));
  std::vector<Keyed> rows;
  for (const auto& [k, v] : subject.dict().items) {
    rows.emplace_back(std::vector<Value>{key(by == "key" ? k : v)}, runtime.tuple({k, v}));
  }
  sort_keyed(runtime, rows, p.flag(2, false));
  std::vector<Value> items;
  for (Keyed& row : rows) items.push_back(std::move(row.second));
  return runtime.list(std::move(items));
}

Value unique(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("unique", arguments, {"case_sensitive", "attribute"});
  const Key key(runtime, optional_value(p, 1), p.flag(0, false));
  return runtime.generator("generator", held_by(subject, arguments), [&runtime, subject, key] {
    DictObject seen;
    std::vector<Value> kept;
    for (const Value& item : runtime.collect(subject)) {
      const Value k = key(item);
      runtime.step(1 + container_weight(k) / 4);
      const size_t before = seen.items.size();
      seen.set(k, Value::none());
      if (seen.items.size() > before) kept.push_back(item);
    }
    return kept;
  });
}

template <bool is_max>
Value extreme(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p(is_max ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const Key key(runtime, optional_value(p, 1), p.flag(0, false));
  const std::vector<Value> items = runtime.collect(subject);
  if (items.empty()) return runtime.undefined("no aggregated item, sequence was empty");
  Value best = items.front(), best_key = key(best);
  for (size_t i = 1; i < items.size(); ++i) {
    Value k = key(items[i]);
    runtime.step(1 + std::min(container_weight(k), container_weight(best_key)) / 4);
    if (is_max ? less(best_key, k) : less(k, best_key)) {
      best = items[i];
      best_key = std::move(k);
    }
  }
  return best;
}

Value sum(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("sum", arguments, {"attribute", "start"});
  const std::vector<Value> parts = p.set(0) ? attribute_parts(runtime, p[0]) : std::vector<Value>();
  Value total = p.given(1) ? p[1] : Value::integer(0);
  if (total.is_string()) fail("sum() can't sum strings");
  for (const Value& item : runtime.collect(subject)) {
    runtime.step();
    total = apply_binary(runtime, BinaryOperator::kAdd, total, follow(runtime, item, parts));
  }
  return total;
}

Value batch(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t size = p.integer(0, 1);
  const Value fill = p.given(1) ? p[1] : Value::none();
  return runtime.generator("generator", {subject, fill}, [&runtime, subject, size, fill] {
    std::vector<Value> batches, current;
    for (const Value& item : runtime.collect(subject)) {
      if (static_cast<int64_t>(current.size()) == size) {
        batches.push_back(runtime.list(std::move(current)));
        current.clear();
      }
      current.push_back(item);
    }
    if (current.empty()) return batches;
    if (!fill.is_none() && size > static_cast<int64_t>(current.size())) {
      runtime.check_items(static_cast<size_t>(size));
      current.resize(static_cast<size_t>(size), fill);
    }
    batches.push_back(runtime.list(std::move(current)));
    return batches;
  });
}

Value slice(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("slice", arguments, {"slices", "fill_with"}, 1);
  const int64_t slices = p.integer(0, 1);
  const Value fill = p.given(1) ? p[1] : Value::none();
  return runtime.generator("generator", {subject, fill}, [&runtime, subject, slices, fill] {
    const std::vector<Value> items = runtime.collect(subject);
    if (slices == 0) fail("integer division or modulo by zero");
    std::vector<Value> result;
    if (slices < 0) return result;
    runtime.check_items(static_cast<size_t>(slices));
    const int64_t each = static_cast<int64_t>(items.size()) / slices,
                  extra = static_cast<int64_t>(items.size()) % slices;
    int64_t begin = 0;
    for (int64_t i = 0; i < slices; ++i) {
      runtime.step();
      const int64_t end = begin + each + (i < extra ? 1 : 0);
      std::vector<Value> part(items.begin() + begin, items.begin() + end);
      if (!fill.is_none() && i >= extra) part.push_back(fill);
      result.push_back(runtime.list(std::move(part)));
      begin = end;
    }
    return result;
  });
}

Value groupby(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = p.flag(2, false);
  const Key key(runtime, &p[0], case_sensitive), exact(runtime, &p[0], true);
  const Value* fallback = optional_value(p, 1);
  std::vector<Keyed> rows;
  for (Value& item : runtime.collect(subject)) {
    std::vector<Value> keys = {key(item, fallback)};
    rows.emplace_back(std::move(keys), std::move(item));
  }
  sort_keyed(runtime, rows, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < rows.size();) {
    std::vector<Value> members;
    size_t end = begin;
    while (end < rows.size() && equal(rows[end].first[0], rows[begin].first[0]))
      members.push_back(rows[end++].second);
    // The label is that of the group's first item, in its own case.
    const Value label = case_sensitive ? rows[begin].first[0] : exact(members.front(), fallback);
    Value group = runtime.tuple({label, runtime.list(std::move(members))});
    group.as<SequenceObject>().is_group = true;
    groups.push_back(std::move(group));
    begin = end;
  }
  return runtime.list(std::move(groups));
}

// The rest of an argument list, after the filter's or test's name.
Arguments rest_of(const Arguments& arguments, size_t skipped) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(skipped),
                         arguments.positional.end());
  rest.keywords = arguments.keywords;
  return rest;
}

Value map_attribute(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters p("map", arguments, {"attribute", "default"});
  const std::vector<Value> parts = attribute_parts(runtime, p[0]);
  const Value fallback = p.given(1) ? p[1] : Value::none();
  return runtime.generator("generator", held_by(subject, arguments), [&runtime, subject, parts, fallback] {
    std::vector<Value> items = is_truthy(subject) ? runtime.collect(subject) : std::vector<Value>();
    for (Value& item : items) item = follow(runtime, item, parts, &fallback);
    return items;
  });
}

Value map_filter(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const bool by_attribute =
      arguments.positional.empty() && std::any_of(arguments.keywords.begin(), arguments.keywords.end(),
                                                  [](const auto& k) { return k.first == "attribute"; });
  if (by_attribute) return map_attribute(runtime, subject, arguments);
  if (arguments.positional.empty()) fail("map requires a filter argument");
  const Value name = arguments.positional[0];
  return runtime.generator(
      "generator", held_by(subject, arguments), [&runtime, subject, name, rest = rest_of(arguments, 1)] {
        std::vector<Value> items = is_truthy(subject) ? runtime.collect(subject) : std::vector<Value>();
        if (items.empty()) return items;
        const BuiltinEntry* filter = name.is_string() ? find_filter(name.str()) : nullptr;
        if (filter == nullptr) fail("no filter named " + to_repr(runtime, name).bytes());
        for (Value& item : items) {
          runtime.step();
          item = filter->function(runtime, item, rest);
        }
        return items;
      });
}

template <bool by_attribute, bool is_reject>
Value select(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const size_t offset = by_attribute ? 1 : 0;
  if (by_attribute && arguments.positional.empty()) fail("missing parameter for attribute name");
  const std::vector<Value> parts =
      by_attribute ? attribute_parts(runtime, arguments.positional[0]) : std::vector<Value>();
  const bool has_test = arguments.positional.size() > offset;
  const Value name = has_test ? arguments.positional[offset] : Value::none();
  return runtime.generator(
      "generator", held_by(subject, arguments),
      [&runtime, subject, parts, has_test, name, rest = rest_of(arguments, offset + (has_test ? 1 : 0))] {
        std::vector<Value> kept;
        if (!is_truthy(subject)) return kept;
        const BuiltinEntry* test = has_test && name.is_string() ? find_test(name.str()) : nullptr;
        for (const Value& item : runtime.collect(subject)) {
          runtime.step();
          if (has_test && test == nullptr) fail("no test named " + to_repr(runtime, name).bytes());
          const Value value = follow(runtime, item, parts);
          const bool passes = is_truthy(test != nullptr ? test->function(runtime, value, rest) : value);
          if (passes != is_reject) kept.push_back(item);
        }
        return kept;
      });
}

constexpr std::array<BuiltinEntry, 26> kFilters = {{
    {"attr", attr_filter},
    {"batch", batch},
    {"count", length_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dictsort},
    {"first", first},
    {"groupby", groupby},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last},
    {"length", length_filter},
    {"list", list_filter},
    {"map", map_filter},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"random", random_filter},
    {"reject", select<false, true>},
    {"rejectattr", select<true, true>},
    {"reverse", reverse},
    {"select", select<false, false>},
    {"selectattr", select<true, false>},
    {"slice", slice},
    {"sort", sort_filter},
    {"sum", sum},
    {"unique", unique},
}};

}  // namespace

std::span<const BuiltinEntry> sequence_filters() { return kFilters; }

const BuiltinEntry* find_filter(std::string_view name) {
  for (const std::span<const BuiltinEntry> table : {text_filters(), sequence_filters()}) {
    for (const BuiltinEntry& entry : table) {
      if (entry.name == name) return &entry;
    }
  }
  return nullptr;
}

}  // namespace mlxcel::jinja
