// One fork-join pool for kernels: a fixed number of threads, the caller being thread 0. Workers spin briefly
// between jobs (a decode step is many short jobs) and then sleep, so an idle program uses no CPU.
//
// Owner: the runner. Threads: run() is called by one thread at a time (the engine thread). The partition of
// work is the caller's, by thread number, so results never depend on timing. No allocation in run().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace mlxcel {

// A non-owning reference to a callable: unlike std::function it never allocates.
template <typename Signature>
class FunctionRef;
template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename F>
  FunctionRef(F&& f)  // NOLINT(google-explicit-constructor)
      : object_(const_cast<void*>(static_cast<const void*>(&f))), call_([](void* o, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(o))(static_cast<Args&&>(args)...);
        }) {}
  R operator()(Args... args) const { return call_(object_, static_cast<Args&&>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

class ThreadPool {
 public:
  // num_threads >= 1; the pool starts num_threads - 1 workers.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;
  // Calls job(thread) for thread = 0 .. num_threads-1, each on its own thread, and returns when all are done.
  // Exceptions must not leave the job. Not reentrant.
  void run(FunctionRef<void(int)> job);
  // A barrier for all threads inside one run(): lets a fused job have phases without leaving the pool.
  void barrier();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// [begin, end) of part `index` of `total` items cut into `parts` contiguous parts in units of `multiple`.
struct Range {
  int64_t begin = 0, end = 0;
};
Range split_range(int64_t total, int64_t multiple, int parts, int index);

// Cores this process may use (affinity mask and cgroup quota), at least 1.
int usable_cores();

}  // namespace mlxcel
