#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace mlxcel {

std::string format_bytes(uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kNames.size()) {
    value /= 1024.0;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, value < 10.0 ? 2 : 1, kNames[unit]);
}

}  // namespace mlxcel
