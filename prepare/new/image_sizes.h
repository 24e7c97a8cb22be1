// ImageSizes: the typical size of a data set's images, and the parts of a config that depend on it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/images/image_source.h"
#include "prepare/new/config_text.h"

namespace lockstep {

// Facts about a data set's images, taken from a sample of them.
struct ImageSizes {
  int64_t shorter_side = 0;  // median over the sampled images, in pixels
  // The first sampled image whose size cannot be read, and why; empty: there is none.
  std::string damaged;
};

// Reads the sizes of at most 100 evenly spaced images. Throws Error (kData) if no size can be read.
ImageSizes SizesOf(const ImageSource& source);

// Returns the largest of `sides` that is at most 8/7 of the median of the images' shorter sides; 32 if there is none.
// `sides` must be in descending order.
int64_t SideFor(const ImageSizes& sizes, std::span<const int64_t> sides);

// Returns a line that says what was found: "cats: 40 images of 2 classes, shorter side 240 pixels in the median".
std::string FoundText(const std::string& folder, const std::string& what, const ImageSizes& sizes);

// Writes the means and standard deviations of ImageNet's colours, and begins the block data.images with the size
// `side`.
void BeginImages(int64_t side, const ImageSizes& sizes, ConfigText& config);

// Writes data.bad_samples if there are damaged images.
void WriteDamaged(const ImageSizes& sizes, ConfigText& config);

}  // namespace lockstep
