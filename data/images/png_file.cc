#include "data/images/png_file.h"

#include <png.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kChannels = 3;

// The offsets, in bytes, of fields at the beginning of a PNG file: after the signature come the length, the type, the
// width, the height, the bit depth and the colour type of the first chunk. kHeadEnd is the end of these fields; the
// rest of the chunk and its checksum follow.
constexpr size_t kTypeAt = 12, kWidthAt = 16, kHeightAt = 20, kDepthAt = 24, kColoursAt = 25,
                 kHeadEnd = 26;

// The bytes that libpng still has to read, libpng's objects, and libpng's message if it fails.
struct Png {
  const std::byte* next;
  size_t left;
  bool truncated = false;
  std::array<char, 128> message{};
  png_structp reader = nullptr;
  png_infop info = nullptr;

  explicit Png(std::span<const std::byte> file) : next(file.data()), left(file.size()) {}
  ~Png() { png_destroy_read_struct(&reader, &info, nullptr); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  static void Fail(png_structp reader, png_const_charp message) {
    auto& png = *static_cast<Png*>(png_get_error_ptr(reader));
    std::snprintf(png.message.data(), png.message.size(), "%s", message);
    png_longjmp(reader, 1);
  }
  static void Ignore(png_structp, png_const_charp) {}
  static void Read(png_structp reader, png_bytep to, size_t bytes) {
    auto& png = *static_cast<Png*>(png_get_io_ptr(reader));
    if (bytes > png.left) {
      png.truncated = true;
      png_error(reader, "end of the file");
    }
    std::memcpy(to, png.next, bytes);
    png.next += bytes;
    png.left -= bytes;
  }

  // Decodes to rows with `channels` bytes for each pixel: 3 for RGB, or 1 for the numbers that the file holds. Returns
  // false if libpng failed. A failing libpng jumps to setjmp(), so this function has no variables with destructors.
  bool Decode(const ImageSize& size, int64_t channels, uint8_t* pixels) {
    if (setjmp(png_jmpbuf(reader))) return false;
    png_set_read_fn(reader, this, &Read);
    png_read_info(reader, info);
    if (channels == kChannels) {
      png_set_expand(reader);  // converts a palette to RGB, and 1, 2 and 4 bits of grey to 8
      png_set_gray_to_rgb(reader);
      png_set_strip_16(reader);
    } else {
      png_set_packing(reader);  // puts each number of 1, 2 or 4 bits into a byte, unscaled
    }
    png_set_strip_alpha(reader);
    const int passes = png_set_interlace_handling(reader);
    png_read_update_info(reader, info);
    if (png_get_rowbytes(reader, info) != static_cast<size_t>(size.width * channels)) {
      png_error(reader, "rows of another size");
    }
    for (int pass = 0; pass < passes; ++pass) {
      for (int64_t y = 0; y < size.height; ++y) {
        png_read_row(reader, pixels + y * size.width * channels, nullptr);
      }
    }
    png_read_end(reader, nullptr);
    return true;
  }
};

void Decode(std::span<const std::byte> file, int64_t channels, uint8_t* pixels) {
  Png png(file);
  png.reader = png_create_read_struct(PNG_LIBPNG_VER_STRING, &png, &Png::Fail, &Png::Ignore);
  png.info = png.reader == nullptr ? nullptr : png_create_info_struct(png.reader);
  if (png.info == nullptr) throw std::bad_alloc();
  png_set_user_limits(png.reader, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // the caller checks sizes
  if (png.Decode(PngSize(file), channels, pixels)) return;
  if (png.truncated) throw DataError("truncated PNG file");
  throw DataError("damaged PNG file (libpng: {})", png.message.data());
}

}  // namespace

ImageSize PngSize(std::span<const std::byte> file) {
  if (file.size() < kHeadEnd) throw DataError("truncated PNG file");
  if (std::memcmp(&file[kTypeAt], "IHDR", 4) != 0) {
    throw DataError("damaged PNG file (no IHDR chunk)");
  }
  const auto number = [&file](size_t at) {
    return int64_t{png_get_uint_32(reinterpret_cast<png_const_bytep>(&file[at]))};
  };
  return {number(kWidthAt), number(kHeightAt)};
}

void DecodePng(std::span<const std::byte> file, uint8_t* rgb) { Decode(file, kChannels, rgb); }

void DecodePngMask(std::span<const std::byte> file, uint8_t* mask) {
  const ImageSize size = PngSize(file);
  if (std::to_integer<int>(file[kDepthAt]) > 8) {
    throw DataError("a PNG file of 16 bits, where a mask's pixels have 8 at the most");
  }
  const bool has_colours = (std::to_integer<int>(file[kColoursAt]) & PNG_COLOR_MASK_COLOR) != 0;
  const bool has_palette = std::to_integer<int>(file[kColoursAt]) == PNG_COLOR_TYPE_PALETTE;
  if (!has_colours || has_palette) {
    Decode(file, 1, mask);
    return;
  }
  std::vector<uint8_t> rgb(kChannels * size.width * size.height);
  DecodePng(file, rgb.data());
  for (int64_t i = 0; i < size.width * size.height; ++i) {
    const uint8_t* const pixel = &rgb[kChannels * i];
    if (pixel[0] != pixel[1] || pixel[0] != pixel[2]) {
      throw DataError(
          "row {}, column {}: the colour {}, {}, {}, where a mask's pixel is grey or of a palette: "
          "its value is the class",
          i / size.width, i % size.width, pixel[0], pixel[1], pixel[2]);
    }
    mask[i] = pixel[0];
  }
}

std::string EncodeGreyPng(const ImageSize& size, std::span<const uint8_t> levels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(size.width);
  image.height = static_cast<png_uint_32>(size.height);
  image.format = PNG_FORMAT_GRAY;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(bytes, '\0');
  if (png_image_write_to_memory(&image, file.data(), &bytes, 0, levels.data(), 0, nullptr) == 0) {
    throw BugError("a PNG file of {} x {} pixels: {}", size.width, size.height, image.message);
  }
  file.resize(bytes);
  return file;
}

}  // namespace lockstep
