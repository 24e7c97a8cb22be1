#include "data/loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>

#include "base/error.h"

namespace lockstep {
namespace {

// Sample i is the numbers i and -i, with label i % 3. Read takes a random while, so that threads
// overtake each other; reading `bad_index` throws.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size, int64_t bad_index = -1) : size_(size), bad_index_(bad_index) {}

  int64_t size() const override { return size_; }
  const SampleSpec& spec() const override { return spec_; }

  void Read(int64_t index, std::byte* input, std::byte* target) const override {
    static thread_local std::minstd_rand random(
        std::hash<std::thread::id>()(std::this_thread::get_id()));
    for (auto yields = random() % 20; yields > 0; --yields) std::this_thread::yield();
    if (index == bad_index_) throw DataError("sample {} is bad", index);
    const float values[] = {static_cast<float>(index), static_cast<float>(-index)};
    std::memcpy(input, values, sizeof(values));
    const int64_t label = index % 3;
    std::memcpy(target, &label, sizeof(label));
  }

 private:
  int64_t size_;
  int64_t bad_index_;
  SampleSpec spec_{.shape = {2}, .classes = 3};
};

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
  const Numbers numbers(40, 17);
  const Sampler sampler({.samples = 40, .global_batch = 4, .shuffle = false});
  Loader loader(numbers, sampler, {.threads = GetParam(), .slots = 3});
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(loader.Next().origin.indices[0], 4 * i);
    loader.Release();
  }
  EXPECT_THROW(loader.Next(), Error);
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
