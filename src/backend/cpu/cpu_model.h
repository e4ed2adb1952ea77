// A model with its weights packed for the CPU kernels: everything a forward pass reads. Built once from a
// LoadedModel, whose checkpoint can be dropped afterwards.
//
// Owner: the runner. Threads: immutable once built.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/packed_matrix.h"
#include "backend/cpu/weight_arena.h"
#include "base/error.h"
#include "base/threads.h"
#include "model/model_loader.h"
#include "model/model_spec.h"

namespace mlxcel {

struct CpuLinear {
  PackedMatrix matrix;
  std::vector<float> bias;  // [rows]; empty: none
};

struct CpuNorm {
  NormSpec spec;
  std::vector<float> weight;  // empty: none
  std::vector<float> bias;    // empty: none
};

struct CpuAttention {
  const AttentionSpec* spec = nullptr;
  CpuLinear query, key, value, output;
  std::optional<CpuNorm> query_norm, key_norm, pre_output_norm;
  std::vector<float> sinks;  // [num_heads]; empty: none
};

struct CpuMlp {
  DenseMlpSpec spec;
  std::optional<CpuLinear> gate;  // present when gated
  CpuLinear up, down;
  std::optional<CpuNorm> pre_down_norm;
};

struct CpuMoe {
  const MoeSpec* spec = nullptr;
  CpuLinear router;
  std::vector<float> correction;  // [num_experts]; empty: none
  std::vector<CpuMlp> experts;    // gated, all of one shape
  std::optional<CpuMlp> shared;
  std::optional<CpuLinear> shared_router;
};

struct CpuLayer {
  const LayerSpec* spec = nullptr;
  std::optional<CpuNorm> pre_mixer_norm, post_mixer_norm, pre_ffn_norm, post_ffn_norm;
  CpuAttention attention;
  std::optional<CpuMlp> mlp;  // exactly one of mlp and moe
  std::optional<CpuMoe> moe;
};

struct CpuModel {
  ModelSpec spec;
  WeightArena arena;
  PackedMatrix embedding;
  std::optional<CpuNorm> embedding_norm;
  std::vector<CpuLayer> layers;
  CpuNorm final_norm;
  std::optional<PackedMatrix> head;  // absent: the embedding's
  std::vector<float> head_bias;      // [vocab_size]; empty: none

  const PackedMatrix& head_matrix() const { return head ? *head : embedding; }
};

// Bit i: a matrix of the set is quantised in groups of 16 << i.
uint8_t group_sizes_of(std::initializer_list<const PackedMatrix*> matrices);

// Packs all weights. `progress` (may be empty) hears of bytes read and of bytes in all. The specs that layers
// point to live in the returned object. kOutOfMemory.
Result<std::unique_ptr<CpuModel>> pack_model(const LoadedModel& model, ThreadPool& pool,
                                             const std::function<void(uint64_t, uint64_t)>& progress);

}  // namespace mlxcel
