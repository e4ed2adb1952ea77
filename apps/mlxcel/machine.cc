#include "machine.h"

#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

namespace mlxcel {
namespace {

// "Key:   123 kB" of a /proc file, in bytes.
std::optional<uint64_t> kilobytes_of(const std::string& path, std::string_view key) {
  std::ifstream file(path);  // these files have no size to map
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  size_t at = text.find(key);
  if (at == std::string::npos) return std::nullopt;
  at = text.find_first_of("0123456789", at + key.size());
  if (at == std::string::npos) return std::nullopt;
  uint64_t value = 0;
  std::from_chars(text.data() + at, text.data() + text.size(), value);
  return value * 1024;
}

}  // namespace

std::optional<uint64_t> available_memory_bytes() { return kilobytes_of("/proc/meminfo", "MemAvailable:"); }
std::optional<uint64_t> peak_resident_bytes() { return kilobytes_of("/proc/self/status", "VmHWM:"); }

}  // namespace mlxcel
