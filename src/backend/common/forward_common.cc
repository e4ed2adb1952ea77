#include "backend/common/forward_common.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tensor/math.h"

namespace mlxcel {
namespace {

// theta^(-2i/dim): the frequency of pair i before any scaling.
double plain_frequency(double theta, int pair, int rotary_dim) {
  return 1.0 / std::pow(theta, static_cast<double>(2 * pair) / static_cast<double>(rotary_dim));
}

// Llama 3.1: wavelengths longer than the original context are divided by `factor`, short ones are kept, and
// the band between is interpolated (Hugging Face transformers, modeling_rope_utils, "llama3").
double llama3_frequency(const RopeSpec& spec, double frequency) {
  const double context = static_cast<double>(spec.original_max_position);
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength > context / spec.low_freq_factor) return frequency / spec.factor;
  if (wavelength < context / spec.high_freq_factor) return frequency;
  const double smooth =
      (context / wavelength - spec.low_freq_factor) / (spec.high_freq_factor - spec.low_freq_factor);
  return (1.0 - smooth) * frequency / spec.factor + smooth * frequency;
}

// YaRN (arXiv 2309.00071): pairs that turn fast keep their frequency, slow ones are divided by `factor`, a
// linear ramp over the pair number between.
struct YarnRamp {
  double low = 0.0, high = 0.0;
};
YarnRamp yarn_ramp(const RopeSpec& spec) {
  const double dim = spec.rotary_dim;
  const auto pair_with_rotations = [&](double rotations) {
    return dim *
           std::log(static_cast<double>(spec.original_max_position) / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(spec.theta));
  };
  YarnRamp ramp{pair_with_rotations(spec.beta_fast), pair_with_rotations(spec.beta_slow)};
  if (spec.truncate) ramp = {std::floor(ramp.low), std::ceil(ramp.high)};
  ramp.low = std::max(ramp.low, 0.0);
  ramp.high = std::min(ramp.high, dim - 1.0);
  if (ramp.low == ramp.high) ramp.high += 0.001;  // no division by zero
  return ramp;
}

double yarn_frequency(const RopeSpec& spec, const YarnRamp& ramp, int pair, double frequency) {
  const double slow = std::clamp((pair - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
  return frequency / spec.factor * slow + frequency * (1.0 - slow);
}

double yarn_magnitude(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

}  // namespace

std::vector<float> RopeTable::inverse_frequencies(const RopeSpec& spec, int regime) {
  const int half = spec.rotary_dim / 2;
  std::vector<float> result(static_cast<size_t>(half));
  const YarnRamp ramp = spec.kind == RopeKind::kYarn ? yarn_ramp(spec) : YarnRamp{};
  const std::vector<double>& long_short = regime == 0 ? spec.short_factors : spec.long_factors;
  for (int i = 0; i < half; ++i) {
    const size_t index = static_cast<size_t>(i);
    double frequency = plain_frequency(spec.theta, i, spec.rotary_dim);
    switch (spec.kind) {
      case RopeKind::kNone:
      case RopeKind::kDefault:
      case RopeKind::kDynamicNtk:  // the base is stretched beyond max_position only, which check_max_position
                                   // refuses
        break;
      case RopeKind::kLinear:
        frequency /= spec.factor;
        break;
      case RopeKind::kLlama3:
        frequency = llama3_frequency(spec, frequency);
        break;
      case RopeKind::kYarn:
        frequency = yarn_frequency(spec, ramp, i, frequency);
        break;
      case RopeKind::kLongRope:
        frequency /= long_short[index];
        break;
    }
    if (!spec.explicit_factors.empty()) frequency /= spec.explicit_factors[index];
    result[index] = static_cast<float>(frequency);
  }
  return result;
}

double RopeTable::attention_factor(const RopeSpec& spec) {
  if (spec.kind != RopeKind::kYarn && spec.kind != RopeKind::kLongRope) return 1.0;
  if (spec.attention_factor) return *spec.attention_factor;
  if (spec.kind == RopeKind::kYarn) {
    // Zero means "not given" here, as in the reference.
    if (spec.mscale.value_or(0.0) != 0.0 && spec.mscale_all_dim.value_or(0.0) != 0.0) {
      return yarn_magnitude(spec.factor, *spec.mscale) / yarn_magnitude(spec.factor, *spec.mscale_all_dim);
    }
    return yarn_magnitude(spec.factor, 1.0);
  }
  // LongRoPE (arXiv 2402.13753): how far the context was stretched, whichever factors are in use.
  const double original = static_cast<double>(spec.original_max_position);
  const double stretch = spec.factor > 1.0 ? spec.factor : static_cast<double>(spec.max_position) / original;
  return stretch <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(stretch) / std::log(original));
}

RopeTable::RopeTable(const RopeSpec& spec, int64_t num_positions) : spec_(spec), half_(spec.rotary_dim / 2) {
  if (spec.kind == RopeKind::kNone) half_ = 0;
  const int regimes = spec.kind == RopeKind::kLongRope ? 2 : 1;
  const double magnitude = attention_factor(spec);
  const size_t half = static_cast<size_t>(half_);
  const size_t size = static_cast<size_t>(num_positions) * half;
  for (int regime = 0; regime < regimes; ++regime) {
    const std::vector<float> frequencies =
        half == 0 ? std::vector<float>() : inverse_frequencies(spec, regime);
    std::vector<float> cosines(size), sines(size);
    for (int64_t t = 0; t < num_positions; ++t) {
      for (size_t i = 0; i < half; ++i) {
        const SinCos value = sin_cos(static_cast<double>(t) * static_cast<double>(frequencies[i]));
        cosines[static_cast<size_t>(t) * half + i] = static_cast<float>(value.cos * magnitude);
        sines[static_cast<size_t>(t) * half + i] = static_cast<float>(value.sin * magnitude);
      }
    }
    cos_.push_back(std::move(cosines));
    sin_.push_back(std::move(sines));
  }
}

int RopeTable::regime(int64_t length) const {
  return spec_.kind == RopeKind::kLongRope && length > spec_.original_max_position ? 1 : 0;
}

const float* RopeTable::cos(int regime, int64_t position) const {
  return cos_[static_cast<size_t>(regime)].data() + position * half_;
}

const float* RopeTable::sin(int regime, int64_t position) const {
  return sin_[static_cast<size_t>(regime)].data() + position * half_;
}

RopeTables::RopeTables(const ModelSpec& spec, int64_t num_positions) {
  std::vector<const RopeSpec*> specs;
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec* attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (attention == nullptr) {
      of_layer_.push_back(-1);
      continue;
    }
    const auto same = std::find_if(specs.begin(), specs.end(),
                                   [&](const RopeSpec* other) { return *other == attention->rope; });
    of_layer_.push_back(static_cast<int>(same - specs.begin()));
    if (same != specs.end()) continue;
    specs.push_back(&attention->rope);
    tables_.emplace_back(attention->rope, num_positions);
  }
}

const RopeTable& RopeTables::of_layer(int layer) const {
  const int index = of_layer_[static_cast<size_t>(layer)];
  MLXCEL_CHECK_MSG(index >= 0, "a layer without attention has no rope table");
  return tables_[static_cast<size_t>(index)];
}

int64_t runner_max_position(const ModelSpec& spec, const RunnerOptions& options) {
  return options.max_position > 0 ? options.max_position : spec.max_position;
}

Status check_max_position(const ModelSpec& spec, int64_t max_position) {
  if (max_position < 1) {
    return make_error(ErrorKind::kInvalidArgument, "context length is not positive", spec.family,
                      "at least 1", std::to_string(max_position));
  }
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec* attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (attention == nullptr || attention->rope.kind != RopeKind::kDynamicNtk) continue;
    if (max_position <= attention->rope.max_position) continue;
    return make_error(ErrorKind::kUnsupported, "context length exceeds what dynamic NTK rope was trained for",
                      spec.family, "at most " + std::to_string(attention->rope.max_position),
                      std::to_string(max_position), "ask for a shorter context");
  }
  return ok_status();
}

