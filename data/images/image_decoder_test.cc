#include "data/images/image_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>
#include <sys/mman.h>
#include <unistd.h>
#include <webp/encode.h>
// This header must come before jpeglib.h, which needs it.
#include <cstdio>
// clang-format off
#include <jpeglib.h>
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/testing/message_of.h"
#include "data/images/testing/write_jpeg.h"
#include "data/images/testing/write_png.h"

namespace lockstep {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::span<const std::byte> Bytes(const std::string& file) { return std::as_bytes(std::span(file)); }

// A copy of a file in memory. The copy ends right before a page that cannot be read, so that a read beyond the end of
// the copy crashes.
class GuardedFile {
 public:
  explicit GuardedFile(std::string_view file) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t pages = (file.size() + page - 1) / page;
    mapped_bytes_ = (pages + 1) * page;
    mapping_ =
        mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping_ == MAP_FAILED) std::abort();
    auto* const guard = static_cast<std::byte*>(mapping_) + pages * page;
    if (mprotect(guard, page, PROT_NONE) != 0) std::abort();
    bytes_ = {guard - file.size(), file.size()};
    std::memcpy(guard - file.size(), file.data(), file.size());
  }
  ~GuardedFile() { munmap(mapping_, mapped_bytes_); }
  GuardedFile(const GuardedFile&) = delete;
  GuardedFile& operator=(const GuardedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::span<const std::byte> bytes_;
};

struct Image {
  int64_t width = 0;
  int64_t height = 0;
  std::vector<uint8_t> rgb;

  const uint8_t* At(int64_t x, int64_t y) const { return &rgb[(y * width + x) * 3]; }
};

// Returns the value of `channel` in the pixel (x, y) of a test image: 20, plus a linear slope modulo 180, plus noise
// from 0 to 39.
uint8_t Sample(int64_t x, int64_t y, int channel) {
  uint32_t hash = static_cast<uint32_t>(x * 73856093 ^ y * 19349663 ^ channel * 83492791);
  hash = (hash ^ (hash >> 13)) * 0x5bd1e995;
  const int64_t slope = channel == 0 ? x * 2 : channel == 1 ? y * 3 : (x + y) * 2;
  return static_cast<uint8_t>(20 + slope % 180 + (hash >> 16) % 40);
}

// Returns the value of `channel` at the point (x, y), which may lie between pixels, of a linear image without noise.
double Gradient(double x, double y, int channel) {
  return 20 + (channel == 0 ? x * 0.3 : channel == 1 ? y * 0.4 : (x + y) * 0.15);
}

const JpegKind kKinds[] = {
    {"4:4:4"},
    {"4:2:2", 3, 2, 1},
    {"4:4:0", 3, 1, 2},
    {"4:2:0", 3, 2, 2},
    {"4:1:1", 3, 4, 1},
    {"grey", 1},
    {"progressive 4:4:4", 3, 1, 1, true},
    {"progressive 4:2:0", 3, 2, 2, true},
    {"progressive grey", 1, 1, 1, true},
    {"restart markers 4:2:0", 3, 2, 2, false, 7},
    {"CMYK", 4},
    {"YCCK 4:2:0", 4, 2, 2, false, 0, true},
};

std::string WriteJpeg(const JpegKind& kind, int64_t width, int64_t height) {
  return WriteJpeg(kind, width, height, Sample, /*quality=*/90);
}

// Returns the pixels of a whole JPEG file, decoded with libjpeg's default settings.
Image PlainDecode(const std::string& file) {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const uint8_t*>(file.data()), file.size());
  jpeg_read_header(&info, TRUE);
  const bool cmyk = info.num_components == 4;
  info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&info);
  Image image = {.width = info.output_width, .height = info.output_height, .rgb = {}};
  std::vector<uint8_t> row(image.width * info.output_components);
  while (info.output_scanline < info.output_height) {
    JSAMPROW rows[] = {row.data()};
    jpeg_read_scanlines(&info, rows, 1);
    if (!cmyk) image.rgb.insert(image.rgb.end(), row.begin(), row.end());
    for (int64_t x = 0; cmyk && x < image.width; ++x) {
      for (int c = 0; c < 3; ++c) {
        const double product = row[x * 4 + c] * row[x * 4 + 3] / 255.0;
        image.rgb.push_back(static_cast<uint8_t>(std::lround(product)));
      }
    }
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return image;
}

Image Copy(const ImageView& view) {
  Image image = {.width = view.width, .height = view.height, .rgb = {}};
  for (int64_t y = 0; y < view.height; ++y) {
    const uint8_t* const row = view.pixels + y * view.stride;
    image.rgb.insert(image.rgb.end(), row, row + view.width * 3);
  }
  return image;
}

Image DecodeWhole(ImageDecoder& decoder, std::span<const std::byte> file) {
  const ImageSize size = decoder.Open(file);
  const Box all = {0, 0, static_cast<double>(size.width), static_cast<double>(size.height)};
  const auto part = decoder.Decode(all, size.width, size.height);
  EXPECT_EQ(part.box.x, 0);
  EXPECT_EQ(part.box.y, 0);
  EXPECT_EQ(part.box.width, all.width);
  EXPECT_EQ(part.box.height, all.height);
  return Copy(part.pixels);
}

Image DecodeWhole(ImageDecoder& decoder, const std::string& file) {
  return DecodeWhole(decoder, Bytes(file));
}

