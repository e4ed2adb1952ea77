// A model for tests of the engine: writes one row per token into a real HostKvStorage and makes its logits
// from the rows that it reads back, all of them, in order. A row that is missing, stale, doubled or at the
// wrong place changes every token that follows.
//
// Owner: the engine under test. Threads: one.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/common/forward_common.h"
#include "backend/common/host_kv_storage.h"

namespace mlxcel {

class FakeRunnerForTests final : public ModelRunner {
 public:
  struct Options {
    int64_t vocab_size = 61;
    int64_t max_position = 512;
    int64_t rope_border = 0;  // > 0: a longrope with this original length
    int32_t preferred_row_multiple = 1;
    bool can_trim = true;
    HostKvStorage::KeyLayout key_layout = HostKvStorage::KeyLayout::kRowMajor;
    TokenId nan_token = -1;  // a sequence whose newest token is this has NaN logits
  };
  struct SeenSegment {
    int64_t length = 0, num_inputs = 0, total_length = 0;
  };

  explicit FakeRunnerForTests(const Options& options) : options_(options) {
    spec_.family = "fake";
    spec_.vocab_size = options.vocab_size;
    spec_.hidden_size = 4;
    spec_.max_position = options.max_position;
    AttentionSpec attention;
    if (options.rope_border > 0) {
      attention.rope.kind = RopeKind::kLongRope;
      attention.rope.original_max_position = options.rope_border;
    }
    LayerSpec layer;
    layer.mixer = attention;
    spec_.layers.assign(2, layer);
    layout_.key_type = layout_.value_type = KvType::kF32;
    layout_.layers.push_back(
        {.num_kv_heads = 2, .key_dim = 2, .value_dim = 1, .sliding_window = std::nullopt});
    layout_.layers.push_back(
        {.num_kv_heads = 1, .key_dim = 3, .value_dim = 2, .sliding_window = std::nullopt});
    capabilities_.can_trim = options.can_trim;
    capabilities_.preferred_row_multiple = options.preferred_row_multiple;
  }

  void fail_next_waits(int count) { num_failing_ = count; }
  const std::vector<SeenSegment>& last_segments() const { return last_segments_; }
  int64_t num_steps() const { return num_steps_; }
  const HostKvStorage* storage() const { return storage_; }

  const RunnerCapabilities& capabilities() const override { return capabilities_; }
  const KvLayout& kv_layout() const override { return layout_; }
  const ModelSpec& spec() const override { return spec_; }
  ActivationPrecision precision() const override { return ActivationPrecision::kF32; }
  std::string description() const override { return "fake"; }
  uint64_t resident_bytes() const override { return 0; }

  Result<std::unique_ptr<KvStorage>> create_kv_storage(KvStorageKind kind, const KvBudget& budget) override {
    MLXCEL_ASSIGN_OR_RETURN(std::unique_ptr<HostKvStorage> made,
                            HostKvStorage::create(kind, layout_, budget, options_.key_layout));
    made->poison_unused({});
    storage_ = made.get();
    return std::unique_ptr<KvStorage>(std::move(made));
  }

  Ticket submit(const ForwardBatch& batch, KvStorage& storage) override {
    check_forward_batch(batch, spec_);
    auto& host = dynamic_cast<HostKvStorage&>(storage);
    host.copy_blocks(batch.block_copies);
    last_segments_.clear();
    for (const Segment& segment : batch.segments) {
      last_segments_.push_back({segment.kv.length, segment.num_inputs, segment.total_length});
      write_rows(host, batch, segment);
    }
    compute_outputs(host, batch);
    ++num_steps_;
    return {static_cast<uint64_t>(num_steps_)};
  }
  Result<StepOutputs> wait(Ticket) override {
    if (num_failing_ > 0) {
      --num_failing_;
      return make_error(ErrorKind::kInternal, "injected failure");
    }
    return std::move(outputs_);
  }
  Result<StateSnapshot> snapshot(int32_t) override { return make_error(ErrorKind::kUnsupported, "no state"); }
  Status restore(int32_t, const StateSnapshot&) override {
    return make_error(ErrorKind::kUnsupported, "no state");
  }

 private:
  int regime(const Segment& segment) const {
    return options_.rope_border > 0 && segment.total_length > options_.rope_border ? 1 : 0;
  }
  void write_rows(HostKvStorage& host, const ForwardBatch& batch, const Segment& segment) {
    for (int32_t i = 0; i < segment.num_inputs; ++i) {
      const auto token = static_cast<float>(batch.inputs[static_cast<size_t>(segment.input_begin + i)].value);
      const auto position = static_cast<float>(segment.first_position + i);
      const auto turned = static_cast<float>(regime(segment));
      const float row[] = {token, position, turned, token + position};
      host.write_row(segment.kv, 0, segment.first_position + i, row, row + 1);
      host.write_row(segment.kv, 1, segment.first_position + i, row, row);
    }
  }
  static void mix(uint64_t& hash, float value) {
    hash = (hash ^ std::bit_cast<uint32_t>(value)) * 0x100000001B3u;
    hash ^= hash >> 29;
  }
  void compute_outputs(const HostKvStorage& host, const ForwardBatch& batch) {
    outputs_ = StepOutputs{};
    outputs_.seconds = 0.001;
    logits_.assign(batch.outputs.size(), {});
    for (size_t i = 0; i < batch.outputs.size(); ++i) {
      const OutputRequest& request = batch.outputs[i];
      for (const Segment& segment : batch.segments) {
        const int64_t offset = int64_t{request.input} - segment.input_begin;
        if (offset < 0 || offset >= segment.num_inputs) continue;
        logits_[i] = logits_at(host, segment.kv, segment.first_position + offset);
      }
      Output output;
      float best = -std::numeric_limits<float>::infinity();
      for (size_t token = 0; token < logits_[i].size(); ++token) {
        if (logits_[i][token] > best) {
          best = logits_[i][token];
          output.argmax = static_cast<TokenId>(token);
        }
      }
      if (request.wants_logits) output.logits = logits_[i];
      outputs_.outputs.push_back(output);
    }
  }
  std::vector<float> logits_at(const HostKvStorage& host, const KvView& view, int64_t position) const {
    uint64_t hash = 0xCBF29CE484222325u;
    float newest = 0;
    for (int64_t p = 0; p <= position; ++p) {
      for (int layer = 0; layer < 2; ++layer) {
        for (const bool value : {false, true}) {
          const std::vector<float> row = host.read_row(view, layer, value, p);
          if (layer == 0 && !value) newest = row[0];
          for (const float x : row) mix(hash, x);
        }
      }
    }
    std::vector<float> logits(static_cast<size_t>(spec_.vocab_size));
    for (size_t i = 0; i < logits.size(); ++i) {
      mix(hash, static_cast<float>(i));
      logits[i] = static_cast<float>(hash >> 44) / 131072.0f - 4.0f;
    }
    if (newest == static_cast<float>(options_.nan_token)) {
      logits.assign(logits.size(), std::numeric_limits<float>::quiet_NaN());
    }
    return logits;
  }

  Options options_;
  ModelSpec spec_;
  KvLayout layout_;
  RunnerCapabilities capabilities_;
  const HostKvStorage* storage_ = nullptr;
  std::vector<SeenSegment> last_segments_;
  int64_t num_steps_ = 0;
  int num_failing_ = 0;
  StepOutputs outputs_;
  std::vector<std::vector<float>> logits_;
};

}  // namespace mlxcel
