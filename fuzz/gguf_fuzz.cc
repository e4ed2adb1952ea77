// A GGUF file; what opens is used, arrays of the metadata included.
#include <cstddef>
#include <cstdint>

#include "checkpoint/gguf.h"
#include "use_checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mlxcel;
  auto contents = read_gguf(std::as_bytes(std::span(data, size)), "fuzz", "fuzz");
  if (!contents.ok()) return 0;
  Checkpoint checkpoint;
  checkpoint.kind = CheckpointKind::kGguf;
  checkpoint.tensors = std::move(contents->tensors);
  checkpoint.metadata = std::move(contents->metadata);
  for (const auto& [key, value] : checkpoint.metadata) {
    const GgufArray* array = value.array();
    if (array == nullptr || array->empty()) continue;
    const GgufValue first = (*array)[0], last = (*array)[array->size() - 1];
    MLXCEL_CHECK(first.data.index() == last.data.index());
  }
  use_checkpoint(checkpoint);
  return 0;
}
