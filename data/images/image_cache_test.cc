// Checks that images that a cache keeps in memory give the same samples as the files: data/images/kept_bytes.h,
// data/images/encoded_cache.h, data/images/image_dataset.h.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/in_threads.h"
#include "base/testing/write_tar.h"
#include "data/images/image_dataset.h"
#include "data/images/kept_bytes.h"
#include "data/images/testing/write_jpeg.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kImages = 12;
constexpr int64_t kSize = 16;
constexpr int64_t kBytes = 3 * kSize * kSize;
constexpr int64_t kPlenty = int64_t{1} << 30;

using Samples = std::vector<std::vector<std::byte>>;

std::string Photo(int64_t i) {
  return WriteJpeg(
      {.name = "photo", .h_sampling = 2, .v_sampling = 2}, 90 + 9 * i, 130 - 5 * i,
      [&](int64_t x, int64_t y, int channel) {
        return static_cast<uint8_t>(x * (i + 1) + y * (channel + 2) + x * y % 31);
      },
      90);
}

TEST(MemoryBudget, IsNotExceeded) {
  MemoryBudget budget(100);
  EXPECT_TRUE(budget.Take(60));
  EXPECT_FALSE(budget.Take(41));
  EXPECT_TRUE(budget.Take(40));
  EXPECT_FALSE(budget.Take(1));
  budget.GiveBack(1);
  EXPECT_TRUE(budget.Take(1));

  MemoryBudget shared(1000);
  std::atomic<int> taken{0};
  InThreads(4, 10000, [&](int64_t) { taken += shared.Take(3); });
  EXPECT_EQ(taken, 333);
}

TEST(KeptBytes, KeepsWhatFitsAndGivesItBack) {
  const auto budget = std::make_shared<MemoryBudget>(100);
  {
    KeptBytes kept(10, budget);
    const auto fill = [](char c, size_t bytes) {
      return [=](std::byte* to) { std::memset(to, c, bytes); };
    };
    kept.Keep(3, 50, fill('a', 50));
    EXPECT_EQ(kept.Find(3).size(), 50U);
    kept.Keep(3, 10, fill('b', 10));  // sample 3 is already kept, so its bytes stay 'a'
    kept.Keep(4, 40, fill('c', 40));  // refused: 40 + 8 bytes, and 42 of 100 are left
    kept.Keep(5, 20, fill('d', 20));
    EXPECT_EQ(kept.Find(3)[0], std::byte{'a'});
    EXPECT_TRUE(kept.Find(4).empty());
    EXPECT_EQ(kept.Find(5)[19], std::byte{'d'});
    EXPECT_TRUE(kept.Find(9).empty());
  }
  EXPECT_EQ(budget->used(), 0);
}

class ImageCacheTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    fs::create_directories(root_);
    setenv("HOME", "", 1);  // without a home folder, no image index is cached
    std::string tar;
    for (int64_t i = 0; i < kImages; ++i) {
      const std::string name = fmt::format("{}/{}.jpg", i % 2 == 0 ? "a" : "b", i);
      if (GetParam() == std::string("folder")) {
        fs::create_directories((root_ / name).parent_path());
        std::ofstream(root_ / name) << Photo(i);
      }
      tar += TarMemberOf(name, Photo(i));
    }
    if (GetParam() == std::string("shards")) std::ofstream(root_ / "0.tar") << tar << TarEnd();
  }

  void RemoveFiles() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(root_)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    for (const fs::path& file : files) {
      fs::resize_file(file, 0);  // so that file descriptors that are already open read nothing
      fs::remove(file);
    }
  }

  std::shared_ptr<const Dataset> Open(ImageCache cache, int64_t budget = kPlenty) const {
    return OpenImages({.source = {.files = {root_.string()}},
                       .size = kSize,
                       .crop = {.min_area = 0.5},
                       .seed = 3,
                       .cache = cache,
                       .budget = std::make_shared<MemoryBudget>(budget)});
  }

  static std::vector<std::byte> SampleOf(const Dataset& dataset, int64_t i, int64_t epoch) {
    std::vector<std::byte> sample(kBytes + sizeof(int64_t));
    dataset.Read(i, epoch, sample.data(), sample.data() + kBytes);
    return sample;
  }

  // Reads the samples of two epochs of training, each followed by an evaluation, in `threads` threads, and returns
  // these samples.
  static Samples Epochs(const Dataset& dataset, int threads) {
    const auto plain = dataset.Plain();
    Samples samples(4 * kImages);
    for (int64_t part = 0; part < 4; ++part) {
      InThreads(threads, kImages, [&](int64_t i) {
        samples[part * kImages + i] = SampleOf(part % 2 == 0 ? dataset : *plain, i, part / 2);
      });
    }
    return samples;
  }

  // Each kind of source has a different folder, because the name of a test ends with a slash and the kind.
  fs::path root_ =
      fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_P(ImageCacheTest, AnyBudgetAndAnyNumberOfThreadsGiveTheSameBytes) {
  const Samples off = Epochs(*Open(ImageCache::kOff), 1);
  const Samples whole = Epochs(*Open(ImageCache::kDecoded, 0), 1);
  EXPECT_NE(whole, off);  // for `whole`, the decoder does not reduce images
  for (const int64_t budget :
       {int64_t{0}, int64_t{1}, int64_t{20'000}, int64_t{100'000}, kPlenty}) {
    for (const int threads : {1, 2, 5}) {
      EXPECT_EQ(Epochs(*Open(ImageCache::kEncoded, budget), threads), off) << budget;
      EXPECT_EQ(Epochs(*Open(ImageCache::kDecoded, budget), threads), whole) << budget;
    }
  }
}

TEST_P(ImageCacheTest, WholeImagesGiveNearlyTheSamePixels) {
  const Samples off = Epochs(*Open(ImageCache::kOff), 1);
  const Samples whole = Epochs(*Open(ImageCache::kDecoded), 1);
  double sum = 0;
  for (size_t i = 0; i < off.size(); ++i) {
    for (int64_t byte = 0; byte < kBytes; ++byte) {
      sum += std::abs(static_cast<int>(off[i][byte]) - static_cast<int>(whole[i][byte]));
    }
  }
  EXPECT_LT(sum / static_cast<double>(kBytes * off.size()), 3);
}

TEST_P(ImageCacheTest, TheSecondEpochReadsNoFile) {
  for (const ImageCache cache : {ImageCache::kEncoded, ImageCache::kDecoded}) {
    SetUp();
    const auto dataset = Open(cache);
    const Samples expected = Epochs(*dataset, 2);
    RemoveFiles();
    EXPECT_EQ(Epochs(*dataset, 2), expected);
  }
}

TEST_P(ImageCacheTest, WithoutRoomTheSecondEpochReadsFiles) {
  for (const ImageCache cache : {ImageCache::kOff, ImageCache::kEncoded, ImageCache::kDecoded}) {
    SetUp();
    const auto dataset = Open(cache, 0);
    Epochs(*dataset, 1);
    RemoveFiles();
    EXPECT_THROW(SampleOf(*dataset, 0, 1), Error);
  }
}

INSTANTIATE_TEST_SUITE_P(Sources, ImageCacheTest, testing::Values("folder", "shards"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace lockstep
