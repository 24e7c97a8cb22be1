// Writes the figures of a run in Prometheus' text format. docs/observe.md lists the names.
//
// If NVIDIA's dcgm-exporter has a name for a figure of NVML, the figure has the same name, labels and unit here. All
// other names begin with lockstep_.
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

// Values of a rank's process at the moment when RankMetrics::Text() is called.
struct Present {
  double time = 0;  // the Unix time
  // The number of the run's optimizer steps that are done; 0: this process has not made a step yet.
  int64_t steps = 0;
  int64_t process_memory = 0;  // the resident memory of the process, in bytes; 0: unknown
};

// Collects the figures of one rank from its events.
class RankMetrics {
 public:
  // `readings_every_s` is the time between two readings of the machine.
  RankMetrics(int rank, double readings_every_s) : rank_(rank), every_s_(readings_every_s) {}

  void Add(const RunEvent& event);

  // Returns one line for each series. If the last reading of the machine is old, the series of this reading are left
  // out. A run that stalls takes no readings, and its last reading would otherwise look current.
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
  // The greatest lost seconds of each cause so far, because a Prometheus counter must not decrease.
  std::array<double, kLosses.size()> lost_s_{};
  int64_t checkpoints_ = 0;
};

// Merges the texts that RankMetrics::Text() returned on several ranks into one page.
std::string MergedMetrics(const std::vector<std::string_view>& texts);

}  // namespace lockstep
