#include "hub/model_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"

namespace mlxcel {
namespace {

namespace fs = std::filesystem;

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() {
    root_ = fs::temp_directory_path() / fmt::format("mlxcel-store-{}", ::getpid());
    fs::remove_all(root_);
    paths_.home = (root_ / "home").string();
    paths_.hugging_face_hub = (root_ / "hf/hub").string();
    put("home/models/mlx-community/Tiny-4bit/config.json", "{}");
    put("home/models/mlx-community/Tiny-4bit/model.safetensors", "0123456789");
    put("home/models/bart/Llama-GGUF/a-Q4_0.gguf", "x");
    put("home/models/bart/Llama-GGUF/a-Q8_0.gguf", "y");
    put("hf/hub/models--org--Cached/snapshots/abc/config.json", "{}");
    put("hf/hub/models--org--Cached/snapshots/def/config.json", "{}");
    put("hf/hub/models--org--Cached/refs/main", "abc\n");
    put("hf/hub/models--org--NoRefs/snapshots/one/model.gguf", "{}");
    put("hf/hub/datasets--org--data/snapshots/x/config.json", "{}");
    put("plain/config.json", "{}");
  }
  ~StoreTest() override { fs::remove_all(root_); }
  void put(const std::string& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  fs::path root_;
  StorePaths paths_;
};

TEST_F(StoreTest, ResolvesEveryForm) {
  EXPECT_EQ(resolve_model((root_ / "plain").string(), paths_)->source, ModelSource::kPath);
  EXPECT_EQ(resolve_model("mlx-community/Tiny-4bit", paths_)->path,
            (root_ / "home/models/mlx-community/Tiny-4bit").string());
  EXPECT_EQ(resolve_model("Tiny-4bit", paths_)->name, "mlx-community/Tiny-4bit");
  EXPECT_EQ(resolve_model("bart/Llama-GGUF:q8_0", paths_)->path,
            (root_ / "home/models/bart/Llama-GGUF/a-Q8_0.gguf").string());
  EXPECT_EQ(resolve_model("org/Cached", paths_)->path,
            (root_ / "hf/hub/models--org--Cached/snapshots/abc").string());
  EXPECT_EQ(resolve_model("org/NoRefs", paths_)->source, ModelSource::kHuggingFaceCache);
  paths_.default_owner = "org";
  EXPECT_EQ(resolve_model("Cached", paths_)->name, "org/Cached");
}

TEST_F(StoreTest, AnErrorNamesAllFormsAndTheNearestName) {
  for (const char* reference :
       {"org/Cachd", "Tiny-4bti", "./nowhere", "/x/y.gguf", "a/b/c", "", "../evil", "a/../b", "-x"}) {
    auto result = resolve_model(reference, paths_);
    ASSERT_FALSE(result.ok()) << reference;
    EXPECT_EQ(result.error().kind, ErrorKind::kNotFound) << reference;
    EXPECT_NE(result.error().to_string().find("owner/name"), std::string::npos);
    EXPECT_NE(result.error().to_string().find(".gguf file"), std::string::npos);
  }
  EXPECT_NE(resolve_model("org/Cachd", paths_).error().hint.find("'org/Cached'"), std::string::npos);
  EXPECT_NE(resolve_model("Tiny-4bti", paths_).error().hint.find("'Tiny-4bit'"), std::string::npos);
  EXPECT_NE(resolve_model("some/Thing", paths_).error().hint.find("mlxcel pull some/Thing"),
            std::string::npos);
}

TEST_F(StoreTest, SeveralFilesNeedAChoice) {
  EXPECT_EQ(resolve_model("bart/Llama-GGUF", paths_).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(resolve_model("bart/Llama-GGUF:Q5", paths_).error().kind, ErrorKind::kNotFound);
}

TEST_F(StoreTest, ListsStoreAndCacheSorted) {
  const std::vector<StoredModel> models = list_models(paths_);
  ASSERT_EQ(models.size(), 4u);
  EXPECT_EQ(models[0].name, "bart/Llama-GGUF");
  EXPECT_EQ(models[1].name, "mlx-community/Tiny-4bit");
  EXPECT_EQ(models[1].bytes, 12u);
  EXPECT_EQ(models[2].name, "org/Cached");
  EXPECT_EQ(models[2].source, ModelSource::kHuggingFaceCache);
}

TEST_F(StoreTest, AManifestDecidesWhetherADownloadIsComplete) {
  put("home/models/o/m/config.json", "{}");
  put("home/models/o/m/.mlxcel-pull.json",
      R"({"files":[{"path":"config.json","size":2},{"path":"w.safetensors","size":3}]})");
  EXPECT_FALSE(resolve_model("o/m", paths_).ok());
  put("home/models/o/m/w.safetensors", "12");
  EXPECT_FALSE(resolve_model("o/m", paths_).ok());
  put("home/models/o/m/w.safetensors", "123");
  EXPECT_TRUE(resolve_model("o/m", paths_).ok());
  put("home/models/o/m/.mlxcel-pull.json", R"({"files":[{"path":"../../x"}]})");
  EXPECT_FALSE(resolve_model("o/m", paths_).ok());
}

TEST(ModelName, Forms) {
  EXPECT_EQ(parse_model_name("a/b:Q4_0", "x")->variant, "Q4_0");
  EXPECT_EQ(parse_model_name("b", "x")->repository(), "x/b");
  for (const char* bad : {"", "a/", "/b", "a/b/c", "a b", "a/b:", ".a/b", "a/..", "a--b", "a/b:x/y"}) {
    EXPECT_FALSE(parse_model_name(bad, "x").ok()) << bad;
  }
}

}  // namespace
}  // namespace mlxcel
