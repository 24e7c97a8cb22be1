// For tests: writes PNG files of every kind with libpng. The caller gives their rows.
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
  std::vector<png_color> palette = {};  // for PNG_COLOR_TYPE_PALETTE

  int channels() const;       // samples per pixel
  int64_t row_bytes() const;  // bytes per row; the samples lie without gaps
};

// Returns the bytes of the file. `rows` holds `height` rows of row_bytes() bytes each.
std::string WritePng(const PngToWrite& png, const std::vector<std::vector<uint8_t>>& rows);

}  // namespace lockstep
