// A few threads for work that would hold up the I/O thread: parsing, rendering and encoding of prompts.
//
// Owner: ApiServer. Threads: submit() from any; tasks run on the pool's threads, in order of arrival per
// pool. The queue is bounded: a full one refuses, and the request is answered with 503.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace mlxcel {

class WorkerPool {
 public:
  WorkerPool(int num_threads, size_t max_queued);
  ~WorkerPool();  // runs nothing more; waits for the tasks in progress
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  bool submit(std::function<void()> task);

 private:
  void work();
  const size_t max_queued_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mlxcel
