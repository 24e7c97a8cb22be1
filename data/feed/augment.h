// Augment: draws the random changes that training makes to a sample of pixels. The loader threads draw the random
// numbers, and the device makes the changes (ops/pixels/augment_pixels.h).
//
// Promise: the random numbers depend only on seed, epoch, sample and options, and not on the thread that draws them or
// on the time. They are independent of the random numbers that choose the sample's crop.
//
// Invariants:
//   1. Colour changes are drawn as in torchvision's ColorJitter. The order of the four operations is drawn uniformly
//      from all 24 orders, and the factor of each operation is drawn uniformly from the operation's range. An operation
//      whose option is 0 does nothing.
//   2. Mixup (Zhang et al. 2018) mixes two samples in a box that is the whole image. The first sample's share is drawn
//      from Beta(a, a) with a = AugmentOptions::mixup.
//   3. CutMix (Yun et al. 2019) replaces a box of a sample by the same box of another sample. It draws the box as
//      torchvision's CutMix does: the area of the box is, up to rounding, the share 1 - x of the image's area, where x
//      is drawn from Beta(a, a) with a = AugmentOptions::cutmix. The middle of the box is drawn from all pixels, and
//      the part of the box outside the image is cut off. In the loss, the sample's share is the fraction of its pixels
//      that are not replaced.
//   4. If both Mixup and CutMix are set, each of them is used with probability 1/2.
//
// In a micro-batch, the box and the shares that were drawn for the first sample are used for all samples. Each sample
// is mixed with the sample before it, and the first sample with the last one. The pairs of samples that are mixed
// therefore depend on the number of ranks and of micro-batches in a step. Nothing else in a run's samples depends on
// the number of ranks or micro-batches.
//
// what can fail -> what the caller sees -> the test that shows it (data/feed/augment_test.cc)
//   Beta's parameter is so small that a share is below what a double holds -> 0 or 1, never NaN
//     -> Augment.SmallParametersGiveNumbers
//   colour changes are asked for, but the images have no colours -> Preprocessing throws Error (kUsage)
//     -> tests/augment_test.py, test_names_wrong_configs
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "data/images/image.h"
#include "ops/pixels/augment_draws.h"

namespace lockstep {

struct AugmentOptions {
  // For each option x: the factors of brightness, contrast and saturation are drawn from [1 - x, 1 + x], and the
  // rotation of the hue (1 is a full turn) from [-x, x]. 0: no change.
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;
  // The parameters a of the Beta distributions of Mixup and of CutMix. A method whose parameter is 0 is never used.
  double mixup = 0;
  double cutmix = 0;
  uint64_t seed = 0;

  bool Colours() const { return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0; }
  bool Mixes() const { return mixup > 0 || cutmix > 0; }
  bool Any() const { return Colours() || Mixes(); }
};

// Draws the random numbers of sample `index` of the files in `epoch`, and writes them to draws[kAugmentDraws].
void DrawAugmentation(const AugmentOptions& options, const ImageSize& image, int64_t epoch,
                      int64_t index, float* draws);

// Returns uninitialised memory for the random numbers of `count` samples, float32 [count, kAugmentDraws], or an
// undefined tensor if `options` change nothing. `where` says on which device the memory is and whether it is
// page-locked.
at::Tensor EmptyDraws(const AugmentOptions& options, int64_t count, at::TensorOptions where);

}  // namespace lockstep
