// RateTrials: finds the learning rate for a config by short trainings, and the warm-up that goes with it.
//
// First a range test (launch/tune/range_test.h) says at which rates the loss falls. Then trainings of the config itself,
// each with another rate, are compared by the loss that they end with. A training is as long as the time limit allows,
// and as long as the run if that is possible; its schedule is the config's, so what is compared is what will be used.
//
// A config that has a warm-up keeps it. Otherwise the trainings have the usual one: a twentieth of the steps, but not
// more than 2 / (1 - beta2) for optimizers that have beta2 (Ma and Yarats, 'On the adequacy of untuned warmup for adaptive
// optimization', AAAI 2021). The best rate is then tried without.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "config/schema/config.pb.h"
#include "launch/tune/range_test.h"
#include "launch/tune/trial.h"

namespace lockstep {

// A training with one rate.
struct RateTrial {
  double rate = 0;  // optimizer.lr
  int64_t warmup_steps = 0;
  int64_t steps = 0;
  // The loss of the validation samples at the end, or otherwise the mean of the last tenth of the steps.
  double loss = 0;
  double wall_s = 0;      // from the start of its process to its end
  std::string failure;    // why it ended early; empty: it did not
  bool is_users = false;  // it is the config as it is
};

struct FoundRate {
  std::optional<RateTrial> best;
  std::optional<RateTrial> users;
  int64_t run_steps = 0;              // of the config; a training has fewer if the time is short
  int64_t warmup_steps = 0;           // for the best rate and the whole run
  std::string last_failure;           // of the trainings; empty: none failed
  bool out_of_time = false;           // the search had not come to its end
  std::optional<ExitStatus> stopped;  // as in Trial
};

// Returns the name of the loss that trials of the config are compared by: "val_loss" or "train_loss".
std::string LossName(const config::Config& config);

// Looks for the rate. `time_limit_s` bounds it all, up to the end of a trial that has begun. Calls `on_range` once and
// `on_trial` after each training. Throws Error.
FoundRate FindRate(TrialRunner& runner, const config::Config& config, double time_limit_s,
                   const std::function<void(const RangeTest&, const Trial&)>& on_range,
                   const std::function<void(const RateTrial&)>& on_trial);

}  // namespace lockstep
