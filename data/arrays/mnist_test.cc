#include "data/arrays/mnist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"
#include "data/dataset/testing/read_sample.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string Idx(std::vector<unsigned char> header, size_t items, unsigned char value = 1) {
  return std::string(header.begin(), header.end()) + std::string(items, static_cast<char>(value));
}

const std::vector<unsigned char> kThreeImagesOf2x2{0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2};
const std::vector<unsigned char> kThreeLabels{0, 0, 8, 1, 0, 0, 0, 3};

TEST(Mnist, ReadsImagesAndLabels) {
  std::string images = Idx(kThreeImagesOf2x2, 12);
  images[16 + 5] = static_cast<char>(200);
  const auto dataset = ReadMnist({.images = WriteTestFile("i", images),
                                  .labels = WriteTestFile("l", Idx(kThreeLabels, 3, 9))});
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->spec().shape, (std::vector<int64_t>{1, 2, 2}));
  EXPECT_EQ(dataset->spec().dtype, at::kByte);
  std::vector<std::byte> image(4);
  EXPECT_EQ(ReadImage(*dataset, 1, image), 9);
  EXPECT_EQ(image[1], std::byte{200});
  EXPECT_EQ(ReadImage(*ReadMnist({.images = WriteTestFile("i", images)}), 0, image),
            Dataset::kNoLabel);
}

TEST(Mnist, RefusesATruncatedFile) {
  for (size_t bytes : {0u, 3u, 15u, 16u, 27u, 29u}) {
    const std::string path = WriteTestFile("t", Idx(kThreeImagesOf2x2, 20).substr(0, bytes));
    DataErrorOf([&] { ReadMnist({.images = path}); });
  }
  const std::string huge(16, '\xff');
  EXPECT_THAT(
      DataErrorOf([&] {
        ReadMnist({.images = WriteTestFile("t", std::string("\0\0\x08\x03", 4) + huge.substr(4))});
      }),
      HasSubstr("truncated"));
}

TEST(Mnist, RefusesAnotherKindOfFile) {
  EXPECT_THAT(DataErrorOf([] { ReadMnist({.images = WriteTestFile("k", Idx(kThreeLabels, 30))}); }),
              HasSubstr("exchanged"));
  EXPECT_THAT(DataErrorOf([] {
                ReadMnist({.images = WriteTestFile("k", "\x1f\x8b" + std::string(99, 'x'))});
              }),
              HasSubstr("gunzip"));
}

TEST(Mnist, RefusesLabelsThatDoNotMatch) {
  const std::string images = WriteTestFile("i", Idx(kThreeImagesOf2x2, 12));
  const std::string two = WriteTestFile("l", Idx({0, 0, 8, 1, 0, 0, 0, 2}, 2));
  EXPECT_THAT(DataErrorOf([&] { ReadMnist({.images = images, .labels = two}); }),
              HasSubstr("2 labels for the 3 images"));
}

TEST(Mnist, RefusesALabelOutOfRange) {
  const std::string images = WriteTestFile("i", Idx(kThreeImagesOf2x2, 12));
  const std::string labels = WriteTestFile("l", Idx(kThreeLabels, 3, 10));
  EXPECT_THAT(DataErrorOf([&] { ReadMnist({.images = images, .labels = labels}); }),
              HasSubstr("record 0: label 10 is out of range"));
}

}  // namespace
}  // namespace lockstep
