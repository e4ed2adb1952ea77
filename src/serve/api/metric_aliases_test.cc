#include "serve/api/metric_aliases.h"

#include <gtest/gtest.h>

namespace mlxcel {
namespace {

constexpr std::string_view kOurs =
    "# HELP mlxcel_steps_total Steps run.\n# TYPE mlxcel_steps_total counter\nmlxcel_steps_total 10\n"
    "# TYPE mlxcel_generated_tokens_total counter\nmlxcel_generated_tokens_total 25\n"
    "# TYPE mlxcel_prompt_tokens_total counter\nmlxcel_prompt_tokens_total{source=\"computed\"} 30\n"
    "mlxcel_prompt_tokens_total{source=\"cached\"} 12\n"
    "# TYPE mlxcel_kv_blocks gauge\nmlxcel_kv_blocks{state=\"free\"} 6\nmlxcel_kv_blocks{state=\"held\"} 2\n"
    "# TYPE mlxcel_requests_finished_total counter\nmlxcel_requests_finished_total{reason=\"stop\"} 3\n"
    "# TYPE mlxcel_request_prefill_seconds histogram\nmlxcel_request_prefill_seconds_bucket{le=\"+Inf\"} 2\n"
    "mlxcel_request_prefill_seconds_sum 1.5\nmlxcel_request_prefill_seconds_count 2\n";

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(MetricAliases, LlamaNames) {
  const std::string text = alias_metrics(kOurs, MetricDialect::kLlama, "m");
  for (const char* line : {"# TYPE llamacpp:prompt_tokens_total counter", "llamacpp:prompt_tokens_total 30",
                           "llamacpp:prompt_seconds_total 1.5", "llamacpp:tokens_predicted_total 25",
                           "llamacpp:n_decode_total 10", "llamacpp:n_busy_slots_per_decode 2.5",
                           "llamacpp:prompt_tokens_seconds 20", "llamacpp:requests_processing 0"})
    EXPECT_TRUE(has_line(text, line)) << line << "\n" << text;
}

TEST(MetricAliases, VllmNamesCarryTheModel) {
  const std::string text = alias_metrics(kOurs, MetricDialect::kVllm, "a\"b");
  for (const char* line : {R"(vllm:prompt_tokens_total{model_name="a\"b"} 42)",
                           R"(vllm:kv_cache_usage_perc{model_name="a\"b"} 0.25)",
                           R"(vllm:request_success_total{finished_reason="stop",model_name="a\"b"} 3)",
                           R"(vllm:request_prefill_time_seconds_bucket{le="+Inf",model_name="a\"b"} 2)",
                           R"(vllm:request_prefill_time_seconds_sum{model_name="a\"b"} 1.5)"})
    EXPECT_TRUE(has_line(text, line)) << line << "\n" << text;
}

}  // namespace
}  // namespace mlxcel
