// The kernel table of avx512vnni. Built with MLXCEL_FLAGS_AVX512VNNI; entered only after a run-time check
// (isa.h).
#include "backend/cpu/kernels_planes.inc.h"
#include "backend/cpu/kernels_table.inc.h"
#include "backend/cpu/lanes_avx512.h"

namespace mlxcel {
namespace {

constexpr KernelTable vnni_table() {
  KernelTable table = make_table<Avx512Lanes>("avx512vnni");
  table.linear_quantised = linear_planes;
  table.high_forms = {.words = false, .low_plane = true, .high_plane = true};
  table.int8_forms = {.words = false, .low_plane = true, .high_plane = false};
  return table;
}

}  // namespace

const KernelTable* avx512vnni_kernels() {
  static constexpr KernelTable kTable = vnni_table();
  return &kTable;
}

}  // namespace mlxcel
