// Thousands of random histories of the scheduler over the real KV accounting.
//
//   mlxcel_sim                      seeds 1..10000, each twice with other block numbers
//   mlxcel_sim --seeds N            seeds 1..N
//   mlxcel_sim --seed S             that one alone, with every step printed
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "simulation.h"

namespace mlxcel::sim {
namespace {

uint64_t first_seed = 1, last_seed = 10000;
bool prints_steps = false;
std::string program = "mlxcel_sim";

// What the signal handler prints when an invariant of the code under test aborts the program.
char replay_line[512];

void note_seed(uint64_t seed) {
  std::snprintf(replay_line, sizeof replay_line, "replay: %s --seed %llu\n", program.c_str(),
                static_cast<unsigned long long>(seed));
}

void print_replay_line(int) {
  const auto ignored = ::write(STDERR_FILENO, replay_line, std::strlen(replay_line));
  static_cast<void>(ignored);
}

TEST(Simulation, EveryHistoryKeepsTheRules) {
  Coverage coverage;
  for (uint64_t seed = first_seed; seed <= last_seed; ++seed) {
    note_seed(seed);
    SimulationOptions options;
    options.prints_steps = prints_steps;
    const Outcome outcome = simulate(seed, options);
    ASSERT_FALSE(outcome.failure) << "seed " << seed << ": " << *outcome.failure << "\n" << replay_line;
    coverage.add(outcome.coverage);
    options.block_order_seed = seed + 1000;
    options.prints_steps = false;
    const Outcome again = simulate(seed, options);
    ASSERT_FALSE(again.failure) << "seed " << seed << ": " << *again.failure << "\n" << replay_line;
    ASSERT_EQ(outcome.steps_hash, again.steps_hash) << "the steps depend on block numbers\n" << replay_line;
  }
  fmt::print("{} requests, {} steps, {} tokens; {} pre-emptions, {} + {} tokens from cached prefixes\n",
             coverage.requests, coverage.steps, coverage.tokens, coverage.preemptions, coverage.cached_tokens,
             coverage.resumed_cached_tokens);
  if (last_seed - first_seed < 999) return;
  // Each path did run.
  for (const uint64_t count : {coverage.preemptions,
                               coverage.cached_tokens,
                               coverage.resumed_cached_tokens,
                               coverage.refused_for_queue,
                               coverage.refused_for_context,
                               coverage.refused_for_blocks,
                               coverage.cancelled_waiting,
                               coverage.cancelled_in_prompt,
                               coverage.cancelled_in_text,
                               coverage.slow_clients,
                               coverage.deadlines,
                               coverage.finished_by_end,
                               coverage.finished_by_length,
                               coverage.finished_by_context,
                               coverage.failed,
                               coverage.bounds_met_exactly,
                               coverage.engine.copies,
                               coverage.engine.evicted,
                               coverage.engine.padded_rows_trimmed,
                               coverage.engine.drafts_accepted,
                               coverage.engine.drafts_rejected,
                               coverage.engine.row_errors,
                               coverage.engine.step_errors,
                               coverage.engine.tails_not_adopted}) {
    EXPECT_GT(count, 0u);
  }
}

TEST(Simulation, TheCanaryIsFound) {  // a fork that copies nothing must not go unseen
  SimulationOptions options;
  options.forgets_copies = true;
  int num_found = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) num_found += simulate(seed, options).failure ? 1 : 0;
  EXPECT_GT(num_found, 20);
}

}  // namespace

void read_arguments(int argc, char** argv) {
  program = argv[0];
  for (int i = 1; i + 1 < argc; i += 2) {
    const uint64_t number = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::string_view(argv[i]) == "--seed") {
      first_seed = last_seed = number;
      prints_steps = true;
    } else if (std::string_view(argv[i]) == "--seeds") {
      last_seed = number;
    }
  }
}

}  // namespace mlxcel::sim

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  mlxcel::sim::read_arguments(argc, argv);
  std::signal(SIGABRT, mlxcel::sim::print_replay_line);
  return RUN_ALL_TESTS();
}
