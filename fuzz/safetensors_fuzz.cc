// The first byte chooses a config.json, the rest is the file.
#include <cstddef>
#include <cstdint>

#include "checkpoint/safetensors.h"
#include "use_checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mlxcel;
  static constexpr std::string_view kConfigs[] = {
      "{}",
      R"({"quantization":{"bits":4,"group_size":32}})",
      R"({"quantization":{"bits":3,"group_size":64}})",
      R"({"quantization":{"mode":"mxfp4"}})",
      R"({"quantization":{"mode":"mxfp8"}})",
      R"({"quantization":{"mode":"nvfp4"}})",
      R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}})",
  };
  if (size == 0) return 0;
  Checkpoint checkpoint;
  checkpoint.config = parse_json(kConfigs[data[0] % std::size(kConfigs)], "config").value();
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  if (read_safetensors(bytes, "fuzz", "fuzz", checkpoint.tensors).ok()) use_checkpoint(checkpoint);
  return 0;
}
