#include "data/arrays/cifar10.h"

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

TEST(Cifar10, ReadsRecords) {
  std::string batch;
  for (char label : {3, 9}) batch += label + std::string(3072, static_cast<char>(label * 2));
  const auto dataset =
      ReadCifar10({.files = {WriteTestFile("c1", batch), WriteTestFile("c2", batch)}});
  EXPECT_EQ(dataset->size(), 4);
  EXPECT_EQ(dataset->spec().shape, (std::vector<int64_t>{3, 32, 32}));
  std::vector<std::byte> image(3072);
  EXPECT_EQ(ReadImage(*dataset, 3, image), 9);
  EXPECT_EQ(image.front(), std::byte{18});
  EXPECT_EQ(image.back(), std::byte{18});
}

TEST(Cifar10, RefusesATruncatedFileAndALabelOutOfRange) {
  EXPECT_THAT(
      DataErrorOf([] { ReadCifar10({.files = {WriteTestFile("c", std::string(3072, 'x'))}}); }),
      HasSubstr("3072 bytes"));
  EXPECT_THAT(
      DataErrorOf([] { ReadCifar10({.files = {WriteTestFile("c", std::string(3073, '\x0a'))}}); }),
      HasSubstr("label 10 is out of range"));
}

}  // namespace
}  // namespace lockstep
