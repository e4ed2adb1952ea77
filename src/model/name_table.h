// Where the checkpoints of a family keep each role: name patterns, as data. map_weights() turns them and a
// ModelSpec into the WeightMap of one checkpoint.
//
// Patterns hold "{layer}" and "{expert}". Patterns that do not start with '/' get the checkpoint's prefix
// ("model.", "language_model.model.", ...), which is found by looking for the embedding; a leading '/' is
// dropped.
//
// Owner: values. Threads: free to read.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/model_spec.h"
#include "model/weight_map.h"

namespace mlxcel {

// How several roles share one tensor's rows.
enum class Fusion {
  kNone,
  kQkv,          // q rows, then k rows, then v rows
  kQkvPerHead,   // per head: its q rows, its k rows, its v rows (GPT-NeoX)
  kGateUp,       // gate rows, then up rows
  kAlternating,  // gate and up rows take turns (GPT-OSS)
};

struct Naming {
  std::string pattern;
  Fusion fusion = Fusion::kNone;
  bool stacked = false;     // [experts, rows, columns]: the expert is a slice, not part of the name
  bool transposed = false;  // stored [columns, rows]
};

struct NameTable {
  // Alternatives in order of preference; the first whose tensor exists is used.
  std::map<WeightRole, std::vector<Naming>> names;
  std::vector<std::string> prefixes = {""};
  std::vector<std::string> ignored;

  void set(WeightRole role, std::string pattern, Fusion fusion = Fusion::kNone) {
    names[role] = {Naming{std::move(pattern), fusion, false, false}};
  }
  void add(WeightRole role, Naming naming) { names[role].push_back(std::move(naming)); }
};

// "layers.N.self_attn.q_proj.weight" and so on: what most families use, with the usual prefixes.
NameTable decoder_names();
// Per-expert tensors "<block>.experts.N.<gate>.weight" and the stacked forms that MLX conversions write.
void add_expert_names(NameTable& table, const std::string& block, const std::string& gate,
                      const std::string& up, const std::string& down);
// The one naming of GGUF files, for all architectures.
NameTable gguf_names();

// Fills a WeightMap for every role that the spec needs. `tensors`: the names the checkpoint has. A role whose
// tensor does not exist is mapped to its first alternative, so that binding can name what is missing.
WeightMap map_weights(const ModelSpec& spec, const NameTable& table,
                      const std::set<std::string, std::less<>>& tensors);

}  // namespace mlxcel
