#include "data/images/testing/write_jpeg.h"

#include <vector>

namespace lockstep {

std::string WriteJpeg(const JpegKind& kind, int64_t width, int64_t height,
                      const PixelSource& source, int quality) {
  std::vector<uint8_t> samples;
  samples.reserve(width * height * kind.channels);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int c = 0; c < kind.channels; ++c) samples.push_back(source(x, y, c));
    }
  }
  return EncodeJpeg(kind, samples.data(), width, height, quality);
}

}  // namespace lockstep
