// A tensor and the name that users know it by, "features.0.weight" say.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace lockstep {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

}  // namespace lockstep
