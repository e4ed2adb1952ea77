// What the serving loop counts: histograms and counters by metric name (serve/api/metrics.cc exports them).
//
// Owner: the serving loop. Threads: the engine thread; snapshots are copies.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "runtime/serving.h"

namespace mlxcel {

class ServingMetrics {
 public:
  ServingMetrics();
  void add(std::string_view counter, uint64_t n = 1);
  void set(std::string_view counter, uint64_t value);
  void observe(std::string_view histogram, double value);
  // Everything that follows from one finished choice.
  void observe_finished(const RequestTimings& timings, FinishReason reason, int64_t prompt_tokens,
                        int64_t cached_tokens, int64_t generated_tokens);
  const std::map<std::string, uint64_t>& counters() const { return counters_; }
  const std::map<std::string, Histogram>& histograms() const { return histograms_; }

 private:
  std::map<std::string, uint64_t> counters_;
  std::map<std::string, Histogram> histograms_;
};

}  // namespace mlxcel
