#include "observe/device_memory.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace lockstep {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

}  // namespace

DeviceMemory ReadDeviceMemory(at::Device device) {
  DeviceMemory memory;
  const auto stats = allocator::getDeviceStats(device.index());
  memory.allocated_bytes = stats.allocated_bytes[kAll].current;
  memory.reserved_bytes = stats.reserved_bytes[kAll].current;
  const auto snapshot = allocator::snapshot(/*mempool_id=*/{0, 0}, /*include_traces=*/false);
  for (const auto& segment : snapshot.segments) {
    if (segment.device != device.index()) continue;
    if (segment.owner_private_pool_id != c10::MempoolId_t{0, 0}) {
      memory.pool_bytes += static_cast<int64_t>(segment.total_size);
      continue;
    }
    for (const auto& block : segment.blocks) {
      if (block.active) continue;
      const auto bytes = static_cast<int64_t>(block.size);
      memory.free_bytes += bytes;
      memory.largest_free_bytes = std::max(memory.largest_free_bytes, bytes);
    }
  }
  return memory;
}

int64_t AllocatedBytes(at::Device device) {
  return allocator::getDeviceStats(device.index()).allocated_bytes[kAll].current;
}

int64_t TotalDeviceBytes(at::Device device) {
  return static_cast<int64_t>(at::cuda::getDeviceProperties(device.index())->totalGlobalMem);
}

struct AllocationFailures::Shared {
  std::mutex mutex;
  std::function<void()> on_failure;  // empty: nobody listens any more
  std::optional<AllocationFailure> failure;
};

AllocationFailures::AllocationFailures(at::Device device, std::function<void()> on_failure)
    : shared_(std::make_shared<Shared>()) {
  shared_->on_failure = std::move(on_failure);
  allocator::attachOutOfMemoryObserver(
      [device, shared = std::weak_ptr(shared_)](int64_t failed_on, size_t requested, size_t total,
                                                size_t free) {
        const auto here = shared.lock();
        if (!here || failed_on != device.index()) return;
        const DeviceMemory memory = ReadDeviceMemory(device);
        // `total` may be a part of the GPU that the process is limited to, and `free` is the GPU's.
        const int64_t left = std::clamp<int64_t>(
            static_cast<int64_t>(total) - memory.reserved_bytes, 0, static_cast<int64_t>(free));
        const std::scoped_lock lock(here->mutex);
        here->failure = AllocationFailure{.requested_bytes = static_cast<int64_t>(requested),
                                          .allocated_bytes = memory.allocated_bytes,
                                          .reserved_bytes = memory.reserved_bytes,
                                          .free_bytes = memory.free_bytes,
                                          .largest_free_bytes = memory.largest_free_bytes,
                                          .pool_bytes = memory.pool_bytes,
                                          .device_free_bytes = left,
                                          .device_bytes = static_cast<int64_t>(total)};
        if (here->on_failure) here->on_failure();
      });
}

AllocationFailures::~AllocationFailures() {
  const std::scoped_lock lock(shared_->mutex);
  shared_->on_failure = nullptr;
}

std::optional<AllocationFailure> AllocationFailures::Take() {
  const std::scoped_lock lock(shared_->mutex);
  return std::exchange(shared_->failure, std::nullopt);
}

}  // namespace lockstep
