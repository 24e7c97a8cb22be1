// TargetUnit: converts targets, and a model's outputs for them, back to the unit of the user's files if the data set
// has standardised its targets (data/dataset/standardized_targets.h).
#pragma once

#include <ATen/core/Tensor.h>

#include "data/dataset/dataset.h"

namespace lockstep {

class TargetUnit {
 public:
  // Prepares to undo the standardisation by spec.target_mean and spec.target_std, for tensors on `device`.
  TargetUnit(const SampleSpec& spec, at::Device device);

  // Returns `numbers`, [samples, spec.classes], converted to the unit of the user's files, as float64 of the same
  // shape.
  at::Tensor operator()(const at::Tensor& numbers) const;

 private:
  at::Tensor mean_and_std_;  // float64 [2, spec.classes]; undefined: targets are in the user's unit
};

}  // namespace lockstep
