// Chooses the sinks of a run's events (observe/run_event.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/schema/config.pb.h"
#include "observe/machine/gpu_reader.h"
#include "observe/run_event.h"
#include "trainer/run/run_folder.h"
#include "trainer/step/world.h"

namespace lockstep {

// Adds the sinks of this rank to `events`. `folder` is the run folder on rank 0, and null on other ranks. The sinks
// keep a reference to the run folder. `live` says whether standard output is a terminal. `gpu_users` is as in
// TrainOptions. If the config has an alert command, a sink runs it on rank 0, and the watchdog of `world` runs it when
// another rank fails.
void AddSinks(const config::Config& config, const std::optional<std::vector<GpuUser>>& gpu_users,
              RunFolder* folder, bool live, const World& world, RunEvents& events);

// Returns whether a sink wants the histograms of `step`, counted from 1. Every rank gets the same answer.
bool HistogramsAreDue(const config::Observe& observe, int64_t step);

}  // namespace lockstep
