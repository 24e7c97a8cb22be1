// LossFunction: a loss that a config asks for (loss), in place of its task's own.
//
// Promise: the sum over all micro-batches of all ranks, divided by the sum of the targets' weights, is PyTorch's loss
// of the global batch with reduction="mean". It is computed by plain operations of LibTorch in float32.
//
// what can fail -> what the caller sees -> the test that shows it
//   the output has not the shape of the targets -> Error (kUsage) from Sum() -> losses_test.cc,
//     LossFunction.RefusesOutputsOfAnotherShape
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

class LossFunction {
 public:
  virtual ~LossFunction() = default;

  // Returns the sum of the losses of all targets, each times its weight, 0-dimensional float32. `output` and `target`
  // have the shapes that Model::LossSum() describes. `label_smoothing` is for classes alone.
  virtual at::Tensor Sum(const at::Tensor& output, const at::Tensor& target,
                         double label_smoothing) const = 0;

  // Returns the sum of the weights of the targets, 0-dimensional float32; undefined if each target weighs 1.
  virtual at::Tensor WeightSum(const at::Tensor& /*target*/) const { return {}; }

  // Whether WeightSum() is defined.
  virtual bool WeighsTargets() const { return false; }

  // Moves the weights to the device on which the model is.
  virtual void MoveTo(at::Device /*device*/) {}
};

}  // namespace lockstep
