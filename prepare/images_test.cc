#include "prepare/images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/testing/message_of.h"
#include "base/testing/test_files.h"
#include "data/images/image_decoder.h"
#include "data/images/testing/write_jpeg.h"

namespace lockstep {
namespace {

std::string Photo(int64_t width, int64_t height) {
  return WriteJpeg(
      {.name = ""}, width, height,
      [](int64_t x, int64_t y, int c) { return static_cast<uint8_t>(x + y + 50 * c); }, 90);
}

ImageSize SizeOf(const std::string& path) {
  const std::string file = ReadFile(path);
  ImageDecoder decoder;
  return decoder.Open(std::as_bytes(std::span(file)));
}

TEST(Images, ShrinksAndCopies) {
  const std::string source = NewPath(), destination = NewPath();
  const std::string small = Photo(48, 90);
  WriteFile(source + "/a/small.jpeg", small);
  WriteFile(source + "/a/deep/er/wide.JPG", Photo(301, 100));
  WriteFile(source + "/high.jpg", Photo(99, 202));
  WriteFile(source + "/b/text.txt", "no image");
  const std::string done = PrepareImages(
      {.source = source, .destination = destination + "//", .size = 48, .threads = 2});
  EXPECT_THAT(done,
              testing::StartsWith(destination + ": 3 images: 2 resized or converted, 1 copied"));
  EXPECT_EQ(ReadFile(destination + "/a/small.jpeg"), small);
  EXPECT_EQ(SizeOf(destination + "/a/deep/er/wide.JPG").width, 301 * 48 / 100);
  EXPECT_EQ(SizeOf(destination + "/a/deep/er/wide.JPG").height, 48);
  EXPECT_EQ(SizeOf(destination + "/high.jpg").width, 48);
  EXPECT_EQ(SizeOf(destination + "/high.jpg").height, 202 * 48 / 99);
  EXPECT_FALSE(std::filesystem::exists(destination + "/b"));
}

TEST(Images, RefusesNamesThatClash) {
  const std::string source = NewPath(), destination = NewPath();
  WriteFile(source + "/c/a.jpg", Photo(9, 9));
  WriteFile(source + "/c/a.PNG", "whatever");
  EXPECT_EQ(DataErrorOf(
                [&] { PrepareImages({.source = source, .destination = destination, .size = 9}); }),
            "c/a.PNG and c/a.jpg would both become c/a.jpg: rename one of them");
  EXPECT_FALSE(std::filesystem::exists(destination + ".partial"));
}

TEST(Images, RefusesFilesInThePlaceOfFolders) {
  const std::string source = NewPath(), destination = NewPath();
  WriteFile(source + "/c/a.png", "whatever");
  WriteFile(source + "/c/a.jpg/deep/b.jpg", Photo(9, 9));
  EXPECT_EQ(DataErrorOf(
                [&] { PrepareImages({.source = source, .destination = destination, .size = 9}); }),
            "c/a.png would become a file where folder c/a.jpg is: rename one of them");
  EXPECT_FALSE(std::filesystem::exists(destination + ".partial"));
}

TEST(Images, StopsOrSkips) {
  const std::string source = NewPath(), destination = NewPath();
  WriteFile(source + "/c/a.jpg", Photo(20, 20));
  WriteFile(source + "/c/b.jpg", Photo(20, 20).substr(0, 400));
  WriteFile(source + "/c/d.png", "GIF89a");
  PrepareImagesOptions options{.source = source, .destination = destination, .size = 10};
  EXPECT_EQ(DataErrorOf([&] { PrepareImages(options); }), source + "/c/b.jpg: truncated JPEG file");
  EXPECT_FALSE(std::filesystem::exists(destination));
  options.skip_bad = true;
  EXPECT_THAT(PrepareImages(options), testing::HasSubstr("; 2 skipped, see "));
  EXPECT_EQ(ReadFile(destination + "/skipped.txt"),
            fmt::format("c/b.jpg\t{0}/c/b.jpg: truncated JPEG file\nc/d.png\t{0}/c/d.png: not a "
                        "JPEG, PNG, WebP or BMP file (begins with 47 49 46 38: GIF)\n",
                        source));
  EXPECT_EQ(SizeOf(destination + "/c/a.jpg").width, 10);
  EXPECT_FALSE(std::filesystem::exists(destination + "/c/b.jpg"));
}

TEST(Images, RefusesSources) {
  const auto refusal = [&](const std::string& source) {
    return DataErrorOf(
        [&] { PrepareImages({.source = source, .destination = NewPath(), .size = 9}); });
  };
  EXPECT_EQ(refusal("/nowhere"), "/nowhere: no such folder");
  const std::string source = NewPath();
  WriteFile(source + "/c/a.txt", "no image");
  EXPECT_EQ(refusal(source), source + ": no .jpg, .jpeg, .png, .webp or .bmp files");
  WriteFile(source + "/c/a.jpg", "no image");
  std::filesystem::create_symlink("/nowhere", source + "/c/b.jpg");
  EXPECT_EQ(refusal(source), source + "/c/b.jpg: cannot be opened: No such file or directory");
  std::filesystem::remove(source + "/c/b.jpg");
  EXPECT_EQ(refusal(source),
            source + "/c/a.jpg: not a JPEG, PNG, WebP or BMP file (begins with 6e 6f 20 69)");
  EXPECT_EQ(
      DataErrorOf([&] {
        PrepareImages({.source = source, .destination = NewPath(), .size = 9, .skip_bad = true});
      }),
      source + ": none of 1 images can be read: c/a.jpg\t" + source +
          "/c/a.jpg: not a JPEG, PNG, WebP or BMP file (begins with 6e 6f 20 69) ");
}

}  // namespace
}  // namespace lockstep
