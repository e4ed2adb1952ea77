// The kernel table of avx512vnni. Built with MLXCEL_FLAGS_AVX512VNNI; entered only after a run-time check
// (isa.h).
#define MLXCEL_LANES_VNNI
#include "backend/cpu/kernels_table.inc.h"
#include "backend/cpu/lanes_avx512.h"

namespace mlxcel {

const KernelTable* avx512vnni_kernels() {
  static constexpr KernelTable kTable = make_table<Avx512Lanes>("avx512vnni");
  return &kTable;
}

}  // namespace mlxcel
