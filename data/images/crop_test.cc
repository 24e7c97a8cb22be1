#include "data/images/crop.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/dataset/sample_random.h"

namespace lockstep {
namespace {

// Checks the box of an image in which no random box of the whole area fits. The expected boxes are those of
// torchvision 0.26's RandomResizedCrop.get_params(image, (1, 1), (1 / max_stretch, max_stretch)).
TEST(RandomCrop, WithoutAFittingBoxIsTorchvisions) {
  struct Case {
    ImageSize image;
    double max_stretch;
    Box box;
  };
  const std::vector<Case> cases{
      {{100, 13}, 4.0 / 3, {41, 0, 17, 13}},
      {{13, 100}, 4.0 / 3, {0, 41, 13, 17}},
      {{101, 14}, 4.0 / 3, {41, 0, 19, 14}},
      {{14, 101}, 4.0 / 3, {0, 41, 14, 19}},
      {{104, 13}, 4.0 / 3, {43, 0, 17, 13}},
      {{37, 5}, 1.5, {14, 0, 8, 5}},
      {{38, 5}, 1.5, {15, 0, 8, 5}},
      {{15, 90}, 1.5, {0, 34, 15, 22}},
      {{90, 15}, 1.5, {34, 0, 22, 15}},
      {{15, 91}, 1.5, {0, 34, 15, 22}},
      {{50, 3}, 1, {23, 0, 3, 3}},
      {{3, 50}, 1, {0, 23, 3, 3}},
      {{51, 2}, 1, {24, 0, 2, 2}},
      {{1, 9}, 4.0 / 3, {0, 4, 1, 1}},
      {{9, 1}, 4.0 / 3, {4, 0, 1, 1}},
      {{1, 8}, 2, {0, 3, 1, 2}},
      {{640, 97}, 4.0 / 3, {255, 0, 129, 97}},
      {{97, 640}, 4.0 / 3, {0, 255, 97, 129}},
  };
  for (const Case& one : cases) {
    for (int64_t sample = 0; sample < 3; ++sample) {
      SampleRandom random(1, 0, sample);
      const CropOptions options{.min_area = 1, .max_area = 1, .max_stretch = one.max_stretch};
      const Box box = RandomCrop(one.image, options, random);
      const std::string of =
          fmt::format("{} x {}, {}", one.image.width, one.image.height, one.max_stretch);
      EXPECT_EQ(box.x, one.box.x) << of;
      EXPECT_EQ(box.y, one.box.y) << of;
      EXPECT_EQ(box.width, one.box.width) << of;
      EXPECT_EQ(box.height, one.box.height) << of;
    }
  }
}

}  // namespace
}  // namespace lockstep
