#include "launch/tune/rate_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/ceil_divide.h"
#include "base/clock.h"
#include "launch/tune/rate_search.h"
#include "trainer/step/schedule.h"

namespace lockstep {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

constexpr double kLowestRate = 1e-7;
constexpr double kHighestRate = 10;
constexpr int64_t kRangeSteps = 240;  // 30 a decade

// A search rarely needs more trainings.
constexpr double kTrials = 9;
constexpr int64_t kLeastSteps = 50;

double TwoDigits(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value)) - 1);
  return std::round(value / unit) * unit;
}

bool Validates(const config::Config& config) {
  return config.data().validation_size() > 0 || config.data().validation_fraction() > 0;
}

// The factor by which the optimizer's rate differs from optimizer.lr.
double ScalingOf(config::Config config) {
  config.mutable_optimizer()->set_lr(1);
  return PeakLearningRate(config);
}

Trial RangeTrial(TrialRunner& runner, config::Config config) {
  config::Schedule& schedule = *config.mutable_schedule();
  schedule.Clear();
  schedule.set_type(config::Schedule::RANGE_TEST);
  schedule.set_first_fraction(kLowestRate / kHighestRate);
  config.mutable_optimizer()->set_lr(kHighestRate);
  config.mutable_log()->set_every_steps(1);
  config.set_epochs(kRangeSteps);
  config.set_max_steps(kRangeSteps);
  config.mutable_data()->clear_validation();
  return runner.Run(std::move(config));
}

RangeTest Read(const Trial& trial, double scaling) {
  std::vector<RatePoint> points;
  for (const LoggedStep& step : trial.log.steps) points.push_back({step.lr / scaling, step.loss});
  return RangeTest(points);
}

double LossOf(const Trial& trial, bool validates) {
  if (!trial.failure.empty()) return kInfinite;
  if (validates) {
    return trial.log.evaluations.empty() ? kInfinite
                                         : trial.log.evaluations.back().ValueOf("val_loss");
  }
  const std::vector<LoggedStep>& steps = trial.log.steps;
  const auto counted = std::max<size_t>(steps.size() / 10, 1);
  double sum = 0;
  for (size_t i = steps.size() - std::min(counted, steps.size()); i < steps.size(); ++i) {
    sum += steps[i].loss;
  }
  return steps.empty() ? kInfinite : sum / static_cast<double>(std::min(counted, steps.size()));
}

// Seconds of a step, from a log with all steps.
double StepSeconds(const LoggedRun& log) {
  const std::vector<LoggedStep>& steps = log.steps;
  // The first step also prepares the others.
  if (steps.size() < 3) return 0;
  return (steps.back().time - steps[1].time) / static_cast<double>(steps.size() - 2);
}

int64_t StepsOf(const config::Config& config, const LoggedRun& log) {
  const auto samples = log.start.value("samples", int64_t{0});
  const int64_t batch = config.global_batch();
  const bool drops = config.data().last_batch() == config::Data::DROP;
  const int64_t per_epoch =
      std::max<int64_t>(drops ? samples / batch : CeilDivide(samples, batch), 1);
  const int64_t steps = per_epoch * config.epochs();
  return config.max_steps() > 0 ? std::min(steps, config.max_steps()) : steps;
}

config::Config TrialConfig(config::Config config, const RateTrial& trial) {
  constexpr int64_t kLines = 500;
  config.mutable_optimizer()->set_lr(trial.rate);
  config.mutable_schedule()->set_warmup_steps(trial.warmup_steps);
  config.mutable_log()->set_every_steps(std::max<int64_t>(trial.steps / kLines, 1));
  config.set_max_steps(trial.steps);
  return config;
}

}  // namespace

int64_t WarmupFor(const config::Config& config, int64_t config_steps, int64_t steps) {
  constexpr int64_t kShare = 20;
  const int64_t users = config.schedule().warmup_steps();
  if (users > 0) {
    return std::max<int64_t>(std::llround(static_cast<double>(users) * static_cast<double>(steps) /
                                          static_cast<double>(config_steps)),
                             1);
  }
  const auto type = config.optimizer().type();
  const bool has_beta2 = type == config::Optimizer::ADAM || type == config::Optimizer::ADAMW ||
                         type == config::Optimizer::LAMB;
  const double most = has_beta2 ? 2 / (1 - config.optimizer().beta2()) : kInfinite;
  return static_cast<int64_t>(std::min(static_cast<double>(steps / kShare), std::round(most)));
}

std::string LossName(const config::Config& config) {
  return Validates(config) ? "val_loss" : "train_loss";
}

FoundRate FindRate(TrialRunner& runner, const config::Config& config, double time_limit_s,
                   const std::function<void(const RangeTest&, const Trial&)>& on_range,
                   const std::function<void(const RateTrial&)>& on_trial) {
  const double end_s = SecondsSinceBoot() + time_limit_s;
  FoundRate found;
  const Trial range_trial = RangeTrial(runner, config);
  found.stopped = range_trial.stopped;
  if (found.stopped) return found;
  const RangeTest range = Read(range_trial, ScalingOf(config));
  on_range(range, range_trial);
  if (!range.falls()) {
    throw UsageError(
        "the loss falls at no learning rate between {:g} and {:g}: see that the labels belong to "
        "the samples, and that data.mean, data.std or data.csv.scale suit them",
        kLowestRate, kHighestRate);
  }
  const int64_t config_steps = StepsOf(config, range_trial.log);
  const double step_s = StepSeconds(range_trial.log);
  const double start_s =
      std::max(range_trial.wall_s - step_s * static_cast<double>(range_trial.log.step), 0.0);
  const double trial_s = (end_s - SecondsSinceBoot()) / kTrials;
  const auto fitting = static_cast<int64_t>(std::max(trial_s - start_s, 0.0) / std::max(step_s, 1e-6));
  const int64_t steps = std::min(std::max(fitting, kLeastSteps), config_steps);
  found.run_steps = config_steps;
  found.warmup_steps = WarmupFor(config, config_steps, config_steps);
  found.whole = steps == config_steps;

  RateSearch search(range.begins(), range.diverges());
  double slowest_s = 0;
  // Returns false if a signal has ended it.
  const auto try_rate = [&](double rate) {
    RateTrial trial{
        .rate = rate, .warmup_steps = WarmupFor(config, config_steps, steps), .steps = steps};
    trial.is_users = rate == config.optimizer().lr();
    const Trial result = runner.Run(TrialConfig(config, trial));
    found.stopped = result.stopped;
    if (found.stopped) return false;
    trial.loss = LossOf(result, Validates(config));
    trial.failure = result.failure;
    if (!trial.failure.empty()) found.last_failure = trial.failure;
    trial.wall_s = result.wall_s;
    slowest_s = std::max(slowest_s, trial.wall_s);
    search.Add(rate, trial.loss);
    if (trial.is_users) found.users = trial;
    if (trial.loss < (found.best ? found.best->loss : kInfinite)) found.best = trial;
    on_trial(trial);
    return true;
  };
  if (config.optimizer().lr() > 0 && !try_rate(config.optimizer().lr())) return found;
  while (const std::optional<double> rate = search.Next()) {
    found.out_of_time = found.best && SecondsSinceBoot() + slowest_s > end_s;
    if (found.out_of_time || !try_rate(TwoDigits(*rate))) break;
  }
  return found;
}

}  // namespace lockstep
