#include "data/images/testing/write_png.h"

namespace lockstep {

int PngToWrite::channels() const {
  switch (color_type) {
    case PNG_COLOR_TYPE_RGBA:
      return 4;
    case PNG_COLOR_TYPE_RGB:
      return 3;
    case PNG_COLOR_TYPE_GRAY_ALPHA:
      return 2;
    default:
      return 1;
  }
}

int64_t PngToWrite::row_bytes() const { return (width * channels() * depth + 7) / 8; }

std::string WritePng(const PngToWrite& png, const std::vector<std::vector<uint8_t>>& rows) {
  std::string file;
  png_structp writer = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(writer);
  png_set_write_fn(
      writer, &file,
      [](png_structp to, png_bytep bytes, size_t count) {
        static_cast<std::string*>(png_get_io_ptr(to))
            ->append(reinterpret_cast<const char*>(bytes), count);
      },
      nullptr);
  png_set_IHDR(writer, info, static_cast<png_uint_32>(png.width),
               static_cast<png_uint_32>(png.height), png.depth, png.color_type,
               png.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (png.color_type == PNG_COLOR_TYPE_PALETTE) {
    png_set_PLTE(writer, info, png.palette.data(), static_cast<int>(png.palette.size()));
  }
  if (png.transparent) {
    png_byte alphas[] = {0, 100, 255};
    png_color_16 color = {.index = 0, .red = 3, .green = 3, .blue = 3, .gray = 3};
    png_set_tRNS(writer, info, alphas, 3, &color);
  }
  png_write_info(writer, info);
  std::vector<png_bytep> pointers;
  for (const std::vector<uint8_t>& row : rows) {
    pointers.push_back(const_cast<png_bytep>(row.data()));  // libpng only reads the rows
  }
  png_write_image(writer, pointers.data());
  png_write_end(writer, nullptr);
  png_destroy_write_struct(&writer, &info);
  return file;
}

}  // namespace lockstep
