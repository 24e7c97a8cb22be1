#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>
#include <sys/stat.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/testing/message_of.h"
#include "data/feed/loader.h"
#include "data/images/image_dataset.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kSize = 8;
constexpr int64_t kBytes = 3 * kSize * kSize;

struct Sample {
  std::array<uint8_t, kBytes> pixels{};
  int64_t label = 0;
  bool operator==(const Sample&) const = default;

  double Mean() const {
    return std::accumulate(pixels.begin(), pixels.end(), 0.0) / static_cast<double>(kBytes);
  }
};

Sample SampleOf(const Dataset& dataset, int64_t index, int64_t epoch = 0) {
  Sample sample;
  dataset.Read(index, epoch, reinterpret_cast<std::byte*>(sample.pixels.data()),
               reinterpret_cast<std::byte*>(&sample.label));
  return sample;
}

class ImageFolderTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root_); }

  // Writes an image. Its first column has the grey level `dark`, and each further column is one level brighter than the
  // column before it, up to 255.
  void WriteImage(const std::string& path, int width, int height, uint8_t dark = 0) const {
    fs::create_directories((root_ / path).parent_path());
    std::vector<uint8_t> pixels(3 * width * height);
    for (size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<uint8_t>(std::min<size_t>(255, dark + i / 3 % width));
    }
    png_image image{.version = PNG_IMAGE_VERSION,
                    .width = static_cast<png_uint_32>(width),
                    .height = static_cast<png_uint_32>(height),
                    .format = PNG_FORMAT_RGB};
    ASSERT_TRUE(
        png_image_write_to_file(&image, (root_ / path).c_str(), 0, pixels.data(), 0, nullptr));
  }

  void WriteText(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  std::shared_ptr<const Dataset> Open(ImageOptions options = {}) const {
    options.source.files = {root_.string()};
    options.size = kSize;
    return OpenImages(options);
  }

  std::string ErrorOfOpening(const ImageOptions& options = {}) const {
    return DataErrorOf([&] { Open(options); });
  }

  fs::path root_ =
      fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(ImageFolderTest, LabelsAreTheFoldersInTheOrderOfTheirNames) {
  WriteImage("dog/b.png", 20, 20, 100);
  WriteImage("dog/a.PNG", 20, 20, 50);
  WriteImage("cat/deep/er/z.png", 20, 20, 0);
  WriteText("cat/notes.txt", "no image");
  const auto folder = Open();
  EXPECT_THAT(folder->spec().class_names, ElementsAre("cat", "dog"));
  EXPECT_EQ(folder->spec().classes, 2);
  EXPECT_THAT(folder->Remarks(),
              ElementsAre(HasSubstr(
                  "/cat/notes.txt is left out: not named .jpg, .jpeg, .png, .webp or .bmp")));
  ASSERT_EQ(folder->size(), 3);
  std::vector<double> means;
  for (int64_t i = 0; i < 3; ++i) {
    const Sample sample = SampleOf(*folder->Plain(), i);
    EXPECT_EQ(sample.label, i == 0 ? 0 : 1);
    means.push_back(sample.Mean());
  }
  EXPECT_LT(means[0], 30);
  EXPECT_GT(means[1], 50);
  EXPECT_GT(means[2], 100);
}

TEST_F(ImageFolderTest, AFolderWithoutImagesIsNoClass) {
  WriteImage("dog/a.png", 20, 20);
  fs::create_directories(root_ / "ant");
  EXPECT_THAT(ErrorOfOpening({}), HasSubstr("/ant: a folder is a class, and there are no .jpg"));
  // If the user gives the classes, a class may be empty.
  EXPECT_EQ(Open({.source = {.classes = {"ant", "dog"}}})->spec().classes, 2);
}

TEST_F(ImageFolderTest, TakesTheClassesOfTraining) {
  WriteImage("dog/a.png", 20, 20);
  const auto folder = Open({.source = {.classes = {"dog", "cat"}}});
  EXPECT_EQ(folder->spec().classes, 2);
  EXPECT_EQ(SampleOf(*folder, 0).label, 0);
  EXPECT_THAT(ErrorOfOpening({.source = {.classes = {"cat"}}}),
              AllOf(HasSubstr("/dog: no class \"dog\""), HasSubstr("cat")));
}

TEST_F(ImageFolderTest, ImagesBesideTheClassesHaveNoLabel) {
  WriteImage("2.png", 20, 20, 60);
  WriteImage("1.png", 20, 20, 20);
  const auto folder = Open({.source = {.classes = {"dog"}, .label_optional = true}});
  ASSERT_EQ(folder->size(), 2);
  EXPECT_EQ(SampleOf(*folder, 0).label, Dataset::kNoLabel);
  EXPECT_LT(SampleOf(*folder, 0).Mean(), SampleOf(*folder, 1).Mean());
  EXPECT_THAT(ErrorOfOpening(), HasSubstr("1.png: an image beside the classes"));
}

TEST_F(ImageFolderTest, RefusesWhatHoldsNoImages) {
  EXPECT_THAT(ErrorOfOpening(), HasSubstr("no .jpg, .jpeg, .png, .webp or .bmp files"));
  fs::remove(root_);
  EXPECT_THAT(ErrorOfOpening(), HasSubstr("no such folder"));
}

TEST_F(ImageFolderTest, NamesTheFileThatCannotBeRead) {
  WriteImage("a/good.png", 20, 20);
  WriteText("a/empty.jpg", "");
  WriteText("a/text.jpg", "this is no image");
  WriteImage("a/vanished.png", 20, 20);
  const auto folder = Open();
  fs::remove(root_ / "a/vanished.png");
  const auto error_of = [&](int64_t index) {
    return DataErrorOf([&] { SampleOf(*folder, index); });
  };
  EXPECT_THAT(error_of(0), HasSubstr("a/empty.jpg: "));
  EXPECT_NO_THROW(SampleOf(*folder, 1));
  EXPECT_THAT(error_of(2), HasSubstr("a/text.jpg: not a JPEG, PNG, WebP or BMP file"));
  EXPECT_THAT(error_of(3), HasSubstr("a/vanished.png: cannot be opened: No such file"));
}

TEST_F(ImageFolderTest, APipeIsNoImage) {
  WriteImage("a/1.png", 20, 20);
  ASSERT_EQ(mkfifo((root_ / "a/2.png").c_str(), 0600), 0);
  const auto folder = Open();
  ASSERT_EQ(folder->size(), 2);
  EXPECT_THAT(DataErrorOf([&] { SampleOf(*folder, 1); }), HasSubstr("a/2.png: not a regular file"));
}

TEST_F(ImageFolderTest, LinksInAClassLeadNowhere) {
  WriteImage("a/1.png", 20, 20);
  WriteImage("elsewhere/2.png", 20, 20);
  const fs::path away = root_.string() + "-away";
  fs::rename(root_ / "elsewhere", away);
  fs::create_directory_symlink(away, root_ / "b");
  fs::create_directory_symlink(root_, root_ / "a/loop");
  const auto folder = Open();
  EXPECT_THAT(folder->spec().class_names, ElementsAre("a", "b"));
  EXPECT_EQ(folder->size(), 2);
}

TEST_F(ImageFolderTest, OtherFilesHaveAnotherFingerprint) {
  WriteImage("a/1.png", 20, 20);
  const std::string first = Open()->Fingerprint();
  EXPECT_EQ(Open()->Plain()->Fingerprint(), first);
  fs::rename(root_ / "a/1.png", root_ / "a/2.png");
  const std::string second = Open()->Fingerprint();
  EXPECT_NE(second, first);
  fs::rename(root_ / "a", root_ / "b");
  EXPECT_NE(Open()->Fingerprint(), second);
}

TEST_F(ImageFolderTest, ErrorsAreOneLineWhateverTheName) {
  WriteText("a/line\nbreak.jpg", "no image");
  EXPECT_THAT(DataErrorOf([&] { SampleOf(*Open(), 0); }),
              HasSubstr("a/line break.jpg: not a JPEG"));
}

TEST_F(ImageFolderTest, EachEpochSeesAnotherPart) {
  WriteImage("a/1.png", 200, 100);
  const auto folder = Open({.seed = 5});
  std::set<std::array<uint8_t, kBytes>> seen;
  int mirrored = 0;
  for (int64_t epoch = 0; epoch < 200; ++epoch) {
    const Sample sample = SampleOf(*folder, 0, epoch);
    EXPECT_EQ(sample, SampleOf(*folder, 0, epoch));
    seen.insert(sample.pixels);
    mirrored += sample.pixels.front() > sample.pixels[3 * (kSize - 1)];
  }
  EXPECT_GT(seen.size(), 150U);
  // The bound is 5 standard deviations of the number of heads in 200 throws of a fair coin: 5 * sqrt(200) / 2 = 35.
  EXPECT_NEAR(mirrored, 100, 35);
  EXPECT_NE(SampleOf(*Open({.seed = 6}), 0).pixels, SampleOf(*folder, 0).pixels);

  const auto never_mirrored = Open({.mirror = false});
  for (int64_t epoch = 0; epoch < 50; ++epoch) {
    const Sample sample = SampleOf(*never_mirrored, 0, epoch);
    EXPECT_LE(sample.pixels.front(), sample.pixels[3 * (kSize - 1)]);
  }
}

// Checks the width and the places of random crops. The grey level of a column is its index, so the grey levels of a
// sample show which part of the image it is.
TEST_F(ImageFolderTest, RandomPartsHaveTheirAreaAndShape) {
  WriteImage("a/1.png", 250, 250);
  const auto folder =
      Open({.crop = {.min_area = 0.25, .max_area = 0.25, .max_stretch = 1}, .mirror = false});
  double left_most = 255;
  double right_most = 0;
  for (int64_t epoch = 0; epoch < 100; ++epoch) {
    const Sample sample = SampleOf(*folder, 0, epoch);
    const double left = sample.pixels.front();
    const double right = sample.pixels[3 * (kSize - 1)];
    // A square of a quarter of the area is 125 columns wide; the distance between the centres of the leftmost and the
    // rightmost output pixel is (kSize - 1) / kSize of these 125 columns.
    EXPECT_NEAR(right - left, 125.0 * (kSize - 1) / kSize, 2);
    left_most = std::min(left_most, left);
    right_most = std::max(right_most, right);
  }
  EXPECT_LT(left_most, 25);
  EXPECT_GT(right_most, 225);
}

TEST_F(ImageFolderTest, AStripGivesItsMiddle) {
  WriteImage("a/1.png", 250, 3);
  const auto folder = Open({.crop = {.min_area = 1}, .mirror = false});
  const Sample sample = SampleOf(*folder, 0);
  EXPECT_NEAR(sample.pixels.front(), 125, 3);
  EXPECT_NEAR(sample.pixels[3 * (kSize - 1)], 125, 3);
}

TEST_F(ImageFolderTest, EvaluationSeesTheMiddle) {
  WriteImage("a/1.png", 200, 100);
  const auto plain = Open({.center = 0.8})->Plain();
  const Sample sample = SampleOf(*plain, 0, 3);
  // The crop is a square of 80 columns, from edge 60 to edge 140, and has 8 output pixels of 10 columns each. The
  // centres of the outer ones lie 5 columns inside, at 65 and 135, where the grey levels are 64.5 and 134.5.
  EXPECT_NEAR(sample.pixels.front(), 60 + 4.5, 1);
  EXPECT_NEAR(sample.pixels[3 * (kSize - 1)], 140 - 5.5, 1);
  EXPECT_EQ(SampleOf(*plain, 0, 4), sample);
}

TEST_F(ImageFolderTest, OnePixelImages) {
  WriteImage("a/1.png", 1, 1, 77);
  const auto folder = Open();
  for (int64_t epoch = 0; epoch < 5; ++epoch) EXPECT_EQ(SampleOf(*folder, 0, epoch).Mean(), 77);
  EXPECT_EQ(SampleOf(*folder->Plain(), 0).Mean(), 77);
}

TEST_F(ImageFolderTest, AnyNumberOfThreadsDeliversTheSameBytes) {
  for (int i = 0; i < 23; ++i) {
    WriteImage(std::string(i % 2 == 0 ? "a/" : "b/") + std::to_string(i) + ".png", 30 + 7 * i,
               40 + i, static_cast<uint8_t>(5 * i));
  }
  const auto folder = Open({.seed = 3});
  const Sampler sampler({.samples = 23, .global_batch = 10, .seed = 1});
  std::vector<std::vector<uint8_t>> expected;
  for (const int threads : {0, 1, 2, 7, 16}) {
    Loader loader(*folder, sampler, {.threads = threads, .slots = 3});
    for (size_t step = 0; step < 12; ++step) {
      const HostBatch batch = loader.Next();
      EXPECT_EQ(batch.input.sizes(), (std::vector<int64_t>{batch.input.size(0), 3, kSize, kSize}));
      const auto* pixels = batch.input.const_data_ptr<uint8_t>();
      std::vector<uint8_t> bytes(pixels, pixels + batch.input.numel());
      if (threads == 0) {
        expected.push_back(std::move(bytes));
      } else {
        ASSERT_EQ(bytes, expected[step]) << threads << " threads, step " << step;
      }
      loader.Release();
    }
  }

  // If a run resumes at any step, the remaining steps have the same samples.
  for (const size_t first : {1, 4, 11}) {
    Sampler rest = sampler;
    rest.Seek(static_cast<int64_t>(first));
    Loader loader(*folder, rest, {.threads = 3, .slots = 4});
    for (size_t step = first; step < 12; ++step) {
      const HostBatch batch = loader.Next();
      const auto* pixels = batch.input.const_data_ptr<uint8_t>();
      ASSERT_EQ(std::vector<uint8_t>(pixels, pixels + batch.input.numel()), expected[step]);
      loader.Release();
    }
  }
}

}  // namespace
}  // namespace lockstep
