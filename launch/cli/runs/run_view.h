// TrainingView(): makes the text with which `lockstep watch RUN` shows a run or a cross-validation.
#pragma once

#include <string>

#include "observe/history/training_history.h"

namespace lockstep {

// Returns, for a run, a table with the run's state, progress, losses, metrics and speed, the causes of lost time, the
// load of the machine, and the run's last warnings. A row is left out if the log does not have its figures. For a
// cross-validation the table has its state, progress and mean best metric, and below a row for each fold. `now` is Unix
// time in seconds.
std::string TrainingView(const TrainingHistory& training, double now);

}  // namespace lockstep
