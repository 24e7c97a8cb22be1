// Types that describe images in memory, their sizes, and parts of them.
#pragma once

#include <cstdint>

namespace lockstep {

// A view of the pixels of an image, row by row.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int64_t width = 0;
  int64_t height = 0;
  int64_t stride = 0;  // the distance between two rows, in bytes
};

struct ImageSize {
  int64_t width = 0;
  int64_t height = 0;
  bool operator==(const ImageSize&) const = default;
};

// A part of an image, in pixels; its edges may lie between pixels.
struct Box {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};

}  // namespace lockstep
