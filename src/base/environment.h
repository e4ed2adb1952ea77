// The one place that reads environment variables and the wall clock for the layers below options/.
// Values are read once at start-up by apps/ and passed down; nothing else calls getenv.
#pragma once

#include <optional>
#include <string>

namespace mlxcel {

std::optional<std::string> environment_variable(const char* name);
// 1/0/true/false/on/off/yes/no in any case; anything else is nullopt.
std::optional<bool> parse_boolean(std::string_view text);
// Seconds on a clock that never goes back.
double monotonic_seconds();

}  // namespace mlxcel
