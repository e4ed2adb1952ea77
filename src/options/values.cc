#include "options/values.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

namespace mlxcel {
namespace {

// The number at the start of `text` and what follows it.
std::optional<std::pair<double, std::string_view>> split_number(std::string_view text) {
  double value = 0.0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(value)) return std::nullopt;
  return std::pair{value, text.substr(static_cast<size_t>(end - text.data()))};
}

struct Unit {
  std::string_view name;
  double factor;
};
constexpr double kKilo = 1000.0, kKibi = 1024.0;
constexpr std::array<Unit, 9> kSizeUnits = {{{"B", 1.0},
                                             {"KB", kKilo},
                                             {"MB", kKilo* kKilo},
                                             {"GB", kKilo* kKilo* kKilo},
                                             {"TB", kKilo* kKilo* kKilo* kKilo},
                                             {"KiB", kKibi},
                                             {"MiB", kKibi* kKibi},
                                             {"GiB", kKibi* kKibi* kKibi},
                                             {"TiB", kKibi* kKibi* kKibi* kKibi}}};
constexpr std::array<Unit, 4> kTimeUnits = {{{"ms", 1e-3}, {"s", 1.0}, {"m", 60.0}, {"h", 3600.0}}};
constexpr std::array<Unit, 7> kCountUnits = {
    {{"", 1.0}, {"k", 1e3}, {"K", 1024.0}, {"m", 1e6}, {"M", 1048576.0}, {"g", 1e9}, {"G", 1073741824.0}}};

template <size_t N>
std::optional<double> factor_of(const std::array<Unit, N>& units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return unit.factor;
  }
  return std::nullopt;
}

// 2^53: every integer up to it is exact in a double.
constexpr double kLargestExact = 9007199254740992.0;

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_count(std::string_view text) {
  if (const auto plain = parse_integer(text)) return plain;
  const auto parts = split_number(text);
  if (!parts) return std::nullopt;
  const auto factor = factor_of(kCountUnits, parts->second);
  if (!factor || *factor == 1.0) return std::nullopt;
  const double value = parts->first * *factor;
  if (value != std::floor(value) || std::fabs(value) > kLargestExact) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::optional<int64_t> parse_size(std::string_view text) {
  const auto parts = split_number(text);
  if (!parts || parts->first < 0.0) return std::nullopt;
  const auto factor = factor_of(kSizeUnits, parts->second);
  if (!factor) return std::nullopt;
  const double value = std::floor(parts->first * *factor);
  if (value > kLargestExact) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::optional<double> parse_duration(std::string_view text) {
  const auto parts = split_number(text);
  if (!parts || parts->first < 0.0) return std::nullopt;
  const auto factor = factor_of(kTimeUnits, parts->second);
  if (!factor) return std::nullopt;
  return parts->first * *factor;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<double> parse_percent(std::string_view text) {
  if (!text.ends_with('%')) return std::nullopt;
  const std::optional<double> value = parse_number(text.substr(0, text.size() - 1));
  if (!value || !(*value > 0.0) || *value > 100.0) return std::nullopt;
  return value;
}

}  // namespace mlxcel
