#include "backend/cpu/weight_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <utility>

namespace mlxcel {
namespace {

// Small against any model worth the trouble, large against a huge page (2 MiB).
constexpr uint64_t kSlabBytes = uint64_t{64} << 20;
constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kAlignment = 64;

uint64_t round_to(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

WeightArena::~WeightArena() {
  for (const Slab& slab : slabs_) ::munmap(slab.data, slab.size);
}

WeightArena::WeightArena(WeightArena&& other) noexcept
    : slabs_(std::exchange(other.slabs_, {})), used_(std::exchange(other.used_, 0)) {}

WeightArena& WeightArena::operator=(WeightArena&& other) noexcept {
  std::swap(slabs_, other.slabs_);
  std::swap(used_, other.used_);
  return *this;
}

Result<std::byte*> WeightArena::allocate(uint64_t bytes) {
  constexpr uint64_t kLimit = uint64_t{1}
                              << 46;  // more than any address space below: a broken size, not a wish
  if (bytes > kLimit)
    return make_error(ErrorKind::kOutOfMemory, "packed weights do not fit in memory", "", "",
                      std::to_string(bytes) + " bytes");
  const uint64_t need = round_to(bytes + kTailBytes, kAlignment);
  if (slabs_.empty() || slabs_.back().size - slabs_.back().next < need) {
    const uint64_t size = round_to(std::max(need, kSlabBytes), kHugePage);
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
      return make_error(ErrorKind::kOutOfMemory, "packed weights do not fit in memory", "", "",
                        std::to_string(size) + " bytes refused by the system");
#if defined(MADV_HUGEPAGE)
    static_cast<void>(
        ::madvise(data, size, MADV_HUGEPAGE));  // a hint: without it the pages are small, no more
#endif
    slabs_.push_back({static_cast<std::byte*>(data), size, 0});
  }
  Slab& slab = slabs_.back();
  std::byte* result = slab.data + slab.next;
  slab.next += need;
  used_ += need;
  return result;
}

}  // namespace mlxcel
