#include "launch/tune/rate_trials.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "config/check_config.h"
#include "config/peak_learning_rate.h"
#include "launch/tune/rate_search.h"
#include "observe/metric_order.h"
#include "trainer/run/input.h"
#include "trainer/step/schedule.h"

namespace lockstep {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

constexpr double kLowestRate = 1e-7;
constexpr double kHighestRate = 10;
constexpr int64_t kRangeSteps = 240;  // 30 steps for each decade of rates

// The time limit is divided among kTrials trainings, because a search rarely needs more of them. Two of them are the
// second trainings of the user's rate and the best one.
constexpr double kTrials = 11;
constexpr int64_t kLeastSteps = 50;

double TwoDigits(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value)) - 1);
  return std::round(value / unit) * unit;
}

// Returns the peak learning rate divided by optimizer.lr. The quotient differs from 1 if the config has lr_scaling.
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
  config.mutable_data()->clear_validation();  // the range test does not validate
  return runner.Run(std::move(config));
}

RangeTest Read(const Trial& trial, double scaling) {
  std::vector<RatePoint> points;
  for (const LoggedStep& step : trial.log.steps) points.push_back({step.lr / scaling, step.loss});
  return RangeTest(points);
}

// Returns the metric by which the run chooses its weights; empty if it keeps its last weights.
std::string ChoosingMetric(const config::Config& config) {
  if (!Validates(config)) return "";
  const std::string& best = config.checkpoint().keep_best();
  return best.empty() ? config.early_stopping().metric() : best;
}

// Returns a value that is worse than each value of `figure`.
double WorstOf(const std::string& figure) {
  return IsBetter(figure, kInfinite, 0) ? -kInfinite : kInfinite;
}

// Returns the best value of the validation's metric `figure`, among the evaluations that have one.
double BestOf(const std::vector<LoggedMetrics>& evaluations, const std::string& figure) {
  double best = WorstOf(figure);
  for (const LoggedMetrics& evaluation : evaluations) {
    const double value = evaluation.ValueOf(figure);
    if (IsBetter(figure, value, best)) best = value;
  }
  return best;
}

double FigureOf(const Trial& trial, const config::Config& config) {
  const std::string figure = FigureName(config);
  const std::vector<LoggedMetrics>& evaluations = trial.log.evaluations;
  const std::vector<LoggedStep>& steps = trial.log.steps;
  const bool validates = Validates(config);
  if (!trial.failure.empty() || steps.empty() || (validates && evaluations.empty())) {
    return WorstOf(figure);
  }
  if (!ChoosingMetric(config).empty()) return BestOf(evaluations, figure);
  if (validates) return evaluations.back().ValueOf(figure);
  const size_t counted = std::max<size_t>(steps.size() / 10, 1);
  double sum = 0;
  for (size_t i = steps.size() - counted; i < steps.size(); ++i) sum += steps[i].loss;
  return sum / static_cast<double>(counted);
}

// Returns the mean time of a step in seconds, from a log that has all steps; 0 if the log has fewer than three steps.
double StepSeconds(const LoggedRun& log) {
  const std::vector<LoggedStep>& steps = log.steps;
  // The time until the line of the second step is left out, because the first steps take longer than later steps.
  if (steps.size() < 3) return 0;
  return (steps.back().time - steps[1].time) / static_cast<double>(steps.size() - 2);
}

// Returns the number of warm-up steps for a trial of `steps` steps. The trial's share of warm-up steps is
// `warmup_steps` / `run_steps`, as in a whole run.
int64_t ScaledWarmup(int64_t warmup_steps, int64_t run_steps, int64_t steps) {
  if (warmup_steps == 0) return 0;
  const double share = static_cast<double>(warmup_steps) / static_cast<double>(run_steps);
  return std::max<int64_t>(std::llround(share * static_cast<double>(steps)), 1);
}

// Returns the number of warm-up steps for a run of `steps` steps whose config has no warm-up.
int64_t UsualWarmup(const config::Optimizer& optimizer, int64_t steps) {
  constexpr int64_t kShare = 20;
  const bool has_beta2 = optimizer.type() == config::Optimizer::ADAM ||
                         optimizer.type() == config::Optimizer::ADAMW ||
                         optimizer.type() == config::Optimizer::LAMB;
  const int64_t usual = steps / kShare;
  if (!has_beta2) return usual;
  return std::min<int64_t>(usual, std::llround(2 / (1 - optimizer.beta2())));
}

