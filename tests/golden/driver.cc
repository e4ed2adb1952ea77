#include "driver.h"

#include <cstring>

#include "base/file.h"
#include "base/json.h"
#include "tensor/vector_file_for_test.h"

namespace mlxcel::golden {
namespace {

int32_t blocks_for(const StorageChoice& choice, int32_t max_rows, int32_t max_sequences) {
  const int32_t per_sequence = (max_rows + choice.block_size - 1) / choice.block_size + 1;
  return per_sequence * max_sequences;
}

std::vector<TokenId> token_ids(const VectorFile& file, const std::string& name) {
  const std::span<const std::byte> bytes = file.bytes(name);
  std::vector<TokenId> ids(bytes.size() / sizeof(TokenId));
  std::memcpy(ids.data(), bytes.data(), ids.size() * sizeof(TokenId));
  return ids;
}

}  // namespace

Driver::Driver(std::unique_ptr<ModelRunner> runner, const StorageChoice& choice, int32_t max_rows,
               int32_t max_sequences)
    : runner_(std::move(runner)),
      choice_(choice),
      pool_(blocks_for(choice, max_rows, max_sequences), choice.block_size) {
  KvBudget budget;
  budget.block_size = choice.block_size;
  budget.num_blocks = pool_.num_blocks();
  budget.num_slots = max_sequences;
  budget.max_rows_per_slot = max_rows;
  storage_ = runner_->create_kv_storage(choice.kind, budget).value();
  if (choice.shuffle_blocks) pool_.shuffle_free_list(7);
}

int Driver::add_sequence() {
  if (choice_.kind == KvStorageKind::kPaged) {
    sequences_.push_back(SequenceCache::paged(pool_, runner_->kv_layout()));
  } else {
    sequences_.push_back(SequenceCache::dense(*storage_->dense_slots(), runner_->kv_layout()).value());
  }
  return static_cast<int>(sequences_.size()) - 1;
}

Logits Driver::step(std::span<const Feed> feeds) {
  std::vector<Input> inputs;
  std::vector<Segment> segments;
  std::vector<BlockCopy> copies;
  std::vector<OutputRequest> requests;
  for (const Feed& feed : feeds) {
    SequenceCache& cache = sequence(feed.sequence);
    const int64_t first = cache.length();
    AppendPlan plan = cache.plan_append(static_cast<int64_t>(feed.tokens.size())).value();
    for (const BlockCopy& copy : cache.commit_append(std::move(plan))) copies.push_back(copy);
    Segment segment;
    segment.input_begin = static_cast<int32_t>(inputs.size());
    segment.num_inputs = static_cast<int32_t>(feed.tokens.size());
    segment.first_position = first;
    segment.kv = cache.view();
    segment.total_length = feed.total_length == 0 ? cache.length() : feed.total_length;
    segments.push_back(segment);
    for (const TokenId id : feed.tokens) {
      requests.push_back({static_cast<int32_t>(inputs.size()), true, false});
      inputs.push_back(Input::token(id));
    }
  }
  if (choice_.poison) {
    std::vector<KvView> live;
    for (const Segment& segment : segments) live.push_back(segment.kv);
    storage_->poison_unused(live);
  }
  ForwardBatch batch;
  batch.inputs = inputs;
  batch.segments = segments;
  batch.block_copies = copies;
  batch.outputs = requests;
  const StepOutputs outputs = runner_->wait(runner_->submit(batch, *storage_)).value();
  Logits result;
  for (const Output& output : outputs.outputs) {
    result.emplace_back(output.logits.begin(), output.logits.end());
    MLXCEL_CHECK_MSG(output.argmax == argmax(result.back()), "argmax does not belong to the logits");
  }
  return result;
}

Logits Driver::feed(int sequence_number, std::span<const TokenId> tokens, size_t chunk) {
  const int64_t total = sequence(sequence_number).length() + static_cast<int64_t>(tokens.size());
  if (chunk == 0) chunk = tokens.size();
  Logits all;
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const Feed part{sequence_number, tokens.subspan(at, std::min(chunk, tokens.size() - at)), total};
    for (std::vector<float>& row : step(std::span(&part, 1))) all.push_back(std::move(row));
  }
  return all;
}

std::vector<TokenId> Driver::continue_greedily(int sequence_number, const std::vector<float>& logits,
                                               int count) {
  std::vector<TokenId> tokens = {argmax(logits)};
  while (static_cast<int>(tokens.size()) < count) {
    const TokenId last = tokens.back();
    tokens.push_back(argmax(feed(sequence_number, std::span(&last, 1)).back()));
  }
  return tokens;
}

TokenId argmax(const std::vector<float>& values) {
  size_t best = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    if (values[i] > values[best] || values[best] != values[best]) best = i;
  }
  return static_cast<TokenId>(best);
}

std::string model_path(const std::string& name) {
  const std::string folder = std::string(MLXCEL_SOURCE_DIR) + "/tests/data/models/" + name;
  const std::string gguf = folder + "/model.gguf";
  return file_exists(gguf) ? gguf : folder;
}

Golden load_golden(const std::string& name) {
  const std::string folder = std::string(MLXCEL_SOURCE_DIR) + "/tests/data/models/" + name;
  const JsonValue description = parse_json_file(folder + "/golden.json").value();
  Golden golden;
  golden.tolerance = description.find("suggested_atol")->as_double();
  const VectorFile file(name + "/golden.safetensors");
  for (int i = 0; file.has("input_ids." + std::to_string(i)); ++i) {
    const std::string suffix = "." + std::to_string(i);
    golden.prompts.push_back({token_ids(file, "input_ids" + suffix), token_ids(file, "greedy" + suffix),
                              file.floats("logits" + suffix)});
  }
  return golden;
}

LoadedModel load_fixture(const std::string& name) {
  return load_model(open_checkpoint(model_path(name)).value()).value();
}

std::vector<RunnerFactory> runner_factories() {
  return {
      {"reference", create_reference_runner},
      {"cpu", create_cpu_runner},
  };
}

}  // namespace mlxcel::golden
