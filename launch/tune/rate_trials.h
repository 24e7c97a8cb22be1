// FindRate(): finds the best learning rate for a config, and a warm-up for it, by short trainings.
//
// First a range test (launch/tune/range_test.h) finds the rates at which the loss falls. Then the config is trained
// with several rates, and one figure of these trainings is compared. If the config chooses its weights by a metric of
// the validation (checkpoint.keep_best, or early_stopping.metric), the figure is the best value of this metric, because
// the run keeps the weights that had it. Otherwise the run keeps its last weights, and the figure is the loss at the
// end. Each training has as many steps as the time limit allows, but not more than the config's run. It uses the
// config's own schedule, so that the best rate of the trainings is likely to be the best rate for the run.
//
// If the trainings are shorter than the run, a rate above the user's counts only as far as it can be good for the whole
// run, too (RateFinder::ChooseForLongerRun() in rate_trials.cc).
//
// The figures of two trainings differ by chance, too. If another rate than the user's had the best figure, both are
// therefore trained once more, with another seed and so with other samples held back. The user's rate stays unless the
// other rate is better in the mean of both trainings.
//
// If the config has a warm-up, the trainings have the same share of warm-up steps as the config's run. If the config
// has no warm-up, a twentieth of the steps of each training are warm-up steps (but the training with the config's own
// rate has none). For optimizers with beta2, the decay rate of the second moment, this warm-up has at most
// 2 / (1 - beta2) steps in a whole run, and proportionally fewer in shorter trainings (Ma and Yarats, 'On the adequacy
// of untuned warmup for adaptive optimization', AAAI 2021). After these trainings, the best rate is also tried without
// a warm-up, if there is time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/config.pb.h"
#include "launch/tune/range_test.h"
#include "launch/tune/trial.h"

namespace lockstep {

// A training with one rate.
struct RateTrial {
  double rate = 0;  // the value of optimizer.lr
  int64_t warmup_steps = 0;
  int64_t steps = 0;
  // The value of the figure FigureName(). It is infinite or, if more is better, minus infinity for a training that
  // failed.
  double figure = 0;
  std::optional<uint64_t> seed;  // the seed, if it is not that of the config
  double wall_s = 0;             // seconds from the start of the process to its end
  std::string failure;           // why the training ended early; empty: it came to its end
  bool is_users = false;  // the trial has the learning rate and the warm-up of the user's config
};

struct FoundRate {
  std::vector<RateTrial> tried;    // all trials with the seed of the config, in their order
  std::optional<RateTrial> best;   // the trial whose rate is suggested
  std::optional<RateTrial> users;  // the trial with the user's rate
  // The trial that was better than the user's while the user's rate stays, because the trials were shorter than the run.
  std::optional<RateTrial> better_in_short;
  bool was_chance = false;  // another rate than the user's was better at first, and not in the mean
  int64_t run_steps = 0;    // number of steps of the config's run; a trial may have fewer
  int64_t warmup_steps = 0;           // the warm-up of a whole run with the best rate
  std::string last_failure;           // `failure` of the last trial that failed; empty: none
  bool out_of_time = false;           // the time was over before the search ended
  std::optional<ExitStatus> stopped;  // the exit status, if a signal asked to stop
};

// Returns the name of the figure by which trials of the config are compared, as log.jsonl names it: "val_auc" if the
// run chooses its weights by their auc, otherwise "val_loss", or "train_loss" if the config has no validation.
std::string FigureName(const config::Config& config);

// Looks for the best rate. Once a training has succeeded, no training begins that would probably end more than
// `time_limit_s` seconds after the call. Calls `on_range` after the range test, and `on_trial` after each training.
// Throws Error.
FoundRate FindRate(TrialRunner& runner, const config::Config& config, double time_limit_s,
                   const std::function<void(const RangeTest&, const Trial&)>& on_range,
                   const std::function<void(const RateTrial&)>& on_trial);

}  // namespace lockstep
