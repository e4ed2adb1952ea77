// Stands for a backend's storage in the tests of kv/: a row is one integer, so that a row that comes from the
// wrong place is seen at once.
//
// Owner: a test. Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/sequence_cache.h"

namespace mlxcel {

class RowStoreForTests final : public DenseSlots {
 public:
  static constexpr int64_t kStaleRow = -777;

  static RowStoreForTests paged(int32_t num_blocks, int32_t block_size) {
    RowStoreForTests store;
    store.block_size_ = block_size;
    store.rows_.assign(static_cast<size_t>(int64_t{num_blocks} * block_size), kStaleRow);
    return store;
  }
  static RowStoreForTests dense(int32_t num_slots, int64_t max_rows) {
    RowStoreForTests store;
    store.max_rows_ = max_rows;
    store.slots_.resize(static_cast<size_t>(num_slots));
    store.is_taken_.resize(static_cast<size_t>(num_slots));
    return store;
  }

  Result<int32_t> take_slot() override {
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (is_taken_[i]) continue;
      is_taken_[i] = true;
      return static_cast<int32_t>(i);
    }
    return make_error(ErrorKind::kResourceExhausted, "no slot");
  }
  void release_slot(int32_t slot) override {
    MLXCEL_CHECK(is_taken_[static_cast<size_t>(slot)]);
    is_taken_[static_cast<size_t>(slot)] = false;
    slots_[static_cast<size_t>(slot)].clear();
  }
  Status reserve_rows(int32_t slot, int64_t num_rows) override {
    if (num_rows > max_rows_) return make_error(ErrorKind::kResourceExhausted, "slot is full");
    auto& rows = slots_[static_cast<size_t>(slot)];
    if (static_cast<int64_t>(rows.size()) < num_rows) rows.resize(static_cast<size_t>(num_rows), kStaleRow);
    return ok_status();
  }
  void copy_rows(int32_t from, int32_t to, int64_t num_rows) override {
    for (int64_t i = 0; i < num_rows; ++i) {
      slots_[static_cast<size_t>(to)][static_cast<size_t>(i)] =
          slots_[static_cast<size_t>(from)][static_cast<size_t>(i)];
    }
  }

  void copy_blocks(std::span<const BlockCopy> copies) {
    for (const BlockCopy& copy : copies) {
      for (int32_t row = 0; row < copy.rows; ++row) cell(copy.to, row) = cell(copy.from, row);
    }
  }
  int64_t& row(const KvView& view, int64_t position) {
    MLXCEL_CHECK(position >= 0 && position < view.length);
    if (view.dense_slot >= 0)
      return slots_[static_cast<size_t>(view.dense_slot)][static_cast<size_t>(position)];
    return cell(view.blocks[static_cast<size_t>(position / block_size_)],
                static_cast<int32_t>(position % block_size_));
  }
  // Overwrites every row that none of the views can see.
  void forget_unseen(std::span<const KvView> live) {
    std::vector<std::pair<int64_t*, int64_t>> seen;
    for (const KvView& view : live) {
      for (int64_t p = 0; p < view.length; ++p) {
        if (p < view.num_pinned || p >= view.first_visible) seen.emplace_back(&row(view, p), row(view, p));
      }
    }
    for (int64_t& value : rows_) value = kStaleRow;
    for (auto& slot : slots_) {
      for (int64_t& value : slot) value = kStaleRow;
    }
    for (const auto& [where, value] : seen) *where = value;
  }

 private:
  RowStoreForTests() = default;
  int64_t& cell(BlockId block, int32_t row) {
    MLXCEL_CHECK(block >= 0);
    return rows_[static_cast<size_t>(int64_t{block} * block_size_ + row)];
  }

  int32_t block_size_ = 0;
  int64_t max_rows_ = 0;
  std::vector<int64_t> rows_;
  std::vector<std::vector<int64_t>> slots_;
  std::vector<bool> is_taken_;
};

}  // namespace mlxcel
