// Fuzzes the image decoder with arbitrary bytes as a file. The decoder must decode a box of the image, or throw Error.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "data/images/image_decoder.h"

namespace {

// The most pixels of an image. Larger images are skipped, because they would take long.
constexpr int64_t kMostPixels = int64_t{1} << 22;

// Returns the sum of all bytes of `image`. Reading every byte lets the sanitizers check it.
unsigned SumOf(const lockstep::ImageView& image) {
  unsigned sum = 0;
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t i = 0; i < 3 * image.width; ++i) sum += image.pixels[y * image.stride + i];
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The first four bytes choose the box, as fractions of the image, and the next two bytes choose the output's size.
  std::array<uint8_t, 6> choice{};
  const size_t chosen = std::min(size, choice.size());
  std::copy_n(data, chosen, choice.begin());
  const auto file = std::as_bytes(std::span(data + chosen, size - chosen));
  static lockstep::ImageDecoder decoder;  // static, to find harmful state that a file leaves
  try {
    const lockstep::ImageSize image = decoder.Open(file);
    if (image.width < 1 || image.height < 1) std::abort();
    if (image.width * image.height > kMostPixels) return 0;
    const auto width = static_cast<double>(image.width), height = static_cast<double>(image.height);
    const double x = width * choice[0] / 256, y = height * choice[1] / 256;
    const lockstep::Box box = {x, y, (width - x) * (choice[2] + 1) / 256,
                               (height - y) * (choice[3] + 1) / 256};
    const auto part = decoder.Decode(box, 1 + choice[4], 1 + choice[5]);
    volatile unsigned sum = SumOf(part.pixels);
    static_cast<void>(sum);
  } catch (const lockstep::Error& error) {
    if (error.status() != lockstep::ExitStatus::kData) std::abort();
  }
  return 0;
}
