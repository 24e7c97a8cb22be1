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

// Values of a rank's process at the moment when its figures are shown.
struct Present {
  double time = 0;  // the Unix time
  int64_t steps =
      0;  // the run's optimizer steps that are done; 0: this process has not made one yet
  int64_t process_memory = 0;  // the bytes of the process that are in memory; 0: unknown
};

// Collects what a rank knows of its run.
class RankMetrics {
 public:
  // `readings_every_s` is the time between two readings of the machine.
  RankMetrics(int rank, double readings_every_s) : rank_(rank), every_s_(readings_every_s) {}

  void Add(const RunEvent& event);

  // Returns one line for each series. If the last reading of the machine is old, its series are left out: a run that
  // stalls reads nothing, and its last reading would look like the present one.
  std::string Text(const Present& present) const;

  const std::string& run_dir() const { return start_.run_dir; }

 private:
  int rank_;
  double every_s_;
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
