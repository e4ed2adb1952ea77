// The kernel table of avx2. Built with MLXCEL_FLAGS_AVX2; entered only after a run-time check (isa.h).
#include "backend/cpu/kernels_table.inc.h"
#include "backend/cpu/lanes_avx2.h"

namespace mlxcel {

const KernelTable* avx2_kernels() {
  static constexpr KernelTable kTable = make_word_table<Avx2Lanes>("avx2");
  return &kTable;
}

}  // namespace mlxcel
