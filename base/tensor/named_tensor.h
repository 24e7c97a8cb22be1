// A tensor and the name by which users know it, for example "features.0.weight".
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace lockstep {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

}  // namespace lockstep
