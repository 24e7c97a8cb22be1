// `lockstep tune --only batch`: finds the fastest way to make the config's step. A way is a number of micro-batches,
// with or without activation checkpointing.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/say.h"
#include "comm/together.h"
#include "launch/cli/training/tuning.h"
#include "launch/tune/step_trials.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

void PrintWay(const TimedWay& timed, const TuneOptions& options) {
  const StepTrial& trial = timed.trial;
  const bool fits = trial.failure.empty();
  const bool as_asked = trial.accumulation == timed.way.accumulation;
  if (options.json) {
    Json line{{"accumulation", fits ? trial.accumulation : timed.way.accumulation},
              {"activation_checkpointing", timed.way.checkpointing}};
    if (fits) {
      line.update(Json{{"micro_batch", trial.micro_batch},
                       {"samples_per_s", trial.samples_per_s},
                       {"step_ms", trial.step_ms}});
      if (trial.device_gib > 0) {
        line.update(Json{{"peak_gib", trial.peak_gib},
                         {"left_gib", trial.left_gib},
                         {"device_gib", trial.device_gib}});
      }
      if (trial.of_peak > 0) line["of_peak"] = trial.of_peak;
      if (!as_asked) line["does_not_fit"] = timed.way.accumulation;
      if (timed.leaves_too_little) line["leaves_too_little"] = true;
    } else {
      line["failure"] = trial.failure;
    }
    line["seconds"] = trial.wall_s;
    Tuning::PrintLine(line);
    return;
  }
  std::string note = timed.is_users ? "yours" : "";
  const auto add = [&](const std::string& more) { note += (note.empty() ? "" : ": ") + more; };
  if (!fits) {
    add(trial.failure);
  } else if (!as_asked) {
    add(fmt::format("accumulation {} does not fit in memory", timed.way.accumulation));
  }
  if (timed.leaves_too_little) {
    add(fmt::format("leaves {:.1f} of {:.1f} GiB, less than --reserve {:g}", trial.left_gib,
                    trial.device_gib, options.reserve));
  }
  const auto known = [&](double value, const std::string& text) {
    return value > 0 ? text : std::string("-");
  };
  Print("{:>11} {:>12} {:>13} {:>10} {:>9} {:>9} {:>7}  {}\n",
        known(static_cast<double>(trial.micro_batch), std::to_string(trial.micro_batch)),
        fits ? trial.accumulation : timed.way.accumulation, timed.way.checkpointing ? "yes" : "no",
        known(trial.samples_per_s, SpeedText(trial.samples_per_s)),
        known(trial.step_ms, fmt::format("{:.2f}", trial.step_ms)),
        known(trial.peak_gib, fmt::format("{:.2f}", trial.peak_gib)),
        known(trial.of_peak, fmt::format("{:.0f} %", 100 * trial.of_peak)), note);
  std::fflush(stdout);
}

// Returns the result of the user's way in words, for example "gives 577.2 samples/s". `users` is the trial of that way,
// and `accumulation` is the number of micro-batches in the user's config.
std::string FateOf(const std::optional<TimedWay>& users, int64_t accumulation) {
  if (!users || users->trial.accumulation != accumulation) return "does not fit in memory";
  if (users->leaves_too_little) return "leaves too little memory";
  return fmt::format("gives {} samples/s", SpeedText(users->trial.samples_per_s));
}

void Conclude(const FoundWay& found, Tuning& tuning) {
  const TuneOptions& options = tuning.options();
  const config::Config& config = tuning.config();
  if (!found.best) {
    if (found.stopped) return;
    if (!found.fits) throw UsageError("no step fits in memory: {}", kLessMemory);
    tuning.PrintNothing(
        "the step",
        fmt::format("all that was tried leaves less than --reserve {:g} of the memory{}",
                    options.reserve, found.out_of_time ? tuning.MoreTime("; ") : ""));
    return;
  }
  const StepTrial& best = found.best->trial;
  const bool checkpointing = found.best->way.checkpointing;
  const bool splits = best.accumulation != config.accumulation();
  const bool switches = checkpointing != config.model().activation_checkpointing();
  const std::string fate = FateOf(found.users, config.accumulation());
  if (options.json) {
    Tuning::PrintLine(
        {{"suggestion",
          {{"accumulation", best.accumulation}, {"model.activation_checkpointing", checkpointing}}},
         {"samples_per_s", best.samples_per_s}});
  } else {
    const bool is_users = !splits && !switches;
    Print("\n{}accumulation {}, activation checkpointing {}: {} samples/s{}\n",
          !is_users          ? "suggestion: "
          : found.has_others ? "nothing faster was found than yours: "
                             : "nothing was tried but yours: ",
          best.accumulation, checkpointing ? "on" : "off", SpeedText(best.samples_per_s),
          is_users ? "" : ", where yours " + fate);
    if (found.out_of_time) Print("{}\n", tuning.MoreTime(""));
    Print("\n");
  }
  tuning.step_samples_per_s = best.samples_per_s;
  const auto adopt = [&](const std::string& name, const std::string& now) {
    tuning.Adopt({name, now,
                  fmt::format("{} was {}, which {}; now {} samples/s with micro-batches of {} "
                              "(lockstep tune)",
                              name.substr(name.find('.') + 1), tuning.UsersValue(name), fate,
                              SpeedText(best.samples_per_s), best.micro_batch)});
  };
  if (splits) adopt("accumulation", std::to_string(best.accumulation));
  if (switches) adopt("model.activation_checkpointing", fmt::format("{}", checkpointing));
}

}  // namespace

std::optional<ExitStatus> TuneBatch(Tuning& tuning, double time_s) {
  const TuneOptions& options = tuning.options();
  if (!options.json) {
    Print("{:>11} {:>12} {:>13} {:>10} {:>9} {:>9} {:>7}  {}\n", "micro-batch", "accumulation",
          "checkpointing", "samples/s", "ms a step", "GiB", "of peak", "note");
  }
  const FoundWay found = FindWay(tuning.runner(), tuning.config(), time_s, options.reserve,
                                 [&](const TimedWay& timed) { PrintWay(timed, options); });
  Conclude(found, tuning);
  return found.stopped;
}

}  // namespace lockstep
