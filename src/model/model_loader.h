// From an open checkpoint to a model ready for a backend: spec, weights bound to roles with checked shapes,
// KV layout.
//
// Owner: LoadedModel keeps the checkpoint (and so the mapped bytes) alive through a shared_ptr; a backend
// that has packed its weights drops it. Threads: built by one thread, then immutable.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "kv/kv_layout.h"
#include "model/model_spec.h"
#include "model/weight_map.h"
#include "tensor/weight_format.h"

namespace mlxcel {

// All weights by role: matrices as views into the checkpoint, vectors (norms, biases, sinks) widened to f32.
// Norm weights include NormSpec::weight_offset already (one f32 addition). Biases of a q/k projection are in
// the order of the matrix's rows as source_row() sees them. Per-head norm weights
// (HeadNormSpec::per_head_weights) are one vector [num_heads * head_dim] under expert 0.
class ModelWeights {
 public:
  const WeightMatrix* matrix(int layer, WeightRole role, int expert = 0) const;     // nullptr when absent
  std::span<const float> vector(int layer, WeightRole role, int expert = 0) const;  // empty when absent
  void set_matrix(WeightKey key, WeightMatrix matrix) { matrices_[key] = std::move(matrix); }
  void set_vector(WeightKey key, std::vector<float> values) { vectors_[key] = std::move(values); }
  const std::map<WeightKey, WeightMatrix>& matrices() const { return matrices_; }
  void erase_matrix(WeightKey key) { matrices_.erase(key); }
  // Joins per-head norm weights, bound one by one, into the one vector that readers see.
  void join_head_norms(const ModelSpec& spec);
  // Keeps bytes alive that no mapping holds (a transposed or strided source rewritten at load). Moving this
  // object leaves them where they are.
  std::span<const std::byte> adopt(std::vector<std::byte> bytes);

 private:
  std::map<WeightKey, WeightMatrix> matrices_;
  std::map<WeightKey, std::vector<float>> vectors_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> owned_;
};

struct LoadedModel {
  std::shared_ptr<const Checkpoint> checkpoint;
  ModelSpec spec;
  ModelWeights weights;
  std::string quantisation;           // for people: "mlx 4-bit g64", "Q4_1 (169) + Q8_0 (1)", "bf16"
  uint64_t weight_bytes = 0;          // as stored
  std::vector<std::string> warnings;  // for example a head that differs from the tied embedding
};

// Family lookup, config check, weight binding. Errors name file, tensor or key with expected and found.
Result<LoadedModel> load_model(std::shared_ptr<const Checkpoint> checkpoint);
// Only the spec (for `inspect`): no weight is read (GGUF's few rope factors, which are tensors, are).
Result<ModelSpec> read_model_spec(const Checkpoint& checkpoint);
// The names of all families, for messages and docs.
std::vector<std::string> supported_families();

}  // namespace mlxcel
