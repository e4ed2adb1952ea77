#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/files_for_test.h"

namespace mlxcel {
namespace {

std::string model_path(const std::string& name) {
  return std::string(MLXCEL_SOURCE_DIR) + "/tests/data/models/" + name;
}
std::shared_ptr<const Checkpoint> open_model(const std::string& name) {
  auto opened = open_checkpoint(model_path(name));
  if (!opened.ok()) {
    ADD_FAILURE() << opened.error().to_string();
    return std::make_shared<Checkpoint>();
  }
  return std::move(opened).value();
}
std::vector<std::string> model_folders() {
  const auto names = list_directory(model_path(""));
  std::vector<std::string> folders;
  for (const std::string& name : *names) {
    if (directory_exists(model_path(name))) folders.push_back(name);
  }
  return folders;
}

constexpr std::string_view kTinyHeader = R"({"w.weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})";
std::string tiny_safetensors() { return safetensors_file(kTinyHeader, "01234567"); }

TEST(Checkpoint, EveryFixtureOpensAndEveryTensorLoads) {
  const std::vector<std::string> folders = model_folders();
  EXPECT_GE(folders.size(), 60u);
  for (const std::string& folder : folders) {
    const auto checkpoint = open_model(folder);
    ASSERT_FALSE(checkpoint->tensors.empty()) << folder;
    for (const auto& [name, entry] : checkpoint->tensors) {
      // Companions, and the codes and scales of gpt-oss, which the model layer reads itself.
      if (name.ends_with(".scales") || name.ends_with(".biases") || name.ends_with(".weight_scale_inv") ||
          entry.dtype == DType::kU8) {
        continue;
      }
      if (entry.shape.size() == 1) {
        const auto vector = load_vector(*checkpoint, name);
        ASSERT_TRUE(vector.ok()) << folder << ": " << vector.error().to_string();
        EXPECT_EQ(static_cast<int64_t>(vector->size()), entry.shape[0]);
        continue;
      }
      const auto matrix =
          load_matrix(*checkpoint, name, entry.shape.size() == 3 ? std::optional(0) : std::nullopt);
      ASSERT_TRUE(matrix.ok()) << folder << ": " << matrix.error().to_string();
      std::vector<float> row(static_cast<size_t>(matrix->columns));
      decode_row(*matrix, matrix->rows - 1, row);
    }
  }
}

TEST(Checkpoint, FormatsAreRecognised) {
  const auto format = [](const std::string& model, const std::string& tensor) {
    const auto matrix = load_matrix(*open_model(model), tensor);
    return matrix.ok() ? matrix->format.name() : matrix.error().to_string();
  };
  EXPECT_EQ(format("llama", "lm_head.weight"), "f32");
  EXPECT_EQ(format("llama-bf16", "lm_head.weight"), "bf16");
  EXPECT_EQ(format("mlx-llama-3bit-g64", "model.layers.0.self_attn.q_proj.weight"), "mlx 3-bit g64");
  EXPECT_EQ(format("mlx-qwen3-mxfp4", "model.layers.0.self_attn.q_proj.weight"), "mlx mxfp4");
  EXPECT_EQ(format("mlx-qwen3-mxfp8", "model.layers.0.self_attn.q_proj.weight"), "mlx mxfp8");
  EXPECT_EQ(format("mlx-qwen3-nvfp4", "model.layers.0.self_attn.q_proj.weight"), "mlx nvfp4");
  EXPECT_EQ(format("qwen3-fp8-block", "model.layers.0.self_attn.q_proj.weight"), "fp8 128x128");
  EXPECT_EQ(format("gguf-llama-q5_1", "blk.0.attn_q.weight"), "Q5_1");
  EXPECT_EQ(format("gguf-llama-f16", "blk.0.attn_q.weight"), "f16");
}

TEST(Checkpoint, MlxOverridesPerTensor) {
  const auto mixed = open_model("mlx-qwen3-mixed-bf16");
  const auto check = [&](std::string_view base, int bits, int group) {
    const auto q = mlx_quantisation(*mixed, base);
    ASSERT_TRUE(q.ok() && q->has_value()) << base;
    EXPECT_EQ((*q)->bits, bits) << base;
    EXPECT_EQ((*q)->group_size, group) << base;
  };
  check("model.embed_tokens", 8, 32);
  check("model.layers.0.self_attn.v_proj", 6, 64);
  check("model.layers.0.self_attn.q_proj", 4, 64);
  EXPECT_FALSE(mlx_quantisation(*mixed, "model.norm")->has_value());
  const auto matrix = load_matrix(*mixed, "model.embed_tokens.weight");
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(matrix->columns, 128);
  EXPECT_FALSE(mlx_quantisation(*open_model("llama"), "lm_head")->has_value());
  EXPECT_FALSE(mlx_quantisation(*open_model("gguf-llama-q4_0"), "output")->has_value());
}

