#include "runtime/serving_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace mlxcel {

void Histogram::observe(double value) {
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
  ++counts[static_cast<size_t>(bucket)];
  sum += value;
}

uint64_t Histogram::count() const {
  uint64_t n = 0;
  for (const uint64_t c : counts) n += c;
  return n;
}

namespace {

Histogram make_histogram(std::vector<double> bounds) {
  Histogram h;
  h.counts.resize(bounds.size() + 1);
  h.bounds = std::move(bounds);
  return h;
}

// Steps of about 2 from 1 ms, so that a laptop's and a server's latencies both fall into the middle.
const std::vector<double> kLatencyBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                            0.25,  0.5,    1.0,   2.5,  5.0,   10.0, 30.0};
const std::vector<double> kDurationBounds = {0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0};
const std::vector<double> kTokenBounds = {1,   2,   4,    8,    16,   32,   64,   128,
                                          256, 512, 1024, 2048, 4096, 8192, 16384};

std::string_view reason_label(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
    case FinishReason::kStopToken:
    case FinishReason::kStopString:
      return "stop";
    case FinishReason::kMaxTokens:
    case FinishReason::kContext:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    default:
      return "error";
  }
}

}  // namespace

ServingMetrics::ServingMetrics() {
  for (const char* name : {"mlxcel_time_to_first_token_seconds", "mlxcel_inter_token_latency_seconds",
                           "mlxcel_time_per_output_token_seconds", "mlxcel_request_queue_seconds",
                           "mlxcel_request_prefill_seconds", "mlxcel_request_decode_seconds"}) {
    histograms_.emplace(name, make_histogram(kLatencyBounds));
  }
  histograms_.emplace("mlxcel_request_duration_seconds", make_histogram(kDurationBounds));
  for (const char* name :
       {"mlxcel_request_prompt_tokens", "mlxcel_request_generated_tokens", "mlxcel_step_tokens"}) {
    histograms_.emplace(name, make_histogram(kTokenBounds));
  }
  for (const char* reason : {"stop", "length", "cancelled", "error"}) {
    counters_.emplace(fmt::format("mlxcel_requests_finished_total{{reason=\"{}\"}}", reason), 0);
  }
}

void ServingMetrics::add(std::string_view counter, uint64_t n) { counters_[std::string(counter)] += n; }
void ServingMetrics::set(std::string_view counter, uint64_t value) {
  counters_[std::string(counter)] = value;
}

void ServingMetrics::observe(std::string_view histogram, double value) {
  const auto it = histograms_.find(std::string(histogram));
  MLXCEL_CHECK(it != histograms_.end());
  it->second.observe(value);
}

void ServingMetrics::observe_finished(const RequestTimings& t, FinishReason reason, int64_t prompt_tokens,
                                      int64_t cached_tokens, int64_t generated_tokens) {
  add(fmt::format("mlxcel_requests_finished_total{{reason=\"{}\"}}", reason_label(reason)));
  if (t.first_token <= 0.0) return;  // ended before it said anything
  add("mlxcel_prompt_tokens_total{source=\"computed\"}",
      static_cast<uint64_t>(prompt_tokens - cached_tokens));
  add("mlxcel_prompt_tokens_total{source=\"cached\"}", static_cast<uint64_t>(cached_tokens));
  add("mlxcel_generated_tokens_total", static_cast<uint64_t>(generated_tokens));
  observe("mlxcel_request_queue_seconds", t.first_scheduled - t.queued);
  observe("mlxcel_request_prefill_seconds", t.first_token - t.first_scheduled);
  observe("mlxcel_request_decode_seconds", t.finished - t.first_token);
  observe("mlxcel_request_duration_seconds", t.finished - t.queued);
  observe("mlxcel_request_prompt_tokens", static_cast<double>(prompt_tokens));
  observe("mlxcel_request_generated_tokens", static_cast<double>(generated_tokens));
  if (generated_tokens > 1) {
    observe("mlxcel_time_per_output_token_seconds",
            (t.finished - t.first_token) / static_cast<double>(generated_tokens - 1));
  }
}

}  // namespace mlxcel
