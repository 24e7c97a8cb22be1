// For tests and benchmarks: JPEG files of every kind, written in memory by libjpeg.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep {

// How a file is coded.
struct JpegKind {
  const char* name;
  int channels = 3;  // 1 grey, 3 RGB, 4 CMYK
  int h_sampling = 1;
  int v_sampling = 1;
  bool progressive = false;
  int restart_interval = 0;
  bool ycck = false;
  bool optimized = false;
};

// The value of one channel of the pixel in column x and row y. Called row by row, channel by channel.
using PixelSource = std::function<uint8_t(int64_t x, int64_t y, int channel)>;

std::string WriteJpeg(const JpegKind& kind, int64_t width, int64_t height,
                      const PixelSource& source, int quality);

}  // namespace lockstep