TEST(Checkpoint, StackedExpertsAreSlices) {
  const auto moe = open_model("mlx-qwen3_moe-4bit-g32");
  const std::string name = "model.layers.1.mlp.switch_mlp.down_proj.weight";
  const TensorEntry* entry = moe->find(name);
  ASSERT_NE(entry, nullptr);
  const auto first = load_matrix(*moe, name, 0), last = load_matrix(*moe, name, 3);
  ASSERT_TRUE(first.ok() && last.ok());
  EXPECT_EQ(first->columns, 32);
  EXPECT_EQ(last->data.data() + last->data.size(), entry->data.data() + entry->data.size());
  EXPECT_FALSE(load_matrix(*moe, name, 4).ok());
  EXPECT_FALSE(load_matrix(*moe, name, -1).ok());
  EXPECT_FALSE(load_matrix(*moe, name).ok());
  EXPECT_FALSE(load_matrix(*moe, "lm_head.weight", 0).ok());
  const auto gate = load_matrix(*moe, "model.layers.0.mlp.gate.weight");
  ASSERT_TRUE(gate.ok());
  EXPECT_EQ(gate->format.bits, 8);
}

TEST(Checkpoint, ErrorsNameTheTensor) {
  const auto llama = open_model("llama");
  const auto missing = load_matrix(*llama, "model.layers.9.x.weight");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().where.find("model.layers.9.x.weight"), std::string::npos);
  EXPECT_FALSE(load_matrix(*llama, "model.norm.weight").ok());  // a vector is no matrix
  EXPECT_FALSE(load_vector(*open_model("gguf-llama-q4_0"), "blk.0.attn_q.weight").ok());
}

TEST(Checkpoint, MetadataAccessNamesKeyAndFile) {
  const auto gguf = open_model("gguf-qwen3-q8_0");
  EXPECT_EQ(gguf->kind, CheckpointKind::kGguf);
  EXPECT_EQ(*gguf->meta_string("general.architecture"), "qwen3");
  EXPECT_GT(*gguf->meta_integer("qwen3.block_count"), 0);
  EXPECT_GT(*gguf->meta_number("qwen3.attention.layer_norm_rms_epsilon"), 0.0);
  EXPECT_EQ(*gguf->meta_number("qwen3.block_count"),
            static_cast<double>(*gguf->meta_integer("qwen3.block_count")));
  EXPECT_EQ(*gguf->meta_integer("absent", 7), 7);
  EXPECT_FALSE(gguf->meta_integer("absent").ok());
  const auto wrong = gguf->meta_integer("general.architecture", 7);
  ASSERT_FALSE(wrong.ok());  // a fallback is for absence only
  EXPECT_NE(wrong.error().where.find("general.architecture"), std::string::npos);
  const GgufValue* tokens = gguf->meta("tokenizer.ggml.tokens");
  ASSERT_NE(tokens, nullptr);
  EXPECT_EQ(tokens->array()->strings().size(), tokens->array()->size());
  EXPECT_GT(tokens->array()->size(), 256u);
}

TEST(Checkpoint, TensorBytesAreAllBytes) {
  const auto sharded = open_model("llama-sharded");
  EXPECT_EQ(sharded->files.size(), 3u);
  EXPECT_EQ(sharded->tensor_bytes(), 255680u);  // total_size in its index
}

TEST(Checkpoint, PathsThatAreNoModel) {
  const TemporaryFolder folder("mlxcel-checkpoint-paths");
  EXPECT_EQ(open_checkpoint(folder.file("absent")).error().kind, ErrorKind::kNotFound);
  EXPECT_FALSE(open_checkpoint(folder.path()).ok());  // empty
  folder.write("note.txt", "hello");
  EXPECT_FALSE(open_checkpoint(folder.file("note.txt")).ok());
  const std::string gguf = GgufBuilder().build();
  folder.write("a.gguf", gguf);
  EXPECT_TRUE(open_checkpoint(folder.path()).ok());
  folder.write("b.gguf", gguf);
  EXPECT_FALSE(open_checkpoint(folder.path()).ok());  // which one?
  EXPECT_TRUE(open_checkpoint(folder.file("b.gguf")).ok());
  folder.write("config.json", "{}");
  EXPECT_EQ(open_checkpoint(folder.path()).error().kind, ErrorKind::kNotFound);  // no weights
  folder.write("model.safetensors", tiny_safetensors());
  EXPECT_TRUE(open_checkpoint(folder.path()).ok());
}

