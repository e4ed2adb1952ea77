// One random history of a server, decided by its seed alone: arrivals in prefix families, cancellations,
// deadlines, slow clients, failing rows and steps, pools that are too small. Every step is checked; the first
// broken rule is returned.
//
// Owner: a value. Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fake_engine.h"

namespace mlxcel::sim {

struct SimulationOptions {
  uint64_t block_order_seed = 0;  // another order of the pool's free list; the steps must be the same
  bool forgets_copies = false;    // see FakeEngineOptions
  bool prints_steps = false;
};

// What happened on the way, so that a test can say that it did happen.
struct Coverage {
  uint64_t requests = 0, steps = 0, tokens = 0, preemptions = 0, resumed_cached_tokens = 0, cached_tokens = 0;
  uint64_t refused_for_queue = 0, refused_for_context = 0, refused_for_blocks = 0;
  uint64_t cancelled_waiting = 0, cancelled_in_prompt = 0, cancelled_in_text = 0, slow_clients = 0,
           deadlines = 0;
  uint64_t finished_by_end = 0, finished_by_length = 0, finished_by_context = 0, failed = 0;
  uint64_t bounds_met_exactly = 0;  // first tokens that came in the last step the fairness bound allows
  FakeEngineCounters engine;
  void add(const Coverage& other);
};

struct Outcome {
  std::optional<std::string> failure;
  uint64_t steps_hash = 0;  // of all planned steps
  Coverage coverage;
};

Outcome simulate(uint64_t seed, const SimulationOptions& options);

}  // namespace mlxcel::sim
