// The seam between the engine and the hardware: a loaded model on one device (ModelRunner), its KV bytes
// (KvStorage) and one ragged forward pass (ForwardBatch -> StepOutputs). Coarse on purpose: a backend fuses,
// packs weights and captures graphs as it likes, and nobody above knows.
//
// There are no modes "prefill" and "decode" here: a segment has n >= 1 tokens. The numeric contract
// (docs/numerics.md) holds for every implementation: the logits of a token depend on the weights and on the
// tokens before it, and on nothing else.
//
// Owner: the engine owns the runner and the storage. Threads: the engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "kv/kv_layout.h"
#include "kv/kv_view.h"
#include "kv/sequence_cache.h"
#include "model/model_loader.h"

namespace mlxcel {

using TokenId = int32_t;

struct RunnerCapabilities {            // the default of each is "no"
  int32_t preferred_row_multiple = 1;  // > 1: the engine pads segments to it (padded prefill)
  bool can_trim = false;
  bool can_snapshot = false;
  bool accepts_embeddings = false;
  bool samples_on_device = false;
};

enum class ActivationPrecision { kHigh, kF32, kInt8 };  // 15-bit integer, f32, 8-bit integer activations
std::string_view activation_precision_name(ActivationPrecision p);
std::optional<ActivationPrecision> parse_activation_precision(std::string_view name);

struct RunnerOptions {
  ActivationPrecision precision = ActivationPrecision::kHigh;
  KvType key_type = KvType::kF16, value_type = KvType::kF16;
  int num_threads = 1;
  std::string isa;  // empty: the best this machine has; else avx2, avx512, avx512vnni, amx, neon, scalar
  int64_t max_position = 0;  // rows a sequence may reach (rope tables); 0: the spec's max_position
  // Called from time to time while weights are packed: bytes done, bytes in all.
  std::function<void(uint64_t, uint64_t)> progress;
};

struct KvBudget {
  int32_t block_size = 32;        // paged: 1..256
  int32_t num_blocks = 0;         // paged
  int32_t num_slots = 0;          // dense: sequences at once
  int64_t max_rows_per_slot = 0;  // dense
};

// The bytes behind the accounting of kv/. Dense storages hand out their slots through dense_slots().
class KvStorage {
 public:
  virtual ~KvStorage() = default;
  virtual KvStorageKind kind() const = 0;
  virtual int64_t bytes() const = 0;      // allocated now
  virtual DenseSlots* dense_slots() = 0;  // nullptr when paged
  // The row as f32 [num_kv_heads * dim], keys or values, for tests and diagnosis. REQUIRES: 0 <= position <
  // view.length.
  virtual std::vector<float> read_row(const KvView& view, int layer, bool value, int64_t position) const = 0;
  // Tests: overwrite every byte that no live row uses with NaN patterns, so a kernel that reads one is
  // caught.
  virtual void poison_unused(std::span<const KvView> live) = 0;
};

// A token id, a row of the step before (lookahead), or an embedding row.
struct Input {
  enum class Kind { kToken, kPreviousOutput, kEmbedding };
  Kind kind = Kind::kToken;
  int32_t value = 0;  // the token id, the output's index, or the row in ForwardBatch::embeddings
  static Input token(TokenId id) { return {Kind::kToken, id}; }
};

struct Segment {                            // one per sequence
  int32_t input_begin = 0, num_inputs = 0;  // range of ForwardBatch::inputs; num_inputs >= 1
  int64_t first_position = 0;               // of the first input; == kv.length - num_inputs
  KvView kv;                                // after the append
  // Tokens known of the sequence, computed or not, padding not counted. Decides length-dependent ropes: the
  // segment uses RopeTable::regime(total_length), so that every chunk of a prompt is rotated as its end will
  // be.
  int64_t total_length = 0;
  int32_t state_slot = -1;  // recurrent state; -1: the model has none
};

struct OutputRequest {
  int32_t input = 0;          // index into ForwardBatch::inputs; ascending over the requests
  bool wants_logits = false;  // all vocab_size of them; else only the argmax
  bool wants_hidden = false;  // the final-norm output [hidden_size]
};

struct ForwardBatch {
  std::span<const Input> inputs;  // [num_tokens]
  std::span<const Segment> segments;
  std::span<const BlockCopy> block_copies;  // copy-on-write forks, done first
  std::span<const OutputRequest> outputs;
  std::span<const float> embeddings;  // [rows, hidden_size]
};

struct Output {
  TokenId argmax = 0;             // ties to the lower id
  std::span<const float> logits;  // [vocab_size] when asked for; valid until the next submit()
  std::span<const float> hidden;  // [hidden_size] when asked for; likewise
};
struct StepOutputs {
  std::vector<Output> outputs;  // one per OutputRequest, same order
  double seconds = 0.0;         // time the device worked
};

struct Ticket {
  uint64_t id = 0;
};

struct StateSnapshot {  // recurrent and convolution state of one sequence at one position
  int64_t position = 0;
  std::vector<std::byte> bytes;
};

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;
  virtual const RunnerCapabilities& capabilities() const = 0;
  virtual const KvLayout& kv_layout() const = 0;
  virtual const ModelSpec& spec() const = 0;
  virtual ActivationPrecision precision() const = 0;
  virtual std::string description() const = 0;  // "cpu avx2, 2 threads": for the banner
  virtual uint64_t resident_bytes() const = 0;  // packed weights and scratch
  virtual Result<std::unique_ptr<KvStorage>> create_kv_storage(KvStorageKind kind,
                                                               const KvBudget& budget) = 0;
  // May return before the work is done. Tickets complete in order; at most one is outstanding on backends
  // that do not overlap. REQUIRES: positions and views agree (a mismatch is our own bug and aborts).
  virtual Ticket submit(const ForwardBatch& batch, KvStorage& storage) = 0;
  virtual Result<StepOutputs> wait(Ticket ticket) = 0;
  virtual Result<StateSnapshot> snapshot(int32_t state_slot) = 0;
  virtual Status restore(int32_t state_slot, const StateSnapshot& snapshot) = 0;
};

// The scalar oracle: numerics.md, literally. Slow.
Result<std::unique_ptr<ModelRunner>> create_reference_runner(LoadedModel model, const RunnerOptions& options);
// Vectorised, multi-threaded; the same bits as the reference.
Result<std::unique_ptr<ModelRunner>> create_cpu_runner(LoadedModel model, const RunnerOptions& options);
// kUnsupported naming the first layer kind that the attention runners cannot compute (MLA, recurrent mixers).
Status check_attention_only(const ModelSpec& spec);
// The KV layout that a spec asks for.
KvLayout kv_layout_for(const ModelSpec& spec, KvType key_type, KvType value_type);

}  // namespace mlxcel
