#include "data/images/masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/testing/message_of.h"
#include "base/testing/test_files.h"
#include "data/dataset/dataset.h"
#include "data/images/image_dataset.h"
#include "data/images/open_images.h"
#include "data/images/png_file.h"
#include "data/images/testing/write_png.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// Returns a PNG file with `samples`, row by row and pixel by pixel. A pixel has as many samples as `color_type` has
// channels. If there is a palette, it has at most 200 colours.
std::string WritePng(int color_type, int depth, int64_t width, const std::vector<int>& samples) {
  PngToWrite png{.color_type = color_type, .depth = depth, .width = width};
  png.palette.resize(std::min(200, 1 << depth), png_color{7, 7, 7});
  const auto a_row = static_cast<size_t>(width * png.channels());
  png.height = static_cast<int64_t>(samples.size() / a_row);
  std::vector<std::vector<uint8_t>> rows(png.height, std::vector<uint8_t>(png.row_bytes()));
  for (size_t i = 0; i < samples.size(); ++i) {
    const size_t bit = i % a_row * static_cast<size_t>(depth);
    // If `depth` is 16, the value is written to the second byte of the sample, which is the lower one.
    const size_t shift = depth == 16 ? 0 : 8 - depth - bit % 8;
    rows[i / a_row][bit / 8 + (depth == 16 ? 1 : 0)] |= static_cast<uint8_t>(samples[i] << shift);
  }
  return lockstep::WritePng(png, rows);
}

std::string Grey(int64_t width, const std::vector<int>& values) {
  return WritePng(PNG_COLOR_TYPE_GRAY, 8, width, values);
}

// A folder of images, which are empty files, and a folder of masks.
class Folders {
 public:
  // `masks` has pairs of the name of an image and the bytes of its mask's file, which are empty if the image has no
  // mask.
  explicit Folders(const std::vector<std::pair<std::string, std::string>>& masks) {
    for (const auto& [name, mask] : masks) {
      WriteFile(images_ + "/" + name, "");
      if (!mask.empty()) WriteFile(fs::path(masks_ + "/" + name).replace_extension(".png"), mask);
    }
  }

  Masks Open() const {
    return {masks_, OpenImageSource({.files = {images_}, .label_optional = true})};
  }
  const std::string& images() const { return images_; }
  const std::string& masks() const { return masks_; }

 private:
  std::string images_ = NewFolder();
  std::string masks_ = NewFolder();
};

std::vector<uint8_t> PixelsOf(const std::string& file) {
  const Folders folders({{"a.jpg", file}});
  Mask mask;
  folders.Open().Read(0, mask);
  EXPECT_EQ(mask.size.width * mask.size.height, std::ssize(mask.pixels));
  return mask.pixels;
}

TEST(Masks, HaveTheNamesOfTheirImages) {
  const std::string mask = Grey(1, {1});
  const Folders folders({{"b.jpg", mask}, {"a.x.webp", mask}, {"more/deep/c.BMP", mask}});
  const Masks masks = folders.Open();
  ASSERT_EQ(masks.size(), 3);
  std::vector<std::string> paths;
  for (int64_t i = 0; i < 3; ++i) paths.push_back(masks.PathOf(i));
  EXPECT_THAT(
      paths, testing::UnorderedElementsAre(folders.masks() + "/a.x.png", folders.masks() + "/b.png",
                                           folders.masks() + "/more/deep/c.png"));
}

TEST(Masks, GiveTheNumbersThatTheFilesHold) {
  EXPECT_THAT(PixelsOf(Grey(3, {0, 1, 255, 7, 128, 2})), ElementsAre(0, 1, 255, 7, 128, 2));
  for (const int type : {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_PALETTE}) {
    EXPECT_THAT(PixelsOf(WritePng(type, 1, 3, {0, 1, 1, 1, 0, 0})), ElementsAre(0, 1, 1, 1, 0, 0));
    EXPECT_THAT(PixelsOf(WritePng(type, 2, 3, {0, 1, 3})), ElementsAre(0, 1, 3));
    EXPECT_THAT(PixelsOf(WritePng(type, 4, 3, {0, 9, 15})), ElementsAre(0, 9, 15));
    EXPECT_THAT(PixelsOf(WritePng(type, 8, 3, {0, 9, 199})), ElementsAre(0, 9, 199));
  }
  EXPECT_THAT(PixelsOf(WritePng(PNG_COLOR_TYPE_GRAY_ALPHA, 8, 2, {3, 0, 5, 255})),
              ElementsAre(3, 5));
  EXPECT_THAT(PixelsOf(WritePng(PNG_COLOR_TYPE_RGB, 8, 2, {3, 3, 3, 255, 255, 255})),
              ElementsAre(3, 255));
}

