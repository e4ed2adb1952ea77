// The table of families: one line each.
#include <algorithm>

#include "model/family.h"
#include "model/model_loader.h"

namespace mlxcel {

const std::vector<Family>& all_families() {
  static const std::vector<Family> families = {
      {"bitnet", {"bitnet"}, build_bitnet},
      {"cohere2", {"cohere2"}, build_cohere2},
      {"ernie4_5", {"ernie4_5"}, build_ernie4_5},
      {"exaone4", {"exaone4"}, build_exaone4},
      {"gemma", {"gemma"}, build_gemma},
      {"gemma2", {"gemma2"}, build_gemma2},
      {"gemma3", {"gemma3_text", "gemma3"}, build_gemma3},
      {"glm4", {"glm4"}, build_glm4},
      {"gpt_neox", {"gpt_neox"}, build_gpt_neox},
      {"gpt_oss", {"gpt_oss"}, build_gpt_oss},
      {"granite", {"granite"}, build_granite},
      {"hunyuan_v1_dense", {"hunyuan_v1_dense"}, build_hunyuan_v1_dense},
      {"internlm3", {"internlm3"}, build_internlm3},
      {"llama", {"llama"}, build_llama},
      {"mistral", {"mistral"}, build_mistral},
      {"mixtral", {"mixtral"}, build_mixtral},
      {"nemotron", {"nemotron"}, build_nemotron},
      {"olmo2", {"olmo2"}, build_olmo2},
      {"phi3", {"phi3"}, build_phi3},
      {"qwen2", {"qwen2"}, build_qwen2},
      {"qwen2_moe", {"qwen2_moe"}, build_qwen2_moe},
      {"qwen3", {"qwen3"}, build_qwen3},
      {"qwen3_moe", {"qwen3_moe"}, build_qwen3_moe},
      {"smollm3", {"smollm3"}, build_smollm3},
      {"stablelm", {"stablelm"}, build_stablelm},
      {"starcoder2", {"starcoder2"}, build_starcoder2},
  };
  return families;
}

const Family* find_family(std::string_view model_type) {
  for (const Family& family : all_families()) {
    const auto& types = family.model_types;
    if (std::find(types.begin(), types.end(), model_type) != types.end()) return &family;
  }
  return nullptr;
}

std::vector<std::string> supported_families() {
  std::vector<std::string> names;
  for (const Family& family : all_families()) names.emplace_back(family.name);
  return names;
}

}  // namespace mlxcel