// Expects that `part` has every pixel of `whole` that a triangle filter needs to resize `box` to width x height, with
// the same value.
void ExpectHolds(const ImageDecoder::Part& part, const Image& whole, const Box& box, int64_t width,
                 int64_t height) {
  ASSERT_EQ(part.box.width, box.width) << "reduced";
  ASSERT_EQ(part.box.height, box.height);
  const double left = box.x - part.box.x, top = box.y - part.box.y;
  const int64_t x0 = std::llround(left), y0 = std::llround(top);
  ASSERT_NEAR(left, static_cast<double>(x0), 1e-9);
  ASSERT_NEAR(top, static_cast<double>(y0), 1e-9);
  const double x_support = std::max(1.0, box.width / static_cast<double>(width));
  const double y_support = std::max(1.0, box.height / static_cast<double>(height));
  const auto begin = [](double from) {
    return std::max<int64_t>(static_cast<int64_t>(std::floor(from)), 0);
  };
  const auto end = [](double to, int64_t size) {
    return std::min<int64_t>(static_cast<int64_t>(std::ceil(to)), size);
  };
  const int64_t x_begin = begin(box.x - x_support);
  const int64_t x_end = end(box.x + box.width + x_support, whole.width);
  const int64_t y_begin = begin(box.y - y_support);
  const int64_t y_end = end(box.y + box.height + y_support, whole.height);
  ASSERT_LE(x0, x_begin);
  ASSERT_GE(x0 + part.pixels.width, x_end);
  ASSERT_LE(y0, y_begin);
  ASSERT_GE(y0 + part.pixels.height, y_end);
  for (int64_t y = y_begin; y < y_end; ++y) {
    const uint8_t* const row =
        part.pixels.pixels + (y - y0) * part.pixels.stride + (x_begin - x0) * 3;
    ASSERT_EQ(std::memcmp(row, whole.At(x_begin, y), (x_end - x_begin) * 3), 0) << "row " << y;
  }
}

constexpr struct {
  int64_t width;
  int64_t height;
} kSizes[] = {{1, 1}, {2, 3}, {17, 33}, {33, 16}, {64, 48}, {203, 150}, {501, 375}};

TEST(JpegDecoder, DecodesAWholeFileAsLibjpegDoes) {
  ImageDecoder decoder;
  for (const auto& kind : kKinds) {
    for (const auto& [width, height] : kSizes) {
      SCOPED_TRACE(fmt::format("{} {} x {}", kind.name, width, height));
      const std::string file = WriteJpeg(kind, width, height);
      const Image expected = PlainDecode(file), image = DecodeWhole(decoder, file);
      ASSERT_EQ(image.width, width);
      ASSERT_EQ(image.height, height);
      EXPECT_TRUE(image.rgb == expected.rgb);
    }
  }
}

TEST(JpegDecoder, KnowsWhatEveryDecoderTakes) {
  const std::set<std::string> plain = {"4:4:4", "4:2:2", "4:4:0", "4:2:0", "restart markers 4:2:0"};
  ImageDecoder decoder;
  EXPECT_FALSE(decoder.IsPlainJpeg());
  for (const auto& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const std::string file = WriteJpeg(kind, 33, 16);
    decoder.Open(Bytes(file));
    EXPECT_EQ(decoder.IsPlainJpeg(), plain.contains(kind.name));
    const std::string_view cut = std::string_view(file).substr(0, file.size() - 1);
    decoder.Open(std::as_bytes(std::span(cut)));
    EXPECT_FALSE(decoder.IsPlainJpeg()) << "without the end's mark";
  }
}

