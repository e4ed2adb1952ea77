// Every request field this server knows, and what it does with it: one row each. A name that is in no row is
// ignored, counted and logged at debug level (OpenAI's clients grow fields every quarter), or refused with
// --strict-fields.
//
// Constant data; any thread.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/json.h"
#include "serve/api/api_error.h"

namespace mlxcel {

enum class FieldTreatment {
  kHonoured,     // read and obeyed
  kInert,        // accepted, and by its nature changes nothing here (labels, billing, privacy switches)
  kNeutralOnly,  // known from other servers and not offered: refused unless it has the value that means "off"
};
struct FieldRow {
  std::string_view name;
  bool chat = false, completion = false;
  FieldTreatment treatment = FieldTreatment::kHonoured;
  std::string_view
      neutral;  // kNeutralOnly: JSON text of the accepted value besides null; several separated by '|'
  std::string_view help;  // one line for /openapi.json and the documentation; kNeutralOnly: why it is refused
};
std::span<const FieldRow> field_table();

enum class Route { kChat, kCompletion };
// The first field that must be refused (501 for kNeutralOnly, 400 for an unknown name when strict). Counts
// unknown names.
std::optional<ApiError> check_field_names(const JsonValue& body, Route route, bool strict, int& num_unknown);

}  // namespace mlxcel