namespace {

void check_segment(const Segment& segment, int32_t expected_begin) {
  MLXCEL_CHECK_MSG(segment.input_begin == expected_begin, "segments must cover the inputs in order");
  MLXCEL_CHECK_MSG(segment.num_inputs >= 1, "a segment needs an input");
  MLXCEL_CHECK_MSG(segment.first_position == segment.kv.length - segment.num_inputs,
                   "first position must follow from the view's length");
  MLXCEL_CHECK_MSG(segment.first_position >= 0, "a segment holds more inputs than its sequence has rows");
  MLXCEL_CHECK_MSG(segment.kv.first_visible >= 0 && segment.kv.first_visible <= segment.kv.length,
                   "first visible row lies outside the sequence");
  MLXCEL_CHECK_MSG(segment.kv.num_pinned >= 0, "negative number of pinned rows");
  if (segment.kv.block_size == 0) {
    MLXCEL_CHECK_MSG(segment.kv.dense_slot >= 0, "a dense view needs a slot");
    return;
  }
  const int64_t held = static_cast<int64_t>(segment.kv.blocks.size()) * segment.kv.block_size;
  MLXCEL_CHECK_MSG(held >= segment.kv.length, "the block table is shorter than the sequence");
}

void check_input(const Input& input, const ForwardBatch& batch, const ModelSpec& spec) {
  MLXCEL_CHECK_MSG(input.kind != Input::Kind::kPreviousOutput, "this runner has no lookahead inputs");
  if (input.kind == Input::Kind::kToken) {
    MLXCEL_CHECK_MSG(input.value >= 0 && input.value < spec.vocab_size, "token id outside the vocabulary");
    return;
  }
  const int64_t end = (int64_t{input.value} + 1) * spec.hidden_size;
  MLXCEL_CHECK_MSG(input.value >= 0 && end <= static_cast<int64_t>(batch.embeddings.size()),
                   "embedding row outside the batch");
}

}  // namespace

void check_forward_batch(const ForwardBatch& batch, const ModelSpec& spec) {
  int32_t covered = 0;
  for (const Segment& segment : batch.segments) {
    check_segment(segment, covered);
    covered += segment.num_inputs;
  }
  MLXCEL_CHECK_MSG(covered == static_cast<int64_t>(batch.inputs.size()), "segments must cover all inputs");
  for (const Input& input : batch.inputs) check_input(input, batch, spec);
  int32_t previous = -1;
  for (const OutputRequest& output : batch.outputs) {
    MLXCEL_CHECK_MSG(output.input > previous, "output requests must ascend");
    MLXCEL_CHECK_MSG(output.input < static_cast<int64_t>(batch.inputs.size()),
                     "output request beyond the inputs");
    previous = output.input;
  }
}

}  // namespace mlxcel
