// What the operating system says about memory.
// Threads: any; functions read /proc and keep nothing.
#pragma once

#include <cstdint>
#include <optional>

namespace mlxcel {

std::optional<uint64_t> available_memory_bytes();  // what could be taken without swapping
std::optional<uint64_t> peak_resident_bytes();     // of this process, so far

}  // namespace mlxcel
