#include "model/model_loader.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/bind_weights.h"

namespace mlxcel {
namespace {

std::shared_ptr<const Checkpoint> fixture(const std::string& name) {
  const std::string folder = std::string(MLXCEL_SOURCE_DIR) + "/tests/data/models/" + name;
  const std::string gguf = folder + "/model.gguf";
  return open_checkpoint(file_exists(gguf) ? gguf : folder).value();
}

// A fixture with changes to its config and tensors; the bytes stay those of the fixture, which must live on.
std::shared_ptr<Checkpoint> variant(const Checkpoint& original) {
  auto copy = std::make_shared<Checkpoint>();
  copy->kind = original.kind;
  copy->path = original.path;
  copy->tensors = original.tensors;
  copy->config = original.config;
  copy->metadata = original.metadata;
  return copy;
}

JsonValue json(std::string_view text) { return parse_json(text, "test").value(); }

// The spec of a fixture with some keys of its config replaced.
Result<ModelSpec> spec_with(const std::string& name, std::string_view changes) {
  const auto original = fixture(name);
  const auto changed = variant(*original);
  const JsonValue replaced = json(changes);
  for (const auto& [key, value] : replaced.as_object()) changed->config.as_object().set(key, value);
  return read_model_spec(*changed);
}

const AttentionSpec& attention(const ModelSpec& spec, size_t layer = 0) {
  return std::get<AttentionSpec>(spec.layers[layer].mixer);
}

TEST(ModelSpecs, LlamaReadsItsShape) {
  const ModelSpec spec = read_model_spec(*fixture("llama-llama3-tied")).value();
  EXPECT_EQ(spec.family, "llama");
  EXPECT_EQ(spec.architecture, "LlamaForCausalLM");
  EXPECT_EQ(spec.layers.size(), 2U);
  EXPECT_TRUE(spec.head.tied);
  EXPECT_EQ(attention(spec).head_dim, 32);
  EXPECT_EQ(attention(spec).num_kv_heads, 2);
  EXPECT_EQ(attention(spec).rope.kind, RopeKind::kLlama3);
  EXPECT_EQ(attention(spec).rope.original_max_position, 32);
}

TEST(ModelSpecs, UnknownKeyIsAnErrorThatNamesIt) {
  const auto spec = spec_with("llama", R"({"attention_temperature": 0.7})");
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(spec.error().where.find("attention_temperature"), std::string::npos);
  EXPECT_EQ(spec.error().found, "0.7");
}

TEST(ModelSpecs, KeysWithoutEffectAndNeutralValuesLoad) {
  const auto spec = spec_with("llama", R"({
      "_name_or_path": "x", "auto_map": {"AutoModel": "y"}, "transformers_version": "4.45.0", "pretraining_tp": 2,
      "attention_dropout": 0.1, "hidden_dropout": 0.1, "is_llama_config": true, "rope_interleaved": false,
      "use_mrope": false, "id2label": {"0": "a"}, "unsloth_fixed": true, "sliding_window": null,
      "partial_rotary_factor": 1.0, "temperature": 0.7, "some_future_feature": null})");
  EXPECT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_FALSE(spec_with("llama", R"({"rope_interleaved": true})").ok());
  EXPECT_FALSE(spec_with("llama", R"({"sliding_window": 8})").ok());
}

TEST(ModelSpecs, NumbersMayBeFloatsAndTypesAreChecked) {
  EXPECT_TRUE(spec_with("llama", R"({"num_hidden_layers": 2.0, "vocab_size": 272.0})").ok());
  const auto text = spec_with("llama", R"({"num_hidden_layers": "two"})");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().expected, "an integer");
  EXPECT_FALSE(spec_with("llama", R"({"num_hidden_layers": 2.5})").ok());
  EXPECT_FALSE(spec_with("llama", R"({"num_hidden_layers": 0})").ok());
  EXPECT_FALSE(spec_with("llama", R"({"hidden_size": 1e18})").ok());
  EXPECT_FALSE(spec_with("llama", R"({"num_key_value_heads": 3})").ok());
  EXPECT_FALSE(spec_with("llama", R"({"hidden_size": null})").ok());
}

TEST(ModelSpecs, NestedTextConfigIsRead) {
  const auto original = fixture("gemma3");
  const auto nested = variant(*original);
  JsonObject outer;
  outer.set("model_type", "gemma3");
  outer.set("text_config", original->config);
  outer.set("vision_config", JsonObject{});
  outer.set("mm_tokens_per_image", 256);
  nested->config = std::move(outer);
  const auto spec = read_model_spec(*nested);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_EQ(spec->vocab_size, 272);
  EXPECT_EQ(spec->family, "gemma3");
}

