#include "data/images/image_decoder.h"

// These headers must come before jpeglib.h, which needs them.
#include <csetjmp>
#include <cstdio>
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"
#include "data/images/bmp.h"
#include "data/images/png_file.h"
#include "data/images/webp.h"

namespace lockstep {
namespace {

constexpr int64_t kChannels = 3;

// The number of columns that are decoded on each side in addition to the needed ones. They are necessary because
// libjpeg's fancy chroma upsampling makes the outermost decoded column wrong.
constexpr int64_t kMargin = 1;

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Error NotAnImage(std::string_view bytes) {
  std::string begin;
  for (const char byte : bytes.substr(0, 4)) {
    begin += fmt::format("{}{:02x}", begin.empty() ? "" : " ", static_cast<uint8_t>(byte));
  }
  std::string_view format;
  if (bytes.starts_with("GIF8")) {
    format = ": GIF";
  } else if (bytes.starts_with(std::string_view("II*\0", 4)) ||
             bytes.starts_with(std::string_view("MM\0*", 4))) {
    format = ": TIFF";
  }
  return DataError("not a {} file (begins with {}{})", kImageFormats, begin, format);
}

struct Range {
  int64_t begin;
  int64_t end;  // exclusive
};

// Returns which of the `size` pixels of an axis must be read to resize a part of the axis to `output` pixels. The part
// begins at `start` and is `length` pixels long.
Range Needed(double start, double length, int64_t output, int64_t size) {
  const double support = std::max(1.0, length / static_cast<double>(output));
  const double limit = static_cast<double>(size);
  return {static_cast<int64_t>(std::floor(std::clamp(start - support, 0.0, limit))),
          static_cast<int64_t>(std::ceil(std::clamp(start + length + support, 0.0, limit)))};
}

// Returns a * b / 255, rounded as PIL does.
int MulDiv255(int a, int b) {
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

void RgbOfInvertedCmyk(const uint8_t* cmyk, int64_t pixels, uint8_t* rgb) {
  for (int64_t i = 0; i < pixels; ++i, cmyk += 4, rgb += 3) {
    for (int c = 0; c < 3; ++c) {
      rgb[c] = static_cast<uint8_t>(cmyk[3] - MulDiv255(255 - cmyk[c], cmyk[3]));
    }
  }
}

}  // namespace

void CheckImageSize(const ImageSize& size) {
  constexpr int64_t kMaxPixels = int64_t{1} << 28;
  if (size.width == 0 || size.height == 0) {
    throw DataError("the image has no pixels: {} x {}", size.width, size.height);
  }
  if (size.width > kMaxPixels / size.height) {
    throw DataError("{} x {} pixels: a decompression bomb (more than {} are refused)", size.width,
                    size.height, kMaxPixels);
  }
}

// libjpeg's state. libjpeg reports errors by longjmp, which must not skip a destructor. The calls of libjpeg are
// therefore in functions that are passed to Try(), and that have no variables with destructors.
struct ImageDecoder::Jpeg {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  std::jmp_buf failed;
  bool header_read = false;
  std::unique_ptr<uint8_t[]> cmyk_rows;
  int64_t cmyk_bytes = 0;

