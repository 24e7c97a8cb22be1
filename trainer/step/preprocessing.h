// Preprocessing: converts a data set's inputs before the model gets them.
//
// Promise: pixels are scaled, and in training also augmented, if data.augment asks for it. Inputs that are not pixels
// do not change. On a GPU a kernel scales and augments the pixels after they were copied to the device as bytes. The
// kernel writes the pixels in the dtype to which autocast would round them. If the device is the CPU and pixels are not
// augmented, loader threads scale them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>

#include "config/schema/config.pb.h"
#include "data/dataset/dataset.h"
#include "data/feed/augment.h"

namespace lockstep {

class Preprocessing {
 public:
  // Prepares to convert the inputs of samples as `spec` describes them. The device must support `precision`. Throws
  // Error (kUsage) if data.mean, data.std or data.augment do not fit the number of channels.
  Preprocessing(const config::Data& config, const SampleSpec& spec, at::Device device,
                config::Precision precision);

  // Returns a data set that a loader must read instead of `dataset`. The returned data set scales the pixels and keeps
  // a reference to `dataset`. Returns null if the loader must read `dataset` itself.
  std::unique_ptr<const Dataset> InLoader(const Dataset& dataset) const;

  // Converts `input`, [count, spec.shape...] on the device, with the values that the loader read, and returns the input
  // for Model::Forward(). `draws` are the random numbers that the loader drew for each sample, if it drew any
  // (DeviceBatch). Inputs that are not pixels are returned unchanged.
  at::Tensor operator()(const at::Tensor& input, const at::Tensor& draws = {}) const;

 private:
  at::Tensor
      scale_;  // float32 [channels]: the factor of pixels; undefined if inputs are not pixels
  at::Tensor shift_;                   // float32 [channels]: added to pixels after the factor
  at::ScalarType dtype_ = at::kFloat;  // the type to which pixels are converted
};

// Returns the options that say which random numbers a loader draws for each training sample.
AugmentOptions AugmentOptionsFor(const config::Config& config);

}  // namespace lockstep
