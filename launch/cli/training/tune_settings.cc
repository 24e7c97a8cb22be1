// `lockstep tune --only loader`, `exchange` and `precision`: find settings by trying values one after the other.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/say.h"
#include "config/config.h"
#include "launch/cli/training/tuning.h"
#include "launch/tune/loader_trials.h"
#include "launch/tune/step_meter.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Returns a setting as text, for example "loader.threads 4, loader.slots 8".
std::string TextOf(const Setting& setting) {
  std::string text;
  for (const FieldValue& field : setting) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", field.name, field.value);
  }
  return text;
}

Json JsonOf(const Setting& setting) {
  Json json = Json::object();
  for (const FieldValue& field : setting) json[field.name] = field.value;
  return json;
}

void PrintHeader(const TuneOptions& options) {
  if (!options.json) Print("{:>10} {:>8}  {}\n", "samples/s", "seconds", "setting");
}

void PrintTrial(const SettingTrial& trial, const TuneOptions& options) {
  if (options.json) {
    Json line{{"setting", JsonOf(trial.setting)}, {"seconds", trial.wall_s}};
    if (trial.samples_per_s > 0) line["samples_per_s"] = trial.samples_per_s;
    if (!trial.note.empty()) line["note"] = trial.note;
    Tuning::PrintLine(line);
    return;
  }
  const std::string name = trial.is_users ? "yours" : TextOf(trial.setting);
  Print("{:>10} {:>8.1f}  {}{}\n",
        trial.samples_per_s > 0 ? SpeedText(trial.samples_per_s) : std::string("-"), trial.wall_s,
        name, trial.note.empty() ? "" : ": " + trial.note);
  std::fflush(stdout);
}

// Prints the result of the trials of `what`, for example "the loader", and adopts the best setting.
void Conclude(const SettingTrials& trials, const std::string& what, Tuning& tuning) {
  if (trials.stopped() && trials.best().samples_per_s == 0) return;
  const SettingTrial& best = trials.best();
  if (best.samples_per_s == 0) {
    tuning.PrintNothing(what, trials.users().note);
    return;
  }
  const std::string users =
      trials.users().samples_per_s > 0
          ? fmt::format("gives {} samples/s", SpeedText(trials.users().samples_per_s))
          : "cannot be used: " + trials.users().note;
  if (tuning.options().json) {
    Tuning::PrintLine(
        {{"suggestion", JsonOf(best.setting)}, {"samples_per_s", best.samples_per_s}});
  } else {
    if (best.is_users) {
      Print("\n{} yours: {} samples/s\n",
            trials.has_others() ? "nothing faster was found than" : "nothing was tried but",
            SpeedText(best.samples_per_s));
    } else {
      Print("\nsuggestion: {}: {} samples/s, where yours {}\n", TextOf(best.setting),
            SpeedText(best.samples_per_s), users);
    }
    if (trials.out_of_time()) Print("{}\n", tuning.MoreTime(""));
    Print("\n");
  }
  for (const FieldValue& field : best.setting) {
    tuning.Adopt(
        {field.name, field.value,
         fmt::format("{} was {}, which {}; now {} samples/s (lockstep tune)",
                     field.name.substr(field.name.rfind('.') + 1), tuning.UsersValue(field.name),
                     users, SpeedText(best.samples_per_s))});
  }
}

// A function that returns the settings to try. `users` is the measurement of the step with the user's config.
using Candidates = std::function<std::vector<Setting>(const StepTrial& users)>;

