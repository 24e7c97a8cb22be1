// The types of images in memory. Decoders make such images, and the resizer reads them.
#pragma once

#include <cstdint>

namespace lockstep {

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
