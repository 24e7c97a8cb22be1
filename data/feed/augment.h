// Augment: the random changes to a sample of pixels in training. Loaders draw the random numbers, and the device
// applies the changes (trainer/ops/pixels/augment_pixels.h).
//
// Promise: draws depend only on seed, epoch, sample and options, not on which thread draws them or when. They are
// independent of the numbers from which the sample's crop is drawn.
//
// Invariants:
//   1. Colours, as torchvision's ColorJitter draws them: the four operations' order uniformly from
//      all 24, each factor uniformly from its range. An operation without a range does nothing.
//   2. Mixup (Zhang et al. 2018): the box is the whole image, a sample's share of it is drawn from
//      Beta(a, a).
//   3. CutMix (Yun et al. 2019), as torchvision's CutMix draws it: the area of the box is 1 - Beta(a, a) of the image.
//      The middle of the box is any pixel, and the part outside of the image is cut off. Inside the box the sample has
//      no share. In the loss its share is the part of its area that is left, in whole pixels.
//   4. With both, each is taken half of the time.
//
// A micro-batch uses the mixture of its first sample for all samples. Each sample is mixed with the one before it, and
// the first with the last. Which samples are mixed therefore depends on how many ranks and micro-batches share a step;
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
