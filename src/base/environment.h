// The one place that reads environment variables and the wall clock for the layers below options/.
// Values are read once at start-up by apps/ and passed down; nothing else calls getenv.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mlxcel {

std::optional<std::string> environment_variable(const char* name);
// 1/0/true/false/on/off/yes/no in any case; anything else is nullopt.
std::optional<bool> parse_boolean(std::string_view text);
// 64 bits from the operating system's random source: for requests that name no seed, and ids.
uint64_t random_seed();
// Seconds since 1970-01-01 UTC.
int64_t unix_time();
// Seconds on a clock that never goes back.
double monotonic_seconds();

}  // namespace mlxcel
