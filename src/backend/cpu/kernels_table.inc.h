// Makes the kernel table of a lanes policy, without linear_quantised and the forms it reads. The last include
// of each kernels_<isa>.cc.
#pragma once

#include "backend/cpu/kernels_attention.inc.h"
#include "backend/cpu/kernels_linear.inc.h"
#include "backend/cpu/kernels_vector.inc.h"

namespace mlxcel {
namespace {

template <class L>
constexpr KernelTable make_table(const char* name) {
  KernelTable table = {};
  table.name = name;
  table.attention_rows = L::kAttentionRows;
  table.quantise = quantise<L>;
  table.linear_plain = linear_plain<L>;
  table.linear_dequantised = linear_dequantised<L>;
  table.rms_norm = rms_norm<L>;
  table.layer_norm = layer_norm<L>;
  table.add_scaled = add_scaled<L>;
  table.add = add<L>;
  table.scale = scale<L>;
  table.clamp = clamp<L>;
  table.softcap = softcap<L>;
  table.gate = gate<L>;
  table.gate_clamped = gate_clamped<L>;
  table.rotate = rotate<L>;
  table.argmax = argmax<L>;
  table.attend_block = attend_block<L>;
  table.merge_states = merge_states<L>;
  table.finish_attention = finish_attention<L>;
  return table;
}

// The same with the integer core on words.
template <class L>
constexpr KernelTable make_word_table(const char* name) {
  KernelTable table = make_table<L>(name);
  table.high_forms = table.int8_forms = {.words = true, .low_plane = false, .high_plane = false};
  table.linear_quantised = linear_quantised<L>;
  return table;
}

}  // namespace
}  // namespace mlxcel
