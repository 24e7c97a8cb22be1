// TimeAccount: records how much time this rank spends on each cause while it trains (observe/verdict/ledger.h), and
// sends this account to rank 0. Rank 0 uses all ranks' accounts to find out why the run loses time
// (observe/verdict/verdict.h, rules.h).
//
// Promise: no step waits for a TimeAccount, except for the four steps that DelayBeforeStep() delays on a GPU. The
// watchdog's thread sends the other ranks' accounts to rank 0 with its heartbeats. Only ReportLast() runs a collective
// to exchange the accounts.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files/core_wait.h"
#include "config/schema/config.pb.h"
#include "data/dataset/dataset.h"
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
  // Keeps references to `world` and `data_wait`. Must be constructed on the thread that trains.
  TimeAccount(const config::Config& config, config::Precision precision, const World& world,
              const Dataset& train, DataWait& data_wait);

  // Calls `act`, which makes the process's first step, and returns the result of `act`. On a GPU, counts the step's
  // floating-point operations and finds the places where the host waits for the GPU.
  bool WatchFirstStep(const std::function<bool()>& act);

  // Begins to count time: time before this call does not count. Call it after the first step.
  void CountFromHere(Input& input);

  // Says that this process continues a run after a failure. `step` is the last step in the run's log, and `time` is the
  // Unix time of the log's last line. The time from `time` until `step` was made again counts as lost. Call it on every
  // rank, before the first step.
  void ContinueAfter(int64_t step, double time);

  // Returns a sink that passes the machine's readings, which are events of a run, to this object. The sink keeps a
  // reference to this object.
  std::unique_ptr<EventSink> ReadingsSink();

  // Calls `act`, which does something between two steps, and counts its time under `loss`. Returns how many seconds
  // `act` took.
  double Spend(Loss loss, const std::function<void()>& act);

  // Returns for how many seconds the GPU must wait before it begins the next step (MetricsRing::BeginStep). During this
  // wait the host launches the whole step's kernels, so that the kernels then run without gaps and their time can be
  // measured. Returns 0 for all steps except four, and always if steps run as CUDA graphs or on a CPU.
  double DelayBeforeStep(const std::string& why_no_graph) const;

  // Adds to `report` the times of the step that are known when the step is queued on the GPU, or has run on the CPU.
  // Call it at that moment. `preprocessing_s` is the result of Step::preprocessing_s().
  void OnQueued(Input& input, double preprocessing_s, StepReport& report);

  // Adds the step of `report` to the account. Call it when the step's figures have come from the device.
  void OnSeen(Input& input, const StepReport& report);

  // Returns the peak speed of the device's arithmetic, in FLOP/s; 0: unknown, or a CPU.
  double peak_flops() const { return arithmetic_.peak_flops; }

  // The values on which the proposed remedies depend and that may change while the run trains.
  struct Now {
    int64_t step = 0;  // the number of steps done
    int64_t accumulation = 1;
    double preprocessing_s = 0;
    int64_t parameters = 0;
    std::string why_no_graph;
    MemoryGrowth growth;
  };

  // Returns, on rank 0, a report on all steps so far, at most once in kPeriodS seconds. Returns nothing on rank 0 if
  // less time has passed since the last report, or if the account of another rank has not arrived yet. Always returns
  // nothing on other ranks.
  std::optional<SecondsReport> Report(Input& input, const Now& now);

  // Returns the report on all steps of the process. Every rank must call it at the end of the run, and every rank gets
  // the same result.
  SecondsReport ReportLast(Input& input, const Now& now);

 private:
  static constexpr double kPeriodS = 5;

  void TakeReading(const MachineReading& reading);
  // Returns whether the host launches each kernel of a step separately. The host does so on a GPU if steps do not run
  // as CUDA graphs.
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
  bool counts_ = false;              // whether the first step was queued, so that time counts
  int64_t steps_queued_ = 0;         // number of steps queued after the first one
  double queued_step_s_ = 0;         // seconds between the last two calls of OnQueued()
  double exchange_elsewhere_s_ = 0;  // seconds of waiting for other ranks outside of steps
  // The part of waited_for_core_s() that lies outside of steps.
  double exchange_cores_elsewhere_s_ = 0;
  CoreSeconds cores_elsewhere_;  // CPU time before CountFromHere() and in evaluations
  // The time when the last step was queued, and the sums of seconds up to that time.
  struct Moment {
    double at_s = 0;
    double data_s = 0;
    double exchange_s = 0;
    double spent_s = 0;
    double preprocessing_s = 0;
  } queued_;
  // On a GPU: the sums of seconds waited for samples and for other ranks, when the figures of the last step arrived.
  double seen_data_s_ = 0;
  double seen_exchange_s_ = 0;
  double reported_at_s_ = 0;
  std::map<int, RankSeconds> others_;  // on rank 0: each other rank's newest account

  // The next three members are set if this process continues a run after a failure.
  int64_t repeats_until_ = 0;  // the last step that is made again
  double failed_at_ = 0;       // Unix time of the log's last line before the failure; 0: none
  double restart_s_ = 0;

  DeviceArithmetic arithmetic_;
  // On a GPU: the floating-point operations of this rank's first step, and the places where the host waited for the
  // GPU.
  int64_t step_flops_ = 0;
  std::vector<std::string> syncs_;

  // Members for the machine's readings.
  double counting_since_ = 0;  // Unix time of CountFromHere()
  int64_t step_seen_ = 0;
  int64_t samples_seen_ = 0;  // samples of all ranks up to step_seen_
  MachineMeans machine_;
};

}  // namespace lockstep