// Returns a rate that is probably not above the best rate of a training that is `times` as long as those for which
// `best` is the best rate. The longer a training is, the lower is its best rate: it falls with a power of the length
// that differs from model to model (Bjorck et al., 'Scaling optimal LR across token horizons', ICLR 2025). The result is
// a quarter of what a square root would give, because the best rate of short trainings is noisy, but at least
// `best` / `times`.
double RateOfLongerRun(double best, double times) {
  constexpr double kMargin = 4;
  return best * std::max(1 / times, 1 / (kMargin * std::sqrt(times)));
}

config::Config TrialConfig(config::Config config, const RateTrial& trial) {
  constexpr int64_t kLines = 500;
  config.mutable_optimizer()->set_lr(trial.rate);
  config.mutable_schedule()->set_warmup_steps(trial.warmup_steps);
  config.mutable_log()->set_every_steps(std::max<int64_t>(trial.steps / kLines, 1));
  config.set_max_steps(trial.steps);
  if (trial.seed) config.set_seed(*trial.seed);
  return config;
}

// Trains with one rate after the other, until the best rate is known, the time is over, or a signal has come.
class RateFinder {
 public:
  RateFinder(TrialRunner& runner, const config::Config& config, double end_s, const Trial& range,
             const std::function<void(const RateTrial&)>& on_trial)
      : runner_(runner),
        config_(config),
        end_s_(end_s),
        figure_(FigureName(config)),
        run_steps_(StepsOfRun(config, range.log.start.at("samples").get<int64_t>())),
        on_trial_(on_trial) {
    const double step_s = std::max(StepSeconds(range.log), 1e-6);
    const double start_s =
        std::max(range.wall_s - step_s * static_cast<double>(range.log.step), 0.0);
    const double trial_s = (end_s_ - SecondsSinceBoot()) / kTrials;
    const auto fitting = static_cast<int64_t>(std::max(trial_s - start_s, 0.0) / step_s);
    steps_ = std::min(std::max(fitting, kLeastSteps), run_steps_);
  }

  FoundRate Find(RateSearch search) {
    found_.run_steps = run_steps_;
    const double users_rate = config_.optimizer().lr();
    const int64_t users_warmup = config_.schedule().warmup_steps();
    if (users_rate > 0) {
      search.Add(users_rate, CostWith(users_rate, users_warmup, /*is_users=*/true));
    }
    const int64_t warmup =
        users_warmup > 0 ? users_warmup : UsualWarmup(config_.optimizer(), run_steps_);
    while (const std::optional<double> rate = MayTrain() ? search.Next() : std::nullopt) {
      const double tidy = TwoDigits(*rate);
      search.Add(tidy, CostWith(tidy, warmup, /*is_users=*/false));
    }
    ChooseForLongerRun();
    if (MayTrain() && found_.best && found_.best->warmup_steps > 0 && users_warmup == 0) {
      CostWith(found_.best->rate, 0, /*is_users=*/false);
    }
    Confirm();
    if (found_.best) {
      found_.warmup_steps = found_.best->warmup_steps == 0 ? 0
                            : found_.best->is_users        ? users_warmup
                                                           : warmup;
      found_.out_of_time = !found_.stopped && search.Next().has_value();
    }
    return found_;
  }

 private:
  // Returns whether another training may begin: one takes as long as the slowest so far. The time limit is ignored until
  // one training has succeeded. (TrialRunner::HasTime() asks whether any trial of the command, however short, can end in
  // time.)
  bool MayTrain() const {
    return !found_.stopped && (!found_.best || SecondsSinceBoot() + slowest_s_ <= end_s_);
  }