TEST(Masks, AreFoundInAnyCase) {
  const std::string file = Grey(1, {0});
  const Folders folders({{"a.jpg", ""}, {"b/c.jpg", file}, {"d.e.jpg", ""}});
  for (const char* name : {"a.PNG", "b/c.PNG", "b/f.png", "d.e.Png", "b/.c.png", "notes.txt"}) {
    WriteFile(folders.masks() + "/" + name, file);
  }
  const Masks masks = folders.Open();
  std::vector<std::string> paths;
  for (int64_t i = 0; i < masks.size(); ++i) paths.push_back(masks.PathOf(i));
  EXPECT_THAT(
      paths, testing::UnorderedElementsAre(folders.masks() + "/a.PNG", folders.masks() + "/b/c.png",
                                           folders.masks() + "/d.e.Png"));
  EXPECT_THAT(masks.remarks(),
              testing::UnorderedElementsAre(
                  HasSubstr("/b/.c.png is left out: hidden"),
                  HasSubstr("/notes.txt is left out: not named"),
                  HasSubstr("/b/c.PNG and another one are left out: a mask that is named like")));
}

TEST(Masks, RefusesImagesWithoutMasks) {
  const std::string mask = Grey(1, {1});
  const Folders folders({{"a.jpg", mask}, {"b.jpg", ""}, {"c.jpg", ""}, {"d.jpg", ""}});
  EXPECT_EQ(
      DataErrorOf([&] { folders.Open(); }),
      fmt::format("{}/b.jpg: no mask: there is no {}/b.png, and 2 other images have none: put "
                  "it there, or the image elsewhere",
                  folders.images(), folders.masks()));
  const auto images = OpenImageSource({.files = {folders.images()}, .label_optional = true});
  EXPECT_EQ(DataErrorOf([&] { Masks("/nowhere", images); }), "/nowhere: no such folder");
}

TEST(Masks, RefusesFiles) {
  const auto error_of = [](const std::string& file) {
    const Folders folders({{"a.jpg", file}});
    const Masks masks = folders.Open();
    Mask mask;
    const std::string error = DataErrorOf([&] { masks.Read(0, mask); });
    const std::string path = masks.PathOf(0) + ": ";
    EXPECT_TRUE(error.starts_with(path)) << error;
    return error.substr(path.size());
  };
  const std::string good = Grey(20, std::vector<int>(400, 1));
  EXPECT_EQ(error_of("\xff\xd8\xff\xe0"), "not a PNG file, which masks are");
  EXPECT_EQ(error_of(good.substr(0, 20)), "truncated PNG file");
  EXPECT_EQ(error_of(good.substr(0, good.size() - 20)), "truncated PNG file");
  std::string bad = good;
  bad[good.size() / 2] ^= 1;
  EXPECT_THAT(error_of(bad), HasSubstr("damaged PNG file"));
  EXPECT_EQ(error_of(WritePng(PNG_COLOR_TYPE_GRAY, 16, 1, {1})),
            "a PNG file of 16 bits, where a mask's pixels have 8 at the most");
  EXPECT_EQ(
      error_of(WritePng(PNG_COLOR_TYPE_RGB, 8, 2, {3, 3, 3, 255, 0, 255})),
      "row 0, column 1: the colour 255, 0, 255, where a mask's pixel is grey or of a palette: "
      "its value is the class");

  const Folders folders({{"a.jpg", good}});
  const Masks masks = folders.Open();
  fs::remove(masks.PathOf(0));
  Mask mask;
  EXPECT_THAT(DataErrorOf([&] { masks.Read(0, mask); }), HasSubstr("a.png: cannot be opened: No"));
}

