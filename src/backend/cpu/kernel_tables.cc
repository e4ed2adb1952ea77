#include "backend/cpu/kernel_tables.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/error.h"

namespace mlxcel {

const KernelTable& kernel_table(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kScalar:
      return *scalar_kernels();
    case Isa::kAvx2:
      return *avx2_kernels();
    case Isa::kAvx512:
      return *avx512_kernels();
    case Isa::kAvx512Vnni:
      return *avx512vnni_kernels();
  }
#endif
  MLXCEL_CHECK_MSG(isa == Isa::kScalar, "no kernels were built for this instruction set");
  return *scalar_kernels();
}

void reset_floating_point_mode() {
#if defined(__x86_64__)
  constexpr unsigned kDefaultMxcsr = 0x1F80;  // all exceptions masked, nearest, no FTZ, no DAZ
  _mm_setcsr(kDefaultMxcsr);
#endif
}

}  // namespace mlxcel
