// For tests: writes PNG files of every kind with libpng. The caller gives their rows.
#pragma once

#include <png.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct PngToWrite {
  int color_type = PNG_COLOR_TYPE_GRAY;
  int depth = 8;  // bits of a sample
  int64_t width = 0;
  int64_t height = 0;
  bool interlaced = false;
  bool transparent = false;             // with a tRNS chunk
  std::vector<png_color> palette = {};  // of PNG_COLOR_TYPE_PALETTE

  int channels() const;       // samples of a pixel
  int64_t row_bytes() const;  // of a row's samples, which lie without gaps
};

// `rows` has `height` rows of row_bytes().
std::string WritePng(const PngToWrite& png, const std::vector<std::vector<uint8_t>>& rows);

}  // namespace lockstep