TEST(Masks, RefusesValues) {
  Mask mask{.size = {2, 2}, .pixels = {0, 255, 2, 7}, .file = {}};
  EXPECT_EQ(
      DataErrorOf([&] { MaskClasses({.of_classes = {0, 1, 2}}).Convert("a.png", mask); }),
      "a.png: row 1, column 1: 7 is none of the 3 classes' values, nor 255, which is no class "
      "(data.images.mask_values, data.classes)");
  mask.pixels = {0, 255, 7, 9};
  MaskClasses({.of_classes = {7, 255, 0}, .ignored = 9}).Convert("a.png", mask);
  EXPECT_THAT(mask.pixels, ElementsAre(2, 1, 0, 255));
  // If a value is both in `of_classes` and `ignored`, its pixels have the class.
  mask.pixels = {0, 255};
  MaskClasses({.of_classes = {0, 255}, .ignored = 255}).Convert("a.png", mask);
  EXPECT_THAT(mask.pixels, ElementsAre(0, 1));
}

MaskFindings Find(const Folders& folders, const FindMaskOptions& options = {}) {
  return FindMaskValues(folders.Open(), options);
}

TEST(FindMaskValues, CountsClassesFromZero) {
  const Folders folders({{"a.jpg", Grey(2, {0, 1})}, {"b.jpg", Grey(2, {255, 2})}});
  const MaskFindings found = Find(folders, {.threads = 2});
  EXPECT_THAT(found.values.of_classes, ElementsAre(0, 1, 2));
  EXPECT_EQ(found.values.ignored, 255);
  EXPECT_TRUE(found.remarks.empty());
  EXPECT_THAT(Find(folders, {.classes = 5}).values.of_classes, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(DataErrorOf([&] { Find(folders, {.classes = 2}); }),
            folders.masks() +
                "/b.png: row 0, column 1: 2 is none of the 2 classes' values, nor 255, which is no "
                "class (data.images.mask_values, data.classes)");
  EXPECT_THAT(DataErrorOf([&] { Find(folders, {.ignored = 7}); }),
              HasSubstr("b.png: row 0, column 0: 255 is none of the 255 classes' values, nor 7"));
}

TEST(FindMaskValues, Knows0And255) {
  const Folders folders({{"a.jpg", Grey(2, {0, 0})}, {"b.jpg", Grey(2, {255, 0})}});
  const MaskFindings found = Find(folders);
  EXPECT_THAT(found.values.of_classes, ElementsAre(0, 255));
  EXPECT_THAT(found.remarks,
              ElementsAre(folders.masks() +
                          ": the masks hold the values 0 and 255 alone, which are taken for the "
                          "classes 0 and 1 (where 255 is to be no class, set "
                          "data.images.mask_ignored: 255)"));
  EXPECT_THAT(Find(folders, {.classes = 2}).values.of_classes, ElementsAre(0, 255));
  // If the user gives `ignored`, or three classes, 255 means no class.
  const Folders more({{"a.jpg", Grey(2, {0, 1})}, {"b.jpg", Grey(2, {255, 0})}});
  EXPECT_THAT(Find(more, {.ignored_is_given = true}).values.of_classes, ElementsAre(0, 1));
  EXPECT_THAT(Find(more, {.classes = 3}).values.of_classes, ElementsAre(0, 1, 2));
}

TEST(FindMaskValues, RefusesLessThanTwoClasses) {
  struct Case {
    std::vector<int> a, b;
    FindMaskOptions options;
    std::string error;
  };
  const std::vector<Case> cases{
      {{0, 0}, {0, 0}, {}, "each pixel has the value 0: there is nothing to learn: give masks of"},
      {{3, 3}, {3, 3}, {.classes = 5}, "masks of one class alone: each pixel has the value 3: "},
      {{255, 255}, {255, 255}, {}, "masks without a class: each pixel has the value 255, which is"},
      {{9, 9},
       {9, 9},
       {.ignored = 9, .ignored_is_given = true},
       "each pixel has the value 9, which"},
      {{1, 255}, {1, 1}, {}, "if 255 is a class, set data.images.mask_values: [1, 255]"},
      {{0, 255}, {0, 0}, {.classes = 3}, "set data.images.mask_values: [0, 255]"},
      {{0, 255},
       {0, 0},
       {.ignored_is_given = true},
       "if 255 is a class, set data.images.mask_values: [0, 255] instead of data.images."},
      {{7, 4}, {4, 4}, {.ignored = 4, .ignored_is_given = true}, "mask_values: [4, 7] instead of"},
  };
  for (const Case& one : cases) {
    const Folders folders({{"a.jpg", Grey(2, one.a)}, {"b.jpg", Grey(2, one.b)}});
    EXPECT_THAT(DataErrorOf([&] { Find(folders, one.options); }),
                AllOf(StartsWith(folders.masks() + ": masks"), HasSubstr(one.error),
                      HasSubstr("there is nothing to learn")));
  }
}

// Checks masks whose values the user names.
TEST(RequireTwoClasses, CountsTheClassesThatOccur) {
  const Folders folders({{"a.jpg", Grey(2, {0, 0})}, {"b.jpg", Grey(2, {0, 255})}});
  const Masks masks = folders.Open();
  const auto error_of = [&](const MaskValues& values) {
    return DataErrorOf([&] { RequireTwoClasses(masks, values, 2); });
  };
  EXPECT_NO_THROW(RequireTwoClasses(masks, {.of_classes = {0, 255}}, 2));
  EXPECT_NO_THROW(RequireTwoClasses(masks, {.of_classes = {3, 255, 0}}, 2));
  // The reader of the samples refuses values that are no class, and names the place.
  EXPECT_NO_THROW(RequireTwoClasses(masks, {.of_classes = {3, 4}}, 2));
  EXPECT_THAT(error_of({.of_classes = {0, 3}}),
              HasSubstr("the value 0, or 255, which is no class"));
  const Folders empty({{"a.jpg", Grey(2, {255, 255})}});
  EXPECT_THAT(DataErrorOf([&] { RequireTwoClasses(empty.Open(), {.of_classes = {0, 1}}, 1); }),
              HasSubstr("masks without a class: each pixel has the value 255, which is no class"));
}

TEST(FindMaskValues, SaysThatClassesHaveNoPixel) {
  const Folders folders({{"a.jpg", Grey(3, {0, 128, 64})}});
  const MaskFindings found = Find(folders);
  EXPECT_EQ(found.values.of_classes.size(), 129U);
  EXPECT_THAT(
      found.remarks,
      ElementsAre(AllOf(HasSubstr("the masks hold the values 0, 64, 128: classes are counted "
                                  "from 0, so the model learns 129"),
                        HasSubstr("data.images.mask_values: [0, 64, 128] would make 3"))));
}

TEST(FindMaskValues, PassesOverWhatCannotBeRead) {
  const Folders folders({{"a.jpg", "no mask"}, {"b.jpg", Grey(2, {0, 1})}});
  EXPECT_THAT(DataErrorOf([&] { Find(folders); }), HasSubstr("/a.png: not a PNG file"));
  EXPECT_THAT(Find(folders, {.skip_bad = true}).values.of_classes, ElementsAre(0, 1));
}

TEST(CutMask, TakesTheNearestPixel) {
  const Mask mask{.size = {4, 2}, .pixels = {0, 1, 2, 3, 4, 5, 6, 7}, .file = {}};
  const auto cut = [&](const Box& box, int64_t width, int64_t height, bool mirror = false) {
    std::vector<uint8_t> pixels(width * height);
    CutMask(mask, box, width, height, mirror, pixels.data());
    return pixels;
  };
  EXPECT_EQ(cut({0, 0, 4, 2}, 4, 2), mask.pixels);
  EXPECT_THAT(cut({0, 0, 4, 2}, 4, 2, true), ElementsAre(3, 2, 1, 0, 7, 6, 5, 4));
  EXPECT_THAT(cut({1, 1, 2, 1}, 4, 1), ElementsAre(5, 5, 6, 6));
  EXPECT_THAT(cut({0, 0, 4, 2}, 2, 1), ElementsAre(5, 7));
  EXPECT_THAT(cut({0.5, 0, 3, 1}, 3, 1), ElementsAre(1, 2, 3));
}

// The files of an image of four vertical stripes and of its mask. Stripe c has the grey level 80 * c in the image and
// the class c in the mask.
struct Striped {
  std::string image;
  std::string mask;

  Striped(int64_t width, int64_t height) {
    std::vector<int> classes;
    std::vector<uint8_t> levels;
    for (int64_t i = 0; i < width * height; ++i) {
      classes.push_back(static_cast<int>(4 * (i % width) / width));
      levels.push_back(static_cast<uint8_t>(80 * classes.back()));
    }
    image = EncodeGreyPng({width, height}, levels);
    mask = Grey(width, classes);
  }
};

TEST(MaskedImages, AreCutAndMirroredAsTheirMasks) {
  constexpr int64_t kSize = 32;
  const std::string images = NewFolder(), masks = NewFolder();
  for (int i = 0; i < 4; ++i) {
    const Striped striped(60 + 13 * i, 40 + 9 * i);
    WriteFile(fmt::format("{}/{}.png", images, i), striped.image);
    WriteFile(fmt::format("{}/{}.png", masks, i), striped.mask);
  }
  const auto dataset =
      OpenImages({.source = {.files = {images}, .label_optional = true},
                  .masks = MaskOptions{.folder = masks, .values = {.of_classes = {0, 1, 2, 3}}},
                  .size = kSize,
                  .seed = 3});
  EXPECT_EQ(dataset->spec().task, Task::kSegmentation);
  EXPECT_EQ(dataset->spec().classes, 4);
  EXPECT_EQ(dataset->FileOf(2), "2.png");
  std::vector<std::byte> input(dataset->spec().bytes()), target(dataset->spec().target_bytes());
  ASSERT_EQ(std::ssize(target), kSize * kSize);
  std::set<std::vector<std::byte>> seen;
  int64_t mirrored = 0;
  const auto check = [&](const Dataset& samples, int64_t index, int64_t epoch) {
    samples.Read(index, epoch, input.data(), target.data());
    int64_t exact = 0;
    for (int64_t i = 0; i < kSize * kSize; ++i) {
      const int level = std::to_integer<int>(input[3 * i]);
      const int expected = 80 * std::to_integer<int>(target[i]);
      // At the border of two stripes, whose levels differ by 80, the resized image has a level between the two levels.
      // The mask has the class of the nearer stripe, so the level is at most 40, plus 1 for rounding, away from that of
      // the class.
      EXPECT_LE(std::abs(level - expected), 41);
      exact += std::abs(level - expected) <= 1;
    }
    EXPECT_GT(exact, kSize * kSize * 3 / 4);
  };
  for (int64_t epoch = 0; epoch < 50; ++epoch) {
    for (int64_t index = 0; index < 4; ++index) {
      check(*dataset, index, epoch);
      seen.insert(target);
      mirrored += target.front() > target.back();
    }
  }
  EXPECT_GT(seen.size(), 100U);
  EXPECT_NEAR(mirrored, 100, 35);
  // Evaluation uses whole images, so the samples begin with class 0 and end with class 3.
  const auto plain = dataset->Plain();
  for (int64_t index = 0; index < 4; ++index) {
    check(*plain, index, 0);
    EXPECT_EQ(std::to_integer<int>(target.front()), 0);
    EXPECT_EQ(std::to_integer<int>(target.back()), 3);
    std::vector<std::byte> alone(target.size());
    plain->ReadTarget(index, alone.data());
    EXPECT_EQ(alone, target);
  }
}

TEST(MaskedImages, HaveMasksOfTheirSize) {
  const std::string images = NewFolder(), masks = NewFolder();
  const Striped striped(20, 10), other(10, 20);
  WriteFile(images + "/a.png", striped.image);
  WriteFile(masks + "/a.png", other.mask);
  ImageOptions options{
      .source = {.files = {images}, .label_optional = true},
      .masks = MaskOptions{.folder = masks, .values = {.of_classes = {0, 1, 2, 3}}},
      .size = 8};
  std::vector<std::byte> input(3 * 64), target(64);
  EXPECT_EQ(
      DataErrorOf([&] { OpenImages(options)->Read(0, 0, input.data(), target.data()); }),
      fmt::format("{}/a.png: 10 x 20 pixels, where its image {}/a.png has 20 x 10", masks, images));
  // If the masks are unknown, no pixel has a class.
  options.masks->folder = "";
  OpenImages(options)->Read(0, 0, input.data(), target.data());
  EXPECT_THAT(target, Each(std::byte{kIgnoredPixel}));
}

}  // namespace
}  // namespace lockstep
