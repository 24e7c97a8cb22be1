// Preprocessing: converts a data set's inputs before the model gets them.
//
// Promise: pixels are scaled, and in training also augmented. Inputs that are not pixels do not change. On a GPU a
// kernel scales and augments after the copy, so the copy moves bytes, and the kernel writes the type to which autocast
// would round. On the CPU loader threads scale the pixels that are not augmented.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>

#include "data/dataset/dataset.h"
#include "data/feed/augment.h"
#include "trainer/config/schema/config.pb.h"

namespace lockstep {

class Preprocessing {
 public:
  // `precision` is one that the device has. Throws Error (kUsage) where data.mean, data.std or
  // data.augment do not fit the channels.
  Preprocessing(const config::Data& config, const SampleSpec& spec, at::Device device,
                config::Precision precision);

  // The data set that a loader is to read in place of `dataset`, which it refers to; null: itself.
  std::unique_ptr<const Dataset> InLoader(const Dataset& dataset) const;

  // input: [count, spec.shape...] on the device, as the loader read it; draws: what it drew for each
  // sample, if anything (DeviceBatch) -> numbers as Model::Forward takes them, or tokens as they are.
  at::Tensor operator()(const at::Tensor& input, const at::Tensor& draws = {}) const;

 private:
  at::Tensor scale_;  // float32 [channels]; undefined where inputs are numbers
  at::Tensor shift_;
  at::ScalarType dtype_ = at::kFloat;  // that pixels become
};

// What is drawn for each training sample.
AugmentOptions AugmentOptionsFor(const config::Config& config);

}  // namespace lockstep