TEST(JpegDecoder, HoldsWhatAFilterNeedsOfABox) {
  ImageDecoder decoder;
  std::mt19937_64 random(1);
  const auto uniform = [&random](double low, double high) {
    return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
  };
  for (const auto& kind : kKinds) {
    for (const auto& [width, height] : kSizes) {
      const std::string file = WriteJpeg(kind, width, height);
      const Image whole = DecodeWhole(decoder, file);
      for (int round = 0; round < 60; ++round) {
        Box box;
        box.width = uniform(round % 3 == 0 ? 0.01 : 0.3, 1) * static_cast<double>(width);
        box.height = uniform(round % 3 == 0 ? 0.01 : 0.3, 1) * static_cast<double>(height);
        box.x = uniform(0, static_cast<double>(width) - box.width);
        box.y = uniform(0, static_cast<double>(height) - box.height);
        // One of the two scales is below 2, so the decoder does not reduce the image.
        const double x_scale = uniform(0.2, round % 2 == 0 ? 1.9 : 9);
        const double y_scale = uniform(0.2, round % 2 == 0 ? 9 : 1.9);
        const auto out_width = static_cast<int64_t>(std::ceil(box.width / x_scale));
        const auto out_height = static_cast<int64_t>(std::ceil(box.height / y_scale));
        SCOPED_TRACE(fmt::format("{} {} x {}: {} x {} at {}, {} to {} x {}", kind.name, width,
                                 height, box.width, box.height, box.x, box.y, out_width,
                                 out_height));
        // One round in four calls Decode() again without Open().
        if (round % 4 != 1) decoder.Open(Bytes(file));
        ExpectHolds(decoder.Decode(box, out_width, out_height), whole, box, out_width, out_height);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Returns the value that a triangle filter gives to `channel` of the output pixel (column, row) if part.box is resized
// to width x height.
double Resampled(const ImageDecoder::Part& part, int64_t width, int64_t height, int64_t column,
                 int64_t row, int channel) {
  const double x_scale = part.box.width / static_cast<double>(width);
  const double y_scale = part.box.height / static_cast<double>(height);
  const double x_support = std::max(1.0, x_scale), y_support = std::max(1.0, y_scale);
  const double x_centre = part.box.x + (static_cast<double>(column) + 0.5) * x_scale;
  const double y_centre = part.box.y + (static_cast<double>(row) + 0.5) * y_scale;
  EXPECT_GE(x_centre - x_support, 0);
  EXPECT_LE(x_centre + x_support, part.pixels.width);
  EXPECT_GE(y_centre - y_support, 0);
  EXPECT_LE(y_centre + y_support, part.pixels.height);
  double sum = 0, weights = 0;
  for (int64_t y = 0; y < part.pixels.height; ++y) {
    const double y_weight = 1 - std::abs(static_cast<double>(y) + 0.5 - y_centre) / y_support;
    if (y_weight <= 0) continue;
    for (int64_t x = 0; x < part.pixels.width; ++x) {
      const double x_weight = 1 - std::abs(static_cast<double>(x) + 0.5 - x_centre) / x_support;
      if (x_weight <= 0) continue;
      weights += x_weight * y_weight;
      sum += x_weight * y_weight * part.pixels.pixels[y * part.pixels.stride + x * 3 + channel];
    }
  }
  return sum / weights;
}

TEST(JpegDecoder, ReducesWithoutMovingAnything) {
  const auto source = [](int64_t x, int64_t y, int channel) {
    const double value =
        Gradient(static_cast<double>(x) + 0.5, static_cast<double>(y) + 0.5, channel);
    return static_cast<uint8_t>(std::lround(value));
  };
  constexpr struct {
    int64_t width;
    int64_t height;
    int reduction;
  } outputs[] = {{400, 320, 1}, {201, 160, 1}, {200, 160, 2}, {150, 100, 2},
                 {100, 80, 4},  {100, 40, 4},  {50, 40, 8},   {20, 16, 8}};
  ImageDecoder decoder;
  for (const auto& kind : kKinds) {
    if (kind.channels != 3) continue;
    const std::string file = WriteJpeg(kind, 639, 477, source, 98);
    decoder.Open(Bytes(file));
    // At 4:1:1, four columns share their chroma, also in a reduced image, so the tolerance is greater.
    const double tolerance = kind.h_sampling == 4 ? 3 : 2;
    const Box box = {77.3, 61.8, 400, 320};
    for (const auto& [width, height, reduction] : outputs) {
      SCOPED_TRACE(fmt::format("{} to {} x {}", kind.name, width, height));
      const auto part = decoder.Decode(box, width, height);
      EXPECT_EQ(part.box.width, box.width / reduction);
      EXPECT_EQ(part.box.height, box.height / reduction);
      for (const int64_t row : {int64_t{0}, height / 3, height - 1}) {
        for (const int64_t column : {int64_t{0}, width / 3, width - 1}) {
          const double x =
              box.x + (static_cast<double>(column) + 0.5) * box.width / static_cast<double>(width);
          const double y =
              box.y + (static_cast<double>(row) + 0.5) * box.height / static_cast<double>(height);
          for (int c = 0; c < 3; ++c) {
            EXPECT_NEAR(Resampled(part, width, height, column, row, c), Gradient(x, y, c),
                        tolerance)
                << column << ", " << row << " channel " << c;
          }
        }
      }
    }
  }
}

TEST(JpegDecoder, TakesReducedPartsAtEveryEdge) {
  ImageDecoder decoder;
  std::mt19937_64 random(2);
  for (const auto& kind : kKinds) {
    for (const auto& [width, height] : kSizes) {
      const std::string file = WriteJpeg(kind, width, height);
      const Box all = {0, 0, static_cast<double>(width), static_cast<double>(height)};
      for (int round = 0; round < 40; ++round) {
        const auto out_width = static_cast<int64_t>(1 + random() % static_cast<uint64_t>(width));
        const auto out_height = static_cast<int64_t>(1 + random() % static_cast<uint64_t>(height));
        const double x = static_cast<double>(random() % static_cast<uint64_t>(width));
        const double y = static_cast<double>(random() % static_cast<uint64_t>(height));
        const Box box = round % 2 == 0 ? all : Box{x, y, all.width - x, all.height - y};
        SCOPED_TRACE(fmt::format("{} {} x {} from {}, {} to {} x {}", kind.name, width, height,
                                 box.x, box.y, out_width, out_height));
        decoder.Open(Bytes(file));
        const auto part = decoder.Decode(box, out_width, out_height);
        const Image image = Copy(part.pixels);
        EXPECT_GE(part.box.x, 0);
        EXPECT_GE(part.box.y, 0);
        EXPECT_LE(part.box.x + part.box.width, static_cast<double>(image.width));
        EXPECT_LE(part.box.y + part.box.height, static_cast<double>(image.height));
        EXPECT_GT(part.box.width, 0);
        EXPECT_GT(part.box.height, 0);
        // If the decoder has reduced the image, the box in the part is still at least as large as the output.
        if (part.box.width != box.width) {
          EXPECT_GE(part.box.width, static_cast<double>(out_width));
          EXPECT_GE(part.box.height, static_cast<double>(out_height));
        }
      }
    }
  }
}

// Returns the position of the `count`-th marker FF `code`.
size_t Marker(const std::string& file, int code, int count = 1) {
  size_t at = 0;
  const char marker[] = {'\xff', static_cast<char>(code)};
  for (; count > 0; --count) at = file.find(std::string_view(marker, 2), at == 0 ? 0 : at + 1);
  EXPECT_NE(at, std::string::npos);
  return at;
}

// Returns `file` without the segments whose marker is FF `code`.
std::string Without(std::string file, int code) {
  const char marker[] = {'\xff', static_cast<char>(code)};
  for (size_t at; (at = file.find(std::string_view(marker, 2))) != std::string::npos;) {
    file.erase(at,
               2 + static_cast<uint8_t>(file[at + 2]) * 256 + static_cast<uint8_t>(file[at + 3]));
  }
  return file;
}

void WriteUint16(std::string& file, size_t at, int value) {
  file[at] = static_cast<char>(value >> 8);
  file[at + 1] = static_cast<char>(value);
}

struct PngKind {
  const char* name;
  int color_type;
  int depth;
  bool transparent = false;  // whether the file has a tRNS chunk
};

const PngKind kPngKinds[] = {
    {"grey 1", PNG_COLOR_TYPE_GRAY, 1},
    {"grey 2", PNG_COLOR_TYPE_GRAY, 2},
    {"grey 4", PNG_COLOR_TYPE_GRAY, 4},
    {"grey 8", PNG_COLOR_TYPE_GRAY, 8},
    {"grey 8 tRNS", PNG_COLOR_TYPE_GRAY, 8, true},
    {"grey 16", PNG_COLOR_TYPE_GRAY, 16},
    {"RGB 8", PNG_COLOR_TYPE_RGB, 8},
    {"RGB 8 tRNS", PNG_COLOR_TYPE_RGB, 8, true},
    {"RGB 16", PNG_COLOR_TYPE_RGB, 16},
    {"palette 1", PNG_COLOR_TYPE_PALETTE, 1},
    {"palette 2", PNG_COLOR_TYPE_PALETTE, 2},
    {"palette 4", PNG_COLOR_TYPE_PALETTE, 4},
    {"palette 8", PNG_COLOR_TYPE_PALETTE, 8},
    {"palette 8 tRNS", PNG_COLOR_TYPE_PALETTE, 8, true},
    {"grey alpha 8", PNG_COLOR_TYPE_GRAY_ALPHA, 8},
    {"grey alpha 16", PNG_COLOR_TYPE_GRAY_ALPHA, 16},
    {"RGBA 8", PNG_COLOR_TYPE_RGBA, 8},
    {"RGBA 16", PNG_COLOR_TYPE_RGBA, 16},
};

// Returns a PNG file of random samples. Writes to `shown`, unless it is null, the pixels that a decoder must return for
// this file.
std::string WritePng(const PngKind& kind, int64_t width, int64_t height, bool interlaced,
                     Image* shown = nullptr) {
  PngToWrite png{.color_type = kind.color_type,
                 .depth = kind.depth,
                 .width = width,
                 .height = height,
                 .interlaced = interlaced,
                 .transparent = kind.transparent};
  std::mt19937_64 random(3);
  png.palette.resize(size_t{1} << std::min(kind.depth, 8));
  for (auto& color : png.palette) {
    color = {static_cast<png_byte>(random()), static_cast<png_byte>(random()),
             static_cast<png_byte>(random())};
  }
  std::vector<std::vector<uint8_t>> rows(height, std::vector<uint8_t>(png.row_bytes()));
  for (auto& row : rows) {
    for (auto& byte : row) byte = static_cast<uint8_t>(random());
  }
  std::string file = lockstep::WritePng(png, rows);

  if (shown == nullptr) return file;
  *shown = {.width = width, .height = height, .rgb = {}};
  const bool has_palette = kind.color_type == PNG_COLOR_TYPE_PALETTE;
  const int channels = png.channels();
  for (const auto& row : rows) {
    for (int64_t x = 0; x < width; ++x) {
      // Returns the upper 8 bits of a sample of the row, or the whole sample if `depth` is below 8.
      const auto sample = [&](int channel) {
        const int64_t bit = (x * channels + channel) * kind.depth;
        const int byte = row[bit / 8];
        return kind.depth >= 8 ? byte
                               : (byte >> (8 - kind.depth - bit % 8)) & ((1 << kind.depth) - 1);
      };
      for (int c = 0; c < 3; ++c) {
        int value = sample(channels < 3 ? 0 : c);
        if (has_palette) {
          const png_color& color = png.palette[value];
          value = c == 0 ? color.red : c == 1 ? color.green : color.blue;
        } else if (kind.depth < 8) {
          value = value * 255 / ((1 << kind.depth) - 1);
        }
        shown->rgb.push_back(static_cast<uint8_t>(value));
      }
    }
  }
  return file;
}

TEST(PngDecoder, GivesThePixelsThatWereWritten) {
  ImageDecoder decoder;
  for (const auto& kind : kPngKinds) {
    for (const auto& [width, height] : kSizes) {
      for (const bool interlaced : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} x {} {}", kind.name, width, height, interlaced));
        Image written;
        const std::string file = WritePng(kind, width, height, interlaced, &written);
        const Image image = DecodeWhole(decoder, file);
        ASSERT_EQ(image.width, width);
        ASSERT_EQ(image.height, height);
        EXPECT_TRUE(image.rgb == written.rgb);
      }
    }
  }
}

TEST(PngDecoder, DecodesTheWholeFileForABox) {
  ImageDecoder decoder;
  Image written;
  const std::string file = WritePng(kPngKinds[6], 50, 40, false, &written);
  decoder.Open(Bytes(file));
  const auto part = decoder.Decode({7.5, 3, 20, 30}, 2, 3);
  EXPECT_EQ(part.box.x, 7.5);
  EXPECT_EQ(part.box.y, 3);
  EXPECT_EQ(part.box.width, 20);
  EXPECT_EQ(part.box.height, 30);
  EXPECT_TRUE(Copy(part.pixels).rgb == written.rgb);
}

// Returns `image` as a WebP file. With `lossless`, a decoder returns the same pixels.
std::string WriteWebp(const Image& image, bool lossless) {
  uint8_t* bytes = nullptr;
  const int width = static_cast<int>(image.width), height = static_cast<int>(image.height);
  const size_t size =
      lossless ? WebPEncodeLosslessRGB(image.rgb.data(), width, height, 3 * width, &bytes)
               : WebPEncodeRGB(image.rgb.data(), width, height, 3 * width, 90, &bytes);
  std::string file(reinterpret_cast<const char*>(bytes), size);
  WebPFree(bytes);
  return file;
}

Image Slopes(int64_t width, int64_t height) {
  Image image = {.width = width, .height = height, .rgb = {}};
  for (int64_t i = 0; i < width * height * 3; ++i) {
    image.rgb.push_back(Sample(i / 3 % width, i / 3 / width, static_cast<int>(i % 3)));
  }
  return image;
}

TEST(WebpDecoder, GivesThePixelsThatWereWritten) {
  ImageDecoder decoder;
  for (const auto& [width, height] : kSizes) {
    SCOPED_TRACE(fmt::format("{} x {}", width, height));
    const Image written = Slopes(width, height);
    const Image image = DecodeWhole(decoder, WriteWebp(written, /*lossless=*/true));
    ASSERT_EQ(image.width, width);
    ASSERT_EQ(image.height, height);
    EXPECT_TRUE(image.rgb == written.rgb);
    EXPECT_FALSE(decoder.IsPlainJpeg());
  }
}

TEST(WebpDecoder, RefusesTruncatedFiles) {
  ImageDecoder decoder;
  for (const bool lossless : {false, true}) {
    const std::string file = WriteWebp(Slopes(101, 75), lossless);
    for (size_t bytes = 4; bytes < file.size(); bytes += 97) {
      const GuardedFile part(std::string_view(file).substr(0, bytes));
      EXPECT_EQ(DataErrorOf([&] { DecodeWhole(decoder, part.bytes()); }), "truncated WebP file")
          << bytes << " bytes of " << file.size();
    }
    const GuardedFile all(file);
    EXPECT_EQ(DecodeWhole(decoder, all.bytes()).width, 101);
  }
}

TEST(WebpDecoder, RefusesDamageAndAnimations) {
  ImageDecoder decoder;
  const std::string file = WriteWebp(Slopes(101, 75), /*lossless=*/true);
  std::string bad = file;
  bad[20] ^= 1;  // the signature of lossless data
  EXPECT_THAT(DataErrorOf([&] { DecodeWhole(decoder, bad); }), StartsWith("damaged WebP file"));
  // The extended header (VP8X) of this file says that it is an animation of 11 x 8 pixels.
  const std::string animated("RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\x0a\0\0\x07\0\0", 30);
  EXPECT_EQ(DataErrorOf([&] { decoder.Open(Bytes(animated)); }),
            "an animated WebP file: save one of its pictures as a file");
}

void AddNumber(std::string& file, int64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) file += static_cast<char>(number >> (8 * i));
}

struct BmpKind {
  const char* name;
  int bits;
  bool top_down = false;
  int header_bytes = 40;
  bool has_masks = false;  // whether the file has masks, with R in byte 0, G in 1, B in 2
  int colours = 0;         // the number of colours that the header states; 0: the maximum
};

const BmpKind kBmpKinds[] = {
    {"1", 1},
    {"4", 4},
    {"8", 8},
    {"8 top-down", 8, true},
    {"8 with 200 colours", 8, false, 40, false, 200},
    {"8 with a long header", 8, false, 124},
    {"24", 24},
    {"24 top-down", 24, true, 108},
    {"32", 32},
    {"32 top-down", 32, true},
    {"32 with masks", 32, false, 40, true},
    {"32 with masks in a long header", 32, true, 124, true},
};

// Returns a BMP file of random colours. Writes to `shown`, unless it is null, the pixels that a decoder must return for
// this file.
std::string WriteBmp(const BmpKind& kind, int64_t width, int64_t height, Image* shown = nullptr) {
  std::mt19937_64 random(5);
  const int64_t colours = kind.bits > 8      ? 0
                          : kind.colours > 0 ? kind.colours
                                             : int64_t{1} << kind.bits;
  const int64_t masks_bytes = kind.has_masks && kind.header_bytes == 40 ? 12 : 0;
  const int64_t pixels_at = 14 + kind.header_bytes + masks_bytes + 4 * colours + 6;
  const int64_t row_bytes = (width * kind.bits + 7) / 8;
  std::string file = "BM";
  AddNumber(file, 0, 8);
  AddNumber(file, pixels_at, 4);
  AddNumber(file, kind.header_bytes, 4);
  AddNumber(file, width, 4);
  AddNumber(file, kind.top_down ? -height : height, 4);
  AddNumber(file, 1, 2);
  AddNumber(file, kind.bits, 2);
  AddNumber(file, kind.has_masks ? 3 : 0, 4);
  AddNumber(file, 0, 12);
  AddNumber(file, kind.colours, 4);
  AddNumber(file, 0, 4);
  if (kind.has_masks) {
    for (int byte = 0; byte < 3; ++byte) AddNumber(file, int64_t{0xff} << (8 * byte), 4);
  }
  file.resize(14 + kind.header_bytes + masks_bytes);
  std::vector<uint8_t> palette;  // B, G, R, 0
  for (int64_t i = 0; i < 4 * colours; ++i) palette.push_back(static_cast<uint8_t>(random()));
  file.append(palette.begin(), palette.end());
  file.resize(pixels_at);
  Image image = {.width = width, .height = height, .rgb = std::vector<uint8_t>(3 * width * height)};
  for (int64_t row = 0; row < height; ++row) {
    uint8_t* rgb = &image.rgb[3 * width * (kind.top_down ? row : height - 1 - row)];
    std::string bytes((row_bytes + 3) / 4 * 4, '\0');
    for (int64_t x = 0; x < width; ++x, rgb += 3) {
      if (kind.bits <= 8) {
        const auto index = static_cast<int64_t>(random() % static_cast<uint64_t>(colours));
        const int64_t bit = x * kind.bits;
        bytes[bit / 8] |= static_cast<char>(index << (8 - kind.bits - bit % 8));
        for (int c = 0; c < 3; ++c) rgb[c] = palette[4 * index + 2 - c];
        continue;
      }
      for (int c = 0; c < 3; ++c) {
        rgb[c] = static_cast<uint8_t>(random());
        bytes[x * kind.bits / 8 + (kind.has_masks ? c : 2 - c)] = static_cast<char>(rgb[c]);
      }
    }
    file += bytes;
  }
  if (shown != nullptr) *shown = std::move(image);
  return file;
}

TEST(BmpDecoder, GivesThePixelsThatWereWritten) {
  ImageDecoder decoder;
  for (const auto& kind : kBmpKinds) {
    for (const auto& [width, height] : kSizes) {
      SCOPED_TRACE(fmt::format("{} {} x {}", kind.name, width, height));
      Image written;
      const GuardedFile file(WriteBmp(kind, width, height, &written));
      const Image image = DecodeWhole(decoder, file.bytes());
      ASSERT_EQ(image.width, width);
      ASSERT_EQ(image.height, height);
      EXPECT_TRUE(image.rgb == written.rgb);
    }
  }
}

TEST(BmpDecoder, RefusesTruncatedFiles) {
  ImageDecoder decoder;
  for (const auto& kind : kBmpKinds) {
    const std::string file = WriteBmp(kind, 101, 75);
    for (size_t bytes = 2; bytes + 4 < file.size(); bytes += 97) {
      const GuardedFile part(std::string_view(file).substr(0, bytes));
      EXPECT_EQ(DataErrorOf([&] { DecodeWhole(decoder, part.bytes()); }), "truncated BMP file")
          << kind.name << ", " << bytes << " bytes of " << file.size();
    }
  }
  // A row of 101 pixels of 24 bits has 303 bytes and one byte of padding. Some programs do not write the padding of the
  // last row, so a file without that byte is accepted, but a file that lacks two bytes is not.
  const std::string file = WriteBmp(kBmpKinds[6], 101, 75);
  EXPECT_EQ(DecodeWhole(decoder, file.substr(0, file.size() - 1)).width, 101);
  EXPECT_EQ(DataErrorOf([&] { DecodeWhole(decoder, file.substr(0, file.size() - 2)); }),
            "truncated BMP file");
}

TEST(BmpDecoder, RefusesOtherKindsAndDamage) {
  const std::string file = WriteBmp(kBmpKinds[2], 20, 10);
  ImageDecoder decoder;
  const auto with = [&](size_t at, int64_t number, int bytes, const std::string& from) {
    std::string written;
    AddNumber(written, number, bytes);
    std::string bad = from;
    bad.replace(at, written.size(), written);
    return DataErrorOf([&] { DecodeWhole(decoder, bad); });
  };
  EXPECT_EQ(with(14, 12, 4, file),
            "a BMP file of an unknown kind (with a header of 12 bytes): save it anew");
  EXPECT_EQ(with(28, 16, 2, file), "a BMP file with 16 bits a pixel: save it with 24");
  EXPECT_EQ(with(30, 1, 4, file), "a compressed BMP file (method 1): save it uncompressed");
  EXPECT_EQ(with(18, 0, 4, file), "the image has no pixels: 0 x 10");
  EXPECT_EQ(with(18, -20, 4, file), "damaged BMP file (a width of -20)");
  EXPECT_THAT(with(22, int64_t{1} << 31, 4, file), HasSubstr("a decompression bomb"));
  EXPECT_EQ(with(22, 11, 4, file), "truncated BMP file");
  EXPECT_EQ(with(10, 54, 4, file),
            "damaged BMP file (its pixels begin at byte 54, where its header is)");
  EXPECT_THAT(with(46, 1, 4, file), HasSubstr("of a palette of 1)"));
  EXPECT_EQ(with(54, 0xf800, 4, WriteBmp(kBmpKinds[10], 20, 10)),
            "a BMP file whose colours are no whole bytes (mask 0000f800): save it with 24 bits");
}

TEST(ImageDecoder, RefusesWhatItCannotDecode) {
  ImageDecoder decoder;
  const auto open = [&decoder](const std::string& file) {
    return DataErrorOf([&] { decoder.Open(Bytes(file)); });
  };
  EXPECT_EQ(open(""), "empty file");
  EXPECT_EQ(open("GIF89a......"),
            "not a JPEG, PNG, WebP or BMP file (begins with 47 49 46 38: GIF)");
  EXPECT_EQ(open("RIFF....WAVEfmt "),
            "not a JPEG, PNG, WebP or BMP file (begins with 52 49 46 46)");
  EXPECT_EQ(open("BM, a text like any other"),
            "not a JPEG, PNG, WebP or BMP file (begins with 42 4d 2c 20)");
  EXPECT_EQ(open(std::string("II*\0....", 8)),
            "not a JPEG, PNG, WebP or BMP file (begins with 49 49 2a 00: TIFF)");
  EXPECT_EQ(open(std::string("MM\0*....", 8)),
            "not a JPEG, PNG, WebP or BMP file (begins with 4d 4d 00 2a: TIFF)");
  EXPECT_EQ(open("text"), "not a JPEG, PNG, WebP or BMP file (begins with 74 65 78 74)");
  EXPECT_EQ(open("\xff"), "not a JPEG, PNG, WebP or BMP file (begins with ff)");

  // In a frame header, the marker (2 bytes), the length (2) and the precision (1) are followed by the height and the
  // width, with 2 bytes each.
  const std::string jpeg = WriteJpeg(kKinds[0], 20, 10);
  const size_t frame = Marker(jpeg, 0xc0);
  std::string bad = jpeg;
  WriteUint16(bad, frame + 5, 0);
  EXPECT_EQ(open(bad), "the image has no pixels: 20 x 0");
  WriteUint16(bad, frame + 5, 65000);
  WriteUint16(bad, frame + 7, 64000);
  EXPECT_EQ(open(bad),
            "64000 x 65000 pixels: a decompression bomb (more than 268435456 are refused)");
  bad = jpeg;
  bad[frame + 4] = 12;
  EXPECT_EQ(
      open(bad),
      "damaged JPEG file, or of an unknown kind (libjpeg: Unsupported JPEG data precision 12)");

  const std::string png = WritePng(kPngKinds[6], 20, 10, false);
  bad = png;
  WriteUint16(bad, 18, 0);
  EXPECT_EQ(open(bad), "the image has no pixels: 0 x 10");
  WriteUint16(bad, 16, 0x7fff);
  WriteUint16(bad, 20, 0x7fff);
  EXPECT_THAT(open(bad), HasSubstr("a decompression bomb"));
  bad = png;
  bad[13] = 'X';
  EXPECT_EQ(open(bad), "damaged PNG file (no IHDR chunk)");
}

TEST(JpegDecoder, RefusesTruncatedFiles) {
  ImageDecoder decoder;
  for (const auto& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const std::string file = WriteJpeg(kind, 101, 75);
    for (size_t bytes = 2; bytes + 2 < file.size(); bytes += 97) {
      const GuardedFile part(std::string_view(file).substr(0, bytes));
      EXPECT_EQ(DataErrorOf([&] { DecodeWhole(decoder, part.bytes()); }), "truncated JPEG file")
          << bytes << " bytes of " << file.size();
    }
    const GuardedFile all(file);
    EXPECT_EQ(DecodeWhole(decoder, all.bytes()).width, 101);
  }
}

TEST(PngDecoder, RefusesTruncatedFiles) {
  ImageDecoder decoder;
  for (const bool interlaced : {false, true}) {
    const std::string file = WritePng(kPngKinds[6], 101, 75, interlaced);
    for (size_t bytes = 4; bytes < file.size(); bytes += 97) {
      const GuardedFile part(std::string_view(file).substr(0, bytes));
      EXPECT_EQ(DataErrorOf([&] { DecodeWhole(decoder, part.bytes()); }), "truncated PNG file")
          << bytes << " bytes of " << file.size();
    }
    const GuardedFile all(file);
    EXPECT_EQ(DecodeWhole(decoder, all.bytes()).width, 101);
  }
}

TEST(JpegDecoder, RefusesDamage) {
  ImageDecoder decoder;
  const auto error = [&decoder](const std::string& file) {
    return DataErrorOf([&] { DecodeWhole(decoder, file); });
  };
  const std::string prefix = "damaged JPEG file, or of an unknown kind (libjpeg: ";
  const std::string file = WriteJpeg(kKinds[3], 203, 150);
  std::string bad = file;
  WriteUint16(bad, file.size() / 2, 0xffd9);
  EXPECT_EQ(error(bad), prefix + "Corrupt JPEG data: premature end of data segment)");
  // Damage above the box is an error, and damage below the box is not noticed.
  const auto top = [&](ImageDecoder& part_decoder, const std::string& content) {
    part_decoder.Open(Bytes(content));
    return Copy(part_decoder.Decode({0, 0, 203, 20}, 203, 20).pixels).rgb;
  };
  const auto expected = top(decoder, file);
  EXPECT_TRUE(top(decoder, bad) == expected);
  decoder.Open(Bytes(bad));
  EXPECT_THAT(DataErrorOf([&] { decoder.Decode({100, 130, 20, 20}, 20, 20); }),
              StartsWith(prefix + "Corrupt JPEG data"));

  // A Huffman code never consists of ones only. libjpeg's quick path does not report such a code, but libjpeg uses this
  // path only until some 3 KiB before the end of the file. The damage is therefore put 200 bytes before the end.
  bad = file;
  for (int i = 0; i < 20; i += 2) WriteUint16(bad, file.size() - 200 + i, 0xff00);
  EXPECT_EQ(error(bad), prefix + "Corrupt JPEG data: bad Huffman code)");

  const std::string restarting = WriteJpeg(kKinds[9], 203, 150);
  bad = restarting;
  bad[Marker(restarting, 0xd3) + 1] = '\xd1';
  EXPECT_THAT(error(bad), StartsWith(prefix + "Corrupt JPEG data: found marker 0xd1"));
}

TEST(JpegDecoder, ToleratesWhatDoesNotMatter) {
  ImageDecoder decoder;
  const std::string file = WriteJpeg(kKinds[3], 203, 150);
  const Image image = DecodeWhole(decoder, file);
  EXPECT_TRUE(DecodeWhole(decoder, file + "what a camera leaves behind").rgb == image.rgb);
  std::string odd = file;
  odd.insert(Marker(file, 0xdb), "\x12\x34\x56");
  EXPECT_TRUE(DecodeWhole(decoder, odd).rgb == image.rgb) << "bytes between segments";
  odd = file;
  odd[Marker(file, 0xe0) + 9] = 7;
  EXPECT_TRUE(DecodeWhole(decoder, odd).rgb == image.rgb) << "JFIF 7";
}

TEST(PngDecoder, RefusesDamage) {
  ImageDecoder decoder;
  std::string file = WritePng(kPngKinds[6], 101, 75, false);
  file[file.size() / 2] ^= 1;
  EXPECT_THAT(DataErrorOf([&] { DecodeWhole(decoder, file); }),
              StartsWith("damaged PNG file (libpng: IDAT: "));
}

TEST(ImageDecoder, KeepsNothingOfAFile) {
  // `file` has Huffman tables that are not the default ones. `lacking` is the same file without its Huffman tables
  // (marker FF C4) or without its quantisation tables (marker FF DB).
  JpegKind kind = kKinds[3];
  kind.optimized = true;
  const std::string file = WriteJpeg(kind, 101, 75);
  for (const int tables : {0xc4, 0xdb}) {
    const std::string lacking = Without(file, tables);
    const auto outcome = [&lacking](ImageDecoder& decoder) -> std::string {
      try {
        const Image image = DecodeWhole(decoder, lacking);
        return {image.rgb.begin(), image.rgb.end()};
      } catch (const Error& error) {
        return error.what();
      }
    };
    ImageDecoder fresh, used;
    DecodeWhole(used, file);
    EXPECT_TRUE(outcome(used) == outcome(fresh));
    if (tables == 0xdb) {
      EXPECT_THAT(outcome(used), HasSubstr("Quantization table"));
    }
  }
}

TEST(ImageDecoder, WorksAfterErrors) {
  ImageDecoder decoder;
  const std::string jpeg = WriteJpeg(kKinds[7], 101, 75),
                    png = WritePng(kPngKinds[6], 33, 20, true);
  const Image jpeg_image = DecodeWhole(decoder, jpeg), png_image = DecodeWhole(decoder, png);
  const std::string webp = WriteWebp(Slopes(33, 20), false), bmp = WriteBmp(kBmpKinds[6], 33, 20);
  const std::string bad[] = {"",
                             "GIF89a",
                             jpeg.substr(0, 100),
                             jpeg.substr(0, jpeg.size() / 2),
                             png.substr(0, 20),
                             png.substr(0, png.size() / 2),
                             webp.substr(0, 20),
                             webp.substr(0, webp.size() / 2),
                             bmp.substr(0, 20),
                             bmp.substr(0, bmp.size() / 2)};
  for (const auto& file : bad) {
    DataErrorOf([&] { DecodeWhole(decoder, file); });
    EXPECT_TRUE(DecodeWhole(decoder, jpeg).rgb == jpeg_image.rgb);
    DataErrorOf([&] { DecodeWhole(decoder, file); });
    EXPECT_TRUE(DecodeWhole(decoder, png).rgb == png_image.rgb);
  }
}

TEST(ImageDecoder, RefusesToDecodeNothing) {
  ImageDecoder decoder;
  EXPECT_THROW(decoder.Decode({0, 0, 1, 1}, 1, 1), Error);  // no file is open
  const std::string file = WriteJpeg(kKinds[0], 20, 10);
  decoder.Open(Bytes(file));
  const double nan = std::nan("");
  for (const Box& box : {Box{20, 0, 5, 5}, Box{-5, 0, 5, 5}, Box{0, 10, 5, 5}, Box{0, 0, 0, 5},
                         Box{0, 0, 5, -1}, Box{nan, 0, 5, 5}, Box{0, 0, nan, 5}}) {
    EXPECT_THROW(decoder.Decode(box, 5, 5), Error);
  }
  EXPECT_THROW(decoder.Decode({0, 0, 5, 5}, 0, 5), Error);
}

TEST(ImageDecoder, SurvivesMutations) {
  std::vector<std::string> files;
  for (const auto& kind : kKinds) files.push_back(WriteJpeg(kind, 67, 41));
  for (const auto& kind : kPngKinds) files.push_back(WritePng(kind, 33, 21, kind.depth < 8));
  for (const auto& kind : kBmpKinds) files.push_back(WriteBmp(kind, 33, 21));
  for (const bool lossless : {false, true}) files.push_back(WriteWebp(Slopes(33, 21), lossless));
  ImageDecoder decoder;
  std::vector<Image> images;
  for (const auto& file : files) images.push_back(DecodeWhole(decoder, file));
  std::mt19937_64 random(4);
  int refused = 0, decoded = 0;
  for (int mutation = 0; mutation < 2000; ++mutation) {
    const size_t which = random() % files.size();
    std::string file = files[which];
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      // At least half of the changes, on average, are in the first 640 bytes, where the headers are.
      const size_t range = random() % 2 == 0 ? std::min<size_t>(file.size(), 640) : file.size();
      file[random() % range] = static_cast<char>(random());
    }
    const GuardedFile guarded(file);
    try {
      const ImageSize size = decoder.Open(guarded.bytes());
      ASSERT_GT(size.width, 0);
      ASSERT_GT(size.height, 0);
      // A damaged header may state a large size, so the box is limited to the size of the undamaged images.
      const Box box = {0, 0, std::min(static_cast<double>(size.width), 67.0),
                       std::min(static_cast<double>(size.height), 41.0)};
      const auto scale = static_cast<int64_t>(1 + random() % 9);
      const auto part = decoder.Decode(box, 67 / scale + 1, 41 / scale + 1);
      ASSERT_LE(part.box.x + part.box.width, static_cast<double>(part.pixels.width));
      ASSERT_LE(part.box.y + part.box.height, static_cast<double>(part.pixels.height));
      int64_t sum = 0;  // computing it reads every byte of the part
      for (const uint8_t value : Copy(part.pixels).rgb) sum += value;
      ASSERT_GE(sum, 0);
      ++decoded;
    } catch (const Error& error) {
      ASSERT_EQ(error.status(), ExitStatus::kData);
      ++refused;
    }
    if (mutation % 20 == 0) {
      const size_t good = random() % files.size();
      ASSERT_TRUE(DecodeWhole(decoder, files[good]).rgb == images[good].rgb);
    }
  }
  EXPECT_GT(refused, 200);
  EXPECT_GT(decoded, 200);
}

}  // namespace
}  // namespace lockstep
