// Stopping: decides on rank 0 when a run must stop before its end.
//
// Promise: a run with a time limit has committed its state and ended before the limit, as long as steps, evaluations
// and checkpoints take no longer than those that were measured. Before the first evaluation Stopping assumes that an
// evaluation takes as long as training on the same number of samples. Before the first checkpoint it assumes that a
// checkpoint is written at 200 MB/s.
//
// what can fail -> what the user sees -> the test that shows it
//   the last checkpoint takes more than twice as long as the slowest before it -> the run ends after its time limit
//     -> (no test)
//   the time limit has passed before the first step -> one step is made, so that each start makes progress
//     -> tests/stop_test.py, test_no_time_at_all
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>

namespace lockstep {

// A request to a run to stop, from the user or because of a time limit.
enum class StopRequest {
  kNone,
  kStop,       // save and stop, so that a later start can continue the run
  kInterrupt,  // save and stop, because the user ended the run
};

class Stopping {
 public:
  // The bytes of a checkpoint for each parameter: the weight and AdamW's two moments, as float32.
  static constexpr int64_t kStateBytesPerParameter = 12;

  struct Options {
    double end_by_s =
        std::numeric_limits<double>::infinity();  // time limit on base/clock.h's clock
    int64_t state_bytes = 0;                      // the size of a checkpoint, in bytes
    int64_t global_batch = 1;
    int64_t validation_samples = 0;
    // Returns in words how the user has asked to end the run; empty if the user has not asked.
    std::function<std::string()> user_stops;
  };

  explicit Stopping(Options options) : options_(std::move(options)) {}

  // Returns whether and why the run must stop. Call it before each step. `now` is the time in seconds on the clock of
  // base/clock.h. `steps_to_epoch_end` is the number of steps until the next evaluation. `slowest_save_s` is the number
  // of seconds that the slowest checkpoint so far took, if there was one.
  StopRequest Asked(double now, int64_t steps_to_epoch_end, std::optional<double> slowest_save_s);

  // Stores how many seconds an evaluation took. Call it after each evaluation.
  void OnEvaluation(double seconds);

  // Returns in words why the run must stop; empty if Asked() has not found a reason.
  const std::string& why() const { return why_; }

 private:
  double SecondsToStop(int64_t steps_to_epoch_end, std::optional<double> slowest_save_s) const;

  Options options_;
  int64_t steps_ = 0;  // number of calls of Asked(), which is the number of steps that have begun
  // When the second step began. The time of the first step is left out, because the first step is slow.
  double second_step_at_ = 0;
  double now_ = 0;
  double looked_at_ = -std::numeric_limits<double>::infinity();
  double slowest_evaluation_s_ = 0;
  std::string user_stops_;
  std::string why_;
};

}  // namespace lockstep
