// Any text: an error, or a value that is written and read back as itself.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mlxcel;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  JsonLimits limits;
  limits.max_depth = 64;
  for (const bool allow_non_finite : {false, true}) {
    limits.allow_non_finite = allow_non_finite;
    const auto value = parse_json(text, "fuzz", limits);
    if (!value.ok() || allow_non_finite) continue;  // infinities become null when written
    for (const int indent : {-1, 2}) {
      const std::string written = to_json(*value, {indent, indent > 0});
      const auto again = parse_json(written, "fuzz", limits);
      MLXCEL_CHECK_MSG(again.ok() && *again == *value, written);
    }
  }
  return 0;
}
