// Text to values, as flags and environment variables spell them: counts, sizes in bytes, durations, numbers,
// booleans. Every function takes the whole text or fails; nothing is guessed. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/units.h"

namespace mlxcel {

// "42", "-1".
std::optional<int64_t> parse_integer(std::string_view text);
// An integer, or with a suffix: k = 1000, K = 1024, m = 10^6, M = 2^20, g = 10^9, G = 2^30. "8k" is 8000,
// "8K" 8192.
std::optional<int64_t> parse_count(std::string_view text);
// Bytes with their unit: B, KB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (of 1024). "512MiB",
// "1.5GiB". A bare number is no size, as one cannot know what it counts.
std::optional<int64_t> parse_size(std::string_view text);
// Seconds from "250ms", "30s", "5m", "2h". A bare number is no duration.
std::optional<double> parse_duration(std::string_view text);
// A share: "50%", "12.5%"; above 0, at most 100.
std::optional<double> parse_percent(std::string_view text);
// A finite decimal number.
std::optional<double> parse_number(std::string_view text);

}  // namespace mlxcel
