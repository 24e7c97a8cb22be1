// Preprocessing: converts a data set's inputs before the model gets them.
//
// Promise: pixels are scaled, and in training also augmented. Inputs that are not pixels do not change. On a GPU a
// kernel scales and augments the pixels after they were copied to the device as bytes. The kernel writes the dtype to
// which autocast would round. If the device is the CPU and pixels are not augmented, loader threads scale them.
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
  // The device must support `precision`. Throws Error (kUsage) if data.mean, data.std or data.augment do not fit the
  // number of channels.
  Preprocessing(const config::Data& config, const SampleSpec& spec, at::Device device,
                config::Precision precision);

  // Returns the data set that a loader must read instead of `dataset`, to which it keeps a reference. Returns null if
  // the loader must read `dataset` itself.
  std::unique_ptr<const Dataset> InLoader(const Dataset& dataset) const;

  // Converts `input`, [count, spec.shape...] on the device, as the loader read it. `draws` are the random numbers that
  // the loader drew for each sample, if it drew any (DeviceBatch). Returns the input for Model::Forward; tokens are
  // returned as they are.
  at::Tensor operator()(const at::Tensor& input, const at::Tensor& draws = {}) const;

 private:
  at::Tensor scale_;  // float32 [channels]; undefined if the inputs are not pixels
  at::Tensor shift_;
  at::ScalarType dtype_ = at::kFloat;  // the type to which pixels are converted
};

// Returns which random numbers are drawn for each training sample.
AugmentOptions AugmentOptionsFor(const config::Config& config);

}  // namespace lockstep
