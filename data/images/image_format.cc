#include "data/images/image_format.h"

#include <string_view>

namespace lockstep {
namespace {

// Returns whether `bytes` begins with `signature` or, if `bytes` is shorter, whether `bytes` is a prefix of
// `signature`.
bool BeginsLike(std::string_view bytes, std::string_view signature) {
  return signature.starts_with(bytes.substr(0, signature.size()));
}

// Returns whether `bytes` begins like a BMP file. The two letters BM alone could also begin a text, so the three upper
// bytes of the header's size must be 0, too.
bool BeginsLikeBmp(std::string_view bytes) {
  constexpr size_t kUpperBytesAt = 15;
  if (!bytes.starts_with("BM")) return false;
  return bytes.size() <= kUpperBytesAt ||
         BeginsLike(bytes.substr(kUpperBytesAt), std::string_view("\0\0\0", 3));
}

}  // namespace

ImageFormat FormatOf(std::span<const std::byte> file) {
  constexpr size_t kFewest = 4, kWebpAt = 8;
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  if (bytes.starts_with("\xff\xd8")) return ImageFormat::kJpeg;
  if (BeginsLikeBmp(bytes)) return ImageFormat::kBmp;
  if (bytes.size() < kFewest) return ImageFormat::kNone;
  if (BeginsLike(bytes, "\x89PNG\r\n\x1a\n")) return ImageFormat::kPng;
  if (bytes.starts_with("RIFF") &&
      (bytes.size() <= kWebpAt || BeginsLike(bytes.substr(kWebpAt), "WEBP"))) {
    return ImageFormat::kWebp;
  }
  return ImageFormat::kNone;
}

}  // namespace lockstep
