// What the user sees while a run trains: one live line on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep {

struct StepReport {
  int64_t step = 0;   // optimizer steps done
  int64_t epoch = 0;  // from 1
  double loss = 0;
  double lr = 0;
  double samples_per_s = 0;
  double grad_norm = -1;  // negative: not computed
};

class Progress {
 public:
  // `live`: standard output is a terminal that one line may be redrawn on.
  Progress(bool live, int64_t epochs, int64_t total_steps, int64_t global_batch);

  // Ends the live line, if one is drawn.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void OnStep(const StepReport& report);

  // A line that stays.
  void Say(const std::string& line);

 private:
  bool live_;
  int64_t epochs_;
  int64_t total_steps_;
  int64_t global_batch_;
  bool line_is_drawn_ = false;
  std::chrono::steady_clock::time_point last_drawn_;
};

}  // namespace lockstep
