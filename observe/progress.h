// What the user sees while a run trains: one live line on a terminal, plain lines elsewhere.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/live_line.h"
#include "trainer/ops/update/step_values.h"

namespace lockstep {

struct StepReport {
  bool told = false;  // to the user; else only for what the figures say
  int64_t step = 0;   // optimizer steps done
  int64_t epoch = 0;  // from 1
  double lr = 0;
  double samples_per_s = 0;
  double data_wait = 0;  // the share of the time that the device waited for samples
  int loader_threads = 0;
  std::array<double, ops::kStepFigures> figures{};

  double loss() const { return figures[ops::kLoss]; }
};

class Progress {
 public:
  // `live`: standard output is a terminal that one line may be redrawn on.
  Progress(bool live, int64_t epochs, int64_t total_steps, int64_t global_batch);

  void OnStep(const StepReport& report);

  // A line that stays.
  void Say(const std::string& line) { line_.Say(line); }

 private:
  int64_t epochs_;
  int64_t total_steps_;
  int64_t global_batch_;
  LiveLine line_;
};

}  // namespace lockstep
