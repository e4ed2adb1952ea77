// Prefill and decode speed of the CPU runner on one model, next to a read probe of as many bytes as a decode
// step reads: the ceiling. Figures of one run only compare with each other (memory speed of shared machines
// drifts).
//
//   cpu_bench MODEL [threads [isa [precision [prompt [generated]]]]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/environment.h"
#include "base/threads.h"
#include "kv/block_pool.h"
#include "kv/sequence_cache.h"

namespace {

using namespace mlxcel;

struct Session {
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<KvStorage> storage;
  BlockPool pool{4096, 32};
  std::vector<SequenceCache> sequences;

  // One step in which each sequence gets `count` tokens; seconds.
  double step(size_t num_sequences, int32_t count) {
    std::vector<Input> inputs;
    std::vector<Segment> segments;
    std::vector<OutputRequest> requests;
    for (size_t s = 0; s < num_sequences; ++s) {
      SequenceCache& cache = sequences[s];
      static_cast<void>(cache.commit_append(cache.plan_append(count).value()));
      Segment segment;
      segment.input_begin = static_cast<int32_t>(inputs.size());
      segment.num_inputs = count;
      segment.first_position = cache.length() - count;
      segment.kv = cache.view();
      segment.total_length = cache.length();
      segments.push_back(segment);
      for (int32_t i = 0; i < count; ++i) inputs.push_back(Input::token((i * 7 + 11) % 1000));
      requests.push_back({static_cast<int32_t>(inputs.size()) - 1, false, false});
    }
    ForwardBatch batch;
    batch.inputs = inputs;
    batch.segments = segments;
    batch.outputs = requests;
    const double begin = monotonic_seconds();
    static_cast<void>(runner->wait(runner->submit(batch, *storage)).value());
    return monotonic_seconds() - begin;
  }
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// Bytes per second at which all threads together read `bytes` bytes once.
double read_probe(ThreadPool& pool, uint64_t bytes) {
  std::vector<uint64_t> buffer(bytes / 8, 1);
  std::vector<uint64_t> sums(static_cast<size_t>(pool.num_threads()) * 8);
  std::vector<double> seconds;
  for (int i = 0; i < 7; ++i) {
    const double begin = monotonic_seconds();
    pool.run([&](int thread) {
      const Range mine = split_range(static_cast<int64_t>(buffer.size()), 64, pool.num_threads(), thread);
      uint64_t a = 0, b = 0, c = 0, d = 0;
      for (int64_t k = mine.begin; k + 4 <= mine.end; k += 4) {
        const uint64_t* p = buffer.data() + k;
        a += p[0];
        b += p[1];
        c += p[2];
        d += p[3];
      }
      sums[static_cast<size_t>(thread) * 8] = a + b + c + d;
    });
    seconds.push_back(monotonic_seconds() - begin);
  }
  return static_cast<double>(bytes) / median(seconds);
}

int run(int argc, char** argv) {
  RunnerOptions options;
  options.num_threads = argc > 2 ? std::atoi(argv[2]) : usable_cores();
  options.isa = argc > 3 ? argv[3] : "";
  if (argc > 4) options.precision = parse_activation_precision(argv[4]).value_or(ActivationPrecision::kHigh);
  const int32_t prompt = argc > 5 ? std::atoi(argv[5]) : 256;
  const int generated = argc > 6 ? std::atoi(argv[6]) : 64;
  const double begin = monotonic_seconds();
  auto checkpoint = open_checkpoint(argv[1]);
  if (!checkpoint.ok()) return std::fprintf(stderr, "%s\n", checkpoint.error().to_string().c_str()), 1;
  auto model = load_model(std::move(checkpoint).value());
  if (!model.ok()) return std::fprintf(stderr, "%s\n", model.error().to_string().c_str()), 1;
  auto runner = create_cpu_runner(std::move(model).value(), options);
  if (!runner.ok()) return std::fprintf(stderr, "%s\n", runner.error().to_string().c_str()), 1;
  Session session;
  session.runner = std::move(runner).value();
  std::printf("%s, load %.2f s, resident %.1f MB\n", session.runner->description().c_str(),
              monotonic_seconds() - begin, static_cast<double>(session.runner->resident_bytes()) / 1e6);
  KvBudget budget;
  budget.num_blocks = session.pool.num_blocks();
  session.storage = session.runner->create_kv_storage(KvStorageKind::kPaged, budget).value();
  const uint64_t bytes = session.runner->resident_bytes();
  ThreadPool pool(options.num_threads);
  const double probe = read_probe(pool, bytes);
  for (const size_t batch : {size_t{1}, size_t{4}, size_t{8}}) {
    while (session.sequences.size() < batch)
      session.sequences.push_back(SequenceCache::paged(session.pool, session.runner->kv_layout()));
    for (SequenceCache& sequence : session.sequences) static_cast<void>(sequence.trim(sequence.length()));
    std::vector<double> prefill, decode;
    const auto processor_ms = [](std::clock_t since, double tokens) {
      return 1e3 * static_cast<double>(std::clock() - since) / CLOCKS_PER_SEC / tokens;
    };
    const double size = static_cast<double>(batch);
    std::clock_t since = std::clock();
    for (int i = 0; i < 3; ++i) {
      for (SequenceCache& sequence : session.sequences) static_cast<void>(sequence.trim(sequence.length()));
      prefill.push_back(session.step(batch, prompt));
    }
    const double prefill_ms = processor_ms(since, size * 3 * prompt);
    since = std::clock();
    for (int i = 0; i < generated; ++i) decode.push_back(session.step(batch, 1));
    const double decode_ms = processor_ms(since, size * generated);
    std::printf("batch %zu: prefill %d: %.1f tok/s (%.3f processor ms a token); ", batch, prompt,
                size * prompt / median(prefill), prefill_ms);
    std::printf(
        "decode: median %.1f tok/s, best %.1f (%.3f processor ms a token), %.1f GB/s of weights, probe "
        "%.1f\n",
        size / median(decode), size / *std::min_element(decode.begin(), decode.end()), decode_ms,
        static_cast<double>(bytes) / median(decode) / 1e9, probe / 1e9);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: cpu_bench MODEL [threads [isa [precision [prompt [generated]]]]]\n");
    return 2;
  }
  return run(argc, argv);
}
