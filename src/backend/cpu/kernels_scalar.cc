// The kernel table of scalar. Built for the baseline of the architecture.
#include "backend/cpu/kernels_table.inc.h"
#include "backend/cpu/lanes_scalar.h"

namespace mlxcel {

const KernelTable* scalar_kernels() {
  static constexpr KernelTable kTable = make_word_table<ScalarLanes16>("scalar");
  return &kTable;
}

}  // namespace mlxcel
