// PrometheusSink: shows a rank's figures to Prometheus, once a second (observe/sinks/exporter.h says how ranks of one
// machine share a port; observe/sinks/metrics_text.h what is shown; docs/observe.md both).
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "observe/run_event.h"

namespace lockstep {

struct PrometheusOptions {
  std::string address;
  int port = 0;      // 0: none
  std::string file;  // empty: none
  int rank = 0;
};

// Of each rank. `steps`: optimizer steps that are done; it must outlive the sink.
std::unique_ptr<EventSink> NewPrometheusSink(PrometheusOptions options,
                                             const std::atomic<int64_t>& steps);

}  // namespace lockstep
