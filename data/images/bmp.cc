#include "data/images/bmp.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kChannels = 3;
constexpr int64_t kPaletteEntryBytes = 4;

// Returns the little-endian number of `count` bytes at the offset `at`. Throws Error (kData) if these bytes reach
// beyond the end of the file.
uint32_t NumberAt(std::span<const std::byte> file, int64_t at, int count) {
  if (at + count > static_cast<int64_t>(file.size())) throw DataError("truncated BMP file");
  uint32_t number = 0;
  for (int i = count; i > 0; --i) {
    number = number << 8 | std::to_integer<uint32_t>(file[at + i - 1]);
  }
  return number;
}

struct Header {
  ImageSize size;
  bool top_down = false;
  int64_t bits = 0;       // the number of bits of a pixel
  int64_t pixels_at = 0;  // the offset of the pixels in the file
  int64_t palette_at = 0;
  int64_t colours = 0;                              // the number of colours of the palette
  std::array<int64_t, kChannels> byte_of{2, 1, 0};  // which byte of a pixel holds R, G and B
};

// Returns the index of the byte in a pixel that `mask` selects. Throws Error (kData) if `mask` does not select exactly
// one byte.
int64_t ByteOf(uint32_t mask) {
  for (int64_t byte = 0; byte < 4; ++byte) {
    if (mask == uint32_t{0xff} << (8 * byte)) return byte;
  }
  throw DataError("a BMP file whose colours are no whole bytes (mask {:08x}): save it with 24 bits",
                  mask);
}

Header HeaderOf(std::span<const std::byte> file) {
  constexpr int64_t kPixelsAt = 10, kBytesAt = 14, kWidthAt = 18, kHeightAt = 22, kBitsAt = 28,
                    kMethodAt = 30, kColoursAt = 46, kMasksAt = 54;
  constexpr std::array<uint32_t, 5> kHeaderBytes{40, 52, 56, 108, 124};
  constexpr uint32_t kUncompressed = 0, kMasks = 3;
  const uint32_t header_bytes = NumberAt(file, kBytesAt, 4);
  if (std::ranges::find(kHeaderBytes, header_bytes) == kHeaderBytes.end()) {
    throw DataError("a BMP file of an unknown kind (with a header of {} bytes): save it anew",
                    header_bytes);
  }
  const int64_t width = static_cast<int32_t>(NumberAt(file, kWidthAt, 4));
  const int64_t height = static_cast<int32_t>(NumberAt(file, kHeightAt, 4));
  if (width < 0) throw DataError("damaged BMP file (a width of {})", width);
  Header header{.size = {width, std::abs(height)},
                .top_down = height < 0,
                .bits = NumberAt(file, kBitsAt, 2),
                .pixels_at = NumberAt(file, kPixelsAt, 4)};
  const uint32_t method = NumberAt(file, kMethodAt, 4);
  const bool has_masks = method == kMasks && header.bits == 32;
  if (header.bits != 1 && header.bits != 4 && header.bits != 8 && header.bits != 24 &&
      header.bits != 32) {
    throw DataError("a BMP file with {} bits a pixel: save it with 24", header.bits);
  }
  if (method != kUncompressed && !has_masks) {
    throw DataError("a compressed BMP file (method {}): save it uncompressed", method);
  }
  int64_t end = kBytesAt + int64_t{header_bytes};
  if (has_masks) {
    for (int64_t c = 0; c < kChannels; ++c) {
      header.byte_of[c] = ByteOf(NumberAt(file, kMasksAt + 4 * c, 4));
    }
    end = std::max(end, kMasksAt + 4 * kChannels);
  } else if (header.bits <= 8) {
    const int64_t most = int64_t{1} << header.bits;
    const int64_t said = NumberAt(file, kColoursAt, 4);
    header.colours = said == 0 ? most : std::min(said, most);
    header.palette_at = end;
    end += kPaletteEntryBytes * header.colours;
  }
  if (header.pixels_at < end) {
    throw DataError("damaged BMP file (its pixels begin at byte {}, where its header is)",
                    header.pixels_at);
  }
  return header;
}

void RgbOfIndices(std::span<const std::byte> file, const Header& header, const std::byte* row,
                  uint8_t* rgb) {
  const int64_t mask = (int64_t{1} << header.bits) - 1;
  for (int64_t x = 0; x < header.size.width; ++x, rgb += kChannels) {
    const int64_t bit = x * header.bits;
    const int64_t shift = 8 - header.bits - bit % 8;
    const int64_t index = std::to_integer<int64_t>(row[bit / 8]) >> shift & mask;
    if (index >= header.colours) {
      throw DataError("damaged BMP file (colour {} of a palette of {})", index, header.colours);
    }
    const std::byte* const entry = &file[header.palette_at + kPaletteEntryBytes * index];
    for (int64_t c = 0; c < kChannels; ++c) rgb[c] = std::to_integer<uint8_t>(entry[2 - c]);
  }
}

}  // namespace

ImageSize BmpSize(std::span<const std::byte> file) { return HeaderOf(file).size; }

void DecodeBmp(std::span<const std::byte> file, uint8_t* rgb) {
  const Header header = HeaderOf(file);
  const auto& [width, height] = header.size;
  const int64_t row_bytes = (width * header.bits + 7) / 8;
  const int64_t stride = (row_bytes + 3) / 4 * 4;
  // This check accepts a file in which only the padding of the last row is missing.
  if (header.pixels_at + stride * (height - 1) + row_bytes > static_cast<int64_t>(file.size())) {
    throw DataError("truncated BMP file");
  }
  for (int64_t y = 0; y < height; ++y, rgb += kChannels * width) {
    const std::byte* const row =
        &file[header.pixels_at + stride * (header.top_down ? y : height - 1 - y)];
    if (header.bits <= 8) {
      RgbOfIndices(file, header, row, rgb);
      continue;
    }
    const int64_t pixel_bytes = header.bits / 8;
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < kChannels; ++c) {
        rgb[kChannels * x + c] = std::to_integer<uint8_t>(row[pixel_bytes * x + header.byte_of[c]]);
      }
    }
  }
}

}  // namespace lockstep
