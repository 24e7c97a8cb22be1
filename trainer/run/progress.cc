#include "trainer/run/progress.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/ceil_divide.h"

namespace lockstep {
namespace {

// The number of seconds of training within which the weight of a step falls to 1 / e of its first value.
constexpr double kMemoryS = 60;

double Rate(int64_t samples, double seconds) {
  return seconds > 0 ? static_cast<double>(samples) / seconds : 0;
}

}  // namespace

void Progress::Begin(int64_t step) {
  first_step_ = line_step_ = step;
  line_s_ = epoch_s_ = now_();
}

void Progress::CountFromHere() {
  trained_s_ = 0;
  epoch_s_ = now_();
}

void Progress::BeginStep(int64_t step) {
  begun_s_ = now_();
  if (steps_made_ > 1) pause_s_ += std::max(0.0, begun_s_ - ended_s_ - this_evaluation_s_);
  this_evaluation_s_ = 0;
  step_ = step + 1;
}

void Progress::EndStep() {
  ended_s_ = now_();
  if (++steps_made_ == 1) return;
  const double seconds = ended_s_ - begun_s_;
  const double kept = std::exp(-seconds / kMemoryS);
  step_weight_ = kept * step_weight_ + 1;
  step_s_ = kept * step_s_ + seconds;
}

Progress::Line Progress::TakeLine(int64_t steps_done) {
  const double before_s = std::exchange(line_s_, now_());
  const int64_t samples = SamplesIn(steps_done) - SamplesIn(std::exchange(line_step_, steps_done));
  const double seconds = line_s_ - before_s;
  return {.seconds = seconds,
          .samples_per_s = Rate(samples, seconds),
          .seconds_left = SecondsLeft(steps_done)};
}

Progress::Epoch Progress::EndEpoch(int64_t steps_done) {
  const double seconds = now_() - epoch_s_;
  trained_s_ += seconds;
  const int64_t epoch = (steps_done - 1) / plan_.steps_per_epoch;
  // samples_per_s() counts the first epoch of this process only until a second epoch has ended. The process's first
  // step, which includes warm-up work, never counts.
  if (epoch <= first_step_ / plan_.steps_per_epoch + 1) {
    rated_samples_ = 0;
    rated_s_ = 0;
  }
  const int64_t samples =
      SamplesIn(steps_done) - SamplesIn(std::max(epoch * plan_.steps_per_epoch, first_step_ + 1));
  rated_samples_ += samples;
  rated_s_ += seconds;
  const double loss_samples = static_cast<double>(std::exchange(loss_samples_, 0));
  const double loss_sum = std::exchange(loss_sum_, 0);
  return {.seconds = seconds,
          .samples_per_s = Rate(samples, seconds),
          .loss = loss_samples > 0 ? loss_sum / loss_samples
                                   : std::numeric_limits<double>::quiet_NaN()};
}

void Progress::BeginEpoch(int64_t steps_done) {
  epoch_s_ = line_s_ = now_();
  line_step_ = steps_done;
}

void Progress::OnEvaluation(double seconds) {
  ++evaluations_;
  evaluation_s_ += seconds;
  this_evaluation_s_ += seconds;
}

void Progress::OnLoss(int64_t step, double loss) {
  if (!std::isfinite(loss)) return;
  const int64_t samples = SamplesOf(step);
  loss_sum_ += loss * static_cast<double>(samples);
  loss_samples_ += samples;
}

double Progress::samples_per_s() const { return Rate(rated_samples_, rated_s_); }

int64_t Progress::SamplesIn(int64_t steps) const {
  return steps / plan_.steps_per_epoch * plan_.samples_per_epoch +
         steps % plan_.steps_per_epoch * plan_.global_batch;
}

double Progress::SecondsLeft(int64_t steps_done) const {
  if (steps_made_ < 2) return -1;
  const double a_step = step_s_ / step_weight_ + pause_s_ / static_cast<double>(steps_made_ - 1);
  double left = static_cast<double>(plan_.steps - steps_done) * a_step;
  if (plan_.evaluates && evaluations_ > 0) {
    // If step `steps_done` ends an epoch, the evaluation of that epoch is still to come, so it is counted, too.
    const int64_t evaluations =
        CeilDivide(plan_.steps, plan_.steps_per_epoch) - (steps_done - 1) / plan_.steps_per_epoch;
    left += static_cast<double>(evaluations) * evaluation_s_ / static_cast<double>(evaluations_);
  }
  return left;
}

}  // namespace lockstep
