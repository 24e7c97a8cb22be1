// For tests: makes PNG files of every kind with libpng, from rows that the caller gives.
#pragma once

#include <png.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct PngToWrite {
  int color_type = PNG_COLOR_TYPE_GRAY;
  int depth = 8;  // bits per sample
  int64_t width = 0;
  int64_t height = 0;
  bool interlaced = false;
  bool transparent = false;             // whether the file has a tRNS chunk
  std::vector<png_color> palette = {};  // the colours for PNG_COLOR_TYPE_PALETTE

  int channels() const;       // the number of samples per pixel
  int64_t row_bytes() const;  // the bytes of a row, in which samples lie without gaps
};

// Returns the bytes of the PNG file. `rows` holds `height` rows of row_bytes() bytes each.
std::string WritePng(const PngToWrite& png, const std::vector<std::vector<uint8_t>>& rows);

}  // namespace lockstep
