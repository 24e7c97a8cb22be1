// MemoryAccount: while a run trains, reports what the memory of this rank's device is used for, how much memory steps
// leave allocated, and how much memory was free when an allocation failed.
//
// Promise: a step's allocations are recorded (observe/memory_watch.h) only in the first two steps (in later steps if a
// profiler is on during the first two), in the step after the peak has risen, and in steps whose numbers are powers of
// two from 16 on. After all other steps at most a few numbers are read from the allocator. Steps wait only for a
// snapshot for PyTorch's memory viewer, if the user asks for one (observe.memory_snapshot).
//
// The report comes after the second step of a process. By then the optimizer's moments (in the first step) and the
// memory of the CUDA graph (in the second step) have been allocated, and both stay allocated. If later steps or an
// evaluation take over 2 % more memory than the last report says, there is a new report. After a step that did not fit
// in memory, steps are counted from 0 again, so a new report follows.
//
// what can fail -> what the caller sees -> the test that shows it
//   an allocation on the GPU -> Failure() -> tests/gpu/gpu_memory_test.py, test_fragmentation_is_named
//   a step that does not fit with one sample -> OutOfMemoryError -> tests/memory_test.py,
//     test_bench_step_says_what_it_lacked
//   a snapshot cannot be taken or written -> a warning -> tests/gpu/gpu_memory_test.py,
//     test_a_snapshot_that_cannot_be_written
//   an allocator without statistics -> no reports, and a warning if a snapshot is wanted
//     -> tests/gpu/gpu_memory_test.py, test_an_allocator_that_tells_nothing
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/tensor/named_tensor.h"
#include "comm/together.h"
#include "config/schema/config.pb.h"
#include "observe/allocator_history.h"
#include "observe/device_memory.h"
#include "observe/memory/memory_report.h"
#include "observe/run_event.h"
#include "observe/verdict/memory_trend.h"
#include "observe/verdict/rules.h"
#include "trainer/run/input.h"
#include "trainer/step/step.h"
#include "trainer/step/world.h"

namespace lockstep {

class MemoryAccount {
 public:
  // Keeps references to all arguments. Begins to record the allocator's history if the config asks for snapshots.
  MemoryAccount(const config::Config& config, const World& world, RunEvents& events);

  // Stores the predicted memory of this run (trainer/run/foretell.h). The prediction is reported before the first step,
  // and again beside each measured value until a step does not fit in memory.
  void Expect(std::optional<MemoryReport> foretold) { foretold_ = std::move(foretold); }

  // Calls `run`, which makes step `number`, counted from 1, and returns the result of `run`: whether the step fitted in
  // memory. Emits a report if one is due. The tensors of `step`, `input` and `snapshots` (Checkpointing::memories())
  // count as memory that stays allocated between steps.
  bool Watch(int64_t number, Step& step, const Input& input,
             const std::vector<NamedTensor>& snapshots, const std::function<bool()>& run);

  // Calls `evaluate`, after `steps` steps were made. Emits a report if the evaluation takes over 2 % more memory than
  // the last report says.
  void WatchEvaluation(int64_t steps, Step& step, const Input& input,
                       const std::vector<NamedTensor>& snapshots,
                       const std::function<void()>& evaluate);

  // Returns the allocation that made the last step fail, on the first rank where an allocation failed. Returns nothing
  // on a CPU. Every rank must call Failure() after Watch() has returned false, and every rank gets the same result.
  std::optional<FailedAllocation> Failure(const Step& step);

  // Waits until the memory snapshots are written. Emits the report if the run had only one step, and warnings about
  // snapshots. Call it at the end of the run.
  void End();

  // Returns how fast the allocated memory has grown over the steps so far.
  MemoryGrowth Growth() const;

 private:
  static constexpr int64_t kSettledSteps = 2;
  static constexpr int64_t kReadEvery = 8;  // steps between two readings of the allocator
  static constexpr double kTolerance = 0.02;

  void Begin();
  void BeginAnew();
  bool IsDue() const;
  void OnWatched(Step& step);
  void ReadDevice(const MemoryWatch& watch);
  MemoryFacts FactsAt(int64_t step) const;
  void Report(MemoryReport report);
  bool IsMore(int64_t peak_bytes) const;
  void TakeErrors();
  void OnFailure();
  void WriteSnapshot(const std::string& name);

  const config::Config& config_;
  const World& world_;
  RunEvents& events_;
  bool is_gpu_ = world_.device.is_cuda();
  bool is_told_ = !is_gpu_ || TellsBlocks();  // whether the allocator can report its blocks
  bool begun_ = false;
  // The number of steps since the process began or since the last step that did not fit in memory, including the
  // current step.
  int64_t steps_ = 0;
  std::atomic<int64_t> number_ = 0;     // number of the current step, from 1
  std::atomic<int64_t> failed_in_ = 0;  // the last step that wrote a snapshot of a failure
  std::optional<MemoryReport> first_;   // the first step's report, until the second step
  std::optional<MemoryReport> foretold_;
  bool reported_ = false;
  int64_t reported_peak_ = 0;               // peak bytes of the last report
  int64_t pool_bytes_ = 0;                  // bytes of the CUDA graphs' pools at the last report
  bool rose_ = false;                       // whether the peak has risen since the last report
  MemoryTrend device_{kLeastGrowth_bytes};  // the growth of the bytes allocated between steps
  KeptTensors kept_;                        // tensors that the last watched step left allocated
  std::optional<AllocatorHistory> history_;
  std::optional<AllocationFailures> failures_;  // calls OnFailure()

  // The least growth of device memory, in bytes, that is reported. The limit for a process's host memory is higher
  // (observe/verdict), because allocations in host memory vary between steps, while the tensors on a device do not.
  static constexpr double kLeastGrowth_bytes = 4 << 20;
};

// The Error (kUsage) with which every rank ends if memory runs out.
class OutOfMemoryError : public Error {
 public:
  OutOfMemoryError(int64_t micro_batch, const std::string& message)
      : Error(Error::OnEveryRank(ExitStatus::kUsage, message)), micro_batch_(micro_batch) {}

  // Returns the size of the micro-batch that did not fit, in samples on one rank; 0: memory ran out before the first
  // step.
  int64_t micro_batch() const { return micro_batch_; }

 private:
  int64_t micro_batch_;
};

// Calls `act` and makes the ranks agree on errors, as Together() does (comm/together.h), but throws OutOfMemoryError on
// every rank if `act` ran out of memory on any rank.
template <typename Act>
void TogetherInMemory(Communicator& host, const Act& act) {
  uint8_t lacked_memory = 0;
  try {
    Together(host, [&] {
      try {
        act();
      } catch (const std::exception& exception) {
        lacked_memory = IsOutOfMemory(exception) ? 1 : 0;
        throw;
      }
    });
  } catch (const Error& error) {
    if (!error.on_every_rank()) throw;
    if (std::ranges::max(GatherValues(lacked_memory, "who lacked memory", host)) == 0) throw;
    throw OutOfMemoryError(/*micro_batch=*/0, error.what());
  }
}

// Throws OutOfMemoryError, because `step` did not fit in memory with micro-batches of `micro_batch` samples on a rank.
// `failed` is the allocation that failed, if it is known.
[[noreturn]] void EndForMemory(int64_t step, int64_t micro_batch,
                               const std::optional<FailedAllocation>& failed);

}  // namespace lockstep
