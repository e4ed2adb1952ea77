// The memory of a forward pass: it grows to the largest step seen and is then reused, so a decode step
// allocates nothing.
//
// Owner: the forward pass. Threads: reserve() by one thread; rows are then written by the thread that owns
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/kernel_table.h"

namespace mlxcel {

// Elements on a 64-byte border. Contents are lost when it grows; new elements are zero.
template <typename T>
class AlignedBuffer {
 public:
  void reserve(int64_t count) {
    const size_t lines = (static_cast<size_t>(count) * sizeof(T) + 63) / 64;
    if (lines > lines_.size()) lines_ = std::vector<Line>(lines);
  }
  T* data() { return static_cast<T*>(static_cast<void*>(lines_.data())); }
  const T* data() const { return static_cast<const T*>(static_cast<const void*>(lines_.data())); }
  uint64_t bytes() const { return lines_.size() * sizeof(Line); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
};

// [rows][columns] f32, each row padded to whole lanes: kernels may write the padding.
class RowBuffer {
 public:
  void set_columns(int64_t columns) { stride_ = (columns + kLanes - 1) / kLanes * kLanes; }
  void reserve(int64_t rows) { data_.reserve(rows * stride_); }
  float* row(int64_t index) { return data_.data() + index * stride_; }
  const float* row(int64_t index) const { return data_.data() + index * stride_; }
  int64_t stride() const { return stride_; }
  uint64_t bytes() const { return data_.bytes(); }

 private:
  int64_t stride_ = 0;
  AlignedBuffer<float> data_;
};

// The input of linear layers: f32 rows and, for each group size that a matrix reading it has, their integer
// form.
class LinearInput {
 public:
  // REQUIRES: called before reserve(); may widen and add group sizes (bit i: 16 << i).
  void use(int64_t columns, uint8_t group_sizes) {
    if (columns > columns_) columns_ = columns;
    group_sizes_ = static_cast<uint8_t>(group_sizes_ | group_sizes);
    rows_.set_columns(columns_);
  }
  void reserve(int64_t rows) {
    rows_.reserve(rows);
    for (size_t i = 0; i < forms_.size(); ++i) {
      if (((group_sizes_ >> i) & 1u) == 0) continue;
      forms_[i].p.reserve(rows * rows_.stride());
      forms_[i].d.reserve(rows * group_stride());
      forms_[i].sum.reserve(rows * group_stride());
      forms_[i].float_sum.reserve(rows * group_stride());
    }
  }
  float* row(int64_t index) { return rows_.row(index); }
  const float* row(int64_t index) const { return rows_.row(index); }
  int64_t stride() const { return rows_.stride(); }

  // Integer forms (those in group_sizes) of one row of `columns` elements.
  void quantise(const KernelTable& kernels, float top, int64_t columns, uint8_t group_sizes, int64_t index) {
    for (size_t i = 0; i < forms_.size(); ++i) {
      if (((group_sizes >> i) & 1u) == 0) continue;
      Form& f = forms_[i];
      kernels.quantise(row(index), columns, 16 << i, top, f.p.data() + index * stride(),
                       f.d.data() + index * group_stride(), f.sum.data() + index * group_stride(),
                       f.float_sum.data() + index * group_stride());
    }
  }
  // Row `to` = row `from` of another input with the same columns, integer forms included.
  void copy_row(const LinearInput& other, int64_t from, int64_t to, int64_t columns, uint8_t group_sizes);
  // Rows from `first` on.
  QuantisedInput quantised(int32_t group_size, int64_t first) const {
    size_t i = 0;
    while ((16 << i) != group_size) ++i;
    const Form& f = forms_[i];
    return {f.p.data() + first * stride(),
            f.d.data() + first * group_stride(),
            f.sum.data() + first * group_stride(),
            f.float_sum.data() + first * group_stride(),
            stride(),
            group_stride()};
  }
  uint64_t bytes() const {
    uint64_t total = rows_.bytes();
    for (const Form& f : forms_) total += f.p.bytes() + f.d.bytes() + f.sum.bytes() + f.float_sum.bytes();
    return total;
  }

 private:
  struct Form {
    AlignedBuffer<int16_t> p;        // [row][stride]
    AlignedBuffer<float> d;          // [row][group_stride]
    AlignedBuffer<int32_t> sum;      // [row][group_stride]
    AlignedBuffer<float> float_sum;  // likewise
  };
  int64_t group_stride() const { return rows_.stride() / 16; }

  int64_t columns_ = 0;
  uint8_t group_sizes_ = 0;
  RowBuffer rows_;
  std::array<Form, 4> forms_;
};

inline void LinearInput::copy_row(const LinearInput& other, int64_t from, int64_t to, int64_t columns,
                                  uint8_t group_sizes) {
  const float* source = other.row(from);
  float* target = row(to);
  for (int64_t i = 0; i < columns; ++i) target[i] = source[i];
  for (size_t i = 0; i < forms_.size(); ++i) {
    if (((group_sizes >> i) & 1u) == 0) continue;
    const Form& f = other.forms_[i];
    Form& t = forms_[i];
    const int64_t groups = columns / (16 << i);
    for (int64_t k = 0; k < columns; ++k)
      t.p.data()[to * stride() + k] = f.p.data()[from * other.stride() + k];
    for (int64_t g = 0; g < groups; ++g) {
      t.d.data()[to * group_stride() + g] = f.d.data()[from * other.group_stride() + g];
      t.sum.data()[to * group_stride() + g] = f.sum.data()[from * other.group_stride() + g];
      t.float_sum.data()[to * group_stride() + g] = f.float_sum.data()[from * other.group_stride() + g];
    }
  }
}

}  // namespace mlxcel
