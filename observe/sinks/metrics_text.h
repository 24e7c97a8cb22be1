// The figures of a run in Prometheus' text format: docs/observe.md lists the names.
//
// GPUs have the names, labels and units of NVIDIA's dcgm-exporter, where it has one for what NVML tells; everything else
// is lockstep_*.
//
// Promise: MergedMetrics() is a page that Prometheus accepts: each family once, with its help and type, and no series
// twice, even if several ranks report the same GPU (observe/sinks/metrics_text_test.cc; tests/observe_sinks_test.py reads
// it with prometheus_client's parser and with Prometheus).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "observe/run_event.h"

namespace lockstep {

// What a rank knows of its run.
class RankMetrics {
 public:
  explicit RankMetrics(int rank) : rank_(rank) {}

  void Add(const RunEvent& event);

  // One line for each series. `steps`: optimizer steps that are done; 0: none of this process yet.
  std::string Text(int64_t steps) const;

  const std::string& run_dir() const { return start_.run_dir; }

 private:
  int rank_;
  RunStarted start_;
  int64_t resumed_step_ = 0;
  std::optional<StepReport> report_;
  std::vector<Metric> validation_;
  std::optional<MachineReading> machine_;
  std::optional<SecondsReport> seconds_;
  std::array<double, kLosses.size()>
      lost_s_{};  // the most that was reported: a counter never falls
  int64_t checkpoints_ = 0;
};

// The page of what several ranks' Text() has.
std::string MergedMetrics(const std::vector<std::string_view>& texts);

}  // namespace lockstep
