// The CPU backend's ModelRunner: packs a model and runs its forward passes on a pool of threads. All of the
// work happens in submit(); wait() hands out the results.
#include <memory>
#include <string>
#include <utility>

#include "backend/backend.h"
#include "backend/common/forward_common.h"
#include "backend/common/host_kv_storage.h"
#include "backend/cpu/cpu_forward.h"
#include "backend/cpu/cpu_model.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernel_tables.h"
#include "base/environment.h"
#include "base/threads.h"

namespace mlxcel {
namespace {

class CpuRunner final : public ModelRunner {
 public:
  CpuRunner(std::unique_ptr<CpuModel> model, std::unique_ptr<ThreadPool> pool, const KernelTable& kernels,
            const RunnerOptions& options, int64_t max_position)
      : model_(std::move(model)),
        pool_(std::move(pool)),
        kernels_(kernels),
        precision_(options.precision),
        layout_(kv_layout_for(model_->spec, options.key_type, options.value_type)),
        ropes_(model_->spec, max_position),
        forward_(*model_, layout_, ropes_, kernels, options.precision, *pool_) {
    capabilities_.can_trim = true;
  }

  const RunnerCapabilities& capabilities() const override { return capabilities_; }
  const KvLayout& kv_layout() const override { return layout_; }
  const ModelSpec& spec() const override { return model_->spec; }
  ActivationPrecision precision() const override { return precision_; }
  std::string description() const override {
    const int threads = pool_->num_threads();
    return std::string("cpu ") + kernels_.name + ", " + std::to_string(threads) +
           (threads == 1 ? " thread" : " threads");
  }
  uint64_t resident_bytes() const override { return model_->arena.bytes_used() + forward_.scratch_bytes(); }

  Result<std::unique_ptr<KvStorage>> create_kv_storage(KvStorageKind kind, const KvBudget& budget) override {
    MLXCEL_ASSIGN_OR_RETURN(
        auto storage, HostKvStorage::create(kind, layout_, budget, HostKvStorage::KeyLayout::kDimMajor));
    return std::unique_ptr<KvStorage>(std::move(storage));
  }

  Ticket submit(const ForwardBatch& batch, KvStorage& storage) override {
    const double begin = monotonic_seconds();
    check_forward_batch(batch, model_->spec);
    auto* host = dynamic_cast<HostKvStorage*>(&storage);
    MLXCEL_CHECK_MSG(host != nullptr && host->key_layout() == HostKvStorage::KeyLayout::kDimMajor,
                     "the storage was made by another runner");
    forward_.run(batch, *host);
    outputs_.outputs.clear();
    for (size_t i = 0; i < batch.outputs.size(); ++i) {
      Output output;
      output.argmax = forward_.argmax(i);
      if (batch.outputs[i].wants_logits) output.logits = forward_.logits(i);
      if (batch.outputs[i].wants_hidden) output.hidden = forward_.hidden(i);
      outputs_.outputs.push_back(output);
    }
    outputs_.seconds = monotonic_seconds() - begin;
    return Ticket{++last_ticket_};
  }

  Result<StepOutputs> wait(Ticket ticket) override {
    MLXCEL_CHECK_MSG(ticket.id == last_ticket_, "only the last step can be waited for");
    return outputs_;
  }

  Result<StateSnapshot> snapshot(int32_t) override { return no_state(); }
  Status restore(int32_t, const StateSnapshot&) override { return no_state(); }

 private:
  Error no_state() const {
    return make_error(ErrorKind::kUnsupported, "the model has no recurrent state", model_->spec.family);
  }

  std::unique_ptr<CpuModel> model_;
  std::unique_ptr<ThreadPool> pool_;
  const KernelTable& kernels_;
  ActivationPrecision precision_;
  KvLayout layout_;
  RopeTables ropes_;
  RunnerCapabilities capabilities_;
  CpuForward forward_;
  StepOutputs outputs_;
  uint64_t last_ticket_ = 0;
};

}  // namespace

Result<std::unique_ptr<ModelRunner>> create_cpu_runner(LoadedModel model, const RunnerOptions& options) {
  MLXCEL_RETURN_IF_ERROR(check_attention_only(model.spec));
  const int64_t max_position = runner_max_position(model.spec, options);
  MLXCEL_RETURN_IF_ERROR(check_max_position(model.spec, max_position));
  MLXCEL_ASSIGN_OR_RETURN(const Isa isa, choose_isa(options.isa));
  if (options.num_threads < 1)
    return make_error(ErrorKind::kInvalidArgument, "number of threads is not positive", "num_threads",
                      "at least 1", std::to_string(options.num_threads));
  auto pool = std::make_unique<ThreadPool>(options.num_threads);
  MLXCEL_ASSIGN_OR_RETURN(auto packed, pack_model(model, *pool, options.progress));
  model = LoadedModel{};  // the packed copy is the only one from here on
  return std::unique_ptr<ModelRunner>(std::make_unique<CpuRunner>(std::move(packed), std::move(pool),
                                                                  kernel_table(isa), options, max_position));
}

}  // namespace mlxcel
