// Linear layers of a step: which kernel, which rows of the weights each thread takes, and the bias.
//
// Owner: the forward pass. Threads: multiply() by every thread of the pool with the same arguments.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/buffers.h"
#include "backend/cpu/cpu_model.h"
#include "backend/cpu/kernel_table.h"
#include "base/threads.h"

namespace mlxcel {

// One matrix of several that read the same input: rows of `out` get W x + bias.
struct LinearJob {
  const PackedMatrix* matrix = nullptr;
  std::span<const float> bias;
  float* out = nullptr;  // [token][stride]
  int64_t stride = 0;
};

class LinearContext {
 public:
  LinearContext(const KernelTable& kernels, ActivationPrecision precision, ThreadPool& pool);

  // This thread's share of the row blocks of all jobs together, for `num_tokens` rows of the input from
  // `first` on. The caller puts a barrier before anyone reads the output.
  void multiply(int thread, const LinearInput& input, int64_t first, int64_t num_tokens,
                std::span<const LinearJob> jobs);
  // Row blocks [begin, end) of one job, on the calling thread.
  void multiply_blocks(int thread, const LinearInput& input, int64_t first, int64_t num_tokens,
                       const LinearJob& job, Range blocks);
  // Makes the integer forms of a row that the matrices in `group_sizes` need; nothing at f32 precision.
  void quantise(LinearInput& input, int64_t columns, uint8_t group_sizes, int64_t row) const;
  // What inputs of linear layers have to offer.
  InputForms input_forms() const;
  bool uses_integers() const { return top_ != 0.0f; }
  const KernelTable& kernels() const { return kernels_; }
  uint64_t scratch_bytes() const;

 private:
  const KernelTable& kernels_;
  ThreadPool& pool_;
  float top_ = 0.0f;                             // largest p; 0: f32 precision
  std::vector<AlignedBuffer<uint8_t>> scratch_;  // per thread
};

}  // namespace mlxcel
