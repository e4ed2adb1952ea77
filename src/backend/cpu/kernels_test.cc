// Every kernel of every instruction set that this machine has, against plain loops that follow
// docs/numerics.md. Sizes are odd on purpose, and what lies beyond a row is NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/buffers.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernel_tables.h"
#include "backend/cpu/packed_matrix.h"
#include "tensor/dtype.h"
#include "tensor/math.h"

namespace mlxcel {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

bool same(float a, float b) { return std::memcmp(&a, &b, 4) == 0 || (std::isnan(a) && std::isnan(b)); }

std::vector<const KernelTable*> tables() {
  std::vector<const KernelTable*> list;
  for (const Isa isa : available_isas()) list.push_back(&kernel_table(isa));
  return list;
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  float uniform() { return static_cast<float>(engine_() >> 8) * 0x1p-23f - 1.0f; }  // [-1, 1)
  uint32_t bits() { return static_cast<uint32_t>(engine_()); }
  std::vector<float> floats(size_t n, float range = 4.0f) {
    std::vector<float> v(n);
    for (float& x : v) x = uniform() * range;
    return v;
  }

 private:
  std::mt19937 engine_;
};

// A random matrix of a format. Scales are small numbers, so that results are finite.
struct TestMatrix {
  WeightMatrix matrix;
  std::vector<std::byte> data, scales, biases;
};

void fill_random(std::vector<std::byte>& bytes, Random& random) {
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.bits() & 255u);
}

void put_number(std::vector<std::byte>& out, size_t at, DType type, float v) {
  if (type == DType::kF32) {
    std::memcpy(&out[at * 4], &v, 4);
    return;
  }
  const uint16_t bits = type == DType::kF16 ? f32_to_f16(v) : f32_to_bf16(v);
  std::memcpy(&out[at * 2], &bits, 2);
}

void fill_numbers(std::vector<std::byte>& out, size_t count, DType type, Random& random) {
  out.resize(count * dtype_size(type));
  for (size_t i = 0; i < count; ++i) put_number(out, i, type, random.uniform() * 0.1f);
}

std::unique_ptr<TestMatrix> make_matrix(const WeightFormat& format, int64_t rows, int64_t columns,
                                        Random& random) {
  auto made = std::make_unique<TestMatrix>();
  made->data.resize(static_cast<size_t>(rows) * row_bytes(format, columns).value());
  const size_t count = static_cast<size_t>(rows * columns);
  if (format.is_plain()) {
    fill_numbers(made->data, count, format.dtype, random);
  } else {
    fill_random(made->data, random);
  }
  if (format.kind == WeightKind::kMlxAffine) {
    const size_t groups = count / static_cast<size_t>(format.group_size);
    fill_numbers(made->scales, groups, format.dtype, random);
    fill_numbers(made->biases, groups, format.dtype, random);
  }
  made->matrix = {"test", format, rows, columns, made->data, made->scales, made->biases};
  return made;
}

std::vector<WeightFormat> quantised_formats() {
  std::vector<WeightFormat> formats;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      WeightFormat format;
      format.kind = WeightKind::kMlxAffine;
      format.bits = bits;
      format.group_size = group;
      format.dtype = bits == 4 ? DType::kBF16 : (bits == 3 ? DType::kF32 : DType::kF16);
      formats.push_back(format);
    }
  }
  for (const GgufType type :
       {GgufType::kQ4_0, GgufType::kQ4_1, GgufType::kQ5_0, GgufType::kQ5_1, GgufType::kQ8_0, GgufType::kQ2_K,
        GgufType::kQ3_K, GgufType::kQ4_K, GgufType::kQ5_K, GgufType::kQ6_K}) {
    WeightFormat format;
    format.kind = WeightKind::kGguf;
    format.gguf_type = type;
    formats.push_back(format);
  }
  return formats;
}