TEST(ModelSpecs, BothSpellingsOfRopeSettingsAreEqual) {
  constexpr std::string_view kScaling =
      R"("rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32)";
  const auto old_style =
      spec_with("llama", R"({"rope_theta": 500000.0, "rope_scaling": {)" + std::string(kScaling) + "}}");
  const auto new_style =
      spec_with("llama", R"({"rope_theta": null, "rope_parameters": {"rope_theta": 500000.0, )" +
                             std::string(kScaling) + "}}");
  ASSERT_TRUE(old_style.ok()) << old_style.error().to_string();
  ASSERT_TRUE(new_style.ok()) << new_style.error().to_string();
  EXPECT_EQ(attention(*old_style).rope, attention(*new_style).rope);
  EXPECT_EQ(attention(*old_style).rope.kind, RopeKind::kYarn);
  EXPECT_EQ(attention(*old_style).rope.theta, 500000.0);
}

TEST(ModelSpecs, RopeScalingThatMeansNothingIsDefault) {
  for (const std::string_view text :
       {"null", "{}", R"({"rope_type": "default"})", R"({"type": "default"})"}) {
    const auto spec = spec_with("llama", R"({"rope_scaling": )" + std::string(text) + "}");
    ASSERT_TRUE(spec.ok()) << text << ": " << spec.error().to_string();
    EXPECT_EQ(attention(*spec).rope.kind, RopeKind::kDefault) << text;
  }
}

TEST(ModelSpecs, RopeErrorsNameTheSetting) {
  const struct {
    std::string_view scaling, named;
  } cases[] = {
      {R"({"rope_type": "spiral"})", "rope_type"},
      {R"({"type": "mrope", "mrope_section": [1, 2, 3]})", "mrope_section"},
      {R"({"factor": 2.0})", "rope_type"},
      {R"({"rope_type": "linear"})", "factor"},
      {R"({"rope_type": "linear", "factor": 0})", "factor"},
      {R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0})",
       "high_freq_factor"},
      {R"({"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]})", "short_factor"},
      {R"({"rope_type": "dynamic", "factor": 1.0, "alpha": 1000.0})", "alpha"},
      {R"({"rope_type": "yarn", "factor": 2.0, "unknown_knob": 3})", "unknown_knob"},
      {R"("yarn")", "rope_scaling"},
  };
  for (const auto& [scaling, named] : cases) {
    const auto spec = spec_with("llama", R"({"rope_scaling": )" + std::string(scaling) + "}");
    ASSERT_FALSE(spec.ok()) << scaling;
    EXPECT_NE(spec.error().where.find(named), std::string::npos) << spec.error().to_string();
  }
}

TEST(ModelSpecs, QwenWindowsNeedTheirSwitch) {
  EXPECT_FALSE(attention(*spec_with("qwen2", R"({"sliding_window": 8})")).sliding_window);
  const auto on = spec_with(
      "qwen2",
      R"({"sliding_window": 8, "use_sliding_window": true, "max_window_layers": 1, "layer_types": null})");
  ASSERT_TRUE(on.ok()) << on.error().to_string();
  EXPECT_FALSE(attention(*on, 0).sliding_window);
  EXPECT_EQ(attention(*on, 1).sliding_window, 8);
}

TEST(ModelSpecs, LayerTypesMustFit) {
  EXPECT_FALSE(spec_with("gemma2", R"({"layer_types": ["full_attention"]})").ok());
  EXPECT_FALSE(spec_with("qwen2", R"({"layer_types": ["linear_attention", "full_attention"]})").ok());
}

TEST(ModelSpecs, UnsupportedModelsAndQuantisationsSaySo) {
  const auto unknown = spec_with("llama", R"({"model_type": "mamba"})");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(unknown.error().found, "mamba");
  const auto awq = spec_with("llama", R"({"quantization_config": {"quant_method": "awq", "bits": 4}})");
  ASSERT_FALSE(awq.ok());
  EXPECT_EQ(awq.error().found, "\"awq\"");
}

TEST(ModelSpecs, GgufKeysAreNamedAsTheFileSpellsThem) {
  const auto original = fixture("gguf-llama-f32");
  const auto unknown = variant(*original);
  unknown->metadata["llama.attention.temperature"] = GgufValue{0.5};
  const auto first = read_model_spec(*unknown);
  ASSERT_FALSE(first.ok());
  EXPECT_NE(first.error().where.find("llama.attention.temperature"), std::string::npos);
  const auto wrong = variant(*original);
  wrong->metadata["llama.block_count"] = GgufValue{std::string("two")};
  const auto second = read_model_spec(*wrong);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().where.find("llama.block_count"), std::string::npos);
}

