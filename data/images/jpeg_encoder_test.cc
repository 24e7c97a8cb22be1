#include "data/images/jpeg_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "base/testing/message_of.h"
#include "data/images/image_decoder.h"

namespace lockstep {
namespace {

// Returns the value of `channel` in the pixel (x, y) of a smooth image, which every kind of JPEG keeps nearly
// unchanged.
uint8_t Smooth(int64_t x, int64_t y, int channel) {
  return static_cast<uint8_t>(60 + channel * 40 + x + 2 * y);
}

TEST(JpegEncoder, KeepsThePixels) {
  constexpr int64_t kWidth = 45, kHeight = 31;
  std::vector<uint8_t> pixels;
  for (int64_t y = 0; y < kHeight; ++y) {
    for (int64_t x = 0; x < kWidth; ++x) {
      for (int c = 0; c < 3; ++c) pixels.push_back(Smooth(x, y, c));
    }
  }
  for (const int sampling : {1, 2}) {
    for (const bool optimized : {false, true}) {
      const std::string file = EncodeJpeg(
          {.name = "", .h_sampling = sampling, .v_sampling = sampling, .optimized = optimized},
          pixels.data(), kWidth, kHeight, 95);
      ImageDecoder decoder;
      const ImageSize size = decoder.Open(std::as_bytes(std::span(file)));
      ASSERT_EQ(size.width, kWidth);
      ASSERT_EQ(size.height, kHeight);
      const ImageView view = decoder.Decode({0, 0, kWidth, kHeight}, kWidth, kHeight).pixels;
      double sum = 0;
      for (int64_t y = 0; y < kHeight; ++y) {
        for (int64_t i = 0; i < 3 * kWidth; ++i) {
          sum += std::abs(view.pixels[y * view.stride + i] - pixels[y * 3 * kWidth + i]);
        }
      }
      EXPECT_LT(sum / static_cast<double>(pixels.size()), 1.5);
    }
  }
}

TEST(JpegEncoder, RefusesWhatJpegCannotSay) {
  const std::vector<uint8_t> row(3 * 70'000);
  EXPECT_EQ(DataErrorOf([&] { EncodeJpeg({.name = ""}, row.data(), 70'000, 1, 90); }),
            "70000 x 1 pixels: a JPEG file holds at most 65500 in each direction");
  // libjpeg itself refuses a sampling factor of 9.
  EXPECT_THAT(
      DataErrorOf([&] { EncodeJpeg({.name = "", .h_sampling = 9}, row.data(), 10, 1, 90); }),
      testing::HasSubstr("cannot be written as JPEG (libjpeg: "));
}

}  // namespace
}  // namespace lockstep
