// The tables of filters; text filters in filters_text.cc, filters over sequences in filters_sequence.cc.
// Constant tables; any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "chat/jinja/runtime.h"

namespace mlxcel::jinja {

std::span<const BuiltinEntry> text_filters();
std::span<const BuiltinEntry> sequence_filters();

// A dotted attribute as map(attribute="a.b.0") and its kin take it: parts that are numbers index.
std::vector<Value> attribute_parts(Runtime& runtime, const Value& attribute);
Value follow(Runtime& runtime, Value item, const std::vector<Value>& parts, const Value* fallback = nullptr);
// Lower case for strings, anything else as it is.
Value ignore_case(Runtime& runtime, const Value& value);

}  // namespace mlxcel::jinja