  Jpeg() = default;
  ~Jpeg() { jpeg_destroy_decompress(&info); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  static void Fail(j_common_ptr info) {
    std::longjmp(static_cast<Jpeg*>(info->client_data)->failed, 1);
  }

  static void OnMessage(j_common_ptr info, int level) {
    if (level >= 0) return;  // a trace message, not a warning
    switch (info->err->msg_code) {
      case JWRN_ADOBE_XFORM:
      case JWRN_EXTRANEOUS_DATA:
      case JWRN_JFIF_MAJOR:
      case JWRN_NOT_SEQUENTIAL:
        return;
      default:
        Fail(info);
    }
  }

  template <typename Body>
  bool Succeeds(const Body& body) {
    if (setjmp(failed)) return false;
    body();
    return true;
  }

  template <typename Body>
  void Try(const Body& body) {
    if (Succeeds(body)) return;
    header_read = false;
    switch (errors.msg_code) {
      case JWRN_JPEG_EOF:
        throw DataError("truncated JPEG file");
      case JERR_EMPTY_IMAGE:
        throw DataError("the image has no pixels: {} x {}", info.image_width, info.image_height);
      default:
        break;
    }
    std::array<char, JMSG_LENGTH_MAX> message;
    errors.format_message(reinterpret_cast<j_common_ptr>(&info), message.data());
    throw DataError("damaged JPEG file, or of an unknown kind (libjpeg: {})", message.data());
  }

  // Makes a new libjpeg decompressor for the next file, so that nothing is kept from the previous file.
  void Restart() {
    jpeg_destroy_decompress(&info);
    info = {};
    info.err = jpeg_std_error(&errors);
    errors.error_exit = &Fail;
    errors.emit_message = &OnMessage;
    info.client_data = this;
    Try([this] { jpeg_create_decompress(&info); });
  }

  uint8_t* ReserveCmyk(int64_t bytes) {
    if (bytes > cmyk_bytes) {
      cmyk_rows = std::make_unique_for_overwrite<uint8_t[]>(bytes);
      cmyk_bytes = bytes;
    }
    return cmyk_rows.get();
  }
};

ImageDecoder::ImageDecoder() : jpeg_(std::make_unique<Jpeg>()) {}
ImageDecoder::~ImageDecoder() = default;

uint8_t* ImageDecoder::Reserve(int64_t bytes) {
  if (bytes > pixels_bytes_) {
    pixels_.reset();
    pixels_bytes_ = 0;
    pixels_ = std::make_unique_for_overwrite<uint8_t[]>(bytes);
    pixels_bytes_ = bytes;
  }
  return pixels_.get();
}

ImageSize ImageDecoder::Open(std::span<const std::byte> file) {
  file_ = file;
  size_ = {};
  jpeg_->header_read = false;
  const std::string_view bytes = AsText(file);
  if (bytes.empty()) throw DataError("empty file");
  format_ = FormatOf(file);
  ImageSize size;
  switch (format_) {
    case ImageFormat::kNone:
      throw NotAnImage(bytes);
    case ImageFormat::kJpeg:
      OpenJpeg();
      return size_;
    case ImageFormat::kPng:
      size = PngSize(file);
      break;
    case ImageFormat::kWebp:
      size = WebpSize(file);
      break;
    case ImageFormat::kBmp:
      size = BmpSize(file);
      break;
  }
  CheckImageSize(size);
  size_ = size;
  return size_;
}

void ImageDecoder::OpenJpeg() {
  Jpeg& jpeg = *jpeg_;
  jpeg.Restart();
  jpeg.Try([this, &jpeg] {
    jpeg_mem_src(&jpeg.info, reinterpret_cast<const uint8_t*>(file_.data()), file_.size());
    jpeg_read_header(&jpeg.info, TRUE);
  });
  const ImageSize size = {jpeg.info.image_width, jpeg.info.image_height};
  CheckImageSize(size);
  size_ = size;
  jpeg.header_read = true;
}

bool ImageDecoder::IsPlainJpeg() const {
  if (format_ != ImageFormat::kJpeg || !jpeg_->header_read) return false;
  const jpeg_decompress_struct& info = jpeg_->info;
  if (info.progressive_mode || info.arith_code || info.data_precision != 8 ||
      info.jpeg_color_space != JCS_YCbCr || info.comps_in_scan != kChannels) {
    return false;
  }
  const jpeg_component_info& luma = info.comp_info[0];
  if (luma.h_samp_factor > 2 || luma.v_samp_factor > 2) return false;
  for (int c = 1; c < kChannels; ++c) {
    const jpeg_component_info& chroma = info.comp_info[c];
    if (chroma.h_samp_factor != 1 || chroma.v_samp_factor != 1) return false;
  }
  return AsText(file_).ends_with("\xff\xd9");
}

ImageDecoder::Part ImageDecoder::Decode(const Box& box, int64_t width, int64_t height) {
  const bool meets = box.x < static_cast<double>(size_.width) && box.x + box.width > 0 &&
                     box.y < static_cast<double>(size_.height) && box.y + box.height > 0;
  if (!meets || !(box.width > 0 && box.height > 0) || width < 1 || height < 1) {
    throw BugError("Decode() of {} x {} pixels at {}, {} to {} x {} of an image of {} x {}",
                   box.width, box.height, box.x, box.y, width, height, size_.width, size_.height);
  }
  if (format_ == ImageFormat::kJpeg) return DecodeJpeg(box, width, height);
  const int64_t stride = size_.width * kChannels;
  uint8_t* const pixels = Reserve(size_.height * stride);
  if (format_ == ImageFormat::kPng) {
    DecodePng(file_, pixels);
  } else if (format_ == ImageFormat::kWebp) {
    DecodeWebp(file_, size_, pixels);
  } else {
    DecodeBmp(file_, pixels);
  }
  return {
      .pixels = {.pixels = pixels, .width = size_.width, .height = size_.height, .stride = stride},
      .box = box};
}

ImageDecoder::Part ImageDecoder::DecodeJpeg(const Box& box, int64_t width, int64_t height) {
  Jpeg& jpeg = *jpeg_;
  jpeg_decompress_struct& info = jpeg.info;
  if (!jpeg.header_read) OpenJpeg();
  jpeg.header_read = false;  // libjpeg needs a newly read header for each decode

  unsigned reduction = 8;
  while (reduction > 1 && (box.width < static_cast<double>(width * reduction) ||
                           box.height < static_cast<double>(height * reduction))) {
    reduction /= 2;
  }
  const Box reduced = {box.x / reduction, box.y / reduction, box.width / reduction,
                       box.height / reduction};
  const bool is_cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
  info.scale_num = 1;
  info.scale_denom = reduction;
  info.dct_method = JDCT_ISLOW;
  info.do_fancy_upsampling = TRUE;
  info.do_block_smoothing = FALSE;  // smoothing would guess missing coefficients

  jpeg.Try([&info] { jpeg_start_decompress(&info); });
  const Range columns = Needed(reduced.x, reduced.width, width, info.output_width);
  const Range rows = Needed(reduced.y, reduced.height, height, info.output_height);
  const int64_t left = std::max<int64_t>(columns.begin - kMargin, 0);
  const int64_t right = std::min<int64_t>(columns.end + kMargin, info.output_width);
  JDIMENSION first_column = static_cast<JDIMENSION>(left);
  JDIMENSION part_width = static_cast<JDIMENSION>(right - left);
  jpeg.Try([&] { jpeg_crop_scanline(&info, &first_column, &part_width); });

  const int64_t part_height = rows.end - rows.begin;
  const int64_t stride = part_width * kChannels;
  uint8_t* const pixels = Reserve(part_height * stride);
  constexpr JDIMENSION kRowsAtOnce = 4;
  const int64_t cmyk_stride = int64_t{part_width} * 4;
  uint8_t* const cmyk = is_cmyk ? jpeg.ReserveCmyk(cmyk_stride * kRowsAtOnce) : nullptr;
  jpeg.Try([&] {
    if (rows.begin > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(rows.begin));
    for (int64_t y = 0; y < part_height;) {
      JSAMPROW to[kRowsAtOnce];
      const auto count = static_cast<JDIMENSION>(std::min<int64_t>(kRowsAtOnce, part_height - y));
      for (JDIMENSION i = 0; i < count; ++i) {
        to[i] = is_cmyk ? cmyk + i * cmyk_stride : pixels + (y + i) * stride;
      }
      const JDIMENSION read = jpeg_read_scanlines(&info, to, count);
      for (JDIMENSION i = 0; is_cmyk && i < read; ++i) {
        RgbOfInvertedCmyk(to[i], part_width, pixels + (y + i) * stride);
      }
      y += read;
    }
    jpeg_abort_decompress(&info);
  });
  return {
      .pixels = {.pixels = pixels, .width = part_width, .height = part_height, .stride = stride},
      .box = {reduced.x - first_column, reduced.y - static_cast<double>(rows.begin), reduced.width,
              reduced.height}};
}

}  // namespace lockstep