// docs/numerics.md, integer core, one row and one token.
float integer_row(const WeightMatrix& w, const AffineShape& shape, int64_t row, const float* x, float top) {
  const int64_t groups = w.columns / shape.group_size, span = std::max(32, shape.group_size);
  std::vector<uint8_t> codes(static_cast<size_t>(w.columns));
  std::vector<float> scale(static_cast<size_t>(groups)), offset(static_cast<size_t>(groups));
  decode_affine_row(w, row, codes, scale, offset);
  float acc = 0.0f;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = g * shape.group_size / span * span, end = std::min(begin + span, w.columns);
    float amax = 0.0f;
    bool finite = true;
    for (int64_t k = begin; k < end; ++k) {
      amax = std::max(amax, std::fabs(x[k]));
      finite = finite && std::isfinite(x[k]);
    }
    float d = finite ? 0.0f : kNan, inverse = 0.0f;
    if (finite && amax >= 0x1p-100f) {
      d = amax / top;
      inverse = 1.0f / d;
    }
    int32_t sum = 0, product = 0;
    for (int64_t k = g * shape.group_size; k < (g + 1) * shape.group_size; ++k) {
      const int32_t p = inverse == 0.0f ? 0 : static_cast<int32_t>(std::nearbyint(x[k] * inverse));
      product += p * codes[static_cast<size_t>(k)];
      sum += p;
    }
    const size_t at = static_cast<size_t>(g);
    float u = 0.0f;
    if (shape.symmetric) {
      u = static_cast<float>(product - shape.zero_point * sum) * scale[at];
    } else {
      u = static_cast<float>(product) * scale[at];
      u = std::fma(offset[at], static_cast<float>(sum), u);
    }
    acc = std::fma(u, d, acc);
  }
  return acc;
}

float chain_row(const WeightMatrix& w, int64_t row, const float* x) {
  std::vector<float> values(static_cast<size_t>(w.columns));
  decode_row(w, row, values);
  float acc = 0.0f;
  for (int64_t k = 0; k < w.columns; ++k) acc = std::fma(values[static_cast<size_t>(k)], x[k], acc);
  return acc;
}

// Runs one matrix through LinearInput and a table: y[token][row].
class LinearRun {
 public:
  LinearRun(const PackedMatrix& matrix, int64_t tokens, Random& random) : matrix_(matrix), tokens_(tokens) {
    for (int64_t t = 0; t < tokens; ++t)
      rows_.push_back(random.floats(static_cast<size_t>(matrix.columns())));
    out_.set_columns(matrix.rows());
    out_.reserve(tokens);
    scratch_.reserve(kLinearScratchBytes);
  }
  float* input(int64_t token) { return rows_[static_cast<size_t>(token)].data(); }
  // top: 0 for f32 precision. `forms`: what the kernel is to read.
  const RowBuffer& run(const KernelTable& kernels, float top, InputForms forms) {
    LinearInput input;
    input.use(matrix_.columns(), matrix_.is_quantised() ? uint8_t{15} : uint8_t{0}, forms);
    input.reserve(tokens_);
    for (int64_t t = 0; t < tokens_; ++t) {
      std::fill_n(input.row(t), input.stride(), kNan);
      std::copy_n(this->input(t), matrix_.columns(), input.row(t));
      std::fill_n(out_.row(t), out_.stride(), kNan);
    }
    const LinearTarget target = {out_.row(0), out_.stride(),        tokens_,
                                 0,           matrix_.num_blocks(), scratch_.data()};
    if (!matrix_.is_quantised()) {
      kernels.linear_plain(matrix_.plain(), input.row(0), input.stride(), target);
    } else if (top == 0.0f) {
      kernels.linear_dequantised(matrix_.quantised(), input.row(0), input.stride(), target);
    } else {
      for (int64_t t = 0; t < tokens_; ++t) input.quantise(kernels, top, matrix_.columns(), 15, t);
      kernels.linear_quantised(matrix_.quantised(), input.quantised(matrix_.quantised().group_size, 0),
                               target);
    }
    return out_;
  }

 private:
  const PackedMatrix& matrix_;
  int64_t tokens_;
  std::vector<std::vector<float>> rows_;
  RowBuffer out_;
  AlignedBuffer<uint8_t> scratch_;
};

