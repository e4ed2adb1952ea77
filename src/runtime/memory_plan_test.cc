#include "runtime/memory_plan.h"

#include <gtest/gtest.h>

namespace mlxcel {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// 2 layers x 1 head x 64+64 values x 2 bytes = 512 bytes a row.
MemoryDemand small_demand() {
  MemoryDemand demand;
  demand.weight_bytes = 100 * kMiB;
  LayerKvLayout layer;
  layer.num_kv_heads = 1;
  layer.key_dim = layer.value_dim = 64;
  demand.layout.layers = {layer, layer};
  demand.context_length = 8192;
  demand.max_sequences = 4;
  return demand;
}

TEST(MemoryPlan, AutomaticTakesWhatEveryContextNeeds) {
  const auto plan = plan_memory(small_demand(), 1000 * kMiB);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->kv_bytes, 4u * 8192u * 512u);
  EXPECT_EQ(plan->kv_rows, 4 * 8192);
  EXPECT_FALSE(plan->is_kv_reduced);
  EXPECT_EQ(plan->describe(), "weights 100.0 MiB, kv cache 16.0 MiB (32768 rows) of 1000.0 MiB free");
}

TEST(MemoryPlan, AutomaticStaysWithinTheFreeMemory) {
  const auto plan = plan_memory(small_demand(), 110 * kMiB);  // 10 MiB beside the weights
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->is_kv_reduced);
  EXPECT_EQ(plan->kv_bytes, 9 * kMiB);
  EXPECT_LE(plan->total_bytes(), 110 * kMiB);
}

TEST(MemoryPlan, AutomaticHoldsOneWholeContextOrRefusesWithTheNumbers) {
  const auto plan = plan_memory(small_demand(), 102 * kMiB);  // one context is 4 MiB
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().kind, ErrorKind::kOutOfMemory);
  EXPECT_NE(plan.error().expected.find("102.0 MiB"), std::string::npos);
  EXPECT_NE(plan.error().found.find("weights 100.0 MiB + kv cache 4.00 MiB (8192 rows of 512 B)"),
            std::string::npos)
      << plan.error().found;
  EXPECT_NE(plan.error().hint.find("4096 rows fit"), std::string::npos) << plan.error().hint;
  MemoryDemand forced = small_demand();
  forced.force = true;
  const auto anyway = plan_memory(forced, 102 * kMiB);
  ASSERT_TRUE(anyway.ok());
  EXPECT_EQ(anyway->kv_rows, 8192);
}

TEST(MemoryPlan, WeightsAloneCanBeTooMuch) {
  const auto plan = plan_memory(small_demand(), 90 * kMiB);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.error().hint.find("smaller quantisation"), std::string::npos);
}

TEST(MemoryPlan, PercentIsOfWhatTheWeightsLeave) {
  MemoryDemand demand = small_demand();
  demand.kv.percent = 25.0;
  const auto plan = plan_memory(demand, 500 * kMiB);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->kv_bytes, 100 * kMiB);  // more rows than all contexts: the prefix cache lives there
  EXPECT_FALSE(plan->is_kv_reduced);
  const auto unknown = plan_memory(demand, std::nullopt);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().kind, ErrorKind::kInvalidArgument);
}

TEST(MemoryPlan, AnExactBudgetIsTakenOrRefused) {
  MemoryDemand demand = small_demand();
  demand.kv.bytes = static_cast<int64_t>(3 * kMiB);
  EXPECT_EQ(plan_memory(demand, 103 * kMiB)->kv_bytes, 3 * kMiB);
  EXPECT_EQ(plan_memory(demand, 102 * kMiB).error().kind, ErrorKind::kOutOfMemory);
  demand.force = true;
  EXPECT_EQ(plan_memory(demand, 102 * kMiB)->kv_bytes, 3 * kMiB);
}

TEST(MemoryPlan, WithoutKnowledgeNothingIsRefused) {
  EXPECT_TRUE(plan_memory(small_demand(), std::nullopt).ok());
}

TEST(MemoryPlan, ProductsOfHugeNumbersDoNotWrap) {
  MemoryDemand demand = small_demand();
  demand.context_length = INT64_MAX / 2;
  demand.max_sequences = 1 << 20;
  EXPECT_EQ(plan_memory(demand, 1000 * kMiB).error().kind, ErrorKind::kOutOfMemory);
}

}  // namespace
}  // namespace mlxcel
