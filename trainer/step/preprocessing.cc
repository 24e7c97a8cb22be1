#include "trainer/step/preprocessing.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/tensor/foretold_gpu.h"
#include "data/feed/normalized_pixels.h"
#include "ops/pixels/augment_pixels.h"
#include "ops/pixels/normalize_pixels.h"

namespace lockstep {
namespace {

// Throws Error (kUsage) if data.augment changes colours but the images do not have three channels.
void CheckColours(const config::Augment& augment, int64_t channels) {
  if (channels == 3) return;
  for (const auto& [name, value] : {std::pair{"brightness", augment.brightness()},
                                    {"contrast", augment.contrast()},
                                    {"saturation", augment.saturation()},
                                    {"hue", augment.hue()}}) {
    if (value == 0) continue;
    throw UsageError("data.augment.{}: is for images of three channels, not of {}", name, channels);
  }
}

}  // namespace

Preprocessing::Preprocessing(const config::Data& config, const SampleSpec& spec, at::Device device,
                             config::Precision precision) {
  if (spec.dtype != at::kByte) return;
  const int64_t channels = spec.shape[0];
  CheckColours(config.augment(), channels);
  if (IsOnGpu(device) && precision == config::BF16) dtype_ = at::kBFloat16;
  if (IsOnGpu(device) && precision == config::FP16) dtype_ = at::kHalf;
  const auto per_channel = [&](const google::protobuf::RepeatedField<double>& values,
                               double fallback, const char* name) {
    if (values.size() > 1 && values.size() != channels) {
      throw UsageError("{}: {} values for {} channels: give one, or one for each", name,
                       values.size(), channels);
    }
    std::vector<double> all(channels, values.empty() ? fallback : values[0]);
    if (values.size() > 1) std::copy(values.begin(), values.end(), all.begin());
    return at::tensor(all, at::kDouble);
  };
  const at::Tensor mean = per_channel(config.mean(), 0, "data.mean");
  const at::Tensor std = per_channel(config.std(), 1, "data.std");
  const at::TensorOptions options = at::TensorOptions(device).dtype(at::kFloat);
  scale_ = (1 / (255 * std)).to(options);
  shift_ = (-mean / std).to(options);
}

std::unique_ptr<const Dataset> Preprocessing::InLoader(const Dataset& dataset) const {
  if (!scale_.defined() || IsOnGpu(scale_.device())) return nullptr;
  const auto values = [](const at::Tensor& tensor) {
    const auto* first = tensor.const_data_ptr<float>();
    return std::vector<float>(first, first + tensor.numel());
  };
  return std::make_unique<Normalized>(dataset, values(scale_), values(shift_));
}

at::Tensor Preprocessing::operator()(const at::Tensor& input, const at::Tensor& draws) const {
  if (input.scalar_type() != at::kByte) return input;
  return draws.defined() ? ops::AugmentPixels(input, draws, scale_, shift_, dtype_)
                         : ops::NormalizePixels(input, scale_, shift_, dtype_);
}

AugmentOptions AugmentOptionsFor(const config::Config& config) {
  const config::Augment& augment = config.data().augment();
  return {.brightness = augment.brightness(),
          .contrast = augment.contrast(),
          .saturation = augment.saturation(),
          .hue = augment.hue(),
          .mixup = augment.mixup(),
          .cutmix = augment.cutmix(),
          .seed = config.seed()};
}

}  // namespace lockstep
