#include "data/dataset/target_unit.h"

#include <ATen/ATen.h>

namespace lockstep {

TargetUnit::TargetUnit(const SampleSpec& spec, at::Device device) {
  if (spec.target_mean.empty()) return;
  mean_and_std_ = at::stack({at::tensor(spec.target_mean), at::tensor(spec.target_std)})
                      .to(at::TensorOptions(device).dtype(at::kDouble));
}

at::Tensor TargetUnit::operator()(const at::Tensor& numbers) const {
  const at::Tensor wide = numbers.to(at::kDouble);
  return mean_and_std_.defined() ? wide * mean_and_std_[1] + mean_and_std_[0] : wide;
}

}  // namespace lockstep
