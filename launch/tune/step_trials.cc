#include "launch/tune/step_trials.h"

#include <algorithm>

#include "base/clock.h"
#include "launch/tune/step_meter.h"

namespace lockstep {
namespace {

// Another way replaces the user's way only if it is faster by at least this fraction. From trial to trial, the speed of
// one way varies by less than that.
constexpr double kFasterBy = 0.02;

config::Config ConfigFor(config::Config config, const StepWay& way) {
  config.set_accumulation(static_cast<int>(way.accumulation));
  config.mutable_model()->set_activation_checkpointing(way.checkpointing);
  return config;
}

}  // namespace

FoundWay FindWay(TrialRunner& runner, const config::Config& config, double time_limit_s,
                 double reserve, const std::function<void(const TimedWay&)>& on_trial) {
  const double end_s = SecondsSinceBoot() + time_limit_s;
  const StepWay users{config.accumulation(), config.model().activation_checkpointing()};
  std::optional<StepSearch> search;
  FoundWay found;
  StepMeter meter(runner);
  double slowest_s = 0;
  while (const std::optional<StepWay> way = search ? search->Next() : std::optional(users)) {
    found.out_of_time = found.users && SecondsSinceBoot() + slowest_s > end_s;
    if (found.out_of_time) break;
    TimedWay timed{.way = *way, .trial = meter(ConfigFor(config, *way)), .is_users = *way == users};
    const StepTrial& trial = timed.trial;
    found.stopped = trial.stopped;
    if (found.stopped) break;
    slowest_s = std::max(slowest_s, trial.wall_s);
    timed.leaves_too_little = trial.LeavesLessThan(reserve);
    const bool counts = trial.failure.empty() && !timed.leaves_too_little;
    const int64_t most = config.global_batch() / std::max<int64_t>(trial.ranks, 1);
    if (!search) search.emplace(users, most);
    const int64_t failed_in = trial.nothing_fits ? most : way->accumulation;
    search->Add(*way, trial.failure.empty() ? trial.accumulation : failed_in,
                counts ? trial.samples_per_s : 0);
    found.fits |= trial.failure.empty();
    if (counts && (!found.best || trial.samples_per_s > found.best->trial.samples_per_s)) {
      found.best = timed;
    }
    if (timed.is_users) found.users = timed;
    found.has_others |= !timed.is_users;
    on_trial(timed);
  }
  // The result is the user's way, unless another way is clearly faster.
  const bool users_counts = found.users && found.users->trial.failure.empty() &&
                            !found.users->leaves_too_little &&
                            found.users->trial.accumulation == users.accumulation;
  if (users_counts &&
      found.best->trial.samples_per_s < (1 + kFasterBy) * found.users->trial.samples_per_s) {
    found.best = found.users;
  }
  return found;
}

}  // namespace lockstep
