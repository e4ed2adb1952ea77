#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"

namespace mlxcel {

namespace {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A worker that finds no job spins this often before it sleeps. About 20 us on a 3 GHz core (a pause is some
// 40 to 140 cycles): longer than the gap between two kernels of one step, far shorter than anything a person
// notices.
constexpr int kSpins = 600;
// At a barrier the other threads arrive within one kernel's imbalance. After this many pauses (some 5 to 10
// us) the thread offers its core at every turn: where other programs keep the machine busy, the thread it
// waits for may be waiting for this very core. With 4,000 pauses two threads were four times slower than one
// beside one busy process.
constexpr int kBarrierSpins = 200;

}  // namespace

struct ThreadPool::State {
  explicit State(int n) : num_threads(n) {}

  const int num_threads;
  std::vector<std::thread> workers;

  alignas(64) std::atomic<uint64_t> generation{0};  // one more per job
  alignas(64) std::atomic<int> unfinished{0};
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<uint32_t> barrier_phase{0};
  std::atomic<bool> stopping{false};
  std::atomic<int> sleepers{0};
  const FunctionRef<void(int)>* job = nullptr;
  std::mutex mutex;
  std::condition_variable wake;

  void work(int thread) {
    uint64_t seen = 0;
    for (;;) {
      if (!wait_for_job(seen)) return;
      seen = generation.load(std::memory_order_acquire);
      (*job)(thread);
      unfinished.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  // False: the pool is stopping.
  bool wait_for_job(uint64_t seen) {
    for (int i = 0; i < kSpins; ++i) {
      if (generation.load(std::memory_order_acquire) != seen)
        return !stopping.load(std::memory_order_acquire);
      relax();
    }
    std::unique_lock lock(mutex);
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    wake.wait(lock, [&] { return generation.load(std::memory_order_seq_cst) != seen; });
    sleepers.fetch_sub(1, std::memory_order_relaxed);
    return !stopping.load(std::memory_order_acquire);
  }

  void announce() {
    generation.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) > 0) {
      // Taking the mutex orders us after a worker that has counted itself asleep but not yet begun to wait.
      { const std::lock_guard lock(mutex); }
      wake.notify_all();
    }
  }
};

ThreadPool::ThreadPool(int num_threads) {
  MLXCEL_CHECK(num_threads >= 1);
  state_ = std::make_unique<State>(num_threads);
  for (int t = 1; t < num_threads; ++t) {
    state_->workers.emplace_back([state = state_.get(), t] { state->work(t); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stopping.store(true, std::memory_order_release);
  state_->announce();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::num_threads() const { return state_->num_threads; }

void ThreadPool::run(FunctionRef<void(int)> job) {
  State& s = *state_;
  if (s.num_threads == 1) {
    job(0);
    return;
  }
  s.job = &job;
  s.unfinished.store(s.num_threads - 1, std::memory_order_relaxed);
  s.announce();
  job(0);
  for (int spins = 0; s.unfinished.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kBarrierSpins) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
  s.job = nullptr;
}

void ThreadPool::barrier() {
  State& s = *state_;
  if (s.num_threads == 1) return;
  const uint32_t phase = s.barrier_phase.load(std::memory_order_acquire);
  if (s.arrived.fetch_add(1, std::memory_order_acq_rel) == s.num_threads - 1) {
    s.arrived.store(0, std::memory_order_relaxed);
    s.barrier_phase.store(phase + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; s.barrier_phase.load(std::memory_order_acquire) == phase; ++spins) {
    if (spins < kBarrierSpins) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

Range split_range(int64_t total, int64_t multiple, int parts, int index) {
  MLXCEL_CHECK(total >= 0 && multiple >= 1 && parts >= 1 && index >= 0 && index < parts);
  const int64_t units = ceil_div(total, multiple);
  const int64_t begin = units * index / parts * multiple, end = units * (index + 1) / parts * multiple;
  return {std::min(begin, total), std::min(end, total)};
}

namespace {
// The cgroup v2 quota in whole cores, 0 when there is none.
int cgroup_cores() {
  const auto text = read_file("/sys/fs/cgroup/cpu.max", 4096);
  if (!text.ok()) return 0;
  long long quota = 0, period = 0;
  if (std::sscanf(text->c_str(), "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0) return 0;
  return static_cast<int>(std::max<long long>(1, quota / period));
}
}  // namespace

int usable_cores() {
  int cores = 1;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    cores = std::max(1, CPU_COUNT(&set));
  } else {
    cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  const int quota = cgroup_cores();
  return quota > 0 ? std::min(cores, quota) : cores;
}

}  // namespace mlxcel
