// How much memory a model will take, decided before its weights are read: the KV cache's budget, and whether
// all of it fits. `mlxcel inspect` prints the same numbers.
//
// Owner: nobody; a pure function of its arguments. Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "kv/kv_layout.h"

namespace mlxcel {

// What the user asked of the KV cache.
struct KvMemory {
  std::optional<int64_t> bytes;   // an exact budget
  std::optional<double> percent;  // of what is free once the weights are there; 0 < percent <= 100
  // neither: what every sequence's whole context takes, but not more than kAutoShare of the free memory
};
inline constexpr double kAutoShare = 0.9;

struct MemoryDemand {
  uint64_t weight_bytes = 0;
  KvLayout layout;
  int64_t context_length = 0;  // rows
  int64_t max_sequences = 1;
  KvMemory kv;
  bool force = false;  // --force: plan the demand even though it does not fit
};

struct MemoryPlan {
  uint64_t weight_bytes = 0, kv_bytes = 0, state_bytes = 0;
  int64_t kv_rows = 0;                      // of all sequences together
  std::optional<uint64_t> available_bytes;  // nullopt: unknown, nothing was checked
  bool is_kv_reduced = false;               // automatic, and less than every sequence's whole context
  uint64_t total_bytes() const { return weight_bytes + kv_bytes + state_bytes; }
  // "weights 92 MiB, kv cache 1.4 GiB (8 x 8192 rows) of 20 GiB free"
  std::string describe() const;
};

// `available`: available_memory_bytes() at the time, nullopt where the system does not say.
// Errors: kOutOfMemory with both numbers when it does not fit or when an automatic or percent budget does not
// hold one row of one sequence (unless `force`); kInvalidArgument for a percentage where nothing is known.
Result<MemoryPlan> plan_memory(const MemoryDemand& demand, std::optional<uint64_t> available);

}  // namespace mlxcel
