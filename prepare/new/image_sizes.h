// ImageSizes: how large the images of a data set are, and what a config says of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/images/image_source.h"
#include "prepare/new/config_text.h"

namespace lockstep {

// Facts about all images, as some of them show them.
struct ImageSizes {
  int64_t shorter_side = 0;  // the median
  // The first image that cannot be decoded, and why; empty: all that were looked at can be.
  std::string damaged;
};

// Looks at 100 images, evenly from all of them. Throws Error (kData) if none can be decoded.
ImageSizes SizesOf(const ImageSource& source);

// Returns the first of `sides`, which fall, that is not much larger than the images; 32 if all are.
int64_t SideFor(const ImageSizes& sizes, std::span<const int64_t> sides);

// Returns a line that says what was found: "cats: 40 images of 2 classes, shorter side 240 pixels in the median".
std::string FoundText(const std::string& folder, const std::string& what, const ImageSizes& sizes);

// Writes the colours' means and deviations, and begins data.images with the side.
void BeginImages(int64_t side, const ImageSizes& sizes, ConfigText& config);

// Writes what a config needs because of damaged images.
void WriteDamaged(const ImageSizes& sizes, ConfigText& config);

}  // namespace lockstep
