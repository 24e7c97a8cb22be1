// MemoryWatch: measures the memory that a training step takes on its device, by phase, by owner and by module.
//
// Promise: outside of During() an allocation costs no more than without this class. A watched step computes the same
// results as a step that is not watched.
//
// How: LibTorch reports each allocation to the object in the thread's ThreadLocalDebugInfo, which is how PyTorch's
// profiler measures memory. The threads of a backward pass inherit the object of the thread that started the pass. On a
// GPU the reported sizes are those of the allocator's blocks. Each report also has the allocator's total, so memory
// that other threads allocate is counted, but without an owner or a module. On a CPU the reported sizes are those of
// tensors. Memory that libraries allocate themselves (NCCL, cuDNN, oneDNN, the driver) is not seen.
//
// While During() runs, no profiler can be enabled on this thread.
//
// A step that replays a CUDA graph allocates nothing; the step that captures the graph allocates the graph's memory.
//
// what can fail -> what the caller sees -> the test that shows it (observe/memory_watch_test.cc)
//   a profiler is on, or TellsBlocks() is false for the GPU's allocator -> During() watches nothing and returns false
//     -> MemoryWatch.LeavesAProfilerAlone
//   the step throws -> During() stops watching and passes the exception on -> MemoryWatch.EndsWithAnException
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

// A tensor, and the owner to which its memory is counted.
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

  // A function that returns the tensors that exist before the step, with their owners.
  using Held = std::function<std::vector<OwnedTensor>()>;

  // Calls `act`, and watches the memory that this thread allocates until `act` returns. Does not keep the tensors that
  // `held` returns alive. Returns whether the memory was watched; `act` is called in any case.
  bool During(const Held& held, const std::function<void()>& act);

  // Calls `act`. Returns the peak of the bytes that were allocated on the GPU while `act` ran; 0 on a CPU.
  int64_t PeakDuring(const std::function<void()>& act);

  // Sets the phase to which the allocations that follow in the step are counted.
  void Mark(Phase phase);

  // Returns the memory that the last During() has measured.
  const MemoryTally& tally() const;

  // Returns by how many bytes memory has grown in the last During(). On a CPU LibTorch does not report the free of a
  // block that was allocated before During(), so such a block counts as still allocated.
  int64_t Growth() const { return tally().now_bytes() - begun_bytes_; }

  // Return the peak of the bytes that were allocated on the GPU: peak() in the last During(), and Most() since the last
  // ForgetMost() or the construction. Both peaks are 0 on a CPU.
  int64_t peak() const { return peak_; }
  int64_t Most() const;
  void ForgetMost();

  // Returns the device's memory figures at the peak since the last ForgetMost() or the construction. All are 0 on a
  // CPU.
  DevicePeak PeakOfDevice() const;

  // Returns how many bytes of the tensors that `held` returned to the last During() were not allocated by LibTorch's
  // allocator, such as memory that is registered with NCCL; 0 on a CPU.
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
  // The peak in bytes between the last ForgetMost() and the last reset of the allocator's own peak.
  int64_t most_ = 0;
};

}  // namespace lockstep
