// Tests that a StateSnapshot keeps the values that the tensors had when Take() was called, although work is still
// queued on the device during Take(), and the tensors change later. The snapshot's copies are on the device or, if the
// device has no room for them, in pinned host memory.

#include "ckpt/snapshot.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <thread>

namespace lockstep {
namespace {

const at::Device kGpu(at::kCUDA, 0);

// The test parameter is true if the device has no room for the copies.
class Snapshot : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!at::cuda::is_available()) GTEST_SKIP() << "there is no GPU";
  }

  static std::vector<NamedTensor> Tensors() {
    const at::TensorOptions on_gpu(kGpu);
    const at::Tensor image = at::randn({8, 16, 7, 7}, on_gpu);
    return {{"large",
             at::randn({5'000'001}, on_gpu)},  // is copied in several pieces, the last one shorter
            {"transposed", at::randn({300, 200}, on_gpu).t()},
            {"channels last", image.contiguous(at::MemoryFormat::ChannelsLast)},
            {"half", at::randn({33}, on_gpu).to(at::kHalf)},
            {"empty", at::empty({0, 4}, on_gpu)},
            {"scalar", at::full({}, 7, on_gpu.dtype(at::kLong))},
            {"host", at::randn({100})}};
  }

  // Prevents the caching allocator from taking more device memory than it already holds, until the object is destroyed.
  class NoRoom {
   public:
    NoRoom() {
      c10::cuda::CUDACachingAllocator::emptyCache();
      const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(kGpu.index());
      const auto total = static_cast<double>(at::cuda::getDeviceProperties(0)->totalGlobalMem);
      const double held = static_cast<double>(stats.reserved_bytes[0].current);
      c10::cuda::CUDACachingAllocator::setMemoryFraction(held / total, kGpu.index());
    }
    ~NoRoom() { c10::cuda::CUDACachingAllocator::setMemoryFraction(1, kGpu.index()); }
    NoRoom(const NoRoom&) = delete;
    NoRoom& operator=(const NoRoom&) = delete;
  };

  static void Take(StateSnapshot& snapshot, const std::vector<NamedTensor>& tensors) {
    std::optional<NoRoom> no_room;
    if (GetParam()) no_room.emplace();
    snapshot.Take(tensors);
  }
};

TEST_P(Snapshot, HoldsWhatWasThere) {
  const std::vector<NamedTensor> tensors = Tensors();
  StateSnapshot snapshot(kGpu);
  const at::Tensor work = at::randn({4096, 4096}, kGpu);
  for (int round = 0; round < 3; ++round) {
    std::vector<at::Tensor> expected;
    for (const auto& [name, tensor] : tensors) {
      if (tensor.is_floating_point()) tensor.add_(1);
      expected.push_back(tensor.cpu().clone(at::MemoryFormat::Contiguous));
    }
    // The 20 products keep the device busy, so that Take() and zero_() are called before the device has computed them.
    at::Tensor product = work;
    for (int i = 0; i < 20; ++i) product = product.mm(work);
    Take(snapshot, tensors);
    for (const auto& [name, tensor] : tensors) tensor.zero_();
    std::thread([&] {
      for (size_t i = 0; i < expected.size(); ++i) {
        const at::Tensor& copy = snapshot.tensors()[i].tensor;
        std::string bytes;
        snapshot.Append(copy, [&](std::span<const std::byte> more) {
          bytes.append(reinterpret_cast<const char*>(more.data()), more.size());
        });
        ASSERT_EQ(bytes.size(), expected[i].nbytes()) << tensors[i].name;
        EXPECT_EQ(std::memcmp(bytes.data(), expected[i].const_data_ptr(), bytes.size()), 0)
            << tensors[i].name << " in round " << round;
      }
    }).join();
    EXPECT_EQ(snapshot.tensors()[0].tensor.is_cuda(), !GetParam());
    EXPECT_GT(snapshot.seconds(), 0);
  }
}

TEST_P(Snapshot, AllocatesNothingTheSecondTime) {
  const std::vector<NamedTensor> tensors = Tensors();
  StateSnapshot snapshot(kGpu);
  Take(snapshot, tensors);
  std::vector<const void*> memory;
  for (const NamedTensor& copy : snapshot.tensors()) memory.push_back(copy.tensor.const_data_ptr());
  Take(snapshot, tensors);
  for (size_t i = 0; i < memory.size(); ++i) {
    EXPECT_EQ(snapshot.tensors()[i].tensor.const_data_ptr(), memory[i]) << tensors[i].name;
  }
}

TEST_P(Snapshot, LeavesTheDevicesMemoryWhenAsked) {
  const std::vector<NamedTensor> tensors = Tensors();
  StateSnapshot snapshot(kGpu);
  Take(snapshot, tensors);
  EXPECT_EQ(snapshot.holds_device_memory(), !GetParam());
  snapshot.LeaveDeviceMemory();
  snapshot.Take(tensors);
  EXPECT_FALSE(snapshot.holds_device_memory());
  EXPECT_FALSE(snapshot.tensors()[0].tensor.is_cuda());
}

TEST(SnapshotAlone, LeavesATenthOfTheMemoryFree) {
  if (!at::cuda::is_available()) GTEST_SKIP() << "there is no GPU";
  c10::cuda::CUDACachingAllocator::emptyCache();
  size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  const auto most = static_cast<int64_t>(free - total / 20);
  {
    const at::Tensor other = at::empty({most}, at::TensorOptions(kGpu).dtype(at::kByte));
    StateSnapshot snapshot(kGpu);
    snapshot.Take({{"small", at::ones({1000}, at::TensorOptions(kGpu))}});
    EXPECT_FALSE(snapshot.holds_device_memory());
  }
  c10::cuda::CUDACachingAllocator::emptyCache();
}

INSTANTIATE_TEST_SUITE_P(Where, Snapshot, testing::Bool(), [](const auto& info) {
  return info.param ? "InPinnedMemory" : "OnTheDevice";
});

}  // namespace
}  // namespace lockstep
