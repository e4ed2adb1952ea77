// A checkpoint on disk, whatever its container: named tensors in mapped files plus the metadata files beside
// them.
//
// Everything in it is hostile: open_checkpoint() checks every size, offset, name and overlap before it
// returns, so a TensorEntry's bytes always lie inside the mapping. Shapes are checked against the model when
// roles are bound (model/model_loader.h).
//
// Owner: shared_ptr<const Checkpoint>. Threads: immutable once open.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "tensor/dtype.h"
#include "tensor/weight_format.h"

namespace mlxcel {

enum class CheckpointKind { kHuggingFace, kGguf };  // MLX folders are kHuggingFace with a "quantization" key

struct TensorEntry {
  std::string name;
  std::vector<int64_t> shape;  // row-major, slowest first; GGUF's reversed dims are already turned round
  DType dtype = DType::kF32;   // safetensors and plain GGUF types
  std::optional<GgufType> gguf_type;  // set for every GGUF tensor
  std::span<const std::byte> data;
  std::string file;  // base name of the file that holds it
};

// The value types of GGUF metadata, numbered as in the file format.
enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// A metadata array. Elements stay in the mapped file (as values of their own, bytes would take forty times
// their size); only the places of strings are kept. Lives no longer than its Checkpoint.
struct GgufValue;
class GgufArray {
 public:
  GgufValueType element_type() const { return element_type_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // Element `index` as a value. REQUIRES: index < size(). Arrays of arrays are walked from their start.
  GgufValue operator[](size_t index) const;
  // All elements when they are strings, else empty.
  std::span<const std::string_view> strings() const { return strings_; }

 private:
  friend class GgufMetadataReader;
  GgufValueType element_type_ = GgufValueType::kU8;
  size_t size_ = 0;
  std::span<const std::byte> bytes_;       // the elements as stored
  std::vector<std::string_view> strings_;  // kString
};

// GGUF metadata value. Integers of every width become int64 (u64 above 2^63-1 is a load error).
struct GgufValue {
  std::variant<int64_t, double, bool, std::string, GgufArray> data;
  const int64_t* integer() const { return std::get_if<int64_t>(&data); }
  const double* number() const { return std::get_if<double>(&data); }
  const bool* boolean() const { return std::get_if<bool>(&data); }
  const std::string* string() const { return std::get_if<std::string>(&data); }
  const GgufArray* array() const { return std::get_if<GgufArray>(&data); }
};

class Checkpoint {
 public:
  CheckpointKind kind = CheckpointKind::kHuggingFace;
  std::string path;  // folder or .gguf file as the user gave it
  std::map<std::string, TensorEntry, std::less<>> tensors;
  JsonValue config;                                        // kHuggingFace: config.json
  JsonValue generation_config;                             // null when absent
  std::map<std::string, GgufValue, std::less<>> metadata;  // kGguf
  std::vector<MappedFile> files;

  const TensorEntry* find(std::string_view name) const;
  const GgufValue* meta(std::string_view key) const;
  // Typed metadata access; the error names key and file.
  Result<int64_t> meta_integer(std::string_view key, std::optional<int64_t> fallback = std::nullopt) const;
  Result<double> meta_number(std::string_view key, std::optional<double> fallback = std::nullopt) const;
  Result<std::string> meta_string(std::string_view key,
                                  std::optional<std::string> fallback = std::nullopt) const;
  // Sum of all tensor bytes.
  uint64_t tensor_bytes() const;
};

// `path`: a folder with config.json and safetensors (single, or sharded with an index), a .gguf file, or a
// folder with exactly one .gguf file and no config.json.
Result<std::shared_ptr<const Checkpoint>> open_checkpoint(const std::string& path);

// MLX quantisation of a tensor base name ("model.layers.0.self_attn.q_proj") from config["quantization"] with
// its overrides per tensor. nullopt: not quantised by MLX (no such key, an override `false`, or no
// "<base>.scales"). open_checkpoint() has refused the methods that are neither MLX's nor fp8 blocks nor mxfp4
// (gptq, awq, ...).
struct MlxQuantisation {
  int bits = 0, group_size = 0;
  MlxMode mode = MlxMode::kAffine;
};
Result<std::optional<MlxQuantisation>> mlx_quantisation(const Checkpoint& checkpoint,
                                                        std::string_view base_name);

// A matrix by tensor name: "<base>.weight" with its "<base>.scales" and "<base>.biases" when MLX-quantised,
// with its
// "<base>.weight_scale_inv" when it is fp8, a GGUF tensor, or a plain one. 3-D tensors are stacks: `expert`
// picks one slice. Sizes are validated (tensor/weight_format.h). Errors name the tensor, expected and found.
Result<WeightMatrix> load_matrix(const Checkpoint& checkpoint, std::string_view name,
                                 std::optional<int> expert = std::nullopt);
// A vector of f32, f16 or bf16 (any shape, flattened) widened to f32.
Result<std::vector<float>> load_vector(const Checkpoint& checkpoint, std::string_view name);

}  // namespace mlxcel
