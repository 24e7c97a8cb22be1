// MemoryAccount: says what the memory of this rank's device is taken for while it trains, what stays behind after
// steps, and what was there when an allocation failed.
//
// Promise: only the first two steps (later ones, if a profiler is on then), and steps whose numbers are powers of two,
// are watched (observe/memory_watch.h). All others cost a reading of one number of the allocator. No step waits for it,
// except for a snapshot for the memory viewer, which the user asks for (observe.memory_snapshot).
//
// The report comes after the second step of a process: in the first step the optimizer's moments are made, and in the
// second step the CUDA graph is captured, so what is there then stays. If later steps or an evaluation take more
// than 2 % more, there is a new report. After a step that did not fit in memory, all begins anew.
//
// what can fail -> what the caller sees -> the test that shows it
//   an allocation on the GPU -> Failure() -> tests/gpu/gpu_memory_test.py, test_fragmentation_is_named
//   a step that does not fit with one sample -> OutOfMemoryError -> tests/memory_test.py,
//     test_bench_step_says_what_it_lacked
//   a snapshot cannot be taken or written -> a warning -> tests/gpu/gpu_memory_test.py,
//     test_a_snapshot_that_cannot_be_written
//   an allocator that tells nothing -> no reports, and a warning if a snapshot is wanted -> the same,
//     test_an_allocator_that_tells_nothing
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
  // Keeps references to all arguments. Begins to record what the allocator does, if the user asks for it.
  MemoryAccount(const config::Config& config, const World& world, RunEvents& events);

  // Says what was foretold of this run. It is told before the first step, and beside what is measured.
  void Expect(std::optional<MemoryReport> foretold) { foretold_ = std::move(foretold); }

  // Calls `run`, which makes step `number`, counted from 1, and returns its result: whether there was memory enough.
  // Emits a report if one is due. `step`, `input` and `snapshots`, which are those of checkpoints, hold memory between
  // steps, too.
  bool Watch(int64_t number, Step& step, const Input& input,
             const std::vector<NamedTensor>& snapshots, const std::function<bool()>& run);

  // Calls `evaluate` after `steps` steps. Emits a report if it takes more memory than there was before.
  void WatchEvaluation(int64_t steps, Step& step, const Input& input,
                       const std::vector<NamedTensor>& snapshots,
                       const std::function<void()>& evaluate);

  // Returns the allocation that made the last step fail, of the first rank on which one did. Nothing on a CPU. Every
  // rank must call it after Watch() has returned false, and every rank gets the same.
  std::optional<FailedAllocation> Failure(const Step& step);

  // Call it at the end of the run. Waits until the snapshots are written. Emits what is left to tell.
  void End();

  // Returns how the memory of the steps so far grows.
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
  bool is_told_ = !is_gpu_ || TellsBlocks();  // whether there is anything to know
  bool begun_ = false;
  // Made since the beginning or the last that did not fit, with the one that is being made.
  int64_t steps_ = 0;
  std::atomic<int64_t> number_ = 0;     // of the step that is being made
  std::atomic<int64_t> failed_in_ = 0;  // the step of the newest snapshot of a failure
  std::optional<MemoryReport> first_;   // of the first step
  std::optional<MemoryReport> foretold_;
  bool reported_ = false;
  int64_t reported_peak_ = 0;               // the highest that was reported
  int64_t pool_bytes_ = 0;                  // the graphs' pools, when the last report was made
  bool rose_ = false;                       // whether steps take more since
  MemoryTrend device_{kLeastGrowth_bytes};  // what the allocator has given after steps
  KeptTensors kept_;                        // in the last step that was watched
  std::optional<AllocatorHistory> history_;
  std::optional<AllocationFailures> failures_;  // calls this object's methods

  // Less than a process's memory must grow to count: tensors do not come and go between steps.
  static constexpr double kLeastGrowth_bytes = 4 << 20;
};

// The error with which every rank ends if memory runs out (kUsage).
class OutOfMemoryError : public Error {
 public:
  OutOfMemoryError(int64_t micro_batch, const std::string& message)
      : Error(Error::OnEveryRank(ExitStatus::kUsage, message)), micro_batch_(micro_batch) {}

  // How many samples of a rank a step did not fit with; 0: there was no step yet.
  int64_t micro_batch() const { return micro_batch_; }

 private:
  int64_t micro_batch_;
};

// Does as Together() (comm/together.h). Throws OutOfMemoryError on every rank if any of them lacked memory.
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

// Throws OutOfMemoryError for a step that has not fitted into memory with micro-batches of so many samples.
[[noreturn]] void EndForMemory(int64_t step, int64_t micro_batch,
                               const std::optional<FailedAllocation>& failed);

}  // namespace lockstep
