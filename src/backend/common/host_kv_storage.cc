#include "backend/common/host_kv_storage.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "backend/common/kv_chunk_shape.h"
#include "base/checked.h"
#include "tensor/dtype.h"

namespace mlxcel {

namespace {

constexpr int32_t kMaxBlockSize = 256;
constexpr int32_t kQ8Group = 32;
constexpr size_t kChunkAlignment = 64;
// Every element type reads as NaN when all bits are set (q8_0 through its scale).
constexpr int kPoisonByte = 0xFF;

// One anonymous mapping: the kernel gives pages when they are touched, so a large pool costs what is used of
// it.
class Slab {
 public:
  Slab() = default;
  static Result<Slab> map(int64_t bytes) {
    Slab slab;
    if (bytes == 0) return slab;
    const auto out_of_memory = [&](std::string found) {
      return make_error(ErrorKind::kOutOfMemory, "no memory for the key/value cache", "",
                        std::to_string(bytes) + " bytes", std::move(found),
                        "choose a smaller context, fewer sequences or a smaller cache type");
    };
    const int64_t physical = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
    if (physical > 0 && bytes > physical) {
      return out_of_memory("this machine has " + std::to_string(physical));
    }
    void* address =
        mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return out_of_memory("the system refused");
    slab.data_ = static_cast<std::byte*>(address);
    slab.bytes_ = bytes;
    return slab;
  }
  ~Slab() {
    if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
  }
  Slab(Slab&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Slab& operator=(Slab&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

struct FreeDeleter {
  void operator()(std::byte* bytes) const { std::free(bytes); }  // NOLINT(cppcoreguidelines-no-malloc)
};
using Chunk = std::unique_ptr<std::byte, FreeDeleter>;

struct Slot {
  bool is_taken = false;
  std::vector<Chunk> chunks;
};

void store_u16(std::byte* at, uint16_t bits) { std::memcpy(at, &bits, sizeof bits); }
uint16_t load_u16(const std::byte* at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

// Where element e of a row lies: either one plane holds the whole row or each plane holds one element.
struct RowPlace {
  std::byte* first = nullptr;
  int64_t stride = 0;  // bytes from one element to the next
  std::byte* element(int64_t index) const { return first + index * stride; }
};
RowPlace place_of(std::byte* chunk, const KvPlanes& planes, int32_t chunk_rows, int32_t row,
                  int32_t element_bytes) {
  const int64_t stride = planes.num_planes > 1 ? planes.plane_bytes(chunk_rows) : element_bytes;
  return {chunk + planes.row_offset(chunk_rows, 0, row), stride};
}

// q8_0 as docs/numerics.md has it. A group with a NaN or an infinity gets a NaN scale: it must not read back
// as a plausible number.
void write_q8_group(const float* source, const RowPlace& codes, int64_t first, std::byte* scale) {
  float largest = 0.0f;
  bool is_finite = true;
  for (int i = 0; i < kQ8Group; ++i) {
    is_finite = is_finite && std::isfinite(source[i]);
    largest = std::max(largest, std::fabs(source[i]));
  }
  const uint16_t d_bits = f32_to_f16(largest / 127.0f);
  const float d = f16_to_f32(d_bits);
  if (!is_finite || !std::isfinite(d)) {
    store_u16(scale, 0x7E00);
    for (int i = 0; i < kQ8Group; ++i) *codes.element(first + i) = std::byte{0};
    return;
  }
  store_u16(scale, d_bits);
  const float inverse = d == 0.0f ? 0.0f : 1.0f / d;
  for (int i = 0; i < kQ8Group; ++i) {
    const float code = std::clamp(std::nearbyint(source[i] * inverse), -127.0f, 127.0f);
    *codes.element(first + i) = static_cast<std::byte>(static_cast<int8_t>(code));
  }
}

void write_elements(KvType type, const float* source, int32_t dim, const RowPlace& elements,
                    const RowPlace& scales) {
  switch (type) {
    case KvType::kF32:
      for (int32_t e = 0; e < dim; ++e) std::memcpy(elements.element(e), &source[e], sizeof(float));
      return;
    case KvType::kF16:
      for (int32_t e = 0; e < dim; ++e) store_u16(elements.element(e), f32_to_f16(source[e]));
      return;
    case KvType::kBF16:
      for (int32_t e = 0; e < dim; ++e) store_u16(elements.element(e), f32_to_bf16(source[e]));
      return;
    case KvType::kQ8_0:
      for (int32_t group = 0; group < dim / kQ8Group; ++group) {
        write_q8_group(source + group * kQ8Group, elements, int64_t{group} * kQ8Group, scales.element(group));
      }
      return;
  }
}

void read_elements(KvType type, float* out, int32_t dim, const RowPlace& elements, const RowPlace& scales) {
  for (int32_t e = 0; e < dim; ++e) {
    const std::byte* at = elements.element(e);
    switch (type) {
      case KvType::kF32:
        std::memcpy(&out[e], at, sizeof(float));
        break;
      case KvType::kF16:
        out[e] = f16_to_f32(load_u16(at));
        break;
      case KvType::kBF16:
        out[e] = bf16_to_f32(load_u16(at));
        break;
      case KvType::kQ8_0: {
        const float code = static_cast<float>(static_cast<int8_t>(*at));
        out[e] = code * f16_to_f32(load_u16(scales.element(e / kQ8Group)));
        break;
      }
    }
  }
}

int32_t element_bytes(KvType type) {
  return static_cast<int32_t>(type == KvType::kQ8_0 ? 1 : kv_row_bytes(type, 1));
}

template <typename F>
void for_each_part(const KvChunkShape& shape, F&& f) {
  for (const KvChunkShape::Head& head : shape.heads()) {
    for (const KvPlanes* part : {&head.keys, &head.key_scales, &head.values, &head.value_scales}) {
      if (part->num_planes > 0) f(*part);
    }
  }
}

// Rows [0, num_rows) of a chunk, every layer and head.
void copy_chunk_rows(const KvChunkShape& shape, const std::byte* from, std::byte* to, int32_t num_rows) {
  if (num_rows == shape.chunk_rows()) {
    std::memcpy(to, from, static_cast<size_t>(shape.chunk_bytes()));
    return;
  }
  for_each_part(shape, [&](const KvPlanes& part) {
    for (int32_t plane = 0; plane < part.num_planes; ++plane) {
      const int64_t offset = part.row_offset(shape.chunk_rows(), plane, 0);
      std::memcpy(to + offset, from + offset, static_cast<size_t>(int64_t{num_rows} * part.row_bytes));
    }
  });
}

// All bytes of a chunk but those of live rows.
void poison_chunk(const KvChunkShape& shape, std::byte* chunk, const std::vector<bool>& is_live) {
  if (std::find(is_live.begin(), is_live.end(), true) == is_live.end()) {
    std::memset(chunk, kPoisonByte, static_cast<size_t>(shape.chunk_bytes()));
    return;
  }
  for_each_part(shape, [&](const KvPlanes& part) {
    for (int32_t plane = 0; plane < part.num_planes; ++plane) {
      for (int32_t row = 0; row < shape.chunk_rows(); ++row) {
        if (is_live[static_cast<size_t>(row)]) continue;
        std::memset(chunk + part.row_offset(shape.chunk_rows(), plane, row), kPoisonByte,
                    static_cast<size_t>(part.row_bytes));
      }
    }
  });
}

Status check_type(KvType type, std::string_view what, int layer, int dim) {
  if (type != KvType::kQ8_0 || dim % kQ8Group == 0) return ok_status();
  return make_error(ErrorKind::kInvalidArgument, "q8_0 cache rows come in groups of 32",
                    "layer " + std::to_string(layer) + ", " + std::string(what), "a multiple of 32",
                    std::to_string(dim), "use the cache type f16, bf16 or f32");
}

Status check_layout(const KvLayout& layout, int32_t chunk_rows) {
  int64_t total = 0;
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    const LayerKvLayout& layer = layout.layers[i];
    const int index = static_cast<int>(i);
    if (layer.num_kv_heads < 0 || layer.key_dim < 0 || layer.value_dim < 0) {
      return make_error(ErrorKind::kInvalidArgument, "negative size in a key/value layout",
                        "layer " + std::to_string(index));
    }
    MLXCEL_RETURN_IF_ERROR(check_type(layout.key_type, "key dim", index, layer.key_dim));
    MLXCEL_RETURN_IF_ERROR(check_type(layout.value_type, "value dim", index, layer.value_dim));
    // Four bytes per element is the most any type needs; 64 bytes of padding per part of a head.
    const std::optional<int64_t> dims = checked_product(std::array<int64_t, 3>{
        layer.num_kv_heads, int64_t{layer.key_dim} + layer.value_dim + 32, 4 * int64_t{chunk_rows}});
    if (!dims || *dims > (int64_t{1} << 60) || total > (int64_t{1} << 60)) {
      return make_error(ErrorKind::kInvalidArgument, "a key/value layout is too large",
                        "layer " + std::to_string(index));
    }
    total += *dims;
  }
  return ok_status();
}

}  // namespace

struct HostKvStorage::Impl {
  KvChunkShape shape;
  Slab slab;  // paged
  int32_t num_blocks = 0;
  std::vector<Slot> slots;  // dense
  int64_t max_rows_per_slot = 0;
  int64_t dense_bytes = 0;

  // REQUIRES: the chunk exists.
  std::byte* chunk(const KvView& view, int64_t index) const {
    if (view.dense_slot < 0) {
      MLXCEL_CHECK(index >= 0 && index < static_cast<int64_t>(view.blocks.size()));
      const BlockId block = view.blocks[static_cast<size_t>(index)];
      MLXCEL_CHECK(block >= 0 && block < num_blocks);
      return slab.data() + shape.slab_offset(block);
    }
    MLXCEL_CHECK(view.dense_slot < static_cast<int32_t>(slots.size()));
    const Slot& slot = slots[static_cast<size_t>(view.dense_slot)];
    MLXCEL_CHECK(index >= 0 && index < static_cast<int64_t>(slot.chunks.size()));
    return slot.chunks[static_cast<size_t>(index)].get();
  }
};

HostKvStorage::HostKvStorage() = default;
HostKvStorage::~HostKvStorage() = default;

Result<std::unique_ptr<HostKvStorage>> HostKvStorage::create(KvStorageKind kind, const KvLayout& layout,
                                                             const KvBudget& budget, KeyLayout key_layout) {
  const bool is_paged = kind == KvStorageKind::kPaged;
  if (is_paged && (budget.block_size < 1 || budget.block_size > kMaxBlockSize)) {
    return make_error(ErrorKind::kInvalidArgument, "block size of the key/value cache out of range", "",
                      "1 to 256", std::to_string(budget.block_size));
  }
  if (budget.num_blocks < 0 || budget.num_slots < 0 || budget.max_rows_per_slot < 0) {
    return make_error(ErrorKind::kInvalidArgument, "negative budget of the key/value cache");
  }
  const int32_t chunk_rows = is_paged ? budget.block_size : kDenseChunkRows;
  MLXCEL_RETURN_IF_ERROR(check_layout(layout, chunk_rows));

  std::unique_ptr<HostKvStorage> storage(new HostKvStorage());  // the constructor is private
  storage->kind_ = kind;
  storage->layout_ = layout;
  storage->key_layout_ = key_layout;
  storage->chunk_rows_ = chunk_rows;
  storage->impl_ = std::make_unique<Impl>();
  Impl& impl = *storage->impl_;
  impl.shape = KvChunkShape(layout, chunk_rows, key_layout == KeyLayout::kDimMajor);
  if (is_paged) {
    const std::array<int64_t, 2> sizes{budget.num_blocks, impl.shape.chunk_bytes()};
    const std::optional<int64_t> bytes = checked_product(sizes);
    if (!bytes) {
      return make_error(ErrorKind::kOutOfMemory, "no memory for the key/value cache", "",
                        std::to_string(budget.num_blocks) + " blocks of " +
                            std::to_string(impl.shape.chunk_bytes()) + " bytes",
                        "more than an address space");
    }
    MLXCEL_ASSIGN_OR_RETURN(impl.slab, Slab::map(*bytes));
    impl.num_blocks = budget.num_blocks;
  } else {
    impl.slots.resize(static_cast<size_t>(budget.num_slots));
    impl.max_rows_per_slot = budget.max_rows_per_slot;
  }
  return storage;
}

int64_t HostKvStorage::bytes() const { return impl_->slab.bytes() + impl_->dense_bytes; }

std::byte* HostKvStorage::keys(const KvView& view, int layer, int kv_head, int64_t chunk) const {
  return impl_->chunk(view, chunk) + impl_->shape.head(layer, kv_head).keys.offset;
}

std::byte* HostKvStorage::values(const KvView& view, int layer, int kv_head, int64_t chunk) const {
  return impl_->chunk(view, chunk) + impl_->shape.head(layer, kv_head).values.offset;
}

void HostKvStorage::write_row(const KvView& view, int layer, int64_t position, const float* keys,
                              const float* values) {
  MLXCEL_CHECK(position >= 0 && position < view.length);
  const LayerKvLayout& sizes = layout_.layers[static_cast<size_t>(layer)];
  const auto row = static_cast<int32_t>(position % chunk_rows_);
  std::byte* chunk = impl_->chunk(view, position / chunk_rows_);
  auto place = [&](const KvPlanes& planes, int32_t bytes) {
    return place_of(chunk, planes, chunk_rows_, row, bytes);
  };
  for (int i = 0; i < sizes.num_kv_heads; ++i) {
    const KvChunkShape::Head& head = impl_->shape.head(layer, i);
    write_elements(layout_.key_type, keys + int64_t{i} * sizes.key_dim, sizes.key_dim,
                   place(head.keys, element_bytes(layout_.key_type)), place(head.key_scales, 2));
    write_elements(layout_.value_type, values + int64_t{i} * sizes.value_dim, sizes.value_dim,
                   place(head.values, element_bytes(layout_.value_type)), place(head.value_scales, 2));
  }
}

std::vector<float> HostKvStorage::read_row(const KvView& view, int layer, bool value,
                                           int64_t position) const {
  MLXCEL_CHECK(position >= 0 && position < view.length);
  const LayerKvLayout& sizes = layout_.layers[static_cast<size_t>(layer)];
  const int32_t dim = value ? sizes.value_dim : sizes.key_dim;
  const KvType type = value ? layout_.value_type : layout_.key_type;
  const auto row = static_cast<int32_t>(position % chunk_rows_);
  std::byte* chunk = impl_->chunk(view, position / chunk_rows_);
  std::vector<float> out(static_cast<size_t>(int64_t{sizes.num_kv_heads} * dim));
  for (int i = 0; i < sizes.num_kv_heads; ++i) {
    const KvChunkShape::Head& head = impl_->shape.head(layer, i);
    const KvPlanes& elements = value ? head.values : head.keys;
    const KvPlanes& scales = value ? head.value_scales : head.key_scales;
    read_elements(type, out.data() + int64_t{i} * dim, dim,
                  place_of(chunk, elements, chunk_rows_, row, element_bytes(type)),
                  place_of(chunk, scales, chunk_rows_, row, 2));
  }
  return out;
}

void HostKvStorage::poison_unused(std::span<const KvView> live) {
  std::map<std::byte*, std::vector<bool>> live_rows;  // by chunk
  for (const KvView& view : live) {
    for (int64_t position = 0; position < view.length; ++position) {
      if (position >= view.num_pinned && position < view.first_visible) continue;
      std::vector<bool>& rows = live_rows[impl_->chunk(view, position / chunk_rows_)];
      rows.resize(static_cast<size_t>(chunk_rows_));
      rows[static_cast<size_t>(position % chunk_rows_)] = true;
    }
  }
  const std::vector<bool> none(static_cast<size_t>(chunk_rows_));
  auto poison = [&](std::byte* chunk) {
    const auto found = live_rows.find(chunk);
    poison_chunk(impl_->shape, chunk, found == live_rows.end() ? none : found->second);
  };
  for (int32_t block = 0; block < impl_->num_blocks; ++block) {
    poison(impl_->slab.data() + impl_->shape.slab_offset(block));
  }
  for (const Slot& slot : impl_->slots) {
    for (const Chunk& chunk : slot.chunks) poison(chunk.get());
  }
}

void HostKvStorage::copy_blocks(std::span<const BlockCopy> copies) {
  for (const BlockCopy& copy :
       copies) {  // in order: a block may be the source of one and the target of a later one
    MLXCEL_CHECK(copy.from >= 0 && copy.from < impl_->num_blocks && copy.to >= 0 &&
                 copy.to < impl_->num_blocks);
    MLXCEL_CHECK(copy.from != copy.to && copy.rows >= 0 && copy.rows <= chunk_rows_);
    std::byte* base = impl_->slab.data();
    copy_chunk_rows(impl_->shape, base + impl_->shape.slab_offset(copy.from),
                    base + impl_->shape.slab_offset(copy.to), copy.rows);
  }
}

Result<int32_t> HostKvStorage::take_slot() {
  for (size_t i = 0; i < impl_->slots.size(); ++i) {
    if (impl_->slots[i].is_taken) continue;
    impl_->slots[i].is_taken = true;
    return static_cast<int32_t>(i);
  }
  return make_error(ErrorKind::kResourceExhausted, "all sequences of the dense key/value cache are in use",
                    "", "a free one of " + std::to_string(impl_->slots.size()), "none");
}

void HostKvStorage::release_slot(int32_t slot) {
  MLXCEL_CHECK(slot >= 0 && slot < static_cast<int32_t>(impl_->slots.size()));
  Slot& released = impl_->slots[static_cast<size_t>(slot)];
  MLXCEL_CHECK_MSG(released.is_taken, "release of a free slot");
  impl_->dense_bytes -= static_cast<int64_t>(released.chunks.size()) * impl_->shape.chunk_bytes();
  released.chunks.clear();
  released.is_taken = false;
}

Status HostKvStorage::reserve_rows(int32_t slot, int64_t num_rows) {
  MLXCEL_CHECK(slot >= 0 && slot < static_cast<int32_t>(impl_->slots.size()) && num_rows >= 0);
  Slot& grown = impl_->slots[static_cast<size_t>(slot)];
  MLXCEL_CHECK_MSG(grown.is_taken, "rows for a free slot");
  if (num_rows > impl_->max_rows_per_slot) {
    return make_error(ErrorKind::kResourceExhausted, "the dense key/value cache of a sequence is full", "",
                      "at most " + std::to_string(impl_->max_rows_per_slot) + " rows",
                      std::to_string(num_rows));
  }
  const int64_t num_chunks = ceil_div(num_rows, chunk_rows_);
  const size_t before = grown.chunks.size();
  const auto bytes = static_cast<size_t>(std::max<int64_t>(impl_->shape.chunk_bytes(), kChunkAlignment));
  while (static_cast<int64_t>(grown.chunks.size()) < num_chunks) {
    Chunk chunk(static_cast<std::byte*>(std::aligned_alloc(kChunkAlignment, bytes)));
    if (chunk == nullptr) {
      grown.chunks.resize(before);
      return make_error(ErrorKind::kOutOfMemory, "no memory for the key/value cache", "",
                        std::to_string(num_chunks * impl_->shape.chunk_bytes()) + " bytes",
                        "the system refused", "choose a smaller context or a smaller cache type");
    }
    grown.chunks.push_back(std::move(chunk));
  }
  impl_->dense_bytes += static_cast<int64_t>(grown.chunks.size() - before) * impl_->shape.chunk_bytes();
  return ok_status();
}

void HostKvStorage::copy_rows(int32_t from, int32_t to, int64_t num_rows) {
  MLXCEL_CHECK(from != to && num_rows >= 0);
  const Slot& source = impl_->slots[static_cast<size_t>(from)];
  const Slot& target = impl_->slots[static_cast<size_t>(to)];
  for (int64_t first = 0; first < num_rows; first += chunk_rows_) {
    const auto chunk = static_cast<size_t>(first / chunk_rows_);
    copy_chunk_rows(impl_->shape, source.chunks[chunk].get(), target.chunks[chunk].get(),
                    static_cast<int32_t>(std::min<int64_t>(chunk_rows_, num_rows - first)));
  }
}

}  // namespace mlxcel
