// TargetUnit: brings outputs and targets of numbers back to the unit of the user's files, if a data set has standardised
// its targets (data/dataset/standardized_targets.h).
#pragma once

#include <ATen/core/Tensor.h>

#include "data/dataset/dataset.h"

namespace lockstep {

class TargetUnit {
 public:
  // Undoes what spec.target_mean and target_std say, on tensors of `device`.
  TargetUnit(const SampleSpec& spec, at::Device device);

  // `numbers` is [samples, spec.classes]; the result has the same shape and is float64.
  at::Tensor operator()(const at::Tensor& numbers) const;

 private:
  at::Tensor mean_and_std_;  // float64 [2, spec.classes]; undefined: targets are in their own unit
};

}  // namespace lockstep
