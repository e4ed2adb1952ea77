// The kernel table of avx512. Built with MLXCEL_FLAGS_AVX512; entered only after a run-time check (isa.h).
#include "backend/cpu/kernels_table.inc.h"
#include "backend/cpu/lanes_avx512.h"

namespace mlxcel {

const KernelTable* avx512_kernels() {
  static constexpr KernelTable kTable = make_word_table<Avx512Lanes>("avx512");
  return &kTable;
}

}  // namespace mlxcel
