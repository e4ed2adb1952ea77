#include "checkpoint/gguf_metadata.h"

#include "base/checked.h"

namespace mlxcel {
namespace {

constexpr int kArrayDepthMax = 4;
constexpr uint64_t kStringHeadBytes = 8;  // the length
constexpr uint64_t kArrayHeadBytes = 12;  // element type and count

// Bytes of a fixed-size value; 0 for strings and arrays.
size_t fixed_size(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16:
      return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32:
      return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return 0;
  }
  return 0;
}

template <typename T>
T load(std::span<const std::byte> bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
GgufValue integer_value(std::span<const std::byte> bytes, size_t index) {
  return GgufValue{static_cast<int64_t>(load<T>(bytes, index))};
}

}  // namespace

Error GgufMetadataReader::error(std::string_view what, std::string problem, std::string expected,
                                std::string found) const {
  return make_error(ErrorKind::kInvalidData, std::move(problem), where_ + ", " + std::string(what),
                    std::move(expected), std::move(found),
                    "download the file again, or convert the model with a current converter");
}

Result<std::string_view> GgufMetadataReader::string(std::string_view what, uint64_t bytes_max) {
  MLXCEL_ASSIGN_OR_RETURN(const uint64_t length, u64(what));
  if (length > remaining() || length > bytes_max) {
    return error(what, "string length out of range",
                 "at most " + std::to_string(std::min(remaining(), bytes_max)), std::to_string(length));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + position_, length);
  position_ += length;
  return text;
}

Result<GgufValueType> GgufMetadataReader::value_type(std::string_view what) {
  MLXCEL_ASSIGN_OR_RETURN(const uint32_t type, u32(what));
  if (type > static_cast<uint32_t>(GgufValueType::kF64)) {
    return error(what, "unknown metadata value type", "0 to 12", std::to_string(type));
  }
  return static_cast<GgufValueType>(type);
}

// Values that have a size but not every bit pattern: booleans, and integers that must fit int64.
Status GgufMetadataReader::check_elements(GgufValueType type, std::span<const std::byte> bytes,
                                          std::string_view what) const {
  if (type == GgufValueType::kBool) {
    for (const std::byte b : bytes) {
      if (std::to_integer<unsigned>(b) > 1) {
        return error(what, "boolean out of range", "0 or 1", std::to_string(std::to_integer<unsigned>(b)));
      }
    }
  }
  if (type == GgufValueType::kU64) {
    for (size_t i = 0; i < bytes.size() / 8; ++i) {
      if (load<uint64_t>(bytes, i) > static_cast<uint64_t>(INT64_MAX)) {
        return error(what, "integer out of range", "below 2^63", std::to_string(load<uint64_t>(bytes, i)));
      }
    }
  }
  return ok_status();
}

GgufValue GgufMetadataReader::element(GgufValueType type, std::span<const std::byte> bytes, size_t index) {
  switch (type) {
    case GgufValueType::kU8:
      return integer_value<uint8_t>(bytes, index);
    case GgufValueType::kI8:
      return integer_value<int8_t>(bytes, index);
    case GgufValueType::kU16:
      return integer_value<uint16_t>(bytes, index);
    case GgufValueType::kI16:
      return integer_value<int16_t>(bytes, index);
    case GgufValueType::kU32:
      return integer_value<uint32_t>(bytes, index);
    case GgufValueType::kI32:
      return integer_value<int32_t>(bytes, index);
    case GgufValueType::kU64:
    case GgufValueType::kI64:
      return integer_value<int64_t>(bytes, index);
    case GgufValueType::kF32:
      return GgufValue{double{load<float>(bytes, index)}};
    case GgufValueType::kF64:
      return GgufValue{load<double>(bytes, index)};
    case GgufValueType::kBool:
      return GgufValue{load<uint8_t>(bytes, index) != 0};
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  MLXCEL_CHECK_MSG(false, "a GGUF value type without a fixed size");
}

Result<GgufValue> GgufMetadataReader::fixed_value(GgufValueType type, std::string_view what) {
  const size_t size = fixed_size(type);
  if (remaining() < size)
    return error(what, "the file ends inside a value", "more bytes", "the end of the file");
  const auto bytes = bytes_.subspan(position_, size);
  MLXCEL_RETURN_IF_ERROR(check_elements(type, bytes, what));
  position_ += size;
  return element(type, bytes, 0);
}

Result<GgufValue> GgufMetadataReader::value(std::string_view what) {
  MLXCEL_ASSIGN_OR_RETURN(const GgufValueType type, value_type(what));
  if (type == GgufValueType::kString) {
    MLXCEL_ASSIGN_OR_RETURN(const std::string_view text, string(what, remaining()));
    return GgufValue{std::string(text)};
  }
  if (type == GgufValueType::kArray) {
    MLXCEL_ASSIGN_OR_RETURN(GgufArray elements, array(what, 1));
    return GgufValue{std::move(elements)};
  }
  return fixed_value(type, what);
}

Status GgufMetadataReader::string_elements(GgufArray& array, uint64_t count, std::string_view what) {
  array.strings_.reserve(count);  // at most twice the bytes that hold the lengths: count was checked
  for (uint64_t i = 0; i < count; ++i) {
    MLXCEL_ASSIGN_OR_RETURN(const std::string_view text, string(what, remaining()));
    array.strings_.push_back(text);
  }
  return ok_status();
}

Result<GgufArray> GgufMetadataReader::array(std::string_view what, int depth) {
  if (depth > kArrayDepthMax) {
    return error(what, "arrays nested too deeply", "at most " + std::to_string(kArrayDepthMax) + " levels",
                 "more");
  }
  MLXCEL_ASSIGN_OR_RETURN(const GgufValueType type, value_type(what));
  MLXCEL_ASSIGN_OR_RETURN(const uint64_t count, u64(what));
  uint64_t element_bytes = fixed_size(type);
  if (type == GgufValueType::kString) element_bytes = kStringHeadBytes;
  if (type == GgufValueType::kArray) element_bytes = kArrayHeadBytes;
  if (count > remaining() / element_bytes) {
    return error(what, "array longer than the file", "at most " + std::to_string(remaining() / element_bytes),
                 std::to_string(count) + " elements");
  }
  GgufArray result;
  result.element_type_ = type;
  result.size_ = count;
  const uint64_t begin = position_;
  if (type == GgufValueType::kString) {
    MLXCEL_RETURN_IF_ERROR(string_elements(result, count, what));
  } else if (type == GgufValueType::kArray) {
    for (uint64_t i = 0; i < count; ++i) MLXCEL_RETURN_IF_ERROR(array(what, depth + 1));
  } else {
    MLXCEL_RETURN_IF_ERROR(check_elements(type, bytes_.subspan(begin, count * element_bytes), what));
    position_ += count * element_bytes;
  }
  result.bytes_ = bytes_.subspan(begin, position_ - begin);
  return result;
}

GgufValue GgufArray::operator[](size_t index) const {
  MLXCEL_CHECK(index < size_);
  if (element_type_ == GgufValueType::kString) return GgufValue{std::string(strings_[index])};
  if (element_type_ != GgufValueType::kArray)
    return GgufMetadataReader::element(element_type_, bytes_, index);
  GgufMetadataReader reader(bytes_, {});
  for (size_t i = 0; i < index; ++i) reader.array({}, 1).value();  // checked when the file was opened
  return GgufValue{reader.array({}, 1).value()};
}

}  // namespace mlxcel
