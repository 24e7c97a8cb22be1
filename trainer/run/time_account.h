// TimeAccount: keeps account of this rank's seconds while it trains (observe/verdict/ledger.h), brings the accounts of
// all ranks to rank 0, and has rank 0 say what the run loses its time to (observe/verdict/verdict.h).
//
// Promise: no step waits for it. The other ranks' accounts come with the watchdog's heartbeats, on its thread; only
// ReportLast() exchanges them itself, once.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"
#include "observe/machine/core_wait.h"
#include "observe/run_event.h"
#include "observe/verdict/ledger.h"
#include "observe/verdict/verdict.h"
#include "trainer/config/schema/config.pb.h"
#include "trainer/run/data_wait.h"
#include "trainer/run/input.h"
#include "trainer/step/world.h"

namespace lockstep {

class TimeAccount {
 public:
  // Keeps references to `world` and `data_wait`. To be made on the thread that trains.
  TimeAccount(const config::Config& config, const World& world, const Dataset& train,
              DataWait& data_wait);

  // What was before is not a part of the steps that count.
  void CountFromHere(Input& input);

  // Calls `act`, whose seconds no step needs.
  void Spend(Loss loss, const std::function<void()>& act);

  // A step is queued on the device, or done on the CPU: adds what is known of its time to `report`.
  // `preprocessing_s`: Step::preprocessing_s().
  void OnQueued(Input& input, double preprocessing_s, StepReport& report);

  // `report`'s figures have come from the device.
  void OnSeen(Input& input, const StepReport& report);

  // What changes while it trains, of the facts that remedies depend on.
  struct Now {
    int64_t step = 0;  // steps done
    int64_t accumulation = 1;
    double preprocessing_s = 0;
    int64_t parameters = 0;
    std::string why_no_graph;
  };

  // Every kPeriodS seconds, on rank 0: what all steps so far say. Nothing else, nor while another rank's account has
  // not come yet.
  std::optional<SecondsReport> Report(Input& input, const Now& now);

  // At the end. Every rank must call it, and gets the same.
  SecondsReport ReportLast(Input& input, const Now& now);

 private:
  static constexpr double kPeriodS = 5;

  RankSeconds Own(Input& input) const;
  SecondsReport JudgeAll(const std::vector<RankSeconds>& ranks, Input& input, const Now& now);
  // Seconds that the host waited for other ranks, for a step's sake.
  double ExchangeS() const { return world_.host.waited_s() - exchange_elsewhere_s_; }

  const World& world_;
  DataWait& data_wait_;
  RunFacts facts_;
  Ledger ledger_;
  CoreWait core_wait_;
  bool counts_ = false;              // the first step was made
  double exchange_elsewhere_s_ = 0;  // what ExchangeS() leaves out
  double core_wait_before_s_ = 0;    // when counting began
  // As of the step that was queued last.
  struct Moment {
    double at_s = 0;
    double data_s = 0;
    double exchange_s = 0;
    double spent_s = 0;
    double preprocessing_s = 0;
  } queued_;
  // As of the step that was seen last, on a GPU.
  double seen_data_s_ = 0;
  double seen_exchange_s_ = 0;
  double reported_at_s_ = 0;
  std::map<int, RankSeconds> others_;  // rank 0's: the newest account of each
};

}  // namespace lockstep
