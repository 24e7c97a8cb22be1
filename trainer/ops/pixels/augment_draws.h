// AugmentDraws: the random numbers for one sample of pixels (data/feed/augment.h), in the layout that the kernels read.
#pragma once

namespace lockstep {

// Places in a sample's draws, float32.
enum AugmentDraw {
  // The colour operations, torchvision's adjust_*: what is multiplied by, 1 for nothing ...
  kBrightness,
  kContrast,
  kSaturation,
  kHue,  // ... and by how much of the circle the hue is turned, 0 for not at all
  // Four numbers: which of them comes first, second, third and last.
  kOrder,
  // The mixture, which counts for all of a micro-batch where the sample is its first: inside a box
  // of pixels, left <= x < right and top <= y < bottom, a sample keeps kOwnInBox of its own; the
  // rest is of the sample before it.
  kLeft = kOrder + 4,
  kTop,
  kRight,
  kBottom,
  kOwnInBox,
  kOwnInLoss,  // its own target's share of the loss
  kAugmentDraws
};

constexpr int kColourOperations = 4;

}  // namespace lockstep
