#include "data/write_jpeg.h"

// jpeglib.h needs it before it.
#include <cstdio>
// clang-format off
#include <jpeglib.h>
// clang-format on

#include <cstdlib>
#include <vector>

namespace lockstep {

std::string WriteJpeg(const JpegKind& kind, int64_t width, int64_t height,
                      const PixelSource& source, int quality) {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&info, &memory, &bytes);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = kind.channels;
  info.in_color_space = kind.channels == 1   ? JCS_GRAYSCALE
                        : kind.channels == 3 ? JCS_RGB
                                             : JCS_CMYK;
  jpeg_set_defaults(&info);
  if (kind.ycck) jpeg_set_colorspace(&info, JCS_YCCK);
  jpeg_set_quality(&info, quality, TRUE);
  info.comp_info[0].h_samp_factor = kind.h_sampling;
  info.comp_info[0].v_samp_factor = kind.v_sampling;
  if (kind.channels == 4) {
    info.comp_info[3].h_samp_factor = kind.h_sampling;
    info.comp_info[3].v_samp_factor = kind.v_sampling;
  }
  info.restart_interval = static_cast<unsigned>(kind.restart_interval);
  info.optimize_coding = kind.optimized;
  if (kind.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  std::vector<uint8_t> row(width * kind.channels);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int c = 0; c < kind.channels; ++c) row[x * kind.channels + c] = source(x, y, c);
    }
    JSAMPROW rows[] = {row.data()};
    jpeg_write_scanlines(&info, rows, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string file(reinterpret_cast<const char*>(memory), bytes);
  std::free(memory);
  return file;
}

}  // namespace lockstep