InputForms forms_of(const KernelTable& kernels, float top) {
  if (top == 0.0f) return {};
  return top > 127.0f ? kernels.high_forms : kernels.int8_forms;
}

void expect_linear(const WeightFormat& format, int64_t rows, int64_t columns, Random& random) {
  ThreadPool pool(2);
  WeightArena arena;
  const auto made = make_matrix(format, rows, columns, random);
  const PackedMatrix packed = PackedMatrix::pack(made->matrix, arena, pool).value();
  const std::optional<AffineShape> shape = affine_shape(format);
  std::vector<float> row(static_cast<size_t>(columns)), unpacked(static_cast<size_t>(columns));
  for (int64_t r = 0; r < rows; ++r) {
    decode_row(made->matrix, r, row);
    packed.read_row(r, unpacked.data());
    for (size_t k = 0; k < row.size(); ++k)
      ASSERT_TRUE(same(row[k], unpacked[k])) << format.name() << " row " << r;
  }
  for (const int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 40}) {
    LinearRun run(packed, tokens, random);
    if (tokens > 2) run.input(1)[columns / 2] = tokens == 5 ? kNan : std::numeric_limits<float>::infinity();
    if (tokens > 3) std::fill_n(run.input(3), columns, tokens == 5 ? 0.0f : 1e-38f);
    for (const float top : {16256.0f, 127.0f, 0.0f}) {
      if (!shape && top != 0.0f) continue;
      std::vector<float> want;
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t r = 0; r < rows; ++r)
          want.push_back(top == 0.0f ? chain_row(made->matrix, r, run.input(t))
                                     : integer_row(made->matrix, *shape, r, run.input(t), top));
      }
      for (const KernelTable* kernels : tables()) {
        const RowBuffer& y = run.run(*kernels, top, forms_of(*kernels, top));
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t r = 0; r < rows; ++r)
            ASSERT_TRUE(same(y.row(t)[r], want[static_cast<size_t>(t * rows + r)]))
                << kernels->name << " " << format.name() << " " << rows << "x" << columns << " top " << top
                << " token " << t << " of " << tokens << " row " << r << ": " << y.row(t)[r];
        }
      }
    }
  }
}

TEST(CpuKernels, QuantisedMatricesEqualTheDefinition) {
  Random random(1);
  for (const WeightFormat& format : quantised_formats()) {
    // One piece of k and more than one; rows that are no multiple of the tile.
    expect_linear(format, 21, 256, random);
    expect_linear(format, 16, 768, random);
  }
}

TEST(CpuKernels, PlainMatricesEqualTheDefinition) {
  Random random(2);
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    WeightFormat format;
    format.dtype = type;
    expect_linear(format, 5, 1, random);
    expect_linear(format, 83, 37, random);
    expect_linear(format, 16, 530, random);
  }
}

// A row of n numbers followed by NaN.
std::vector<float> row_of(Random& random, size_t n) {
  std::vector<float> v = random.floats(n);
  v.resize(n + 16, kNan);
  return v;
}

float lane_sum(const std::vector<float>& x, size_t n, float centre, bool squares) {
  float lanes[16] = {};
  for (size_t i = 0; i < n; ++i) {
    const float c = x[i] - centre;
    lanes[i % 16] = squares ? std::fma(c, c, lanes[i % 16]) : lanes[i % 16] + x[i];
  }
  return sum16(lanes);
}

constexpr size_t kSizes[] = {1, 7, 16, 33, 64, 100};

void expect_row(const KernelTable& kernels, const char* what, size_t n, const std::vector<float>& want,
                const std::vector<float>& found) {
  for (size_t i = 0; i < n; ++i)
    ASSERT_TRUE(same(want[i], found[i])) << kernels.name << " " << what << " " << n << " " << i;
  for (size_t i = n; i < found.size(); ++i)
    ASSERT_TRUE(std::isnan(found[i])) << kernels.name << " " << what << " wrote past the end";
}

