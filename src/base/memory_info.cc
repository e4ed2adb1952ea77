#include "base/memory_info.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string_view>

namespace mlxcel {
namespace {

std::string contents_of(const std::string& path) {
  std::ifstream file(path);  // these files have no size to map
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The first number behind `key` in `text`.
std::optional<uint64_t> number_after(const std::string& text, std::string_view key) {
  size_t at = text.find(key);
  if (at == std::string::npos) return std::nullopt;
  at = text.find_first_of("0123456789", at + key.size());
  if (at == std::string::npos) return std::nullopt;
  uint64_t value = 0;
  std::from_chars(text.data() + at, text.data() + text.size(), value);
  return value;
}

// "Key:   123 kB" of a /proc file, in bytes.
std::optional<uint64_t> kilobytes_of(const std::string& path, std::string_view key) {
  const auto kilobytes = number_after(contents_of(path), key);
  return kilobytes ? std::optional(*kilobytes * 1024) : std::nullopt;
}

// What one group's limit leaves; nullopt: "max", or no such file.
std::optional<uint64_t> headroom_of(const std::string& folder) {
  const auto limit = number_after(contents_of(folder + "/memory.max"), "");
  const auto used = number_after(contents_of(folder + "/memory.current"), "");
  if (!limit || !used) return std::nullopt;
  const uint64_t cache = number_after(contents_of(folder + "/memory.stat"), "\ninactive_file ").value_or(0);
  const uint64_t held = *used - std::min(*used, cache);
  return *limit - std::min(*limit, held);
}

}  // namespace

std::optional<uint64_t> control_group_headroom(const std::string& root, const std::string& path) {
  std::optional<uint64_t> least;
  for (std::string group = path;;) {
    if (const auto headroom = headroom_of(root + group))
      least = std::min(least.value_or(*headroom), *headroom);
    const size_t slash = group.find_last_of('/');
    if (group.empty() || slash == std::string::npos) return least;
    group.resize(slash);
  }
}

std::optional<uint64_t> available_memory_bytes() {
  auto available = kilobytes_of("/proc/meminfo", "MemAvailable:");
  const std::string groups = contents_of("/proc/self/cgroup");
  constexpr std::string_view kUnified = "0::";
  size_t at = groups.starts_with(kUnified) ? 0 : groups.find("\n0::");
  if (at == std::string::npos) return available;
  if (groups[at] == '\n') ++at;
  at += kUnified.size();
  std::string path = groups.substr(at, groups.find('\n', at) - at);
  if (path == "/") path.clear();
  if (const auto headroom = control_group_headroom("/sys/fs/cgroup", path))
    available = std::min(available.value_or(*headroom), *headroom);
  return available;
}

std::optional<uint64_t> peak_resident_bytes() { return kilobytes_of("/proc/self/status", "VmHWM:"); }

}  // namespace mlxcel
