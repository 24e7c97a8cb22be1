// For tests and benchmarks: makes JPEG files of every kind, with pixels from a function of the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/images/jpeg_encoder.h"

namespace lockstep {

// Returns the value of one channel of the pixel in column x and row y. WriteJpeg() calls this function row by row,
// pixel by pixel, channel by channel.
using PixelSource = std::function<uint8_t(int64_t x, int64_t y, int channel)>;

// Returns the bytes of a JPEG file whose pixels `source` gives. `quality` is libjpeg's quality, from 1 to 100.
std::string WriteJpeg(const JpegKind& kind, int64_t width, int64_t height,
                      const PixelSource& source, int quality);

}  // namespace lockstep
