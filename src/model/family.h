// What a family file provides: a function that reads a config into a ModelSpec and says under which names a
// Hugging Face checkpoint of the family keeps its weights. One file in families/, one line in registry.cc.
//
// Owner: values. Threads: free to read; building is one thread's.
#pragma once

#include <string_view>
#include <vector>

#include "model/config_reader.h"
#include "model/model_spec.h"
#include "model/name_table.h"

namespace mlxcel {

struct FamilyModel {
  ModelSpec spec;
  NameTable names;  // as Hugging Face checkpoints spell them
  // GGUF files of the family hold the q and k rows of each head as interleaved pairs.
  bool gguf_permutes_heads = false;
};

struct Family {
  std::string_view name;  // the registry's name
  std::vector<std::string_view>
      model_types;  // "model_type" in config.json, or GGUF's architecture translated
  void (*build)(ConfigReader& config, FamilyModel& model);  // errors stay in the reader
};

const std::vector<Family>& all_families();
// nullptr when no family claims the model type.
const Family* find_family(std::string_view model_type);

void build_llama(ConfigReader& config, FamilyModel& model);
void build_mistral(ConfigReader& config, FamilyModel& model);
void build_mixtral(ConfigReader& config, FamilyModel& model);
void build_qwen2(ConfigReader& config, FamilyModel& model);
void build_qwen2_moe(ConfigReader& config, FamilyModel& model);
void build_qwen3(ConfigReader& config, FamilyModel& model);
void build_qwen3_moe(ConfigReader& config, FamilyModel& model);
void build_gemma(ConfigReader& config, FamilyModel& model);
void build_gemma2(ConfigReader& config, FamilyModel& model);
void build_gemma3(ConfigReader& config, FamilyModel& model);
void build_phi3(ConfigReader& config, FamilyModel& model);
void build_granite(ConfigReader& config, FamilyModel& model);
void build_olmo2(ConfigReader& config, FamilyModel& model);
void build_cohere2(ConfigReader& config, FamilyModel& model);
void build_glm4(ConfigReader& config, FamilyModel& model);
void build_smollm3(ConfigReader& config, FamilyModel& model);
void build_exaone4(ConfigReader& config, FamilyModel& model);
void build_ernie4_5(ConfigReader& config, FamilyModel& model);
void build_nemotron(ConfigReader& config, FamilyModel& model);
void build_stablelm(ConfigReader& config, FamilyModel& model);
void build_starcoder2(ConfigReader& config, FamilyModel& model);
void build_gpt_neox(ConfigReader& config, FamilyModel& model);
void build_hunyuan_v1_dense(ConfigReader& config, FamilyModel& model);
void build_internlm3(ConfigReader& config, FamilyModel& model);
void build_bitnet(ConfigReader& config, FamilyModel& model);
void build_gpt_oss(ConfigReader& config, FamilyModel& model);

}  // namespace mlxcel
