// A model's activation as the kernels name it.
#pragma once

#include "backend/cpu/kernel_table.h"
#include "model/model_spec.h"

namespace mlxcel {

constexpr GateFunction gate_function(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return GateFunction::kSilu;
    case Activation::kGeluTanh:
      return GateFunction::kGeluTanh;
    case Activation::kGeluErf:
      return GateFunction::kGeluErf;
    case Activation::kRelu:
      return GateFunction::kRelu;
    case Activation::kReluSquared:
      return GateFunction::kReluSquared;
    case Activation::kSigmoid:
      return GateFunction::kSigmoid;
    case Activation::kIdentity:
      return GateFunction::kIdentity;
  }
  return GateFunction::kIdentity;
}

}  // namespace mlxcel
