// The kernels of one instruction set as a table of function pointers over plain structs. Each table comes
// from one translation unit that instantiates the same templates (kernels*.inc.h) over its own lanes policy,
// so all tables give the same bits, those of docs/numerics.md.
//
// Nothing of the standard library appears here: these structs are read by files built for wider instruction
// sets, and an inline function shared with a baseline file could be linked in its wide version.
//
// Owner: tables are constants. Threads: kernels write only what their arguments name; the caller splits the
// work.
#pragma once

#include <stdint.h>

namespace mlxcel {

constexpr int kLanes = 16;  // rows of a weight tile, positions of a key group, elements of a sum

enum class CodeWidth : uint8_t { kNibble, kByte };
enum class ScaleType : uint8_t { kF16, kBF16, kF32 };
enum class PlainType : uint8_t { kF32, kF16, kBF16 };

// Quantised weights, packed: row blocks of 16 rows; per row block the groups of k in order; a group is
//   codes   group_size/8 (nibbles) or group_size/4 (bytes) vectors of 64 bytes, vector j with one dword per
//   row:
//           nibbles: k = 8j + 4a + 2c + i of the row in nibble a + 2c + 4i (a, c, i = 0..1)
//           bytes:   k = 4j      + 2c + i of the row in byte       c + 2i (   c, i = 0..1)
//   scales  16 of scale_type
//   offsets 16 of scale_type, absent in symmetric formats
// Masking a dword's 16-bit halves gives (k, k+1) pairs, the operand of dot16; masking its bytes gives four
// codes in the order k, k+2, k+1, k+3, which is also the order of the byte planes of QuantisedInput. Rows
// past the end are zero.
struct QuantisedWeights {
  const uint8_t* data;  // [row block][group]
  int64_t num_groups;   // per row
  int64_t group_bytes;
  int32_t group_size;  // 16, 32, 64, 128
  int32_t zero_point;  // symmetric formats
  CodeWidth width;
  ScaleType scale_type;
  bool symmetric;
};

// The forms in which a table's integer core reads p: words, or byte planes p = 128 * high + low with
// high = (p + 64) >> 7 (docs/numerics.md). At int8 precision p fits the low plane and there is no high one.
struct InputForms {
  bool words, low_plane, high_plane;
};

// Activations of `num_tokens` tokens for the integer core (docs/numerics.md). activation group = max(32,
// group_size).
struct QuantisedInput {
  const int16_t* p;      // [token][p_stride]; null: the form was not asked for
  const int8_t* planes;  // [token][plane_stride]: low, and the high plane high_offset bytes after it; within
                         // each four of k in the order 0, 2, 1, 3
  const float* d;        // [token][group_stride]: per activation group
  const int32_t* sum;    // [token][group_stride]: per weight group
  const float* float_sum;  // the same numbers (exact: below 2^21), ready to be broadcast
  int64_t p_stride, plane_stride, group_stride;
  int64_t high_offset;  // 0: one plane
};

// One token of it, to be written. Null: the form is not wanted.
struct QuantisedRow {
  int16_t* p;
  int8_t *low, *high;
  float* d;
  int32_t* sum;
  float* float_sum;
};

// Plain weights: [row block][k][16] in their own type.
struct PlainWeights {
  const void* data;
  int64_t columns;
  PlainType type;
};

// y[token * y_stride + row], rows of the row blocks [block_begin, block_end), all 16 of each written.
struct LinearTarget {
  float* y;
  int64_t y_stride;
  int64_t num_tokens;
  int64_t block_begin, block_end;
  uint8_t* scratch;  // kLinearScratchBytes, private to the thread, 64-byte aligned
};
constexpr int64_t kLinearScratchBytes = 160 * 1024;

enum class KvElement : uint8_t { kF32, kF16, kBF16, kQ8 };

// Attention of the query rows (token, head of the group) of one segment and kv head over one block of 64
// positions. Group i of the block holds positions 16i..16i+15; only groups with a visible row have pointers.
struct AttentionBlock {
  const void* keys[4];        // element of dim 0, position 16i; the next dim is key_stride elements further
  const void* key_scales[4];  // q8: f16, [dim/32] with key_scale_stride
  int64_t key_stride, key_scale_stride;
  const void* values[4];  // row of position 16i; the next row is value_stride elements further
  const void* value_scales[4];
  int64_t value_stride, value_scale_stride;
};
struct AttentionShape {
  int32_t key_dim, value_dim;
  float scale, softcap;
  KvElement key_type, value_type;
};
// State of one query row in one split: m, l and o[value_dim] (rows padded to a multiple of 16).
struct AttentionState {
  float m, l;
  float* o;
};

enum class GateFunction : uint8_t { kSilu, kGeluTanh, kGeluErf, kRelu, kReluSquared, kSigmoid, kIdentity };

struct KernelTable {
  const char* name;
  int32_t attention_rows;             // query rows that attend_block takes at once
  InputForms high_forms, int8_forms;  // what linear_quantised reads at either precision
  // x[columns] -> one token's row. top = 16256 or 127. columns is a multiple of group_size.
  void (*quantise)(const float* x, int64_t columns, int32_t group_size, float top, const QuantisedRow& row);
  void (*linear_quantised)(const QuantisedWeights& w, const QuantisedInput& x, const LinearTarget& y);
  // f32 activations [token][x_stride].
  void (*linear_plain)(const PlainWeights& w, const float* x, int64_t x_stride, const LinearTarget& y);
  void (*linear_dequantised)(const QuantisedWeights& w, const float* x, int64_t x_stride,
                             const LinearTarget& y);