TEST(CpuKernels, Norms) {
  Random random(3);
  for (const size_t n : kSizes) {
    const std::vector<float> x = row_of(random, n), w = row_of(random, n), b = row_of(random, n);
    const float count = static_cast<float>(n);
    const float mean = lane_sum(x, n, 0.0f, false) / count;
    const float r = 1.0f / std::sqrt(lane_sum(x, n, 0.0f, true) / count + 1e-5f);
    const float r_centred = 1.0f / std::sqrt(lane_sum(x, n, mean, true) / count + 1e-5f);
    std::vector<float> rms(n), rms_plain(n), layer(n), layer_plain(n);
    for (size_t i = 0; i < n; ++i) {
      rms_plain[i] = x[i] * r;
      rms[i] = x[i] * r * w[i];
      layer[i] = std::fma((x[i] - mean) * r_centred, w[i], b[i]);
      layer_plain[i] = (x[i] - mean) * r_centred * w[i];
    }
    const int64_t size = static_cast<int64_t>(n);
    for (const KernelTable* k : tables()) {
      std::vector<float> y(n + 16, kNan);
      k->rms_norm(x.data(), w.data(), nullptr, size, 1e-5f, y.data());
      expect_row(*k, "rms_norm", n, rms, y);
      k->rms_norm(x.data(), nullptr, nullptr, size, 1e-5f, y.data());
      expect_row(*k, "rms_norm without weight", n, rms_plain, y);
      k->layer_norm(x.data(), w.data(), b.data(), size, 1e-5f, y.data());
      expect_row(*k, "layer_norm", n, layer, y);
      k->layer_norm(x.data(), w.data(), nullptr, size, 1e-5f, y.data());
      expect_row(*k, "layer_norm without bias", n, layer_plain, y);
    }
  }
}

float activation(GateFunction function, float x) {
  const float positive = x < 0.0f ? 0.0f : x;
  switch (function) {
    case GateFunction::kSilu:
      return silu_lanes<ScalarLanes>(x);
    case GateFunction::kGeluTanh:
      return gelu_tanh_lanes<ScalarLanes>(x);
    case GateFunction::kGeluErf:
      return gelu_erf_lanes<ScalarLanes>(x);
    case GateFunction::kRelu:
      return positive;
    case GateFunction::kReluSquared:
      return positive * positive;
    case GateFunction::kSigmoid:
      return sigmoid_lanes<ScalarLanes>(x);
    case GateFunction::kIdentity:
      return x;
  }
  return x;
}

TEST(CpuKernels, Gates) {
  Random random(4);
  for (const size_t n : kSizes) {
    std::vector<float> g = random.floats(n, 20.0f);
    g.resize(n + 16, kNan);
    const std::vector<float> u = row_of(random, n);
    const int64_t size = static_cast<int64_t>(n);
    for (const KernelTable* k : tables()) {
      for (int f = 0; f <= static_cast<int>(GateFunction::kIdentity); ++f) {
        const GateFunction function = static_cast<GateFunction>(f);
        std::vector<float> want(n), alone(n), y(n + 16, kNan);
        for (size_t i = 0; i < n; ++i) {
          alone[i] = activation(function, g[i]);
          want[i] = alone[i] * u[i];
        }
        k->gate(function, g.data(), u.data(), size, y.data());
        expect_row(*k, "gate", n, want, y);
        k->gate(function, g.data(), nullptr, size, y.data());
        expect_row(*k, "gate alone", n, alone, y);
      }
      std::vector<float> want(n), y(n + 16, kNan);
      for (size_t i = 0; i < n; ++i) {
        const float a = g[i] > 2.0f ? 2.0f : g[i], b = u[i] > 2.0f ? 2.0f : (u[i] < -2.0f ? -2.0f : u[i]);
        want[i] = (b + 1.0f) * (a * sigmoid_lanes<ScalarLanes>(a * 1.7f));
      }
      k->gate_clamped(g.data(), u.data(), 2.0f, 1.7f, size, y.data());
      expect_row(*k, "gate_clamped", n, want, y);
    }
  }
}