// Times the step with each of the settings to try, for about two seconds each, and adopts the fastest setting. If a
// signal asks this process to stop, returns the exit status for that signal.
std::optional<ExitStatus> FindStep(Tuning& tuning, const std::string& what,
                                   const Candidates& candidates, double time_s) {
  StepTrial users;
  StepMeter meter(tuning.runner());
  const auto measure = [&](const Setting& setting) {
    SettingTrial timed;
    try {
      const StepTrial trial = meter(tuning.With(setting));
      if (setting.empty()) users = trial;
      timed.wall_s = trial.wall_s;
      timed.stopped = trial.stopped;
      timed.note = trial.failure;
      const bool is_whole = trial.accumulation == tuning.config().accumulation();
      if (trial.failure.empty() && !trial.stopped && !is_whole && !setting.empty()) {
        timed.note = "does not fit in memory";
      } else if (trial.LeavesLessThan(tuning.options().reserve)) {
        timed.note = fmt::format("leaves {:.1f} of {:.1f} GiB, less than --reserve {:g}",
                                 trial.left_gib, trial.device_gib, tuning.options().reserve);
      } else if (trial.failure.empty()) {
        timed.samples_per_s = trial.samples_per_s;
      }
    } catch (const Error& error) {
      if (error.status() != ExitStatus::kUsage || setting.empty()) throw;
      timed.note = error.what();
    }
    return timed;
  };
  const TuneOptions& options = tuning.options();
  PrintHeader(options);
  SettingTrials trials(measure, SecondsSinceBoot() + time_s,
                       [&](const SettingTrial& trial) { PrintTrial(trial, options); });
  if (trials.Goes()) {
    for (const Setting& setting : candidates(users)) trials.Try(setting);
  }
  trials.Confirm();
  Conclude(trials, what, tuning);
  if (trials.best().samples_per_s > 0) tuning.step_samples_per_s = trials.best().samples_per_s;
  return trials.stopped();
}

}  // namespace

std::optional<ExitStatus> TuneLoader(Tuning& tuning, double time_s) {
  const std::string what = "the loader";
  if (!HasLoader(tuning.config())) {
    tuning.PrintNothing(what, "the config's samples are not read from files");
    return std::nullopt;
  }
  const TuneOptions& options = tuning.options();
  // A loader that is twice as fast as the steps is fast enough, even though training takes a part of the cores from the
  // loader.
  const double ample = tuning.step_samples_per_s > 0 ? 2 * tuning.step_samples_per_s : HUGE_VAL;
  const LoaderSearch search{.ranks = options.ranks_here,
                            .cold = options.cold,
                            .ample = ample,
                            .end_s = SecondsSinceBoot() + time_s};
  PrintHeader(options);
  const SettingTrials trials = FindLoader(
      tuning.runner(), [&](const Setting& setting) { return tuning.With(setting); }, search,
      [&](const SettingTrial& trial) { PrintTrial(trial, options); });
  if (trials.users().samples_per_s > ample) {
    tuning.PrintNothing(
        what,
        fmt::format("yours gives {} samples/s, and the steps take {}: training does not wait "
                    "for it",
                    SpeedText(trials.users().samples_per_s), SpeedText(tuning.step_samples_per_s)));
  } else {
    Conclude(trials, what, tuning);
  }
  return trials.stopped();
}

std::optional<ExitStatus> TuneExchange(Tuning& tuning, double time_s) {
  const std::string what = "the exchange between ranks";
  if (tuning.options().ranks < 2) {
    tuning.PrintNothing(what, "there is one rank: start tune with -n");
    return std::nullopt;
  }
  const auto candidates = [&](const StepTrial& users) {
    std::vector<Setting> settings;
    const int64_t gradient_bytes = 4 * users.parameters;
    const int64_t now = tuning.config().ddp().bucket_bytes();
    for (const int64_t mib : {1, 5, 25, 100, 400}) {
      const int64_t bytes = mib << 20;
      if (bytes == now) continue;
      if (std::min(bytes, now) < gradient_bytes) {  // otherwise both sizes give a single bucket
        settings.push_back({{"ddp.bucket_bytes", std::to_string(bytes)}});
      }
      if (bytes >= gradient_bytes) break;
    }
    // Gradients that were computed in 16 bits lose little precision if they are reduced in BF16.
    if (users.is_16_bit() && tuning.config().ddp().reduce_dtype() == config::Ddp::FP32) {
      settings.push_back({{"ddp.reduce_dtype", "BF16"}});
    }
    return settings;
  };
  return FindStep(tuning, what, candidates, time_s);
}

std::optional<ExitStatus> TunePrecision(Tuning& tuning, double time_s) {
  const auto candidates = [&](const StepTrial& users) {
    std::vector<Setting> settings;
    for (const config::Precision precision :
         {config::FP32, config::TF32, config::BF16, config::FP16}) {
      const bool is_for_gpus = precision == config::TF32 || precision == config::FP16;
      if (precision == users.precision || (is_for_gpus && users.device_gib == 0)) continue;
      settings.push_back({{"precision", config::Precision_Name(precision)}});
    }
    return settings;
  };
  return FindStep(tuning, "the precision", candidates, time_s);
}

}  // namespace lockstep