TEST(Checkpoint, ConfigIsAnObjectOfBoundedSize) {
  const TemporaryFolder folder("mlxcel-checkpoint-config");
  folder.write("model.safetensors", tiny_safetensors());
  const auto opens = [&](std::string_view config) {
    folder.write("config.json", config);
    return open_checkpoint(folder.path()).ok();
  };
  EXPECT_TRUE(opens(R"({"time_step_limit": [0.0, Infinity], "x": NaN})"));
  EXPECT_FALSE(opens("[]"));
  EXPECT_FALSE(opens(""));
  EXPECT_FALSE(opens("{"));
  EXPECT_FALSE(opens("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"));
  EXPECT_FALSE(opens("{\"a\":" + std::string(10000, '[') + std::string(10000, ']') + "}"));
  EXPECT_FALSE(opens("{\"a\":\"" + std::string(600000, 'x') + "\"}"));
  EXPECT_TRUE(opens("{}"));
  folder.write("generation_config.json", R"({"eos_token_id": [1, 2]})");
  EXPECT_EQ((*open_checkpoint(folder.path()))->generation_config.find("eos_token_id")->as_array().size(), 2u);
  folder.write("generation_config.json", "{");
  EXPECT_FALSE(open_checkpoint(folder.path()).ok());
}

TEST(Checkpoint, IndexAndShardsMustAgree) {
  const TemporaryFolder folder("mlxcel-checkpoint-index");
  folder.write("config.json", "{}");
  folder.write("s1.safetensors", tiny_safetensors());
  folder.write("s2.safetensors",
               safetensors_file(R"({"v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "0123"));
  const auto open_index = [&](std::string_view index) {
    folder.write("model.safetensors.index.json", index);
    const auto opened = open_checkpoint(folder.path());
    return opened.ok() ? std::string() : opened.error().one_line();
  };
  EXPECT_EQ(
      open_index(
          R"({"metadata":{"total_size":12},"weight_map":{"w.weight":"s1.safetensors","v":"s2.safetensors"}})"),
      "");
  const char* bad[] = {
      R"({"weight_map":{"w.weight":"s1.safetensors","v":"s1.safetensors"}})",  // wrong shard
      R"({"weight_map":{"w.weight":"s2.safetensors","v":"s1.safetensors"}})",  // swapped
      R"({"weight_map":{"w.weight":"s1.safetensors","u":"s2.safetensors"}})",  // missing and extra
      R"({"weight_map":{"w.weight":"s1.safetensors","v":"s2.safetensors","u":"s2.safetensors"}})",
      R"({"weight_map":{"w.weight":"s1.safetensors","v":"s3.safetensors"}})",     // no such file
      R"({"weight_map":{"w.weight":"s1.safetensors","v":"../s2.safetensors"}})",  // outside
      R"({"weight_map":{"w.weight":"s1.safetensors","v":"/etc/passwd"}})",
      R"({"weight_map":{"w.weight":"s1.safetensors","v":".."}})",
      R"({"weight_map":{"w.weight":"s1.safetensors","v":""}})",
      R"({"weight_map":{"w.weight":"s1.safetensors","w.weight":"s1.safetensors"}})",
      R"({"weight_map":{"w.weight":5}})",
      R"({"weight_map":{},"weight_map":{}})",
      R"({"metadata":{}})",
      R"([])",
      R"({"weight_map":{"w.weight":"s1.safetensors"}} x)",
  };
  for (const char* index : bad) EXPECT_NE(open_index(index), "") << index;
  // A shard may hold nothing that the index does not list.
  folder.write("s1.safetensors",
               safetensors_file(R"({"w.weight":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                R"("extra":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                                "01234567"));
  EXPECT_NE(open_index(R"({"weight_map":{"w.weight":"s1.safetensors","v":"s2.safetensors"}})").find("extra"),
            std::string::npos);
}

TEST(Checkpoint, QuantisationMethodsThatAreUnknownAreNamed) {
  const TemporaryFolder folder("mlxcel-checkpoint-quantisation");
  folder.write("model.safetensors", tiny_safetensors());
  const auto open_config = [&](std::string_view config) {
    folder.write("config.json", config);
    const auto opened = open_checkpoint(folder.path());
    return opened.ok() ? std::string("ok") : opened.error().one_line();
  };
  for (const std::string method : {"gptq", "awq", "bitsandbytes", "compressed-tensors"}) {
    EXPECT_NE(
        open_config(R"({"quantization_config":{"bits":4,"quant_method":")" + method + "\"}}").find(method),
        std::string::npos);
  }
  const std::pair<const char*, const char*> bad[] = {
      {R"({"quantization":{"bits":7,"group_size":64}})", "7 bits"},
      {R"({"quantization":{"bits":4,"group_size":16}})", "group 16"},
      {R"({"quantization":{"bits":4,"group_size":64,"mode":"magic"}})", "magic"},
      {R"({"quantization":{"bits":8,"group_size":32,"mode":"mxfp4"}})", "8 bits"},
      {R"({"quantization":{"bits":4,"group_size":64,"rotation":3}})", "rotation"},
      {R"({"quantization":{"bits":4,"group_size":64,"a.b":{"bits":4,"zeros":1}}})", "zeros"},
      {R"({"quantization":{"bits":"4"}})", "bits"},
      {R"({"quantization":[4]})", "an array"},
      {R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[64,64]}})", "[64,64]"},
      {R"({"quantization_config":{"quant_method":"fp8"}})", "weight_block_size"},
      {R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128],"activation_scheme":"static"}})",
       "static"},
      {R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128],"fmt":"e5m2"}})",
       "e5m2"},
  };
  for (const auto& [config, name] : bad) {
    EXPECT_NE(open_config(config).find(name), std::string::npos) << config << ": " << open_config(config);
  }
  EXPECT_EQ(open_config(R"({"quantization":null,"quantization_config":null})"), "ok");
  EXPECT_EQ(open_config(R"({"quantization":{"bits":4,"group_size":64,"w":false}})"), "ok");
}

