#include "trainer/run/stopping.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// The number of seconds between two checks for a request of the user.
constexpr double kLookInterval = 0.5;

// The number of steps from rank 0's decision until all ranks have stopped. The ranks learn of the decision from a
// step's figures, which on GPUs are read eight steps late.
constexpr int64_t kStepsToStop = 10;

// The number of seconds that the processes need to end.
constexpr double kEndS = 1;

constexpr double kSlowDisk = 200e6;  // bytes/s, assumed before the first checkpoint

}  // namespace

StopRequest Stopping::Asked(double now, int64_t steps_to_epoch_end,
                            std::optional<double> slowest_save_s) {
  now_ = now;
  if (++steps_ == 2) second_step_at_ = now;
  if (now - looked_at_ >= kLookInterval) {
    looked_at_ = now;
    if (user_stops_.empty()) user_stops_ = options_.user_stops();
  }
  if (!user_stops_.empty()) {
    why_ = user_stops_;
    return StopRequest::kInterrupt;
  }
  if (now + SecondsToStop(steps_to_epoch_end, slowest_save_s) < options_.end_by_s) {
    return StopRequest::kNone;
  }
  why_ = "its time is over";
  return StopRequest::kStop;
}

void Stopping::OnEvaluation(double seconds) {
  slowest_evaluation_s_ = std::max(slowest_evaluation_s_, seconds);
}

double Stopping::SecondsToStop(int64_t steps_to_epoch_end,
                               std::optional<double> slowest_save_s) const {
  const double step_s = steps_ > 2 ? (now_ - second_step_at_) / static_cast<double>(steps_ - 2) : 0;
  double seconds = kEndS + kStepsToStop * step_s;
  seconds +=
      slowest_save_s ? 2 * *slowest_save_s : static_cast<double>(options_.state_bytes) / kSlowDisk;
  if (steps_to_epoch_end <= kStepsToStop) {
    seconds += slowest_evaluation_s_ > 0
                   ? slowest_evaluation_s_
                   : step_s * static_cast<double>(options_.validation_samples) /
                         static_cast<double>(options_.global_batch);
  }
  return seconds;
}

}  // namespace lockstep
