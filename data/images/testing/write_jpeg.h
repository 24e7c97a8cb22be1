// For tests and benchmarks: writes JPEG files of every kind. A function of the caller gives their pixels.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/images/jpeg_encoder.h"

namespace lockstep {

// Returns the value of one channel of the pixel in column x and row y. WriteJpeg() calls it row by row, pixel by pixel,
// channel by channel.
using PixelSource = std::function<uint8_t(int64_t x, int64_t y, int channel)>;

std::string WriteJpeg(const JpegKind& kind, int64_t width, int64_t height,
                      const PixelSource& source, int quality);

}  // namespace lockstep
