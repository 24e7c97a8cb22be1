#include "observe/peak_memory.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>

namespace lockstep {

void PeakMemory::Begin() {
  if (!device_.is_cuda()) return;
  most_ = std::max(most_, ReadPeak());
  bytes_ = {};
  watching_ = true;
  phase_ = Phase::kRest;
  c10::cuda::CUDACachingAllocator::resetPeakStats(device_.index());
}

void PeakMemory::Mark(Phase phase) {
  if (!watching_) return;
  int64_t& bytes = bytes_[static_cast<size_t>(phase_)];
  bytes = std::max(bytes, ReadPeak());
  most_ = std::max(most_, bytes);
  phase_ = phase;
  c10::cuda::CUDACachingAllocator::resetPeakStats(device_.index());
  watching_ = phase != Phase::kRest;
}

int64_t PeakMemory::Most() const { return device_.is_cuda() ? std::max(most_, ReadPeak()) : 0; }

int64_t PeakMemory::ReadPeak() const {
  using Kind = c10::CachingAllocator::StatType;
  return c10::cuda::CUDACachingAllocator::getDeviceStats(device_.index())
      .allocated_bytes[static_cast<size_t>(Kind::AGGREGATE)]
      .peak;
}

}  // namespace lockstep
