#include "backend/cpu/isa.h"

#include <array>
#include <cstdint>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace mlxcel {
namespace {

constexpr std::array kAllIsas = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni};

#if defined(__x86_64__)

// Register files that the operating system saves on a context switch (XCR0), by XGETBV.
uint64_t saved_register_files() {
  uint32_t eax = 0, edx = 0;
  __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return (uint64_t{edx} << 32) | eax;
}

bool bit(uint32_t word, int index) { return ((word >> index) & 1u) != 0; }

// Bits: Intel SDM volume 2A, CPUID leaves 1 and 7; XCR0: volume 1, section 13.3.
std::vector<Isa> detect() {
  std::vector<Isa> found = {Isa::kScalar};
  uint32_t a = 0, b = 0, c1 = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c1, &d) == 0 || !bit(c1, 27)) return found;
  const uint64_t saved = saved_register_files();
  uint32_t b7 = 0, c7 = 0, d7 = 0;
  if (__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) == 0) return found;
  const bool ymm = (saved & 0x6) == 0x6;
  const bool zmm = (saved & 0xE6) == 0xE6;
  const bool fma = bit(c1, 12), f16c = bit(c1, 29);
  if (!ymm || !fma || !f16c || !bit(b7, 5) || !bit(b7, 8)) return found;  // AVX2, BMI2
  found.push_back(Isa::kAvx2);
  if (!zmm || !bit(b7, 16) || !bit(b7, 17) || !bit(b7, 30) || !bit(b7, 31)) return found;  // F, DQ, BW, VL
  found.push_back(Isa::kAvx512);
  if (bit(c7, 11)) found.push_back(Isa::kAvx512Vnni);  // VNNI
  return found;
}

#else

std::vector<Isa> detect() { return {Isa::kScalar}; }

#endif

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Vnni:
      return "avx512vnni";
  }
  return "scalar";
}

std::vector<Isa> available_isas() { return detect(); }

Result<Isa> choose_isa(std::string_view name) {
  const std::vector<Isa> available = detect();
  if (name.empty()) return available.back();
  std::string list;
  for (const Isa isa : available) {
    if (isa_name(isa) == name) return isa;
    if (!list.empty()) list += ", ";
    list += isa_name(isa);
  }
  bool known = false;
  for (const Isa isa : kAllIsas) known = known || isa_name(isa) == name;
  return make_error(ErrorKind::kInvalidArgument,
                    known ? "this machine does not offer the instruction set" : "unknown instruction set",
                    "isa", "one of " + list, "\"" + std::string(name) + "\"",
                    "leave it empty for the fastest available");
}

}  // namespace mlxcel
