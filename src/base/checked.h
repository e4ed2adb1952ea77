// Checked 64-bit arithmetic for every size that comes from a file or the network.
// Pure functions; any thread. An overflow is std::nullopt, which the caller turns into its own error.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace mlxcel {

inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}
inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}
// The product of all dimensions; nullopt when one is negative or the product exceeds 2^62.
inline std::optional<int64_t> checked_product(std::span<const int64_t> dims) {
  int64_t r = 1;
  for (const int64_t d : dims) {
    if (d < 0 || __builtin_mul_overflow(r, d, &r) || r > (int64_t{1} << 62)) return std::nullopt;
  }
  return r;
}
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace mlxcel
