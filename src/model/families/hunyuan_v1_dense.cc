// Hunyuan (dense, v1): q/k norms after the rope, whose base is stretched once by "alpha".
#include "model/decoder_config.h"

namespace mlxcel {

void build_hunyuan_v1_dense(ConfigReader& config, FamilyModel& model) {
  DecoderDefaults defaults;
  defaults.epsilon = 1e-5;
  defaults.has_rope_alpha = true;
  const DecoderConfig decoder = read_decoder_config(config, defaults, model);
  config.require("attention_head_dim", decoder.head_dim);
  config.require("norm_type", "rms");
  config.require("use_qk_norm", true);
  config.require("qk_norm", true);
  config.require("use_cla", false);
  config.require("position_embedding_xdrope", false);
  config.require("use_rotary_pos_emb", true);
  config.require("add_classification_head", false);
  config.ignore({"cla_share_factor", "class_num", "dense_list", "mask_init_id", "num_media_embeds",
                 "org_vocab_size", "pool_type", "text_end_id", "text_start_id"});
  AttentionSpec attention = plain_attention(decoder);
  const bool bias = config.boolean("attention_bias", false);
  attention.q_bias = attention.k_bias = attention.v_bias = attention.output_bias = bias;
  HeadNormSpec norm = per_head_norm(decoder);
  norm.after_rope = true;
  attention.q_norm = attention.k_norm = norm;
  model.spec.layers.assign(static_cast<size_t>(decoder.layers),
                           plain_layer(decoder, attention, plain_mlp(decoder)));
  model.names.set(WeightRole::kQueryNorm, "layers.{layer}.self_attn.query_layernorm.weight");
  model.names.set(WeightRole::kKeyNorm, "layers.{layer}.self_attn.key_layernorm.weight");
}

}  // namespace mlxcel
