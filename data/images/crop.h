// Chooses the part of an image that a sample uses.
#pragma once

#include "data/dataset/sample_random.h"
#include "data/images/image.h"

namespace lockstep {

struct CropOptions {
  double min_area = 0.08;  // the least area of a crop, as a fraction of the image's area
  double max_area = 1;
  double max_stretch = 4.0 / 3;  // the maximum of width / height, and of height / width
};

// Returns a box of random area, shape and place, drawn as in torchvision's RandomResizedCrop (Szegedy et al. 2014).
Box RandomCrop(const ImageSize& image, const CropOptions& options, SampleRandom& random);

// Returns the square in the middle of the image whose side is `share` times the image's shorter side.
Box CenterCrop(const ImageSize& image, double share);

}  // namespace lockstep
