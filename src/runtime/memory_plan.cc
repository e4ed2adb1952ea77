#include "runtime/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace mlxcel {
namespace {

// An unsigned product that stops at the largest value instead of wrapping.
uint64_t saturating_product(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}
uint64_t saturating_sum(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

uint64_t share_of(uint64_t bytes, double share) {
  return static_cast<uint64_t>(static_cast<double>(bytes) * share);
}

}  // namespace

std::string MemoryPlan::describe() const {
  std::string text = fmt::format("weights {}, kv cache {} ({} rows)", format_bytes(weight_bytes),
                                 format_bytes(kv_bytes), kv_rows);
  if (state_bytes > 0) text += fmt::format(", state {}", format_bytes(state_bytes));
  if (available_bytes) text += fmt::format(" of {} free", format_bytes(*available_bytes));
  return text;
}

Result<MemoryPlan> plan_memory(const MemoryDemand& demand, std::optional<uint64_t> available) {
  MLXCEL_CHECK(demand.context_length > 0 && demand.max_sequences > 0);
  MLXCEL_CHECK(!(demand.kv.bytes && demand.kv.percent));
  const auto sequences = static_cast<uint64_t>(demand.max_sequences);
  const auto row_bytes = static_cast<uint64_t>(std::max<int64_t>(1, demand.layout.bytes_per_row()));
  const uint64_t one_context = saturating_product(row_bytes, static_cast<uint64_t>(demand.context_length));
  const uint64_t all_contexts = saturating_product(one_context, sequences);
  MemoryPlan plan;
  plan.available_bytes = available;
  plan.weight_bytes = demand.weight_bytes;
  plan.state_bytes =
      saturating_product(static_cast<uint64_t>(demand.layout.state_bytes_per_sequence()), sequences);
  const uint64_t fixed = saturating_sum(plan.weight_bytes, plan.state_bytes);
  const uint64_t left = available ? *available - std::min(*available, fixed) : UINT64_MAX;

  uint64_t least = row_bytes;  // of the cache, below which nothing can run
  if (demand.kv.bytes) {
    plan.kv_bytes = static_cast<uint64_t>(*demand.kv.bytes);
  } else if (demand.kv.percent) {
    if (!available) {
      return make_error(ErrorKind::kInvalidArgument, "the free memory of this machine is not known",
                        "--kv-memory", "a size", fmt::format("{}%", *demand.kv.percent),
                        "give a size, as 2GiB");
    }
    plan.kv_bytes = share_of(left, *demand.kv.percent / 100.0);
  } else {
    plan.kv_bytes = available ? std::min(all_contexts, share_of(left, kAutoShare)) : all_contexts;
    plan.is_kv_reduced = plan.kv_bytes < all_contexts;
    least = one_context;
    if (demand.force && plan.kv_bytes < least) plan.kv_bytes = least;
  }
  plan.kv_rows = static_cast<int64_t>(std::min<uint64_t>(plan.kv_bytes / row_bytes, INT64_MAX));
  if (demand.force) return plan;
  const bool is_short =
      plan.kv_bytes < least && !demand.kv.bytes;  // a budget in bytes is the engine's to judge
  if (!is_short && (!available || saturating_sum(fixed, plan.kv_bytes) <= *available)) return plan;

  const uint64_t needed = std::max(plan.kv_bytes, least);
  const uint64_t rows_that_fit = left / row_bytes;
  std::string hint =
      fixed >= *available
          ? "use a smaller model or a smaller quantisation"
          : fmt::format(
                "{} rows fit: use a smaller -c (now {}), fewer sequences (now {}), a smaller --kv-memory or "
                "-ctk q8_0 -ctv q8_0",
                rows_that_fit, demand.context_length, demand.max_sequences);
  return make_error(
      ErrorKind::kOutOfMemory, "the model does not fit in memory", "",
      fmt::format("at most {}, which is what is free", format_bytes(*available)),
      fmt::format(
          "weights {} + kv cache {} ({} rows of {}){}", format_bytes(plan.weight_bytes), format_bytes(needed),
          needed / row_bytes, format_bytes(row_bytes),
          plan.state_bytes > 0 ? fmt::format(" + state {}", format_bytes(plan.state_bytes)) : std::string()),
      hint + ", or --force to try all the same");
}

}  // namespace mlxcel
