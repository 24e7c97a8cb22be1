// Stopping: decides on rank 0 when a run must stop before its end.
//
// Promise: a run with a time limit has committed its state and ended before the limit, as long as steps, evaluations
// and checkpoints take no longer than before. Before the first evaluation and the first checkpoint, Stopping assumes
// that an evaluation takes as long as training on the same number of samples, and that a checkpoint is written at 200
// MB/s.
//
// what can fail -> what the user sees -> the test that shows it
//   a checkpoint takes longer than twice the slowest before -> the run ends late -> (what comes is not known)
//   the time is over before the first step -> one step is made, so that each start gets further
//     -> tests/stop_test.py, test_no_time_at_all
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>

namespace lockstep {

// What a run is asked for, while it trains.
enum class StopRequest {
  kNone,
  kStop,       // to go on another time
  kInterrupt,  // by its user, for good
};

class Stopping {
 public:
  struct Options {
    double end_by_s = std::numeric_limits<double>::infinity();  // on the clock of base/clock.h
    int64_t state_bytes = 0;                                    // of a checkpoint
    int64_t global_batch = 1;
    int64_t validation_samples = 0;
    // In words, what its user has done that ends it; empty: nothing.
    std::function<std::string()> user_stops;
  };

  explicit Stopping(Options options) : options_(std::move(options)) {}

  // What the run is to be asked for. To be called before each step, at `now` on the clock of base/clock.h.
  // `steps_to_epoch_end`: how many steps from now the next evaluation is. `slowest_save_s`: of the checkpoints so far.
  StopRequest Asked(double now, int64_t steps_to_epoch_end, std::optional<double> slowest_save_s);

  // An evaluation took so long.
  void OnEvaluation(double seconds);

  // In words, why the run is to stop; empty: it is not, as far as this rank knows.
  const std::string& why() const { return why_; }

 private:
  double SecondsToStop(int64_t steps_to_epoch_end, std::optional<double> slowest_save_s) const;

  Options options_;
  int64_t steps_ = 0;          // begun so far
  double second_step_at_ = 0;  // the first is slow
  double now_ = 0;
  double looked_at_ = -std::numeric_limits<double>::infinity();
  double slowest_evaluation_s_ = 0;
  std::string user_stops_;
  std::string why_;
};

}  // namespace lockstep
