// LogSink: writes events as lines of log.jsonl. trainer/run/run_folder.h says what each line holds.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "observe/run_event.h"

namespace lockstep {

// Returns a sink that writes events to the log. The sink leaves out Histograms, and writes at most one MachineReading
// every ten seconds. It writes all other events. `write` appends a line to the log.
std::unique_ptr<EventSink> NewLogSink(std::function<void(const nlohmann::ordered_json&)> write);

}  // namespace lockstep
