#include "serve/api/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "base/file.h"

namespace mlxcel {

namespace {

constexpr MetricRow kTable[] = {
    {"mlxcel_build_info", MetricType::kGauge, "Version of the program, as labels."},
    {"mlxcel_model_info", MetricType::kGauge, "The loaded model, as labels."},
    {"mlxcel_requests_running", MetricType::kGauge, "Sequences that take part in steps."},
    {"mlxcel_requests_waiting", MetricType::kGauge, "Requests in the queue."},
    {"mlxcel_requests_finished_total", MetricType::kCounter, "Finished choices by reason."},
    {"mlxcel_prompt_tokens_total", MetricType::kCounter,
     "Prompt tokens, computed or taken from the prefix cache."},
    {"mlxcel_generated_tokens_total", MetricType::kCounter, "Tokens generated."},
    {"mlxcel_time_to_first_token_seconds", MetricType::kHistogram, "From arrival to the first token."},
    {"mlxcel_inter_token_latency_seconds", MetricType::kHistogram, "Between two tokens of a choice."},
    {"mlxcel_time_per_output_token_seconds", MetricType::kHistogram,
     "Mean per choice after the first token."},
    {"mlxcel_request_duration_seconds", MetricType::kHistogram, "From arrival to the last token."},
    {"mlxcel_request_queue_seconds", MetricType::kHistogram, "From arrival to the first step."},
    {"mlxcel_request_prefill_seconds", MetricType::kHistogram, "From the first step to the first token."},
    {"mlxcel_request_decode_seconds", MetricType::kHistogram, "From the first token to the last."},
    {"mlxcel_request_prompt_tokens", MetricType::kHistogram, "Prompt length."},
    {"mlxcel_request_generated_tokens", MetricType::kHistogram, "Answer length."},
    {"mlxcel_step_tokens", MetricType::kHistogram, "Tokens in one step."},
    {"mlxcel_steps_total", MetricType::kCounter, "Steps run."},
    {"mlxcel_kv_blocks", MetricType::kGauge, "KV blocks by state."},
    {"mlxcel_kv_bytes", MetricType::kGauge, "Bytes of the KV storage."},
    {"mlxcel_prefix_cache_lookups_total", MetricType::kCounter, "Prompts looked up."},
    {"mlxcel_prefix_cache_hits_total", MetricType::kCounter, "Prompts with a hit."},
    {"mlxcel_prefix_cache_hit_tokens_total", MetricType::kCounter, "Prompt tokens not computed again."},
    {"mlxcel_prefix_cache_evictions_total", MetricType::kCounter, "Cached blocks given up."},
    {"mlxcel_kv_block_copies_total", MetricType::kCounter, "Blocks copied before a write (copy on write)."},
    {"mlxcel_preemptions_total", MetricType::kCounter, "Sequences that gave up their rows for others."},
    {"mlxcel_padded_rows_trimmed_total", MetricType::kCounter, "Rows of padded prefill removed again."},
    {"mlxcel_lookahead_rows_trimmed_total", MetricType::kCounter, "Rows of lookahead removed again."},
    {"mlxcel_spec_drafts_total", MetricType::kCounter, "Verified drafts."},
    {"mlxcel_spec_draft_tokens_total", MetricType::kCounter, "Draft tokens proposed."},
    {"mlxcel_spec_accepted_tokens_total", MetricType::kCounter, "Draft tokens accepted."},
    {"mlxcel_unknown_fields_total", MetricType::kCounter,
     "Request fields ignored because nobody knows them."},
    {"mlxcel_http_requests_total", MetricType::kCounter, "HTTP requests by route and status."},
    {"process_resident_memory_bytes", MetricType::kGauge, "Resident memory."},
    {"process_start_time_seconds", MetricType::kGauge, "Unix time of the start."},
    {"process_open_fds", MetricType::kGauge, "Open file descriptors."},
};

std::string escape_label(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out.push_back('\\');
    if (c == '\n') {
      out += "\\n";
    } else {
      out.push_back(c);
    }
  }
  return out;
}

uint64_t resident_bytes() {
  const auto text = read_file("/proc/self/statm", 4096);
  if (!text.ok()) return 0;
  unsigned long long total = 0, resident = 0;
  if (std::sscanf(text->c_str(), "%llu %llu", &total, &resident) != 2) return 0;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

class Exporter {
 public:
  explicit Exporter(const MetricsInput& in) : in_(in) {}

  std::string run() {
    for (const MetricRow& row : kTable) write(row);
    return std::move(out_);
  }

 private:
  void line(std::string_view name, std::string_view labels, double value) {
    // Counters beyond 2^53 do not occur; whole numbers are printed without a fraction.
    if (labels.empty()) {
      fmt::format_to(std::back_inserter(out_), "{} {}\n", name, value);
    } else {
      fmt::format_to(std::back_inserter(out_), "{}{{{}}} {}\n", name, labels, value);
    }
  }
  void histogram(std::string_view name, const Histogram& h) {
    uint64_t sum = 0;
    for (size_t i = 0; i < h.counts.size(); ++i) {
      sum += h.counts[i];
      const std::string bound = i < h.bounds.size() ? fmt::format("{}", h.bounds[i]) : "+Inf";
      fmt::format_to(std::back_inserter(out_), "{}_bucket{{le=\"{}\"}} {}\n", name, bound, sum);
    }
    fmt::format_to(std::back_inserter(out_), "{}_sum {}\n{}_count {}\n", name, h.sum, name, sum);
  }
  // Counters whose keys carry labels: every key that is the name, or the name and a brace.
  bool write_counters(std::string_view name) {
    bool any = false;
    for (const auto& [key, value] : in_.snapshot.counters) {
      if (key != name && !(key.starts_with(name) && key[name.size()] == '{')) continue;
      fmt::format_to(std::back_inserter(out_), "{} {}\n", key, value);
      any = true;
    }
    return any;
  }
  void write(const MetricRow& row) {
    constexpr std::string_view types[] = {"counter", "gauge", "histogram"};
    fmt::format_to(std::back_inserter(out_), "# HELP {} {}\n# TYPE {} {}\n", row.name, row.help, row.name,
                   types[static_cast<int>(row.type)]);
    if (row.type == MetricType::kHistogram) {
      const auto it = in_.snapshot.histograms.find(std::string(row.name));
      if (it != in_.snapshot.histograms.end()) histogram(row.name, it->second);
      return;
    }
    if (write_special(row.name)) return;
    if (!write_counters(row.name)) line(row.name, "", 0);
  }
  bool write_special(std::string_view name) {
    const ServingSnapshot& s = in_.snapshot;
    const ModelInfo& m = in_.model;
    if (name == "mlxcel_build_info") {
      line(name, fmt::format("version=\"{}\"", escape_label(in_.version)), 1);
    } else if (name == "mlxcel_model_info") {
      line(name,
           fmt::format("id=\"{}\",family=\"{}\",quantisation=\"{}\",kv_type=\"{}\",storage=\"{}\",precision="
                       "\"{}\",device=\"{}\"",
                       escape_label(m.id), escape_label(m.family), escape_label(m.quantisation), m.kv_type,
                       m.storage, m.precision, escape_label(m.device)),
           1);
    } else if (name == "mlxcel_requests_running") {
      line(name, "", static_cast<double>(s.running));
    } else if (name == "mlxcel_requests_waiting") {
      line(name, "", static_cast<double>(s.waiting));
    } else if (name == "mlxcel_kv_blocks") {
      line(name, "state=\"free\"", static_cast<double>(s.kv_blocks_free));
      line(name, "state=\"held\"", static_cast<double>(s.kv_blocks_held));
      line(name, "state=\"cached\"", static_cast<double>(s.kv_blocks_cached));
    } else if (name == "mlxcel_kv_bytes") {
      line(name, "", static_cast<double>(s.kv_bytes));
    } else if (name == "mlxcel_unknown_fields_total") {
      line(name, "", static_cast<double>(in_.unknown_fields));
    } else if (name == "mlxcel_http_requests_total") {
      for (const auto& [key, n] : in_.http)
        line(name, fmt::format("route=\"{}\",code=\"{}\"", key.first, key.second), static_cast<double>(n));
    } else if (name == "process_resident_memory_bytes") {
      line(name, "", static_cast<double>(resident_bytes()));
    } else if (name == "process_start_time_seconds") {
      line(name, "", static_cast<double>(m.created));
    } else if (name == "process_open_fds") {
      const auto names = list_directory("/proc/self/fd");
      line(name, "", names.ok() ? static_cast<double>(names->size()) : 0.0);
    } else {
      return false;
    }
    return true;
  }

  const MetricsInput& in_;
  std::string out_;
};

}  // namespace

std::span<const MetricRow> metric_table() { return kTable; }
std::string render_metrics(const MetricsInput& input) { return Exporter(input).run(); }

}  // namespace mlxcel
