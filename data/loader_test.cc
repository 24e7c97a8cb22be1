#include "data/loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <set>

#include "base/error.h"

namespace lockstep {
namespace {

// Sample i is the numbers i, -i, i, -i, ..., with label i % 3. Read takes a random while, so that threads
// overtake each other; reading one of `bad` throws.
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

// So many that a thread takes one sample at a time.
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

// Slots whose samples are handed to threads one by one.
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

INSTANTIATE_TEST_SUITE_P(Threads, LoaderWithThreads, testing::Values(0, 1, 2, 5));

}  // namespace
}  // namespace lockstep
