// AugmentDraws: the random numbers for one sample of pixels (data/feed/augment.h), in the layout that the kernels read.
#pragma once

namespace lockstep {

// The indices of a sample's random numbers (float32).
enum AugmentDraw {
  // The parameters of the colour operations, which are torchvision's adjust_*. Brightness, contrast and saturation are
  // factors; 1 changes nothing.
  kBrightness,
  kContrast,
  kSaturation,
  kHue,  // the rotation of the hue as a fraction of the circle; 0 changes nothing
  // Four numbers: which operation comes first, second, third and last.
  kOrder,
  // The mixture of two samples. The first sample of a micro-batch decides it for all samples of the micro-batch. Inside
  // the box left <= x < right, top <= y < bottom, a sample keeps the fraction kOwnInBox of its own pixels, and the rest
  // comes from the sample before it.
  kLeft = kOrder + 4,
  kTop,
  kRight,
  kBottom,
  kOwnInBox,
  kOwnInLoss,  // the fraction of the loss that the sample's own target has
  kAugmentDraws
};

constexpr int kColourOperations = 4;

}  // namespace lockstep