TEST(CpuKernels, ElementWise) {
  Random random(5);
  for (const size_t n : kSizes) {
    const std::vector<float> a = row_of(random, n), b = row_of(random, n);
    const int64_t size = static_cast<int64_t>(n);
    for (const KernelTable* k : tables()) {
      std::vector<float> want(n), y = a;
      for (size_t i = 0; i < n; ++i) want[i] = std::fma(b[i], 0.3f, a[i]);
      k->add_scaled(b.data(), 0.3f, size, y.data());
      expect_row(*k, "add_scaled", n, want, y);
      for (size_t i = 0; i < n; ++i) want[i] = a[i] + b[i];
      k->add(a.data(), b.data(), size, y.data());
      expect_row(*k, "add", n, want, y);
      for (size_t i = 0; i < n; ++i) want[i] = a[i] * 0.7f;
      k->scale(a.data(), 0.7f, size, y.data());
      expect_row(*k, "scale", n, want, y);
      y = a;
      for (size_t i = 0; i < n; ++i) want[i] = a[i] > 1.0f ? 1.0f : (a[i] < -1.0f ? -1.0f : a[i]);
      k->clamp(1.0f, size, y.data());
      expect_row(*k, "clamp", n, want, y);
      y = a;
      for (size_t i = 0; i < n; ++i) want[i] = 3.0f * tanh_lanes<ScalarLanes>(a[i] * (1.0f / 3.0f));
      k->softcap(3.0f, size, y.data());
      expect_row(*k, "softcap", n, want, y);
    }
  }
}

TEST(CpuKernels, Rotations) {
  Random random(6);
  for (const size_t half : {1u, 4u, 16u, 20u, 32u}) {
    const std::vector<float> x = row_of(random, 2 * half), c = row_of(random, half), s = row_of(random, half);
    for (const bool interleaved : {false, true}) {
      std::vector<float> want = x;
      for (size_t i = 0; i < half; ++i) {
        const size_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + half;
        want[first] = std::fma(x[first], c[i], -(x[second] * s[i]));
        want[second] = std::fma(x[second], c[i], x[first] * s[i]);
      }
      for (const KernelTable* k : tables()) {
        std::vector<float> y = x;
        k->rotate(c.data(), s.data(), static_cast<int64_t>(2 * half), interleaved, y.data());
        expect_row(*k, "rotate", 2 * half, want, y);
      }
    }
  }
}

TEST(CpuKernels, ArgmaxPrefersTheLowerIdAndNeverNan) {
  for (const KernelTable* k : tables()) {
    for (const size_t n : {1u, 5u, 16u, 40u, 100u}) {
      const auto best = [&](const std::vector<float>& x) {
        float value = 0.0f;
        int64_t index = 0;
        k->argmax(x.data(), static_cast<int64_t>(n), &value, &index);
        return index;
      };
      std::vector<float> x(n + 16, 1000.0f);  // what lies beyond is larger
      std::fill_n(x.begin(), n, -1.0f);
      EXPECT_EQ(best(x), 0);
      x[n / 2] = 3.0f;
      x[n - 1] = 3.0f;
      EXPECT_EQ(best(x), static_cast<int64_t>(n / 2));
      x[0] = kNan;
      if (n > 1) {
        EXPECT_EQ(best(x), static_cast<int64_t>(n / 2));
      }
      std::fill_n(x.begin(), n, kNan);
      EXPECT_EQ(best(x), -1);
      x[n - 1] = -std::numeric_limits<float>::infinity();
      EXPECT_EQ(best(x), static_cast<int64_t>(n - 1));
    }
  }
}

TEST(CpuKernels, SaysWhichInstructionSetsRan) {
  std::string names;
  for (const KernelTable* k : tables()) names += std::string(names.empty() ? "" : ", ") + k->name;
  std::cout << "instruction sets run: " << names << "\n";
  EXPECT_FALSE(names.empty());
}

}  // namespace
}  // namespace mlxcel
