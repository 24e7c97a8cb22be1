// TimeAccount: records on which causes this rank spends its time while it trains (observe/verdict/ledger.h), sends the
// accounts of all ranks to rank 0, and finds there the causes for which the run loses time (observe/verdict/verdict.h,
// rules.h).
//
// Promise: no step waits for a TimeAccount. The other ranks' accounts come with the watchdog's heartbeats, on its
// thread. Only ReportLast() makes the ranks exchange their accounts, once.
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

  // Calls `act`, which makes the run's first step, and returns its result. On a GPU, counts the step's floating-point
  // operations and finds the places where the host waits for the GPU.
  bool WatchFirstStep(const std::function<bool()>& act);

  // Call it after the first step. Time before it does not count.
  void CountFromHere(Input& input);

  // Call it on every rank, before the first step, if this process continues a run after a failure. `step` is the last
  // step that the log has and `time` the Unix time of its line. The time until that step is made again counts as lost.
  void ContinueAfter(int64_t step, double time);

  // Returns a sink that takes the machine's readings from a run's events. It keeps a reference to this object.
  std::unique_ptr<EventSink> ReadingsSink();

  // Calls `act`, which does something between two steps. Returns its seconds.
  double Spend(Loss loss, const std::function<void()>& act);

  // Returns for how many seconds a GPU must wait before the next step. During this wait the host queues the whole step,
  // so its time can be measured without gaps between kernels (MetricsRing::BeginStep). Returns 0 for all steps but a
  // few, and if steps run as CUDA graphs.
  double DelayBeforeStep(const std::string& why_no_graph) const;

  // Call it when a step is queued on the device, or done on the CPU. Adds to `report` the times of the step that are
  // known at this moment. `preprocessing_s`: Step::preprocessing_s().
  void OnQueued(Input& input, double preprocessing_s, StepReport& report);

  // Call it when the figures of `report` have come from the device.
  void OnSeen(Input& input, const StepReport& report);

  // The peak of the device's arithmetic, in FLOP/s; 0: unknown, or a CPU.
  double peak_flops() const { return arithmetic_.peak_flops; }

  // Values that change while the run trains and on which the proposed remedies depend.
  struct Now {
    int64_t step = 0;  // the number of steps done
    int64_t accumulation = 1;
    double preprocessing_s = 0;
    int64_t parameters = 0;
    std::string why_no_graph;
    MemoryGrowth growth;
  };

  // On rank 0, returns a report on all steps so far, at most once in kPeriodS seconds. Returns nothing on other ranks,
  // and until the accounts of all other ranks have arrived.
  std::optional<SecondsReport> Report(Input& input, const Now& now);

  // Returns the report at the end of the run. Every rank must call it, and every rank gets the same result.
  SecondsReport ReportLast(Input& input, const Now& now);

 private:
  static constexpr double kPeriodS = 5;

  void TakeReading(const MachineReading& reading);
  // Returns whether the host launches each kernel of a step: on a GPU, without a CUDA graph.
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
  int64_t steps_queued_ = 0;         // number of steps queued after the first one
  double queued_step_s_ = 0;         // how long the host took to queue the last step
  double exchange_elsewhere_s_ = 0;  // waiting for other ranks outside of steps
  CoreSeconds cores_elsewhere_;      // CPU time before counting began and in evaluations
  // The running sums at the moment when the last step was queued.
  struct Moment {
    double at_s = 0;
    double data_s = 0;
    double exchange_s = 0;
    double spent_s = 0;
    double preprocessing_s = 0;
  } queued_;
  // On a GPU: the running sums at the moment when the figures of the last step arrived.
  double seen_data_s_ = 0;
  double seen_exchange_s_ = 0;
  double reported_at_s_ = 0;
  std::map<int, RankSeconds> others_;  // on rank 0: the newest account of each other rank

  // These are set if this process continues a run after a failure.
  int64_t repeats_until_ = 0;  // the last step that is made again
  double failed_at_ = 0;       // Unix time of the failed process's last log line; 0: no failure
  double restart_s_ = 0;

  DeviceArithmetic arithmetic_;
  // On a GPU: counted in the first step.
  int64_t step_flops_ = 0;
  std::vector<std::string> syncs_;

  // Members for the machine's readings.
  double counting_since_ = 0;  // Unix time when counting began
  int64_t step_seen_ = 0;
  int64_t samples_seen_ = 0;  // samples of all ranks
  MachineMeans machine_;
};

}  // namespace lockstep
