// Augment: what changes a sample of pixels at random in training. Loaders draw it, the device does
// it (trainer/ops/pixels/augment_pixels.h).
//
// Promise: draws depend on seed, epoch, sample and options alone, not on who draws them nor when.
// They have nothing in common with the numbers that the sample's crop is drawn from.
//
// Invariants:
//   1. Colours, as torchvision's ColorJitter draws them: the four operations' order uniformly from
//      all 24, each factor uniformly from its range. An operation without a range does nothing.
//   2. Mixup (Zhang et al. 2018): the box is the whole image, a sample's share of it is drawn from
//      Beta(a, a).
//   3. CutMix (Yun et al. 2019), as torchvision's CutMix draws it: the box's area is 1 - Beta(a, a)
//      of the image, its middle is any pixel, and what lies outside of the image is cut off; inside
//      it a sample has no share, and in the loss as much as is left of its area in whole pixels.
//   4. With both, each is taken half of the time.
//
// The mixture of a micro-batch is that of its first sample, and the sample before the first is the
// last. So which samples are mixed depends on how many ranks and micro-batches share a step;
// nothing else does.
//
// what can fail -> what the caller sees -> the test that shows it (data/feed/augment_test.cc)
//   Beta's parameter is so small that a share is below what a double holds -> 0 or 1, never NaN
//     -> Augment.SmallParametersGiveNumbers
//   colours are asked for of images without -> Preprocessing throws Error (kUsage)
//     -> tests/augment_test.py, test_names_wrong_configs
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "data/images/image.h"
#include "trainer/ops/pixels/augment_draws.h"

namespace lockstep {

struct AugmentOptions {
  // Factors are drawn from [1 - x, 1 + x], the hue's turn from [-x, x]; 0: none.
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;
  // Of the Beta distributions; 0: never.
  double mixup = 0;
  double cutmix = 0;
  uint64_t seed = 0;

  bool Colours() const { return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0; }
  bool Mixes() const { return mixup > 0 || cutmix > 0; }
  bool Any() const { return Colours() || Mixes(); }
};

// Writes what is drawn in `epoch` for sample `index` of the files to draws[kAugmentDraws].
void DrawAugmentation(const AugmentOptions& options, const ImageSize& image, int64_t epoch,
                      int64_t index, float* draws);

// Memory for the draws of `count` samples, float32 [count, kAugmentDraws]; undefined where
// `options` change nothing. `where`: device and whether the memory is page-locked.
at::Tensor EmptyDraws(const AugmentOptions& options, int64_t count, at::TensorOptions where);

}  // namespace lockstep
