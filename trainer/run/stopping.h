// Stopping: decides on rank 0 when a run must stop before its end.
//
// Promise: a run with a time limit has committed its state and ended before the limit, as long as steps, evaluations
// and checkpoints take no longer than before. Before the first evaluation and the first checkpoint, Stopping assumes
// that an evaluation takes as long as training on the same number of samples, and that a checkpoint is written at 200
// MB/s.
//
// what can fail -> what the user sees -> the test that shows it
//   a checkpoint takes longer than twice the slowest one before -> the run ends after its time limit -> (no test)
//   the time is over before the first step -> one step is made, so that each start makes progress
//     -> tests/stop_test.py, test_no_time_at_all
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>

namespace lockstep {

// A request of the user, or of a time limit, to a run that trains.
enum class StopRequest {
  kNone,
  kStop,       // stop now; a later run can continue
  kInterrupt,  // stop now, because the user ended the run
};

class Stopping {
 public:
  // A checkpoint holds a weight and AdamW's two moments, as float32.
  static constexpr int64_t kStateBytesPerParameter = 12;

  struct Options {
    double end_by_s = std::numeric_limits<double>::infinity();  // on the clock of base/clock.h
    int64_t state_bytes = 0;                                    // the size of a checkpoint
    int64_t global_batch = 1;
    int64_t validation_samples = 0;
    // Returns in words how the user has asked to end the run; empty if the user has not.
    std::function<std::string()> user_stops;
  };

  explicit Stopping(Options options) : options_(std::move(options)) {}

  // Decides whether the run must stop. Call it before each step. `now` is the time on the clock of base/clock.h.
  // `steps_to_epoch_end` is the number of steps until the next evaluation. `slowest_save_s` is the time that the
  // slowest checkpoint so far took.
  StopRequest Asked(double now, int64_t steps_to_epoch_end, std::optional<double> slowest_save_s);

  // Call it after each evaluation, with the time that the evaluation took.
  void OnEvaluation(double seconds);

  // The reason why the run must stop, in words; empty if this rank knows of no reason.
  const std::string& why() const { return why_; }

 private:
  double SecondsToStop(int64_t steps_to_epoch_end, std::optional<double> slowest_save_s) const;

  Options options_;
  int64_t steps_ = 0;  // the number of steps that have begun
  // When the second step began. The first step is slow and does not count.
  double second_step_at_ = 0;
  double now_ = 0;
  double looked_at_ = -std::numeric_limits<double>::infinity();
  double slowest_evaluation_s_ = 0;
  std::string user_stops_;
  std::string why_;
};

}  // namespace lockstep
