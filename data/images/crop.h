// Chooses the part of an image that a sample uses.
#pragma once

#include "data/dataset/sample_random.h"
#include "data/images/image.h"

namespace lockstep {

struct CropOptions {
  double min_area = 0.08;  // as a share of the image's
  double max_area = 1;
  double max_stretch = 4.0 / 3;  // width over height is at most that, and at least its inverse
};

// A part of a random area and shape, as torchvision's RandomResizedCrop draws it (Szegedy et al. 2014).
Box RandomCrop(const ImageSize& image, const CropOptions& options, SampleRandom& random);

// The middle: a square of `share` of the shorter side.
Box CenterCrop(const ImageSize& image, double share);

}  // namespace lockstep
