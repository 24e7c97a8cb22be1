#include "data/feed/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <thread>

#include "base/error.h"
#include "data/dataset/synthetic.h"

namespace lockstep {
namespace {

// A data set whose sample i has the input i, -i, i, -i, ... and the class i % 3. Read() takes a random time, so that
// threads overtake each other, and throws for samples in `bad`.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size, std::set<int64_t> bad = {}, int64_t features = 2)
      : size_(size), bad_(std::move(bad)) {
    spec_.shape = {features};
    spec_.classes = 3;
  }

  int64_t size() const override { return size_; }
  const SampleSpec& spec() const override { return spec_; }

  void Read(int64_t index, int64_t /*epoch*/, std::byte* input, std::byte* target) const override {
    static thread_local std::minstd_rand random(
        std::hash<std::thread::id>()(std::this_thread::get_id()));
    for (auto yields = random() % 20; yields > 0; --yields) std::this_thread::yield();
    if (bad_.contains(index)) throw DataError("sample {} is bad", index);
    const float values[] = {static_cast<float>(index), static_cast<float>(-index)};
    for (int64_t i = 0; i < spec_.bytes(); i += sizeof(values)) {
      std::memcpy(input + i, values, sizeof(values));
    }
    const int64_t label = index % 3;
    std::memcpy(target, &label, sizeof(label));
  }

 private:
  int64_t size_;
  std::set<int64_t> bad_;
  SampleSpec spec_;
};

// The number of features with which one sample has Loader::kBytesAtOnce bytes, so that a thread takes one sample at a
// time.
constexpr int64_t kFeaturesOfPieces = Loader::kBytesAtOnce / sizeof(float);

class LoaderWithThreads : public testing::TestWithParam<int> {};

TEST_P(LoaderWithThreads, ReturnsTheSamplersMicroBatchesInOrder) {
  const Numbers numbers(103);
  Sampler sampler(
      {.samples = 103, .global_batch = 16, .accumulation = 2, .rank = 1, .ranks = 3, .seed = 4});
  Loader loader(numbers, sampler, {.threads = GetParam(), .slots = 3});
  for (int i = 0; i < 200; ++i) {
    const MicroBatch expected = sampler.Next();
    const HostBatch batch = loader.Next();
    ASSERT_EQ(batch.origin.indices, expected.indices);
    ASSERT_EQ(batch.origin.step, expected.step);
    ASSERT_EQ(batch.input.size(0), static_cast<int64_t>(expected.indices.size()));
    for (size_t row = 0; row < expected.indices.size(); ++row) {
      const int64_t index = expected.indices[row];
      ASSERT_EQ(batch.input.const_data_ptr<float>()[2 * row], static_cast<float>(index));
      ASSERT_EQ(batch.input.const_data_ptr<float>()[2 * row + 1], static_cast<float>(-index));
      ASSERT_EQ(batch.target.const_data_ptr<int64_t>()[row], index % 3);
    }
    loader.Release();
  }
}

TEST_P(LoaderWithThreads, ALentSlotIsNotWrittenUntilItIsUnused) {
  const Numbers numbers(50);
  const Sampler sampler({.samples = 50, .global_batch = 5});
  Loader loader(numbers, sampler, {.threads = GetParam(), .slots = 2});
  std::atomic<int> waits = 0;
  for (int i = 0; i < 40; ++i) {
    const HostBatch batch = loader.Next();
    const int64_t first = batch.origin.indices[0];
    loader.Release([&waits, first, input = batch.input] {
      EXPECT_EQ(input.const_data_ptr<float>()[0], static_cast<float>(first));
      ++waits;
    });
  }
  EXPECT_GE(waits, 38);
}

TEST_P(LoaderWithThreads, CarriesAnExceptionToTheCaller) {
  for (const int64_t features : {2L, kFeaturesOfPieces}) {
    const Numbers numbers(40, {17, 18, 19}, features);
    const Sampler sampler({.samples = 40, .global_batch = 4, .shuffle = false});
    Loader loader(numbers, sampler, {.threads = GetParam(), .slots = 3});
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(loader.Next().origin.indices[0], 4 * i);
      loader.Release();
    }
    try {
      loader.Next();
      FAIL();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "sample 17 is bad");
    }
  }
}

// Checks the samples' values when several threads fill one slot. The samples are so large that each thread takes one
// sample at a time.
TEST_P(LoaderWithThreads, SeveralThreadsFillOneSlot) {
  const Numbers numbers(31, {}, kFeaturesOfPieces);
  for (const int slots : {2, 5}) {
    Sampler sampler({.samples = 31, .global_batch = 12, .rank = 1, .ranks = 2, .seed = 4});
    Loader loader(numbers, sampler, {.threads = GetParam(), .slots = slots});
    for (int i = 0; i < 30; ++i) {
      const MicroBatch expected = sampler.Next();
      const HostBatch batch = loader.Next();
      ASSERT_EQ(batch.origin.indices, expected.indices);
      for (size_t row = 0; row < expected.indices.size(); ++row) {
        const auto* numbers_of_row = batch.input.const_data_ptr<float>() + row * kFeaturesOfPieces;
        const auto index = static_cast<float>(expected.indices[row]);
        ASSERT_EQ(numbers_of_row[0], index);
        ASSERT_EQ(numbers_of_row[kFeaturesOfPieces - 1], -index);
        ASSERT_EQ(batch.target.const_data_ptr<int64_t>()[row], expected.indices[row] % 3);
      }
      loader.Release();
    }
  }
}

// A data set that asks for 8 samples at once.
class NumbersInEights : public WrappedDataset {
 public:
  explicit NumbersInEights(const Dataset& whole) : WrappedDataset(whole) {}