  // y = (x * r) * w (+ b); w, b null: without.
  void (*rms_norm)(const float* x, const float* w, const float* b, int64_t n, float epsilon, float* y);
  void (*layer_norm)(const float* x, const float* w, const float* b, int64_t n, float epsilon, float* y);
  void (*add_scaled)(const float* y, float scale, int64_t n, float* h);  // h = fma(y, scale, h)
  void (*add)(const float* a, const float* b, int64_t n, float* y);      // y = a + b
  void (*scale)(const float* x, float factor, int64_t n, float* y);      // y = x * factor
  void (*clamp)(float limit, int64_t n, float* x);                       // to [-limit, limit]; NaN stays
  void (*softcap)(float cap, int64_t n, float* x);                       // cap * tanh(x * (1/cap))
  // out = act(gate) * up; up null: act(gate).
  void (*gate)(GateFunction function, const float* gate, const float* up, int64_t n, float* out);
  // GPT-OSS: gate and up clamped, then (up + 1) * (gate * sigmoid(alpha * gate)).
  void (*gate_clamped)(const float* gate, const float* up, float limit, float alpha, int64_t n, float* out);
  // In place; cos and sin of dims/2 pairs.
  void (*rotate)(const float* cos, const float* sin, int64_t dims, bool interleaved, float* x);
  // Larger first, ties to the lower index, NaN loses; index -1 when all are NaN.
  void (*argmax)(const float* x, int64_t n, float* best, int64_t* index);

  // queries[r]: key_dim floats; masks[r]: visible positions of the block (0: the row is skipped).
  void (*attend_block)(const AttentionShape& shape, const AttentionBlock& block, int32_t num_rows,
                       const float* const* queries, const uint64_t* masks, AttentionState* states);
  // a is the running state, b the next split.
  void (*merge_states)(AttentionState* a, const AttentionState* b, int64_t value_dim);
  // sink: null or the learned logit. out[value_dim] = o / l.
  void (*finish_attention)(AttentionState* state, const float* sink, int64_t value_dim, float* out);
};

// Tables that this build has; null where it has none.
const KernelTable* scalar_kernels();
const KernelTable* avx2_kernels();
const KernelTable* avx512_kernels();
const KernelTable* avx512vnni_kernels();

}  // namespace mlxcel
