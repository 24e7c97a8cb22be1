// Tests that the batches of a DeviceFeed and their random draws arrive on the device complete and in order, while the
// device is busy with the previous batch.

#include "data/feed/device_feed.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <gtest/gtest.h>

#include <cstring>

namespace lockstep {
namespace {

// A data set in which sample i is an image of 256 numbers that all equal i, and has the label i.
class Numbers : public Dataset {
 public:
  int64_t size() const override { return 1000; }
  const SampleSpec& spec() const override { return spec_; }
  void Read(int64_t index, int64_t /*epoch*/, std::byte* input, std::byte* target) const override {
    const std::vector<float> values(256, static_cast<float>(index));
    std::memcpy(input, values.data(), values.size() * sizeof(float));
    std::memcpy(target, &index, sizeof(index));
  }

 private:
  SampleSpec spec_{.shape = {1, 16, 16}, .classes = 1000};
};

constexpr AugmentOptions kAugment{.brightness = 0.5, .mixup = 1, .seed = 3};

at::Tensor DrawsOf(const MicroBatch& batch) {
  const auto count = static_cast<int64_t>(batch.indices.size());
  at::Tensor draws = EmptyDraws(kAugment, count, at::kCPU);
  for (int64_t i = 0; i < count; ++i) {
    DrawAugmentation(kAugment, {.width = 16, .height = 16}, batch.epoch, batch.indices[i],
                     draws[i].mutable_data_ptr<float>());
  }
  return draws;
}

void ExpectEveryBatchWhole(at::Device device, int threads, bool prefetch) {
  const Numbers numbers;
  Sampler sampler({.samples = 1000, .global_batch = 64, .seed = 3});
  Loader loader(numbers, sampler,
                {.threads = threads, .slots = 3, .pinned = device.is_cuda(), .augment = kAugment});
  DeviceFeed feed(loader, numbers.spec(), sampler.max_micro_batch(), device);
  const at::Tensor load = at::randn({2048, 2048}, at::TensorOptions(device));
  at::Tensor wrong = at::zeros({}, at::TensorOptions(device).dtype(at::kLong));
  for (int step = 0; step < 100; ++step) {
    const std::vector<int64_t> expected = sampler.Next().indices;
    const DeviceBatch batch = feed.Next();
    ASSERT_EQ(batch.origin.indices, expected);
    // On a GPU the comparison below runs after this matrix product, which takes longer than the copies of later
    // batches. So a copy that overwrites the batch too early is noticed.
    if (device.is_cuda()) wrong += at::mm(load, load).isnan().sum();
    const at::Tensor labels = at::tensor(expected, at::kLong).to(device);
    wrong += batch.target.ne(labels).sum() +
             batch.input.flatten(1).ne(labels.to(at::kFloat).unsqueeze(1)).sum() +
             batch.draws.ne(DrawsOf(batch.origin).to(device)).sum();
    if (prefetch) feed.Prefetch();
  }
  EXPECT_EQ(wrong.item<int64_t>(), 0);
}

TEST(DeviceFeed, OnTheCpu) {
  for (const int threads : {0, 2}) ExpectEveryBatchWhole(at::kCPU, threads, true);
}

TEST(DeviceFeed, OnAGpu) {
  if (at::cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU; this machine has none";
  for (const int threads : {0, 2}) {
    for (const bool prefetch : {false, true})
      ExpectEveryBatchWhole({at::kCUDA, 0}, threads, prefetch);
  }
}

// A data set whose Read() waits until the device has no work left, so that the device must wait for each sample.
class WaitsForAnIdleDevice : public Numbers {
 public:
  void Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const override {
    cudaDeviceSynchronize();
    Numbers::Read(index, epoch, input, target);
  }
};

TEST(DeviceFeed, CountsTheTimeThatADeviceStandsStill) {
  if (at::cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU; this machine has none";
  const at::Device device(at::kCUDA, 0);
  const Sampler sampler({.samples = 1000, .global_batch = 64});
  const WaitsForAnIdleDevice numbers;
  Loader loader(numbers, sampler, {.threads = 1, .slots = 3, .pinned = true});
  DeviceFeed feed(loader, numbers.spec(), sampler.max_micro_batch(), device);
  EXPECT_EQ(feed.waited_s(), 0);
  const at::Tensor load = at::randn({2048, 2048}, at::TensorOptions(device));
  for (int step = 0; step < 10; ++step) {
    feed.Next();
    at::mm(load, load);
    feed.Prefetch();
  }
  cudaDeviceSynchronize();
  EXPECT_GT(feed.waited_s(), 0);
}

}  // namespace
}  // namespace lockstep
