// The memory of a forward pass: it grows to the largest step seen and is then reused, so a decode step
// allocates nothing.
//
// Owner: the forward pass. Threads: reserve() by one thread; rows are then written by the thread that owns
// them.
#pragma once

#include <algorithm>
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
  // REQUIRES: called before reserve(); may widen and add group sizes (bit i: 16 << i). `forms`:
  // what the kernels read (nothing at f32 precision); the same in every call.
  void use(int64_t columns, uint8_t group_sizes, InputForms forms) {
    if (columns > columns_) columns_ = columns;
    group_sizes_ = static_cast<uint8_t>(group_sizes_ | group_sizes);
    input_forms_ = forms;
    rows_.set_columns(columns_);
    // Whole cache lines, an odd number of them: the same k of several tokens must not share a set of L1.
    word_stride_ = odd_lines(columns_ * 2) / 2;
    high_offset_ = forms.high_plane ? (columns_ + 63) / 64 * 64 : 0;
    plane_stride_ = odd_lines(high_offset_ + columns_);
  }
  void reserve(int64_t rows) {
    rows_.reserve(rows);
    for (size_t i = 0; i < forms_.size(); ++i) {
      if (((group_sizes_ >> i) & 1u) == 0) continue;
      if (input_forms_.words) forms_[i].p.reserve(rows * word_stride_);
      if (input_forms_.low_plane) forms_[i].planes.reserve(rows * plane_stride_);
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
      kernels.quantise(row(index), columns, 16 << i, top, row_of(forms_[i], index));
    }
  }
  // Row `to` = row `from` of another input with the same columns, integer forms included.
  void copy_row(const LinearInput& other, int64_t from, int64_t to, int64_t columns, uint8_t group_sizes);
  // Rows from `first` on.
  QuantisedInput quantised(int32_t group_size, int64_t first) const {
    size_t i = 0;
    while ((16 << i) != group_size) ++i;
    const Form& f = forms_[i];
    return {input_forms_.words ? f.p.data() + first * word_stride_ : nullptr,
            input_forms_.low_plane ? f.planes.data() + first * plane_stride_ : nullptr,
            f.d.data() + first * group_stride(),
            f.sum.data() + first * group_stride(),
            f.float_sum.data() + first * group_stride(),
            word_stride_,
            plane_stride_,
            group_stride(),
            high_offset_};
  }
  uint64_t bytes() const {
    uint64_t total = rows_.bytes();
    for (const Form& f : forms_)
      total += f.p.bytes() + f.planes.bytes() + f.d.bytes() + f.sum.bytes() + f.float_sum.bytes();
    return total;
  }

 private:
  struct Form {
    AlignedBuffer<int16_t> p;        // [row][word_stride_]
    AlignedBuffer<int8_t> planes;    // [row][plane_stride_]
    AlignedBuffer<float> d;          // [row][group_stride]
    AlignedBuffer<int32_t> sum;      // [row][group_stride]
    AlignedBuffer<float> float_sum;  // likewise
  };
  static int64_t odd_lines(int64_t bytes) { return ((bytes + 63) / 64 | 1) * 64; }
  int64_t group_stride() const { return rows_.stride() / 16; }
  QuantisedRow row_of(Form& f, int64_t index) {
    QuantisedRow row = {};
    if (input_forms_.words) row.p = f.p.data() + index * word_stride_;
    if (input_forms_.low_plane) row.low = f.planes.data() + index * plane_stride_;
    if (input_forms_.high_plane) row.high = row.low + high_offset_;
    row.d = f.d.data() + index * group_stride();
    row.sum = f.sum.data() + index * group_stride();
    row.float_sum = f.float_sum.data() + index * group_stride();
    return row;
  }

  int64_t columns_ = 0, word_stride_ = 0, plane_stride_ = 0, high_offset_ = 0;
  uint8_t group_sizes_ = 0;
  InputForms input_forms_ = {};
  RowBuffer rows_;
  std::array<Form, 4> forms_;
};

inline void LinearInput::copy_row(const LinearInput& other, int64_t from, int64_t to, int64_t columns,
                                  uint8_t group_sizes) {
  std::copy_n(other.row(from), columns, row(to));
  for (size_t i = 0; i < forms_.size(); ++i) {
    if (((group_sizes >> i) & 1u) == 0) continue;
    const int64_t groups = columns / (16 << i);
    const QuantisedInput source = other.quantised(16 << i, from);
    const QuantisedRow target = row_of(forms_[i], to);
    if (target.p != nullptr) std::copy_n(source.p, columns, target.p);
    if (target.low != nullptr) std::copy_n(source.planes, columns, target.low);
    if (target.high != nullptr) std::copy_n(source.planes + source.high_offset, columns, target.high);
    std::copy_n(source.d, groups, target.d);
    std::copy_n(source.sum, groups, target.sum);
    std::copy_n(source.float_sum, groups, target.float_sum);
  }
}

}  // namespace mlxcel
