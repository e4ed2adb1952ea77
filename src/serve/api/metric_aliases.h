// --metrics-alias: the metrics once more under the names of llama-server and vLLM, so that dashboards made
// for them work. Made from our own exposition text, so that the numbers cannot differ. Pure functions; any
// thread.
#pragma once

#include <string>
#include <string_view>

namespace mlxcel {

enum class MetricDialect { kLlama, kVllm };

// Lines to append to `exposition` (what render_metrics() wrote). `model`: the label model_name of vLLM's
// metrics. Names: llama.cpp tools/server README ("GET /metrics"); docs.vllm.ai "Production Metrics".
std::string alias_metrics(std::string_view exposition, MetricDialect dialect, std::string_view model);

}  // namespace mlxcel
