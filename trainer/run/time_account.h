// TimeAccount: keeps account of this rank's seconds while it trains (observe/verdict/ledger.h), brings the accounts of
// all ranks to rank 0, and judges there what the run loses its time to (observe/verdict/verdict.h, rules.h).
//
// Promise: no step waits for it. The other ranks' accounts come with the watchdog's heartbeats, on its thread. Only
// ReportLast() makes the ranks exchange their accounts, once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/config.pb.h"
#include "data/dataset/dataset.h"
#include "observe/machine/core_wait.h"
#include "observe/run_event.h"
#include "observe/verdict/ledger.h"
#include "observe/verdict/machine_means.h"
#include "observe/verdict/rules.h"
#include "observe/verdict/verdict.h"
#include "trainer/run/data_wait.h"
#include "trainer/run/device_arithmetic.h"
#include "trainer/run/input.h"
#include "trainer/step/world.h"

namespace lockstep {

class TimeAccount {
 public:
  // Keeps references to `world` and `data_wait`. Must be called on the thread that trains.
  TimeAccount(const config::Config& config, config::Precision precision, const World& world,
              const Dataset& train, DataWait& data_wait);

  // Calls `act`, which makes the run's first step, and returns its result. On a GPU notes how much the forward pass
  // computes and where it waits for the GPU.
  bool WatchFirstStep(const std::function<bool()>& act);

  // Call it after the first step. Time before it does not count.
  void CountFromHere(Input& input);

  // Call it on every rank, before the first step, if this process continues a run after a failure. `step` is the last
  // step that the log has and `time` the Unix time of its line. All time until that step is made again is lost.
  void ContinueAfter(int64_t step, double time);

  // Returns a sink that takes the machine's readings from a run's events. It keeps a reference to this object.
  std::unique_ptr<EventSink> ReadingsSink();

  // Calls `act`, which does something between two steps. Returns its seconds.
  double Spend(Loss loss, const std::function<void()>& act);

  // Returns for how many seconds a GPU must wait before the next step, so that it is measured how long the step takes
  // without gaps between kernels (MetricsRing::BeginStep). 0 for all steps but a few, and if steps run as CUDA graphs.
  double DelayBeforeStep(const std::string& why_no_graph) const;

  // Call it when a step is queued on the device, or done on the CPU. Adds to `report` what is known of the step's time.
  // `preprocessing_s`: Step::preprocessing_s().
  void OnQueued(Input& input, double preprocessing_s, StepReport& report);

  // Call it when the figures of `report` have come from the device.
  void OnSeen(Input& input, const StepReport& report);

  // The peak of the device's arithmetic, in FLOP/s; 0: unknown, or a CPU.
  double peak_flops() const { return arithmetic_.peak_flops; }

  // The values on which remedies depend and which change while the run trains.
  struct Now {
    int64_t step = 0;  // the number of steps done
    int64_t accumulation = 1;
    double preprocessing_s = 0;
    int64_t parameters = 0;
    std::string why_no_graph;
    MemoryGrowth growth;
  };

  // Returns a report on all steps so far, on rank 0 and every kPeriodS seconds. Returns nothing on other ranks, in
  // between, and while the account of another rank has not come yet.
  std::optional<SecondsReport> Report(Input& input, const Now& now);

  // Returns the report at the end of the run. Every rank must call it, and gets the same.
  SecondsReport ReportLast(Input& input, const Now& now);

 private:
  static constexpr double kPeriodS = 5;

  void TakeReading(const MachineReading& reading);
  // Returns whether steps on a GPU run without a CUDA graph.
  bool LaunchesKernels(const std::string& why_no_graph) const {
    return facts_.on_gpu && (facts_.graph_is_off || !why_no_graph.empty());
  }
  RankSeconds Own(Input& input) const;
  SecondsReport JudgeAll(const std::vector<RankSeconds>& ranks, Input& input, const Now& now);
  // Returns the seconds for which the host waited for other ranks within steps.
  double ExchangeS() const { return world_.host.waited_s() - exchange_elsewhere_s_; }

  const World& world_;
  DataWait& data_wait_;
  RunFacts facts_;
  Ledger ledger_;
  CoreWait core_wait_;
  bool counts_ = false;              // whether the first step was made
  int64_t steps_queued_ = 0;         // after the first
  double queued_step_s_ = 0;         // how long the host took for the last one
  double exchange_elsewhere_s_ = 0;  // the waiting that ExchangeS() leaves out
  CoreSeconds cores_elsewhere_;      // before counting began, and in evaluations
  // The sums when the last step was queued.
  struct Moment {
    double at_s = 0;
    double data_s = 0;
    double exchange_s = 0;
    double spent_s = 0;
    double preprocessing_s = 0;
  } queued_;
  // On a GPU: the sums when the figures of the last step came.
  double seen_data_s_ = 0;
  double seen_exchange_s_ = 0;
  double reported_at_s_ = 0;
  std::map<int, RankSeconds> others_;  // on rank 0: the newest account of each other rank

  // These are set if this process continues a run after a failure.
  int64_t repeats_until_ = 0;  // the last step that is made again
  double failed_at_ = 0;  // Unix time of the last sign of the process that failed; 0: none failed
  double restart_s_ = 0;

  DeviceArithmetic arithmetic_;
  // On a GPU, of the first step.
  int64_t step_flops_ = 0;
  std::vector<std::string> syncs_;

  // The readings of the machine.
  double counting_since_ = 0;  // Unix time
  int64_t step_seen_ = 0;
  int64_t samples_seen_ = 0;  // of all ranks
  MachineMeans machine_;
};

}  // namespace lockstep
