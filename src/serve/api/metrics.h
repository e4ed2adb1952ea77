// /metrics: one table of what is exported, and the Prometheus text made from it and a snapshot.
// Pure functions; any thread.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "runtime/serving.h"

namespace mlxcel {

enum class MetricType { kCounter, kGauge, kHistogram };
struct MetricRow {
  std::string_view name;
  MetricType type = MetricType::kCounter;
  std::string_view help;
};
std::span<const MetricRow> metric_table();

// Requests by route and status, counted by the HTTP layer: "route\0code" -> n.
using HttpCounts = std::map<std::pair<std::string, int>, uint64_t>;

struct MetricsInput {
  const ServingSnapshot& snapshot;
  const ModelInfo& model;
  const HttpCounts& http;
  std::string_view version;
  uint64_t unknown_fields = 0;
};
std::string render_metrics(const MetricsInput& input);

}  // namespace mlxcel
