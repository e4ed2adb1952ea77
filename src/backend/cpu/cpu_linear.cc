#include "backend/cpu/cpu_linear.h"

#include <algorithm>

namespace mlxcel {
namespace {

float top_of(ActivationPrecision precision) {
  switch (precision) {
    case ActivationPrecision::kHigh:
      return 16256.0f;  // 127 * 128: fits two byte planes and an int16
    case ActivationPrecision::kInt8:
      return 127.0f;
    case ActivationPrecision::kF32:
      return 0.0f;
  }
  return 0.0f;
}

}  // namespace

LinearContext::LinearContext(const KernelTable& kernels, ActivationPrecision precision, ThreadPool& pool)
    : kernels_(kernels),
      pool_(pool),
      top_(top_of(precision)),
      scratch_(static_cast<size_t>(pool.num_threads())) {
  for (AlignedBuffer<uint8_t>& one : scratch_) one.reserve(kLinearScratchBytes);
}

InputForms LinearContext::input_forms() const {
  if (!uses_integers()) return {};
  return top_ > 127.0f ? kernels_.high_forms : kernels_.int8_forms;
}

void LinearContext::quantise(LinearInput& input, int64_t columns, uint8_t group_sizes, int64_t row) const {
  if (uses_integers()) input.quantise(kernels_, top_, columns, group_sizes, row);
}

void LinearContext::multiply_blocks(int thread, const LinearInput& input, int64_t first, int64_t num_tokens,
                                    const LinearJob& job, Range blocks) {
  if (blocks.begin >= blocks.end || num_tokens == 0) return;
  const PackedMatrix& matrix = *job.matrix;
  const LinearTarget target = {job.out,      job.stride, num_tokens,
                               blocks.begin, blocks.end, scratch_[static_cast<size_t>(thread)].data()};
  if (!matrix.is_quantised()) {
    kernels_.linear_plain(matrix.plain(), input.row(first), input.stride(), target);
  } else if (uses_integers()) {
    kernels_.linear_quantised(matrix.quantised(), input.quantised(matrix.quantised().group_size, first),
                              target);
  } else {
    kernels_.linear_dequantised(matrix.quantised(), input.row(first), input.stride(), target);
  }
  if (job.bias.empty()) return;
  const int64_t begin = blocks.begin * kLanes, end = std::min(blocks.end * kLanes, matrix.rows());
  for (int64_t t = 0; t < num_tokens; ++t) {
    float* y = job.out + t * job.stride + begin;
    kernels_.add(y, job.bias.data() + begin, end - begin, y);
  }
}

void LinearContext::multiply(int thread, const LinearInput& input, int64_t first, int64_t num_tokens,
                             std::span<const LinearJob> jobs) {
  int64_t total = 0;
  for (const LinearJob& job : jobs) total += job.matrix->num_blocks();
  const Range mine = split_range(total, 1, pool_.num_threads(), thread);
  int64_t at = 0;
  for (const LinearJob& job : jobs) {
    const int64_t blocks = job.matrix->num_blocks();
    const Range part = {std::clamp(mine.begin - at, int64_t{0}, blocks),
                        std::clamp(mine.end - at, int64_t{0}, blocks)};
    multiply_blocks(thread, input, first, num_tokens, job, part);
    at += blocks;
  }
}

uint64_t LinearContext::scratch_bytes() const {
  uint64_t total = 0;
  for (const AlignedBuffer<uint8_t>& one : scratch_) total += one.bytes();
  return total;
}

}  // namespace mlxcel
