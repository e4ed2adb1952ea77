#include "serve/api/metric_aliases.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <map>
#include <vector>

namespace mlxcel {
namespace {

struct Sample {
  std::string_view suffix, labels, value;  // of "name<suffix>{<labels>} <value>"
};

// Our exposition by metric name. Views into the text.
class Exposition {
 public:
  explicit Exposition(std::string_view text) {
    std::string_view name;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view line = text.substr(at, end - at);
      at = end + 1;
      constexpr std::string_view kType = "# TYPE ";
      if (line.starts_with(kType))
        name = line.substr(kType.size(), line.find(' ', kType.size()) - kType.size());
      if (line.empty() || line.starts_with('#') || !line.starts_with(name)) continue;
      const size_t blank = line.rfind(' ');
      const size_t brace = std::min(line.find('{'), blank);
      Sample sample;
      sample.suffix = line.substr(name.size(), brace - name.size());
      if (brace < blank) sample.labels = line.substr(brace + 1, line.rfind('}') - brace - 1);
      sample.value = line.substr(blank + 1);
      samples_[name].push_back(sample);
    }
  }
  const std::vector<Sample>& of(std::string_view name) const {
    static const std::vector<Sample> kNone;
    const auto it = samples_.find(name);
    return it == samples_.end() ? kNone : it->second;
  }
  // Of all samples whose labels contain `label` ("" : all) and that have this suffix.
  double sum(std::string_view name, std::string_view label = "", std::string_view suffix = "") const {
    double total = 0.0;
    for (const Sample& s : of(name)) {
      if (s.suffix != suffix || s.labels.find(label) == std::string_view::npos) continue;
      double value = 0.0;
      std::from_chars(s.value.data(), s.value.data() + s.value.size(), value);
      total += value;
    }
    return total;
  }

 private:
  std::map<std::string_view, std::vector<Sample>> samples_;
};

struct AliasRow {
  std::string_view name, type, source;
  std::string_view label = {};   // only samples with this label
  std::string_view suffix = {};  // "_sum", "_count" of a histogram
};

constexpr AliasRow kLlamaRows[] = {
    {"llamacpp:prompt_tokens_total", "counter", "mlxcel_prompt_tokens_total", "source=\"computed\""},
    {"llamacpp:prompt_seconds_total", "counter", "mlxcel_request_prefill_seconds", "", "_sum"},
    {"llamacpp:tokens_predicted_total", "counter", "mlxcel_generated_tokens_total"},
    {"llamacpp:tokens_predicted_seconds_total", "counter", "mlxcel_request_decode_seconds", "", "_sum"},
    {"llamacpp:n_decode_total", "counter", "mlxcel_steps_total"},
    {"llamacpp:requests_processing", "gauge", "mlxcel_requests_running"},
    {"llamacpp:requests_deferred", "gauge", "mlxcel_requests_waiting"},
};

constexpr AliasRow kVllmRows[] = {
    {"vllm:num_requests_running", "gauge", "mlxcel_requests_running"},
    {"vllm:num_requests_waiting", "gauge", "mlxcel_requests_waiting"},
    {"vllm:prompt_tokens_total", "counter", "mlxcel_prompt_tokens_total"},
    {"vllm:generation_tokens_total", "counter", "mlxcel_generated_tokens_total"},
    {"vllm:num_preemptions_total", "counter", "mlxcel_preemptions_total"},
    {"vllm:prefix_cache_queries_total", "counter", "mlxcel_prompt_tokens_total"},
    {"vllm:prefix_cache_hits_total", "counter", "mlxcel_prefix_cache_hit_tokens_total"},
    {"vllm:spec_decode_num_drafts_total", "counter", "mlxcel_spec_drafts_total"},
    {"vllm:spec_decode_num_draft_tokens_total", "counter", "mlxcel_spec_draft_tokens_total"},
    {"vllm:spec_decode_num_accepted_tokens_total", "counter", "mlxcel_spec_accepted_tokens_total"},
};

struct HistogramAlias {
  std::string_view name, source;
};
constexpr HistogramAlias kVllmHistograms[] = {
    {"vllm:time_to_first_token_seconds", "mlxcel_time_to_first_token_seconds"},
    {"vllm:inter_token_latency_seconds", "mlxcel_inter_token_latency_seconds"},
    {"vllm:request_time_per_output_token_seconds", "mlxcel_time_per_output_token_seconds"},
    {"vllm:e2e_request_latency_seconds", "mlxcel_request_duration_seconds"},
    {"vllm:request_queue_time_seconds", "mlxcel_request_queue_seconds"},
    {"vllm:request_prefill_time_seconds", "mlxcel_request_prefill_seconds"},
    {"vllm:request_decode_time_seconds", "mlxcel_request_decode_seconds"},
    {"vllm:request_prompt_tokens", "mlxcel_request_prompt_tokens"},
    {"vllm:request_generation_tokens", "mlxcel_request_generated_tokens"},
    {"vllm:iteration_tokens_total", "mlxcel_step_tokens"},
};

class AliasWriter {
 public:
  AliasWriter(const Exposition& ours, std::string labels) : ours_(ours), labels_(std::move(labels)) {}

