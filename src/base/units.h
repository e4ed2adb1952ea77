// Quantities for people. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace mlxcel {

// 1536 -> "1.50 KiB", 30 * 2^30 -> "30.0 GiB".
std::string format_bytes(uint64_t bytes);

}  // namespace mlxcel
