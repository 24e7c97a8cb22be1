// MemoryAccount: says what the memory of this rank's device is taken for while it trains, what stays behind after
// steps, and what was there when an allocation failed.
//
// Promise: only the first two steps (later ones, if a profiler is on then), and steps whose numbers are powers of two,
// are watched (observe/memory_watch.h). All others cost a reading of one number of the allocator. No step waits for it,
// except for a snapshot for the memory viewer, which the user asks for (observe.memory_snapshot).
//
// The report comes after the second step of a process: in the first step the optimizer's moments are made, and in the
// second step the CUDA graph is captured, so what is there then stays. If an evaluation takes more than 2 % more, the
// first step after it makes a new report.
//
// what can fail -> what the caller sees -> the test that shows it
//   an allocation on the GPU -> Failure() -> tests/gpu/gpu_memory_test.py, test_fragmentation_is_named
//   a snapshot cannot be written -> a warning -> observe/memory/background_files_test.cc
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "observe/allocator_history.h"
#include "observe/device_memory.h"
#include "observe/memory/memory_report.h"
#include "observe/run_event.h"
#include "observe/verdict/memory_trend.h"
#include "observe/verdict/rules.h"
#include "trainer/config/schema/config.pb.h"
#include "trainer/run/checkpointing.h"
#include "trainer/run/input.h"
#include "trainer/step/step.h"
#include "trainer/step/world.h"

namespace lockstep {

class MemoryAccount {
 public:
  // Keeps references to all arguments.
  MemoryAccount(const config::Config& config, const World& world, RunEvents& events);

  // Who holds memory between steps.
  struct Holders {
    Step& step;
    const Input& input;
    const std::optional<Checkpointing>& checkpointing;  // nothing: steps are only timed
  };

  // Calls `run`, which makes step `number`, counted from 1, and returns its result: whether there was memory enough.
  // Emits a report if one is due. If steps are only timed, it only calls `run`.
  bool Watch(int64_t number, const Holders& holders, const std::function<bool()>& run);

  // Returns the allocation that made the last step fail. Nothing on a CPU. Every rank must call it after Watch() has
  // returned false, and every rank gets the same.
  std::optional<FailedAllocation> Failure();

  // Returns how the memory of the steps so far grows.
  MemoryGrowth Growth() const;

 private:
  static constexpr int64_t kSettledSteps = 2;
  static constexpr int64_t kReadEvery = 8;  // steps between two readings of the allocator

  void Begin();
  bool IsDue() const;
  void OnWatched(MemoryWatch& watch, int64_t pool_bytes_before);
  void ReadDevice(const MemoryWatch& watch);
  void WriteSnapshot(const std::string& name);
  static std::vector<OwnedTensor> HeldTensors(const Holders& holders);

  const config::Config& config_;
  const World& world_;
  RunEvents& events_;
  bool is_gpu_ = world_.device.is_cuda();
  bool begun_ = false;
  int64_t steps_ = 0;   // that this process has made, with the one that is being made
  int64_t number_ = 0;  // of the step that is being made
  std::optional<MemoryReport> first_;  // of the first step
  bool reported_ = false;
  int64_t reported_peak_ = 0;               // the allocator's, when the last report was made
  bool rose_ = false;                       // whether it has become higher since
  MemoryTrend device_{kLeastGrowth_bytes};  // what the allocator has given after steps
  KeptTensors kept_;                        // in the last step that was watched
  std::optional<AllocatorHistory> history_;
  std::optional<AllocationFailures> failures_;

  // Less than a process's memory must grow to count: tensors do not come and go between steps.
  static constexpr double kLeastGrowth_bytes = 4 << 20;
};

// Throws the Error for every rank of a step that has not fitted into memory with micro-batches of so many samples.
[[noreturn]] void EndForMemory(int64_t step, int64_t micro_batch,
                               const std::optional<FailedAllocation>& failed);

}  // namespace lockstep
