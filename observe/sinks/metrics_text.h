// The figures of a run in Prometheus' text format. docs/observe.md lists the names.
//
// If NVIDIA's dcgm-exporter has a name for a figure that NVML tells, the figure has that name, and its labels and its
// unit. All other names begin with lockstep_.
//
// Promise: MergedMetrics() returns a page that Prometheus accepts. The page has each family once, with its help and its
// type, and no series twice, even if several ranks report the same GPU (observe/sinks/metrics_text_test.cc).
// tests/sinks_test.py reads the page with prometheus_client's parser and with Prometheus.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "observe/run_event.h"

namespace lockstep {

// Collects what a rank knows of its run.
class RankMetrics {
 public:
  explicit RankMetrics(int rank) : rank_(rank) {}

  void Add(const RunEvent& event);

  // Returns one line for each series. `steps` is the number of the run's optimizer steps that are done; 0 says that
  // this process has not made one yet.
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
      lost_s_{};  // the greatest values that were reported, because a counter must not fall
  int64_t checkpoints_ = 0;
};

// Returns one page of the lines that the Text() of several ranks returned.
std::string MergedMetrics(const std::vector<std::string_view>& texts);

}  // namespace lockstep
