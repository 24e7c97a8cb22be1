// SizesOf(): how large the images of a data set are.
#pragma once

#include <cstdint>
#include <string>

#include "data/images/image_source.h"

namespace lockstep {

// What some images show of all.
struct ImageSizes {
  int64_t shorter_side = 0;  // the median
  // The first that cannot be decoded, and why; empty: none of those that were looked at.
  std::string damaged;
};

// Looks at 100 images, evenly from all of them. Throws Error (kData) if none can be decoded.
ImageSizes SizesOf(const ImageSource& source);

}  // namespace lockstep
