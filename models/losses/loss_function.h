// LossFunction: the loss function that the config field `loss` selects, instead of the task's default loss.
//
// Promise: the sum of Sum() over all micro-batches of all ranks, divided by the sum of the targets' weights, is
// PyTorch's loss of the global batch with reduction="mean". Sum() calls operations of LibTorch in float32.
//
// what can fail -> what the caller sees -> the test that shows it
//   the output does not have the shape of the targets -> Error (kUsage) from Sum() -> losses_test.cc,
//     LossFunction.RefusesOutputsOfAnotherShape
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

class LossFunction {
 public:
  virtual ~LossFunction() = default;

  // Returns the sum over all targets of loss times weight, 0-dimensional float32. `output` and `target` have the shapes
  // that Model::LossSum() describes. Only the cross-entropy of classes uses `label_smoothing`; all other losses, also
  // the focal loss, ignore it.
  virtual at::Tensor Sum(const at::Tensor& output, const at::Tensor& target,
                         double label_smoothing) const = 0;

  // Returns the sum of the weights of the targets, 0-dimensional float32; undefined if each target has weight 1.
  virtual at::Tensor WeightSum(const at::Tensor& /*target*/) const { return {}; }

  // Returns whether WeightSum() is defined.
  virtual bool WeighsTargets() const { return false; }

  // Moves the weights to the model's device.
  virtual void MoveTo(at::Device /*device*/) {}
};

}  // namespace lockstep
