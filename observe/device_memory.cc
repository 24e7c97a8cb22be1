#include "observe/device_memory.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "base/tensor/libtorch_versions.h"

namespace lockstep {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

using Segments = decltype(SnapshotOf(*allocator::get()).segments);
using Segment = Segments::value_type;

Segments SegmentsOf(at::Device device) {
  Segments segments = SnapshotOf(*allocator::get()).segments;
  std::erase_if(segments, [&](const Segment& segment) { return segment.device != device.index(); });
  return segments;
}

bool IsOfPool(const Segment& segment) {
  return segment.owner_private_pool_id != c10::MempoolId_t{0, 0};
}

// Describes the memory at the moment when this thread's request for `requested` bytes failed. `requested` is already
// rounded up to the size of a segment. `total` is how many bytes the allocator may use, which can be less than the
// GPU's memory. `free` is how many bytes of the GPU no process has reserved.
AllocationFailure FailureOf(at::Device device, int64_t requested, int64_t total, int64_t free) {
  constexpr int64_t kSmallSegment_bytes = 2 << 20;  // the size of each segment for small tensors
  const bool is_large = requested > kSmallSegment_bytes;
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream(device.index());
  const auto stats = allocator::getDeviceStats(device.index());
  AllocationFailure failure{.requested_bytes = requested,
                            .allocated_bytes = stats.allocated_bytes[kAll].current,
                            .reserved_bytes = stats.reserved_bytes[kAll].current,
                            .device_bytes = total};
  failure.device_free_bytes = std::clamp<int64_t>(total - failure.reserved_bytes, 0, free);
  for (const Segment& segment : SegmentsOf(device)) {
    if (IsOfPool(segment)) {
      failure.pool_bytes += static_cast<int64_t>(segment.total_size);
      continue;
    }
    const bool can_be_used = segment.is_large == is_large && segment.stream == stream;
    for (const auto& block : segment.blocks) {
      if (block.active) continue;
      const auto bytes = static_cast<int64_t>(block.size);
      failure.free_bytes += bytes;
      if (!can_be_used) continue;
      failure.usable_bytes += bytes;
      failure.largest_usable_bytes = std::max(failure.largest_usable_bytes, bytes);
    }
  }
  return failure;
}

}  // namespace

bool TellsBlocks() { return allocator::name() == "native"; }

DeviceMemory ReadDeviceMemory(at::Device device) {
  const auto stats = allocator::getDeviceStats(device.index());
  DeviceMemory memory{.reserved_bytes = stats.reserved_bytes[kAll].current};
  for (const auto& segment : SegmentsOf(device)) {
    if (IsOfPool(segment)) memory.pool_bytes += static_cast<int64_t>(segment.total_size);
  }
  return memory;
}

int64_t AllocatedBytes(at::Device device) {
  return allocator::getDeviceStats(device.index()).allocated_bytes[kAll].current;
}

int64_t TotalDeviceBytes(at::Device device) {
  return static_cast<int64_t>(at::cuda::getDeviceProperties(device.index())->totalGlobalMem);
}

int64_t FreeDeviceBytes(at::Device device) {
  const auto stats = allocator::getDeviceStats(device.index());
  const auto [free, total] = allocator::get()->getMemoryInfo(device.index());
  const int64_t reserved = stats.reserved_bytes[kAll].current;
  // PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:... can limit this process to a part of the memory.
  const double share = allocator::getMemoryFraction(device.index());
  const int64_t allowed = static_cast<int64_t>(share * static_cast<double>(total)) - reserved;
  return std::min(static_cast<int64_t>(free), allowed) + reserved -
         stats.allocated_bytes[kAll].current;
}

struct AllocationFailures::Shared {
  std::mutex mutex;  // protects `failure`
  std::optional<AllocationFailure> failure;
  std::mutex calls;                  // locked while on_failure runs
  std::function<void()> on_failure;  // empty once AllocationFailures is destroyed
};

AllocationFailures::AllocationFailures(at::Device device, std::function<void()> on_failure)
    : shared_(std::make_shared<Shared>()) {
  shared_->on_failure = std::move(on_failure);
  allocator::attachOutOfMemoryObserver([device, shared = std::weak_ptr(shared_)](
                                           int64_t failed_on, size_t requested, size_t total,
                                           size_t free) {
    const auto here = shared.lock();
    if (!here || failed_on != device.index()) return;
    try {
      AllocationFailure failure =
          FailureOf(device, static_cast<int64_t>(requested), static_cast<int64_t>(total),
                    static_cast<int64_t>(free));
      {
        const std::scoped_lock lock(here->mutex);
        here->failure = failure;
      }
      const std::scoped_lock lock(here->calls);
      if (here->on_failure) here->on_failure();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the allocation throws what its callers expect
    }
  });
}

AllocationFailures::~AllocationFailures() {
  const std::scoped_lock lock(shared_->calls);
  shared_->on_failure = nullptr;
}

std::optional<AllocationFailure> AllocationFailures::Take() {
  const std::scoped_lock lock(shared_->mutex);
  return std::exchange(shared_->failure, std::nullopt);
}

}  // namespace lockstep
