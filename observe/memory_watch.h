// MemoryWatch: watches the memory that a step takes on its device: in each phase, for each owner, for each module.
//
// Promise: while nobody watches, an allocation costs nothing more than without this class. A watched step computes the
// same.
//
// How: LibTorch reports each allocation to an object that a thread has in its ThreadLocalDebugInfo, which is how
// PyTorch's profiler measures memory. Backward passes have the object of the thread that called them. On a GPU the
// sizes are those of the allocator's blocks, and each report has the allocator's sum, so what other threads allocate
// counts, too, without their names. On a CPU the sizes are those of tensors. Memory that libraries allocate themselves
// (NCCL, cuDNN, oneDNN, the driver) is not seen.
//
// Meanwhile no profiler can be enabled on this thread.
//
// A replayed CUDA graph allocates nothing; the step in which it is captured does.
//
// what can fail -> what the caller sees -> the test that shows it (observe/memory_watch_test.cc)
//   a profiler is on, or the GPU's allocator tells nothing (TellsBlocks()) -> During() watches nothing and returns
//     false
//     -> MemoryWatch.LeavesAProfilerAlone
//   the step throws -> the exception, and the watch has ended -> MemoryWatch.EndsWithAnException
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/memory_scope.h"
#include "observe/device_memory.h"
#include "observe/memory/memory_tally.h"
#include "observe/step_clock.h"

namespace lockstep {

// A tensor and what it is for.
struct OwnedTensor {
  MemoryOwner owner = MemoryOwner::kUnknown;
  at::Tensor tensor;
};

class MemoryWatch {
 public:
  explicit MemoryWatch(at::Device device);
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  // Returns the tensors that exist already.
  using Held = std::function<std::vector<OwnedTensor>()>;

  // Calls `act` and watches what this thread allocates meanwhile. Keeps none of `held`. Returns whether it could watch;
  // it calls `act` in any case.
  bool During(const Held& held, const std::function<void()>& act);

  // Calls `act`. Returns the most bytes that the GPU's allocator has given at a time meanwhile; 0 on a CPU.
  int64_t PeakDuring(const std::function<void()>& act);

  // Call it when the step enters `phase`.
  void Mark(Phase phase);

  // The memory that the last During() has seen.
  const MemoryTally& tally() const;

  // By how many bytes memory has grown in the last During(). On a CPU nobody tells when memory is freed that was there
  // before, so it counts as if it were still there.
  int64_t Growth() const { return tally().now_bytes() - begun_bytes_; }

  // On a GPU, the most bytes that the allocator has given at a time: in the last During(), and since ForgetMost() or
  // the beginning. 0 on a CPU.
  int64_t peak() const { return peak_; }
  int64_t Most() const;
  void ForgetMost();

  // The peak since ForgetMost() or the beginning. Zeros on a CPU.
  DevicePeak PeakOfDevice() const;

  // On a GPU, what of `held` the allocator has not given, such as memory that NCCL knows.
  int64_t elsewhere() const { return elsewhere_; }

 private:
  class Reporter;

  void Hold(const std::vector<OwnedTensor>& held);
  void OwnWorkspaces();
  int64_t ReadPeak() const;
  void ResetPeak();

  at::Device device_;
  std::shared_ptr<Reporter> reporter_;
  int64_t peak_ = 0;
  int64_t elsewhere_ = 0;
  int64_t begun_bytes_ = 0;
  int64_t most_ = 0;  // the highest peak before the last reset of the allocator's figure
};

}  // namespace lockstep
