// A reader of GGUF's primitive values from untrusted bytes. Private to checkpoint/.
// Owner: views the bytes. Threads: one per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "checkpoint/checkpoint.h"

namespace mlxcel {

class GgufMetadataReader {
 public:
  GgufMetadataReader(std::span<const std::byte> bytes, std::string where)
      : bytes_(bytes), where_(std::move(where)) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }
  const std::string& where() const { return where_; }

  // `what` names the value in errors.
  Result<uint32_t> u32(std::string_view what) { return scalar<uint32_t>(what); }
  Result<uint64_t> u64(std::string_view what) { return scalar<uint64_t>(what); }
  // A string with its 64-bit length, as a view of the bytes.
  Result<std::string_view> string(std::string_view what, uint64_t bytes_max);
  // A value type and the value behind it.
  Result<GgufValue> value(std::string_view what);
  // An element type, a count and the elements; `depth` counts nested arrays.
  Result<GgufArray> array(std::string_view what, int depth);
  Error error(std::string_view what, std::string problem, std::string expected, std::string found) const;

  // Element `index` of fixed-size elements that array() has checked.
  static GgufValue element(GgufValueType type, std::span<const std::byte> bytes, size_t index);

 private:
  template <typename T>
  Result<T> scalar(std::string_view what) {
    if (remaining() < sizeof(T))
      return error(what, "the file ends inside a value", "more bytes", "the end of the file");
    T result;
    std::memcpy(&result, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return result;
  }
  Result<GgufValueType> value_type(std::string_view what);
  Result<GgufValue> fixed_value(GgufValueType type, std::string_view what);
  Status check_elements(GgufValueType type, std::span<const std::byte> bytes, std::string_view what) const;
  Status string_elements(GgufArray& array, uint64_t count, std::string_view what);

  std::span<const std::byte> bytes_;
  std::string where_;
  uint64_t position_ = 0;
};

}  // namespace mlxcel
