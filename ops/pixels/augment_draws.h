// AugmentDraw: says at which index the kernels find each of the random numbers (draws) for one sample of pixels
// (data/feed/augment.h).
#pragma once

namespace lockstep {

// The indices of a sample's random numbers (float32).
enum AugmentDraw {
  // The factors of the colour operations, which are torchvision's adjust_brightness, adjust_contrast and
  // adjust_saturation. A factor of 1 changes nothing.
  kBrightness,
  kContrast,
  kSaturation,
  kHue,  // the rotation of the hue as a fraction of the circle; 0 changes nothing
  // Four numbers: the operations that are applied first, second, third and last.
  kOrder,
  // The mixture of each sample with the sample before it. The values of a micro-batch's first sample apply to all
  // samples of the micro-batch. The box is kLeft <= x < kRight, kTop <= y < kBottom. In the box, a pixel becomes the
  // sample's own pixel times kOwnInBox, plus the previous sample's pixel times 1 - kOwnInBox.
  kLeft = kOrder + 4,
  kTop,
  kRight,
  kBottom,
  kOwnInBox,
  kOwnInLoss,  // the weight of the sample's own target in the loss
  kAugmentDraws
};

constexpr int kColourOperations = 4;

}  // namespace lockstep
