// Memory for packed weights: a few large anonymous mappings on huge pages, handed out front to back and freed
// together.
//
// Owner: the packed model. Threads: allocate() by one thread; the bytes are then anyone's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace mlxcel {

class WeightArena {
 public:
  WeightArena() = default;
  ~WeightArena();
  WeightArena(WeightArena&& other) noexcept;
  WeightArena& operator=(WeightArena&& other) noexcept;
  WeightArena(const WeightArena&) = delete;
  WeightArena& operator=(const WeightArena&) = delete;

  // Zeroed bytes on a 64-byte border, with kTailBytes readable bytes after them (kernels prefetch and load
  // whole vectors). kOutOfMemory when the system gives none.
  Result<std::byte*> allocate(uint64_t bytes);
  static constexpr uint64_t kTailBytes = 64;
  uint64_t bytes_used() const { return used_; }

 private:
  struct Slab {
    std::byte* data = nullptr;
    uint64_t size = 0, next = 0;
  };
  std::vector<Slab> slabs_;
  uint64_t used_ = 0;
};

}  // namespace mlxcel