// w.weight [2 rows, 8 words] with scales and biases for 4 bits, group 32.
std::string mlx_file(std::string_view weight_type, std::string_view scales_shape,
                     std::string_view scales_type) {
  const size_t scale_size = scales_type == "F32" ? 4 : 2;
  const std::string scale_end = std::to_string(64 + 4 * scale_size),
                    end = std::to_string(64 + 8 * scale_size);
  const std::string header =
      R"({"w.weight":{"dtype":")" + std::string(weight_type) + R"(","shape":[2,8],"data_offsets":[0,64]},)" +
      R"("w.scales":{"dtype":")" + std::string(scales_type) + R"(","shape":)" + std::string(scales_shape) +
      R"(,"data_offsets":[64,)" + scale_end + R"(]},"w.biases":{"dtype":")" + std::string(scales_type) +
      R"(","shape":[2,2],"data_offsets":[)" + scale_end + "," + end + "]}}";
  return safetensors_file(header, std::string(64 + 8 * scale_size, '\0'));
}

TEST(Checkpoint, MlxCompanionsAreChecked) {
  const TemporaryFolder folder("mlxcel-checkpoint-mlx");
  const auto load = [&](std::string_view quantization, const std::string& file) {
    folder.write("config.json", "{\"quantization\":" + std::string(quantization) + "}");
    folder.write("model.safetensors", file);
    const auto opened = open_checkpoint(folder.path());
    if (!opened.ok()) return opened.error().one_line();
    const auto matrix = load_matrix(**opened, "w.weight");
    return matrix.ok() ? matrix->format.name() : matrix.error().one_line();
  };
  const std::string good = mlx_file("U32", "[2,2]", "F32");
  const std::string four_bits = R"({"bits":4,"group_size":32})";
  EXPECT_EQ(load(four_bits, good), "mlx 4-bit g32");
  EXPECT_EQ(load(four_bits, mlx_file("U32", "[2,2]", "BF16")), "mlx 4-bit g32");
  EXPECT_NE(load(R"({"bits":4,"group_size":64})", good).find("w.scales"), std::string::npos);
  EXPECT_NE(load(R"({"bits":3,"group_size":64})", good).find("whole groups"), std::string::npos);
  EXPECT_NE(load(four_bits, mlx_file("I32", "[2,2]", "F32")).find("u32"), std::string::npos);
  EXPECT_NE(load(four_bits, mlx_file("U32", "[1,4]", "F32")).find("w.scales"), std::string::npos);
  EXPECT_NE(load(four_bits, mlx_file("U32", "[2,2]", "I16")).find("w.biases"), std::string::npos);
  EXPECT_NE(load(R"({"mode":"mxfp4"})", good).find("w.scales"), std::string::npos);
  EXPECT_NE(load(R"({"bits":4,"group_size":32,"w":false})", good).find("f32, f16 or bf16"),
            std::string::npos);
  EXPECT_NE(load("null", good).find("quantization"), std::string::npos);
  EXPECT_NE(load(R"({"bits":4,"group_size":32,"w":{"bits":4}})", tiny_safetensors()).find("w.weight"),
            std::string::npos);
}

}  // namespace
}  // namespace mlxcel