  // Returns the figure of a training with `rate` as a cost, which is lower the better the training was; infinity if the
  // training failed or was stopped. `warmup_steps` is the number of warm-up steps of a whole run.
  double CostWith(double rate, int64_t warmup_steps, bool is_users) {
    RateTrial trial{.rate = rate,
                    .warmup_steps = ScaledWarmup(warmup_steps, run_steps_, steps_),
                    .steps = steps_,
                    .is_users = is_users};
    if (!Try(trial)) return kInfinite;
    if (!trial.failure.empty()) found_.last_failure = trial.failure;
    if (is_users) found_.users = trial;
    found_.tried.push_back(trial);
    if (IsBetter(figure_, trial.figure, found_.best ? found_.best->figure : WorstOf(figure_))) {
      found_.best = trial;
    }
    return IsBetter(figure_, 1, 0) ? -trial.figure : trial.figure;
  }

  // Replaces the best trial if the trials are shorter than the run, and the best rate is above the user's. The lowest
  // rate that was tried above RateOfLongerRun(), and that is better than the user's, becomes the best. If the user's own
  // rate is above it, the user's becomes the best, because it may be better in the whole run.
  void ChooseForLongerRun() {
    if (!found_.best || !found_.users || steps_ == run_steps_) return;
    const double users_rate = found_.users->rate;
    if (found_.best->rate <= users_rate) return;
    const double limit = RateOfLongerRun(
        found_.best->rate, static_cast<double>(run_steps_) / static_cast<double>(steps_));
    if (users_rate >= limit) {
      found_.better_in_short = std::exchange(found_.best, found_.users);
      return;
    }
    for (const RateTrial& trial : found_.tried) {
      const bool is_better = IsBetter(figure_, trial.figure, found_.users->figure);
      if (is_better && trial.rate >= limit && trial.rate < found_.best->rate) found_.best = trial;
    }
  }

  // Trains as `trial` says, and sets its figure and how it ended. Returns false if a signal has come.
  bool Try(RateTrial& trial) {
    const Trial result = runner_.Run(TrialConfig(config_, trial));
    found_.stopped = result.stopped;
    if (found_.stopped) return false;
    trial.figure = FigureOf(result, config_);
    trial.failure = result.failure;
    trial.wall_s = result.wall_s;
    slowest_s_ = std::max(slowest_s_, trial.wall_s);
    on_trial_(trial);
    return true;
  }

  // Trains with the user's rate and with the best rate once more. If the best rate is not better in the mean, the
  // user's becomes the best.
  void Confirm() {
    if (!found_.best || !found_.users || found_.best->is_users) return;
    if (!std::isfinite(found_.users->figure)) return;
    RateTrial best = *found_.best, users = *found_.users;
    for (RateTrial* trial : {&users, &best}) {
      if (!MayTrain()) return;
      trial->seed = config_.seed() + 1;
      if (!Try(*trial)) return;
    }
    if (IsBetter(figure_, found_.best->figure + best.figure, found_.users->figure + users.figure)) {
      return;
    }
    found_.was_chance = true;
    found_.best = found_.users;
  }

  TrialRunner& runner_;
  const config::Config& config_;
  double end_s_;
  std::string figure_;
  int64_t run_steps_;
  const std::function<void(const RateTrial&)>& on_trial_;
  int64_t steps_ = 0;  // the number of steps of each training
  double slowest_s_ = 0;
  FoundRate found_;
};

}  // namespace

std::string FigureName(const config::Config& config) {
  const std::string metric = ChoosingMetric(config);
  if (!metric.empty()) return "val_" + metric;
  return Validates(config) ? "val_loss" : "train_loss";
}

FoundRate FindRate(TrialRunner& runner, const config::Config& config, double time_limit_s,
                   const std::function<void(const RangeTest&, const Trial&)>& on_range,
                   const std::function<void(const RateTrial&)>& on_trial) {
  const double end_s = SecondsSinceBoot() + time_limit_s;
  const Trial trial = RangeTrial(runner, config);
  if (trial.stopped) return {.stopped = trial.stopped};
  const RangeTest range = Read(trial, ScalingOf(config));
  on_range(range, trial);
  if (!range.falls()) {
    throw UsageError(
        "the loss falls at no learning rate between {:g} and {:g}: see that the labels belong to "
        "the samples, and that data.mean, data.std or data.csv.scale suit them",
        kLowestRate, kHighestRate);
  }
  return RateFinder(runner, config, end_s, trial, on_trial)
      .Find(RateSearch(range.begins(), range.diverges()));
}

}  // namespace lockstep
