#include "data/feed/normalized_pixels.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"

namespace lockstep {
namespace {

// A data set of nine images. Byte i of sample n in epoch e is (7 * i + n + e) % 256.
class Images : public Dataset {
 public:
  explicit Images(bool channels_last) {
    spec_.shape = {3, 4, 5};
    spec_.dtype = at::kByte;
    spec_.channels_last = channels_last;
    spec_.classes = 2;
  }
  int64_t size() const override { return 9; }
  const SampleSpec& spec() const override { return spec_; }
  void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const override {
    for (int64_t i = 0; i < spec_.bytes(); ++i) {
      input[i] = static_cast<std::byte>(7 * i + index + epoch);
    }
    std::memcpy(target, &index, sizeof(index));
  }

 private:
  SampleSpec spec_;
};

TEST(Normalized, MultipliesAndAddsByChannel) {
  const std::vector<float> scale{0.5, -1, 2};
  const std::vector<float> shift{3, 0, -7};
  for (const bool channels_last : {false, true}) {
    const Images images(channels_last);
    const Normalized normalized(images, scale, shift);
    EXPECT_EQ(normalized.spec().dtype, at::kFloat);
    EXPECT_EQ(normalized.spec().channels_last, channels_last);
    float numbers[60];
    int64_t label = 0;
    normalized.Read(4, 2, reinterpret_cast<std::byte*>(numbers),
                    reinterpret_cast<std::byte*>(&label));
    EXPECT_EQ(label, 4);
    for (int64_t i = 0; i < 60; ++i) {
      const int64_t channel = channels_last ? i % 3 : i / 20;
      const auto pixel = static_cast<uint8_t>(7 * i + 6);
      EXPECT_FLOAT_EQ(numbers[i], static_cast<float>(pixel) * scale[channel] + shift[channel]) << i;
    }
  }
}

TEST(Normalized, IsForPixels) {
  const Images images(true);
  const Normalized numbers(images, {1, 1, 1}, {0, 0, 0});
  EXPECT_THROW(Normalized(numbers, {1, 1, 1}, {0, 0, 0}), Error);
}

}  // namespace
}  // namespace lockstep
