// Which instruction sets this machine offers to the CPU kernels, found at run time (CPUID and the operating
// system's consent to save the wide registers). The program itself is built for its architecture's baseline;
// a kernel table of a wider instruction set is entered only after this check.
//
// Owner: values. Threads: pure functions, any thread.
#pragma once

#include <string_view>
#include <vector>

#include "base/error.h"

namespace mlxcel {

enum class Isa { kScalar, kAvx2, kAvx512, kAvx512Vnni };

std::string_view isa_name(Isa isa);  // "scalar", "avx2", "avx512", "avx512vnni"

// What this machine and this build can run, slowest first; kScalar is always there.
std::vector<Isa> available_isas();

// `name` empty: the fastest of available_isas(). kInvalidArgument for a name that is unknown or not available
// here, listing those that are.
Result<Isa> choose_isa(std::string_view name);

}  // namespace mlxcel