TEST(LoadModel, MissingLeftoverAndMisshapenTensorsAreNamed) {
  const auto original = fixture("llama");
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  const auto missing = variant(*original);
  missing->tensors.erase(name);
  const auto first = load_model(missing);
  ASSERT_FALSE(first.ok());
  EXPECT_NE(first.error().where.find(name), std::string::npos);
  const auto extra = variant(*original);
  extra->tensors["model.layers.0.self_attn.extra"] = original->tensors.find(name)->second;
  const auto second = load_model(extra);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().where.find("self_attn.extra"), std::string::npos);
  const auto misshapen = variant(*original);
  misshapen->config.as_object().set("intermediate_size", 128);
  const auto third = load_model(misshapen);
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().expected, "[128, 64]");
  EXPECT_EQ(third.error().found, "[64, 64]");
}

TEST(LoadModel, StoredFrequenciesAreIgnored) {
  const auto original = fixture("llama");
  const auto older = variant(*original);
  older->tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = original->tensors.begin()->second;
  EXPECT_TRUE(load_model(older).ok());
}

TEST(LoadModel, EqualHeadIsTiedAndAnotherOneIsUsed) {
  const auto original = fixture("smollm2");
  const TensorEntry embedding = original->tensors.find("model.embed_tokens.weight")->second;
  const auto copied = variant(*original);
  copied->tensors["lm_head.weight"] = embedding;
  const auto tied = load_model(copied);
  ASSERT_TRUE(tied.ok()) << tied.error().to_string();
  EXPECT_TRUE(tied->spec.head.tied);
  EXPECT_TRUE(tied->warnings.empty());
  EXPECT_EQ(tied->weights.matrix(0, WeightRole::kHead), nullptr);

  std::vector<std::byte> other(embedding.data.begin(), embedding.data.end());
  other[0] ^= std::byte{1};
  const auto differing = variant(*original);
  TensorEntry head = embedding;
  head.data = other;
  differing->tensors["lm_head.weight"] = head;
  const auto untied = load_model(differing);
  ASSERT_TRUE(untied.ok());
  EXPECT_FALSE(untied->spec.head.tied);
  EXPECT_EQ(untied->warnings.size(), 1U);
  EXPECT_NE(untied->weights.matrix(0, WeightRole::kHead), nullptr);
}

TEST(LoadModel, GgufHeadsAreTurnedBack) {
  const LoadedModel model = load_model(fixture("gguf-llama-f32")).value();
  EXPECT_EQ(model.weights.matrix(0, WeightRole::kQuery)->interleaved_heads, 4);
  EXPECT_EQ(model.weights.matrix(0, WeightRole::kKey)->interleaved_heads, 2);
  EXPECT_EQ(model.weights.matrix(0, WeightRole::kValue)->interleaved_heads, 0);
  const LoadedModel scaled = load_model(fixture("gguf-llama3-f32")).value();
  EXPECT_EQ(attention(scaled.spec).rope.explicit_factors.size(), 16U);
  EXPECT_TRUE(scaled.spec.head.tied);
}

TEST(LoadModel, GemmaNormsCarryTheirOffset) {
  const auto checkpoint = fixture("gemma");
  const LoadedModel model = load_model(checkpoint).value();
  const std::vector<float> stored = load_vector(*checkpoint, "model.norm.weight").value();
  const std::span<const float> loaded = model.weights.vector(0, WeightRole::kFinalNorm);
  ASSERT_EQ(loaded.size(), stored.size());
  for (size_t i = 0; i < stored.size(); ++i) EXPECT_EQ(loaded[i], stored[i] + 1.0f);
}

TEST(LoadModel, QuantisationIsDescribed) {
  EXPECT_EQ(load_model(fixture("llama-bf16"))->quantisation, "bf16");
  EXPECT_EQ(load_model(fixture("mlx-llama-4bit-g64"))->quantisation, "mlx 4-bit g64");
  EXPECT_NE(load_model(fixture("gguf-llama-q4_k_m"))->quantisation.find("Q6_K ("), std::string::npos);
}

TEST(LoadModel, EveryFamilyIsListed) {
  const std::vector<std::string> families = supported_families();
  EXPECT_GE(families.size(), 26U);
  EXPECT_TRUE(std::is_sorted(families.begin(), families.end()));
}

TEST(Patterns, StarStandsForAnything) {
  EXPECT_TRUE(matches_pattern("a.rotary_emb.inv_freq", "*rotary_emb.inv_freq"));
  EXPECT_TRUE(matches_pattern("vision_tower.x.y", "vision_tower.*"));
  EXPECT_TRUE(matches_pattern("x.3.attention.bias", "*.attention.bias"));
  EXPECT_FALSE(matches_pattern("x.3.attention.query.bias", "*.attention.bias"));
  EXPECT_FALSE(matches_pattern("norm", "norm.*"));
}

}  // namespace
}  // namespace mlxcel
