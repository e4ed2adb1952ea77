// What the operating system says about memory.
//
// Owner: nobody; functions read /proc and /sys and keep nothing. Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace mlxcel {

// What could be taken without swapping: the smaller of the machine's MemAvailable and what the limits of the
// process's control groups (version 2) leave, where page cache counts as free. nullopt: /proc does not say.
std::optional<uint64_t> available_memory_bytes();
std::optional<uint64_t> peak_resident_bytes();  // of this process, so far

// The control-group part alone, for a group `path` below `root` ("/sys/fs/cgroup") and all its parents.
// nullopt: no limit anywhere.
std::optional<uint64_t> control_group_headroom(const std::string& root, const std::string& path);

}  // namespace mlxcel
