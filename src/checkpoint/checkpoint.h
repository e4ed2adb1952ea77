// A checkpoint on disk, whatever its container: named tensors in mapped files plus the metadata files beside them.
//
// Everything in it is hostile: open_checkpoint() checks every size, offset, name and overlap before it returns, so a
// TensorEntry's bytes always lie inside the mapping. Shapes are checked against the model when roles are bound
// (model/model_loader.h).
//
// Owner: shared_ptr<const Checkpoint>. Threads: immutable once open.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "tensor/dtype.h"
#include "tensor/weight_format.h"

namespace mlxcel {

enum class CheckpointKind { kHuggingFace, kGguf };   // MLX folders are kHuggingFace with a "quantization" key

struct TensorEntry {
  std::string name;
  std::vector<int64_t> shape;              // row-major, slowest first; GGUF's reversed dims are already turned round
  DType dtype = DType::kF32;               // safetensors and plain GGUF types
  std::optional<GgufType> gguf_type;       // set for every GGUF tensor
  std::span<const std::byte> data;
  std::string file;                        // base name of the file that holds it
};

// GGUF metadata value. Integers of every width become int64 (u64 above 2^63-1 is a load error).
struct GgufValue;
using GgufArray = std::vector<GgufValue>;
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
  std::string path;                                     // folder or .gguf file as the user gave it
  std::map<std::string, TensorEntry, std::less<>> tensors;
  JsonValue config;                                     // kHuggingFace: config.json
  JsonValue generation_config;                          // null when absent
  std::map<std::string, GgufValue, std::less<>> metadata;   // kGguf
  std::vector<MappedFile> files;

  const TensorEntry* find(std::string_view name) const;
  const GgufValue* meta(std::string_view key) const;
  // Typed metadata access; the error names key and file.
  Result<int64_t> meta_integer(std::string_view key, std::optional<int64_t> fallback = std::nullopt) const;
  Result<double> meta_number(std::string_view key, std::optional<double> fallback = std::nullopt) const;
  Result<std::string> meta_string(std::string_view key, std::optional<std::string> fallback = std::nullopt) const;
  // Sum of all tensor bytes.
  uint64_t tensor_bytes() const;
};

// `path`: a folder with config.json and safetensors (single, or sharded with an index), a .gguf file, or a folder
// with exactly one .gguf file and no config.json.
Result<std::shared_ptr<const Checkpoint>> open_checkpoint(const std::string& path);

// MLX quantisation of a tensor base name ("model.layers.0.self_attn.q_proj") from config["quantization"] with its
// per-tensor overrides; nullopt: this tensor is not quantised by MLX.
struct MlxQuantisation {
  int bits = 0, group_size = 0;
  MlxMode mode = MlxMode::kAffine;
};
Result<std::optional<MlxQuantisation>> mlx_quantisation(const Checkpoint& checkpoint, std::string_view base_name);

// A matrix by tensor name: "<base>.weight" with its scales and biases when MLX-quantised, a GGUF tensor, or a plain
// one. 3-D tensors are stacks: `expert` picks one slice. Errors name the tensor, expected and found.
Result<WeightMatrix> load_matrix(const Checkpoint& checkpoint, std::string_view name, std::optional<int> expert = std::nullopt);
// A vector (any shape, flattened) widened to f32.
Result<std::vector<float>> load_vector(const Checkpoint& checkpoint, std::string_view name);

}  // namespace mlxcel
