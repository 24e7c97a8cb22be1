// PrometheusSink: updates a rank's figures for Prometheus once a second.
//
// observe/sinks/exporter.h says how the ranks of one machine share a port, and what can fail.
// observe/sinks/metrics_text.h makes the page, and docs/observe.md lists what is on it.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "observe/run_event.h"

namespace lockstep {

struct PrometheusOptions {
  std::string address;
  int port = 0;      // 0: no port
  std::string file;  // empty: no file
  int rank = 0;
  double readings_every_s = 1;  // the time between two readings of the machine
};

// Returns the sink, which each rank needs. `steps` counts the optimizer steps that are done so far.
std::unique_ptr<EventSink> NewPrometheusSink(PrometheusOptions options,
                                             std::shared_ptr<const std::atomic<int64_t>> steps);

}  // namespace lockstep