  void row(const AliasRow& r) { value(r.name, r.type, ours_.sum(r.source, r.label, r.suffix)); }
  void value(std::string_view name, std::string_view type, double v) {
    head(name, type);
    line(name, "", "", fmt::format("{}", v));
  }
  void histogram(const HistogramAlias& h) {
    head(h.name, "histogram");
    for (const Sample& s : ours_.of(h.source)) line(h.name, s.suffix, s.labels, s.value);
  }
  // One sample per label value of ours, under another label name.
  void renamed(std::string_view name, std::string_view source, std::string_view from, std::string_view to) {
    head(name, "counter");
    for (const Sample& s : ours_.of(source)) {
      if (!s.labels.starts_with(from)) continue;
      line(name, "", fmt::format("{}{}", to, s.labels.substr(from.size())), s.value);
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void head(std::string_view name, std::string_view type) {
    fmt::format_to(std::back_inserter(out_), "# TYPE {} {}\n", name, type);
  }
  void line(std::string_view name, std::string_view suffix, std::string_view labels, std::string_view value) {
    std::string all(labels);
    if (!all.empty() && !labels_.empty()) all += ',';
    all += labels_;
    if (!all.empty()) all = "{" + all + "}";
    fmt::format_to(std::back_inserter(out_), "{}{}{} {}\n", name, suffix, all, value);
  }
  const Exposition& ours_;
  std::string labels_, out_;
};

double ratio(double a, double b) { return b > 0.0 ? a / b : 0.0; }

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

}  // namespace

std::string alias_metrics(std::string_view exposition, MetricDialect dialect, std::string_view model) {
  const Exposition ours(exposition);
  if (dialect == MetricDialect::kLlama) {
    AliasWriter out(ours, "");
    for (const AliasRow& r : kLlamaRows) out.row(r);
    const double steps = ours.sum("mlxcel_steps_total");
    out.value("llamacpp:n_busy_slots_per_decode", "counter",
              ratio(ours.sum("mlxcel_generated_tokens_total"), steps));
    out.value("llamacpp:prompt_tokens_seconds", "gauge",
              ratio(ours.sum("mlxcel_prompt_tokens_total", "source=\"computed\""),
                    ours.sum("mlxcel_request_prefill_seconds", "", "_sum")));
    out.value("llamacpp:predicted_tokens_seconds", "gauge",
              ratio(ours.sum("mlxcel_generated_tokens_total"),
                    ours.sum("mlxcel_request_decode_seconds", "", "_sum")));
    return out.take();
  }
  AliasWriter out(ours, fmt::format("model_name=\"{}\"", escaped(model)));
  for (const AliasRow& r : kVllmRows) out.row(r);
  out.value("vllm:kv_cache_usage_perc", "gauge",
            ratio(ours.sum("mlxcel_kv_blocks", "state=\"held\""), ours.sum("mlxcel_kv_blocks")));
  out.renamed("vllm:request_success_total", "mlxcel_requests_finished_total", "reason=", "finished_reason=");
  for (const HistogramAlias& h : kVllmHistograms) out.histogram(h);
  return out.take();
}

}  // namespace mlxcel
