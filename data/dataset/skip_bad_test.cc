#include "data/dataset/skip_bad.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/testing/message_of.h"
#include "data/dataset/sample_record.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

// A data set whose sample i has the input i and the class i. Read() throws Error (kData) for the samples in `bad`, and
// Error (kBug) for sample kBug.
class Numbers : public Dataset {
 public:
  Numbers(int64_t size, std::set<int64_t> bad) : size_(size), bad_(std::move(bad)) {}

  int64_t size() const override { return size_; }
  const SampleSpec& spec() const override { return spec_; }
  void Read(int64_t index, int64_t /*epoch*/, std::byte* input, std::byte* target) const override {
    if (index == kBug) throw BugError("sample {}", index);
    if (bad_.contains(index)) throw DataError("sample {} is bad", index);
    if (index == kChanged) throw ChangedSample("sample 998");
    const auto number = static_cast<float>(index);
    std::memcpy(input, &number, sizeof(number));
    std::memcpy(target, &index, sizeof(index));
  }

  static constexpr int64_t kBug = 999;
  static constexpr int64_t kChanged = 998;

 private:
  int64_t size_;
  std::set<int64_t> bad_;
  SampleSpec spec_{.shape = {1}, .classes = 1000};
};

int64_t LabelRead(const Dataset& dataset, int64_t index, int64_t epoch = 0) {
  float number = 0;
  int64_t label = 0;
  dataset.Read(index, epoch, reinterpret_cast<std::byte*>(&number),
               reinterpret_cast<std::byte*>(&label));
  EXPECT_EQ(number, static_cast<float>(label));
  return label;
}

TEST(SkipBad, LeavesGoodSamplesAlone) {
  const SkipBad dataset(std::make_shared<Numbers>(10, std::set<int64_t>{}), 0, 1);
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(LabelRead(dataset, i), i);
  EXPECT_THAT(dataset.TakeReports(), SizeIs(0));
}

TEST(SkipBad, NeverHidesASampleThatHasChanged) {
  const SkipBad dataset(std::make_shared<Numbers>(1000, std::set<int64_t>{}), 10, 1);
  EXPECT_THAT(DataErrorOf([&] { LabelRead(dataset, Numbers::kChanged); }),
              HasSubstr("sample 998: its content is not what"));
}

TEST(SkipBad, PutsTheSameSampleInABadOnesPlaceEachTime) {
  const auto numbers = std::make_shared<Numbers>(100, std::set<int64_t>{3, 50, 51});
  const SkipBad one(numbers, 10, 7);
  const SkipBad other(numbers, 10, 7);
  EXPECT_EQ(LabelRead(other, 51), LabelRead(one, 51));
  EXPECT_EQ(LabelRead(other, 3), LabelRead(one, 3));
  EXPECT_NE(LabelRead(one, 3), LabelRead(one, 51));

  std::set<int64_t> over_epochs;
  for (int64_t epoch = 0; epoch < 20; ++epoch) over_epochs.insert(LabelRead(one, 3, epoch));
  EXPECT_GT(over_epochs.size(), 10U);
  EXPECT_FALSE(over_epochs.contains(3) || over_epochs.contains(50) || over_epochs.contains(51));
}

TEST(SkipBad, ReportsEachBadSampleOnceFromAnyThread) {
  const SkipBad dataset(std::make_shared<Numbers>(100, std::set<int64_t>{3, 50}), 2, 7);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (const int64_t index : {3, 50, 3, 50}) LabelRead(dataset, index);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(dataset.TakeReports(),
              testing::UnorderedElementsAre("sample 3 is bad; another stands for it",
                                            "sample 50 is bad; another stands for it"));
  EXPECT_THAT(dataset.TakeReports(), SizeIs(0));
}

TEST(SkipBad, ThrowsBeyondTheLimit) {
  std::set<int64_t> bad;
  for (int64_t i = 0; i < 5; ++i) bad.insert(i);
  const SkipBad dataset(std::make_shared<Numbers>(1000, bad), 4, 7);
  for (int64_t i = 0; i < 4; ++i) LabelRead(dataset, i);
  // Five samples are bad, and the limit is four. As soon as Read() meets the fifth bad sample, sample 4, it throws for
  // every bad sample: for sample 4 both times, and for sample 2, although it has replaced sample 2 before.
  for (const int64_t index : {4, 4, 2}) {
    const std::string message = DataErrorOf([&] { LabelRead(dataset, index); });
    EXPECT_THAT(message, HasSubstr("5 samples cannot be read"));
    EXPECT_THAT(message, HasSubstr(fmt::format("sample {} is bad", index)));
  }
  // Sample 4, the fifth bad sample, was not replaced, so only the four samples before it are reported.
  EXPECT_THAT(dataset.TakeReports(), SizeIs(4));
}

TEST(SkipBad, StandInsAreOfTheSamePart) {
  const auto whole = std::make_shared<Numbers>(100, std::set<int64_t>{10, 11, 12});
  std::vector<int64_t> part;
  for (int64_t i = 10; i < 30; ++i) part.push_back(i);
  const SkipBad dataset(std::make_shared<Subset>(whole, part), 10, 7);
  for (int64_t epoch = 0; epoch < 50; ++epoch) {
    const int64_t label = LabelRead(dataset, 1, epoch);
    EXPECT_TRUE(label >= 13 && label < 30) << label;
  }
}

TEST(SkipBad, ReadsSomeAsItReadsOne) {
  const SkipBad dataset(std::make_shared<Numbers>(100, std::set<int64_t>{3, 50}), 2, 7);
  const std::vector<int64_t> indices = {1, 50, 2, 3, 99};
  std::vector<float> numbers(indices.size());
  std::vector<int64_t> labels(indices.size());
  dataset.ReadSome(indices, /*epoch=*/4, reinterpret_cast<std::byte*>(numbers.data()),
                   reinterpret_cast<std::byte*>(labels.data()));
  for (size_t i = 0; i < indices.size(); ++i)
    EXPECT_EQ(labels[i], LabelRead(dataset, indices[i], 4));
  EXPECT_THAT(dataset.TakeReports(), SizeIs(2));
  const std::vector<int64_t> bug = {1, Numbers::kBug};
  EXPECT_THAT(MessageOf(ExitStatus::kBug,
                        [&] {
                          dataset.ReadSome(bug, 0, reinterpret_cast<std::byte*>(numbers.data()),
                                           reinterpret_cast<std::byte*>(labels.data()));
                        }),
              HasSubstr("sample 999"));
}

TEST(SkipBad, ThrowsWhereNothingIsGood) {
  const SkipBad dataset(std::make_shared<Numbers>(3, std::set<int64_t>{0, 1, 2}), 1000, 7);
  EXPECT_THROW(LabelRead(dataset, 1), Error);
}

TEST(SkipBad, OnlyBadDataAreSkipped) {
  const SkipBad dataset(std::make_shared<Numbers>(1000, std::set<int64_t>{}), 1000, 7);
  EXPECT_THROW(LabelRead(dataset, Numbers::kBug), Error);
}

}  // namespace
}  // namespace lockstep
