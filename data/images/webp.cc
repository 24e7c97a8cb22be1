#include "data/images/webp.h"

#include <webp/decode.h>

#include <new>

#include "base/error.h"

namespace lockstep {
namespace {

const uint8_t* BytesOf(std::span<const std::byte> file) {
  return reinterpret_cast<const uint8_t*>(file.data());
}

void Check(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OK:
      return;
    case VP8_STATUS_OUT_OF_MEMORY:
      throw std::bad_alloc();
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      throw DataError("truncated WebP file");
    default:
      throw DataError("damaged WebP file (libwebp: status {})", static_cast<int>(status));
  }
}

// Throws Error (kData) if the end of the file is missing. libwebp does not always distinguish a missing end from other
// damage.
void CheckLength(std::span<const std::byte> file) {
  constexpr size_t kLengthAt = 4, kLengthEnd = 8;
  size_t bytes = 0;  // the length of the rest of the file, as the header states it
  if (file.size() < kLengthEnd) throw DataError("truncated WebP file");
  for (size_t i = kLengthEnd; i > kLengthAt; --i) {
    bytes = bytes << 8 | std::to_integer<size_t>(file[i - 1]);
  }
  if (file.size() - kLengthEnd < bytes) throw DataError("truncated WebP file");
}

}  // namespace

ImageSize WebpSize(std::span<const std::byte> file) {
  CheckLength(file);
  WebPBitstreamFeatures features;
  Check(WebPGetFeatures(BytesOf(file), file.size(), &features));
  if (features.has_animation != 0) {
    throw DataError("an animated WebP file: save one of its pictures as a file");
  }
  return {features.width, features.height};
}

void DecodeWebp(std::span<const std::byte> file, const ImageSize& size, uint8_t* rgb) {
  constexpr int kChannels = 3;
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) throw BugError("libwebp has another version");
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {.rgba = rgb,
                          .stride = static_cast<int>(kChannels * size.width),
                          .size = static_cast<size_t>(kChannels * size.width * size.height)};
  Check(WebPDecode(BytesOf(file), file.size(), &config));
}

}  // namespace lockstep
