// The kernel table for an instruction set that choose_isa() returned.
//
// Owner: tables are constants. Threads: any thread.
#pragma once

#include "backend/cpu/isa.h"
#include "backend/cpu/kernel_table.h"

namespace mlxcel {

// REQUIRES: `isa` is one of available_isas().
const KernelTable& kernel_table(Isa isa);

// The calling thread computes as docs/numerics.md says: round half to even, subnormals kept.
void reset_floating_point_mode();

}  // namespace mlxcel