  int64_t samples_at_once() const override { return 8; }
  void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const override {
    whole_.Read(index, epoch, input, target);
  }
  void ReadSome(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                std::byte* target) const override {
    {
      const std::lock_guard lock(mutex_);
      ++read_at_once_[indices.size()];
    }
    Dataset::ReadSome(indices, epoch, input, target);
  }

  std::map<size_t, int> read_at_once() const {
    const std::lock_guard lock(mutex_);
    return read_at_once_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<size_t, int> read_at_once_;
};

TEST_P(LoaderWithThreads, AsksForAsManySamplesAsTheDataSetWants) {
  const Numbers numbers(100, {77}, kFeaturesOfPieces);
  const NumbersInEights eights(numbers);
  Sampler sampler({.samples = 100, .global_batch = 20, .shuffle = false});
  Loader loader(eights, sampler, {.threads = GetParam(), .slots = 2});
  for (int64_t batch = 0; batch < 3; ++batch) {
    const at::Tensor input = loader.Next().input;
    for (int64_t row = 0; row < 20; ++row) {
      ASSERT_EQ(input.const_data_ptr<float>()[row * kFeaturesOfPieces], 20.0F * batch + row);
    }
    loader.Release();
  }
  try {
    loader.Next();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "sample 77 is bad");
  }
  const std::map<size_t, int> read = eights.read_at_once();
  // Each of the four micro-batches of 20 samples is read in three parts of at most eight samples, as equal as possible:
  // 7, 7 and 6. The loader may have read more micro-batches ahead.
  EXPECT_EQ(read.size(), 2U);
  EXPECT_GE(read.at(7), 8);
  EXPECT_GE(read.at(6), 4);
}

TEST_P(LoaderWithThreads, DrawsForEachSample) {
  const auto pixels = MakeSynthetic(
      {.spec = {.shape = {3, 4, 5}, .dtype = at::kByte, .classes = 2}, .samples = 23});
  const AugmentOptions augment{.brightness = 0.4, .mixup = 1, .cutmix = 1, .seed = 6};
  const Sampler sampler({.samples = 23, .global_batch = 8, .seed = 4});
  Loader loader(*pixels, sampler, {.threads = GetParam(), .augment = augment});
  for (int i = 0; i < 20; ++i) {
    const HostBatch batch = loader.Next();
    ASSERT_EQ(batch.draws.size(0), batch.input.size(0));
    for (size_t row = 0; row < batch.origin.indices.size(); ++row) {
      std::array<float, kAugmentDraws> expected;
      DrawAugmentation(augment, {.width = 5, .height = 4}, batch.origin.epoch,
                       batch.origin.indices[row], expected.data());
      const auto* draws = batch.draws.const_data_ptr<float>() + row * kAugmentDraws;
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), draws));
    }
    loader.Release();
  }
  Loader plain(*pixels, sampler, {.threads = GetParam()});
  EXPECT_FALSE(plain.Next().draws.defined());
}

TEST_P(LoaderWithThreads, StopsInAnyState) {
  const Numbers numbers(40);
  const Sampler sampler({.samples = 40, .global_batch = 4});
  for (int taken = 0; taken < 5; ++taken) {
    Loader loader(numbers, sampler, {.threads = GetParam(), .slots = 3});
    for (int i = 0; i < taken; ++i) {
      loader.Next();
      if (i < 3) loader.Release();
    }
  }
}

// A data set that simulates a slow disk: while is_slow is true, each Read() waits 1 ms.
class OnSlowDisk : public WrappedDataset {
 public:
  explicit OnSlowDisk(const Dataset& whole) : WrappedDataset(whole) {}

  void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const override {
    if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    whole_.Read(index, epoch, input, target);
  }

  std::atomic<bool> is_slow = true;
};

TEST(Loader, TakesMoreThreadsForASlowDiskAndFewerAfterwards) {
  constexpr int kMost = 9;
  const Numbers numbers(500, {}, kFeaturesOfPieces);
  OnSlowDisk disk(numbers);
  Sampler sampler({.samples = 500, .global_batch = 10});
  Loader loader(disk, sampler, {.threads = 1, .most_threads = kMost, .slots = 3});
  const auto take_one = [&] {
    const MicroBatch expected = sampler.Next();
    const HostBatch batch = loader.Next();
    for (size_t row = 0; row < expected.indices.size(); ++row) {
      ASSERT_EQ(batch.input.const_data_ptr<float>()[row * kFeaturesOfPieces],
                static_cast<float>(expected.indices[row]));
    }
    loader.Release();
  };
  while (loader.threads() < kMost) take_one();
  disk.is_slow = false;
  while (loader.threads() > kMost / 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // simulates a slower model
    take_one();
  }
}

// Checks that the loader does not hang if the tuning stops a thread that is about to open a slot and still waits in
// `until_unused`. The stopped thread then opens the slot, and other threads must read the samples of the slot.
TEST(Loader, WhatALaidOffThreadOpenedIsReadByOthers) {
  const Numbers numbers(500, {}, kFeaturesOfPieces);
  OnSlowDisk disk(numbers);
  const Sampler sampler({.samples = 500, .global_batch = 20});
  Loader loader(disk, sampler, {.threads = 1, .most_threads = 6, .slots = 2});
  const auto take_one = [&] {
    loader.Next();
    loader.Release([&] {
      if (!disk.is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(4));  // a slow copy
    });
    if (!disk.is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(12));  // a slow model
  };
  while (loader.threads() < 6) take_one();
  disk.is_slow = false;
  while (loader.threads() > 2) take_one();
}

INSTANTIATE_TEST_SUITE_P(Threads, LoaderWithThreads, testing::Values(0, 1, 2, 5));

}  // namespace
}  // namespace lockstep
