// A model as data: what a backend must compute, in the order it must compute it. A family file turns a
// config.json or GGUF metadata into one ModelSpec; backends read it; nothing in it names a tensor, a device
// or a kernel.
//
// Owner: a value, immutable once built. Threads: free to read.
//
// The decoder layer this describes (each `optional` part is skipped when absent):
//
//   sequential:  h += residual_scale * post_mixer_norm(mixer(pre_mixer_norm(h)))
//                h += residual_scale * post_ffn_norm(ffn(pre_ffn_norm(h)))
//   parallel:    h += residual_scale * (mixer(pre_mixer_norm(h)) + ffn(pre_ffn_norm(h)))   pre_ffn_norm
//   absent: the
//                same normalised input feeds both
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace mlxcel {

enum class NormKind { kRms, kLayer };
struct NormSpec {
  NormKind kind = NormKind::kRms;
  float epsilon = 1e-6f;
  // Gemma, Nemotron: the stored weight is w - 1, so this is 1. load_model() adds it: runners use the vectors
  // as they are.
  float weight_offset = 0.0f;
  bool has_weight = true;
  bool has_bias = false;
};

enum class Activation { kSilu, kGeluTanh, kGeluErf, kRelu, kReluSquared, kSigmoid, kIdentity };

enum class RopeKind { kNone, kDefault, kLinear, kLlama3, kYarn, kLongRope, kDynamicNtk };
// Inverse frequencies follow transformers' modeling_rope_utils (v5.24): one table in double, rounded once.
struct RopeSpec {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000.0;
  int rotary_dim = 0;                                    // the first rotary_dim elements of a head turn
  bool interleaved = false;                              // pairs (2i, 2i+1) instead of (i, i + rotary_dim/2)
  double factor = 1.0;                                   // linear, llama3, yarn, dynamic
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  bool truncate = true;                                  // yarn: round the ends of the ramp
  std::optional<double> attention_factor;                // yarn, longrope: given in the config
  std::optional<double> mscale, mscale_all_dim;          // yarn as DeepSeek has it
  int64_t original_max_position = 0;                     // llama3, yarn, longrope, dynamic
  int64_t max_position = 0;
  std::vector<double> short_factors, long_factors;  // longrope; [rotary_dim / 2]
  std::vector<double> explicit_factors;  // GGUF rope_freqs: divide the frequencies; [rotary_dim / 2]
  std::vector<int> sections;             // multi-axis rotary (Qwen2-VL); empty: one axis
  friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

enum class HeadNormScope { kPerHead, kWholeProjection };
struct HeadNormSpec {
  NormSpec norm;
  HeadNormScope scope = HeadNormScope::kPerHead;
  bool after_rope = false;  // Hunyuan
  bool per_head_weights =
      false;  // StableLM 2: [num_heads * head_dim], every head its own; else one [head_dim] for all
};

struct AttentionSpec {
  int num_heads = 0, num_kv_heads = 0;
  int head_dim = 0, value_head_dim = 0;  // value_head_dim == head_dim but for MLA-like layers
  float scale = 0.0f;                    // of q.k
  RopeSpec rope;
  std::optional<HeadNormSpec> q_norm, k_norm;
  bool q_bias = false, k_bias = false, v_bias = false, output_bias = false;
  std::optional<int> sliding_window;        // rows visible including the token itself
  float logit_softcap = 0.0f;               // 0: none; s = cap * tanh(s / cap), before the mask
  bool has_sinks = false;                   // one learned logit per head joins the softmax's denominator
  bool has_output_gate = false;             // Qwen3-Next: attention output * sigmoid(gate), gate from q_proj
  std::optional<NormSpec> pre_output_norm;  // BitNet: before o_proj
  std::optional<float> clamp_qkv;           // OLMo, DBRX
};

// Multi-head latent attention (DeepSeek V2/V3).
struct MlaSpec {
  int num_heads = 0;
  std::optional<int> q_lora_rank;  // absent: a plain q_proj
  int kv_lora_rank = 0;
  int qk_nope_head_dim = 0, qk_rope_head_dim = 0, value_head_dim = 0;
  float scale = 0.0f;
  RopeSpec rope;
  NormSpec q_norm, kv_norm;
  bool bias = false;
};

// Gated delta net (Qwen3-Next).
struct GatedDeltaSpec {
  int num_key_heads = 0, num_value_heads = 0, key_head_dim = 0, value_head_dim = 0;
  int conv_kernel = 4;
  NormSpec output_norm;  // gated RMSNorm
};

struct Mamba2Spec {
  int num_heads = 0, head_dim = 0, state_size = 0, num_groups = 1, conv_kernel = 4;
  bool conv_bias = true, projection_bias = false;
  bool norm_before_gate = false, has_norm = true, norm_per_group = true;
  NormSpec output_norm;
  float time_step_min = 0.0f, time_step_max = 0.0f;  // limits of softplus(dt); max 0: none
  std::vector<float> multipliers;                    // Falcon-H1: z, x, B, C, dt; empty: none
};

// Gated short convolution (LFM2).
struct ShortConvSpec {
  int kernel = 3;
  bool bias = false;
};

// Two mixers that read the same normalised input and whose outputs are added (Falcon-H1).
struct ParallelMixerSpec {
  AttentionSpec attention;
  Mamba2Spec mamba;
  float attention_input_scale = 1.0f, attention_output_scale = 1.0f;
  float mamba_input_scale = 1.0f, mamba_output_scale = 1.0f;
  float key_scale = 1.0f;
};

using MixerSpec =
    std::variant<AttentionSpec, MlaSpec, GatedDeltaSpec, Mamba2Spec, ShortConvSpec, ParallelMixerSpec>;

struct DenseMlpSpec {
  int intermediate = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;                           // down(act(gate x) * up x); else down(act(up x))
  bool bias = false, down_bias = false;        // of gate/up and of down
  std::optional<NormSpec> pre_down_norm;       // BitNet
  float gate_scale = 1.0f, down_scale = 1.0f;  // Falcon-H1
};

enum class RouterKind {
  kSoftmaxAll,   // softmax over all experts, then top-k (Qwen MoE)
  kSoftmaxTopK,  // top-k of the logits, then softmax over the chosen (Mixtral, GPT-OSS)
  kSigmoid,      // sigmoid scores; selection may add a correction bias (DeepSeek V3)
};
struct MoeSpec {
  int num_experts = 0, experts_per_token = 0;
  int intermediate = 0;
  Activation activation = Activation::kSilu;
  RouterKind router = RouterKind::kSoftmaxAll;
  bool normalise_weights = false;  // chosen weights sum to one
  float routed_scale = 1.0f;
  bool router_bias = false;                  // added to the router's logits
  bool correction_bias = false;              // added to scores for the choice only
  int num_groups = 1, groups_per_token = 1;  // group-limited routing
  bool expert_bias = false;
  // GPT-OSS: g = min(gate, limit); u = clamp(up, -limit, limit); (u + 1) * (g * sigmoid(alpha * g)); else
  // act(g) * u.
  std::optional<float> swiglu_limit;
  float swiglu_alpha = 1.702f;
  std::optional<DenseMlpSpec> shared;  // shared expert(s)
  bool shared_gate = false;            // sigmoid gate of the shared expert (Qwen2-MoE)
};

struct NoFfnSpec {};
using FeedForwardSpec = std::variant<DenseMlpSpec, MoeSpec, NoFfnSpec>;

struct LayerSpec {
  MixerSpec mixer;
  FeedForwardSpec ffn;
  std::optional<NormSpec> pre_mixer_norm, post_mixer_norm, pre_ffn_norm, post_ffn_norm;
  bool parallel_residual = false;
  float residual_scale = 1.0f;
};

struct HeadSpec {
  bool tied = false;  // uses the embedding matrix
  bool bias = false;
  float logit_scale = 1.0f;  // multiplies the logits
  float softcap = 0.0f;      // 0: none
};

struct ModelSpec {
  std::string family;        // "llama", "qwen3", ...: the registry's name
  std::string architecture;  // as the checkpoint spells it
  int64_t vocab_size = 0;    // rows of the head
  int hidden_size = 0;
  int64_t max_position = 0;  // context length the checkpoint claims
  float embedding_scale = 1.0f;
  std::optional<NormSpec> embedding_norm;
  std::vector<LayerSpec> layers;
  NormSpec final_norm;
  HeadSpec head;

  // True when any layer's rope depends on the length of the sequence (longrope, dynamic ntk).
  bool has_length_dependent_rope() const;
  int64_t num_parameters_estimate() const;
};

}  // namespace mlxcel
