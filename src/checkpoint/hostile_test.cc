// Damaged and malicious model files: each ends in an error or a load, never in a crash, and the readers'
// memory stays within twice the size of the files plus 64 MiB. This program counts every allocation through
// operator new.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <new>
#include <random>

#include "checkpoint/checkpoint.h"
#include "checkpoint/files_for_test.h"

namespace {

// Live and largest number of bytes from operator new. Of this program, so it may be global.
std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> peak_bytes{0};

void* count_allocation(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const int64_t live = live_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  int64_t peak = peak_bytes;
  while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {
  }
  return memory;
}
void count_release(void* memory) {
  live_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) { return count_allocation(std::malloc(std::max<std::size_t>(size, 1))); }
// simdjson asks in this form.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  void* memory = std::malloc(std::max<std::size_t>(size, 1));
  return memory == nullptr ? nullptr : count_allocation(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept { count_release(memory); }
void operator delete(void* memory) noexcept { count_release(memory); }
void operator delete(void* memory, std::size_t) noexcept { count_release(memory); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return count_allocation(
      std::aligned_alloc(unit, (std::max<std::size_t>(size, 1) + unit - 1) / unit * unit));
}
void operator delete(void* memory, std::align_val_t) noexcept { count_release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { count_release(memory); }

namespace mlxcel {
namespace {

constexpr int64_t kAllowance = int64_t{64} << 20;
constexpr int kTruncations = 50;
constexpr int kChangedBytes = 200;

int64_t folder_bytes(const std::string& folder) {
  int64_t sum = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    sum += static_cast<int64_t>(entry.file_size());
  return sum;
}

// Loads everything there is to load; true when the checkpoint opens.
bool use_checkpoint(const std::string& path) {
  const auto opened = open_checkpoint(path);
  if (!opened.ok()) {
    EXPECT_FALSE(opened.error().what.empty());
    return false;
  }
  const Checkpoint& checkpoint = **opened;
  for (const auto& [name, entry] : checkpoint.tensors) {
    { const auto vector = load_vector(checkpoint, name); }
    const std::optional<int> expert = entry.shape.size() == 3 ? std::optional(0) : std::nullopt;
    const auto matrix = load_matrix(checkpoint, name, expert);
    if (!matrix.ok()) continue;
    std::vector<float> row(static_cast<size_t>(matrix->columns));
    decode_row(*matrix, 0, row);
    decode_row(*matrix, matrix->rows - 1, row);
    if (const auto shape = affine_shape(matrix->format)) {
      const auto groups = row.size() / static_cast<size_t>(shape->group_size);
      std::vector<uint8_t> codes(row.size());
      std::vector<float> scale(groups), offset(groups);
      decode_affine_row(*matrix, matrix->rows / 2, codes, scale, offset);
      EXPECT_LE(*std::max_element(codes.begin(), codes.end()), shape->max_code);
    }
  }
  for (const auto& [key, value] : checkpoint.metadata) {
    if (value.array() == nullptr || value.array()->empty()) continue;
    const GgufValue last = (*value.array())[value.array()->size() - 1];
  }
  return true;
}

// Runs use_checkpoint and holds its largest memory against the limit.
bool use_within_limit(const std::string& path, int64_t file_bytes) {
  const int64_t before = live_bytes;
  peak_bytes = before;
  const bool opens = use_checkpoint(path);
  EXPECT_LE(peak_bytes - before, 2 * file_bytes + kAllowance) << path;
  return opens;
}

bool is_model_file(const std::string& name) {
  return name.ends_with(".gguf") || name == "config.json" || name.ends_with(".index.json") ||
         (name.starts_with("model") && name.ends_with(".safetensors"));
}

// Places to damage: half of them in the first quarter, where the headers are.
uint64_t random_place(std::mt19937_64& random, uint64_t size) {
  const uint64_t range = random() % 2 == 0 ? std::max<uint64_t>(size / 4, 1) : size;
  return random() % range;
}

class HostileModel : public testing::TestWithParam<std::string> {};

TEST_P(HostileModel, DamagedFilesEndInAnErrorOrALoad) {
  const std::string source = std::string(MLXCEL_SOURCE_DIR) + "/tests/data/models/" + GetParam();
  const TemporaryFolder folder("mlxcel-hostile-" + GetParam());
  std::vector<std::string> names;
  const auto listed = list_directory(source);
  ASSERT_TRUE(listed.ok());
  for (const std::string& name : *listed) {
    if (!is_model_file(name)) continue;
    names.push_back(name);
    folder.write(name, *read_file(path_join(source, name)));
  }
  const int64_t total = folder_bytes(folder.path());
  ASSERT_TRUE(use_within_limit(folder.path(), total));
  std::mt19937_64 random(std::hash<std::string>{}(GetParam()));
  for (const std::string& name : names) {
    const std::string path = folder.file(name);
    const std::string intact = *read_file(path);
    for (int i = 0; i < kTruncations; ++i) {
      std::filesystem::resize_file(path, random_place(random, intact.size()));
      const bool opens = use_within_limit(folder.path(), total);
      EXPECT_FALSE(opens && name.ends_with(".safetensors")) << "a truncated safetensors file was accepted";
      folder.write(name, intact);
    }
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    for (int i = 0; i < kChangedBytes; ++i) {
      const uint64_t place = random_place(random, intact.size());
      const auto change = static_cast<char>(1 + random() % 255);
      file.seekp(static_cast<std::streamoff>(place)).put(static_cast<char>(intact[place] ^ change)).flush();
      use_within_limit(folder.path(), total);
      // Every fourth change stays, so that damage also piles up.
      if (i % 4 != 0) file.seekp(static_cast<std::streamoff>(place)).put(intact[place]).flush();
    }
    file.close();
    folder.write(name, intact);
  }
}

std::vector<std::string> fixture_names() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(MLXCEL_SOURCE_DIR) + "/tests/data/models")) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, HostileModel, testing::ValuesIn(fixture_names()),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
                           return name;
                         });

// Malicious files: as much structure per byte as the format allows.

void expect_bounded(const TemporaryFolder& folder) {
  use_within_limit(folder.path(), folder_bytes(folder.path()));
}
std::string repeat(std::string_view unit, size_t count) {
  std::string text;
  text.reserve(unit.size() * count);
  for (size_t i = 0; i < count; ++i) text += unit;
  return text;
}
constexpr std::string_view kEmptyTensors = "{\"__metadata__\":";

TEST(HostileMemory, ConfigOfTinyValues) {
  const TemporaryFolder folder("mlxcel-hostile-config");
  folder.write("model.safetensors", safetensors_file("{}", ""));
  for (const std::string_view unit : {"0,", "[],", "{},", "\"\",", "[[[]]],", "{\"a\":0},"}) {
    for (const size_t bytes : {size_t{524000}, size_t{2} << 20}) {
      folder.write("config.json", "{\"a\":[" + repeat(unit, bytes / unit.size()) + "0]}");
      expect_bounded(folder);
    }
  }
  std::string keys = "{";
  for (size_t i = 0; keys.size() < 520000; ++i) keys += "\"" + std::to_string(i) + "\":0,";
  folder.write("config.json", keys + "\"x\":0}");
  expect_bounded(folder);
}

TEST(HostileMemory, HeadersOfTinyValues) {
  const TemporaryFolder folder("mlxcel-hostile-header");
  folder.write("config.json", "{}");
  for (const std::string_view unit : {"0,", "[],", "{\"a\":0},", "\"\","}) {
    folder.write("model.safetensors",
                 safetensors_file(std::string(kEmptyTensors) + "[" + repeat(unit, 3000000) + "0]}", ""));
    expect_bounded(folder);
  }
  folder.write("model.safetensors.index.json",
               "{\"weight_map\":{},\"metadata\":[" + repeat("0,", 4000000) + "0]}");
  expect_bounded(folder);
}

// Names long enough for the heap, in a shard with a long name and in the index.
TEST(HostileMemory, AsManyTensorsAsAllowed) {
  const TemporaryFolder folder("mlxcel-hostile-tensors");
  folder.write("config.json", "{}");
  const std::string shard = "model-with-a-name-for-the-heap.safetensors";
  for (const size_t count : {size_t{149999}, size_t{400000}}) {
    std::string header = "{", index = "{\"weight_map\":{";
    for (size_t i = 0; i < count; ++i) {
      const std::string name = "\"tensor" + std::to_string(10000000 + i) + "xx\":";
      header += name + R"({"dtype":"U8","shape":[1,1,1,1,1,1,1,0],"data_offsets":[0,0]},)";
      index += name + "\"" + shard + "\",";
    }
    header.back() = index.back() = '}';
    folder.write(shard, safetensors_file(header, ""));
    folder.write("model.safetensors.index.json", index + "}");
    const bool opens = use_within_limit(folder.path(), folder_bytes(folder.path()));
    EXPECT_EQ(opens, count < 150000);
  }
}

TEST(HostileMemory, GgufArraysOfTinyElements) {
  const TemporaryFolder folder("mlxcel-hostile-gguf");
  constexpr uint32_t kArray = 9;
  const auto check = [&](uint32_t type, std::string_view unit, size_t count) {
    GgufBuilder builder;
    builder.key("x", kArray, bytes_of(type) + bytes_of(uint64_t{count}) + repeat(unit, count));
    folder.write("m.gguf", builder.build());
    EXPECT_TRUE(use_within_limit(folder.path(), folder_bytes(folder.path()))) << type;
  };
  check(0, std::string(1, '\0'), 20000000);       // bytes
  check(7, std::string(1, '\1'), 20000000);       // booleans
  check(8, std::string(8, '\0'), 3000000);        // empty strings
  check(kArray, std::string(12, '\0'), 2000000);  // empty arrays
  check(kArray, bytes_of(uint32_t{8}) + std::string(8, '\0'), 2000000);
}

TEST(HostileMemory, GgufKeysAndTensors) {
  const TemporaryFolder folder("mlxcel-hostile-gguf-keys");
  GgufBuilder keys, tensors;
  for (uint32_t i = 0; i < 65536; ++i) keys.key(bytes_of(i), 0, "x");
  folder.write("m.gguf", keys.build());
  EXPECT_TRUE(use_within_limit(folder.path(), folder_bytes(folder.path())));
  for (uint32_t i = 0; i < 150000; ++i) tensors.tensor(bytes_of(i), {1}, 24, i);
  tensors.key("general.alignment", 4, bytes_of(uint32_t{1}));
  tensors.alignment = 1;
  tensors.data = std::string(150000, 'x');
  folder.write("m.gguf", tensors.build());
  EXPECT_TRUE(use_within_limit(folder.path(), folder_bytes(folder.path())));
}

}  // namespace
}  // namespace mlxcel
