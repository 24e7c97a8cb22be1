// `lockstep tune --only rate`: finds the learning rate.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/say.h"
#include "launch/cli/command/table.h"
#include "launch/cli/training/tuning.h"
#include "launch/tune/rate_trials.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Returns the curve of a range test as text: a line for each third of a decade of the learning rate, with a bar whose
// length shows the loss.
std::string CurveText(const RangeTest& range) {
  constexpr double kPerDecade = 3;
  constexpr double kWidth = 48;
  const auto band = [](double rate) { return std::floor(std::log10(rate) * kPerDecade + 1e-9); };
  double most = 0;
  for (const RatePoint& point : range.curve()) {
    if (std::isfinite(point.loss) && point.rate <= range.diverges()) {
      most = std::max(most, point.loss);
    }
  }
  std::vector<TableRow> rows{{"lr", "loss"}};
  for (size_t i = 0; i < range.curve().size();) {
    double sum = 0;
    const size_t begin = i;
    const double here = band(range.curve()[i].rate);
    for (; i < range.curve().size() && band(range.curve()[i].rate) == here; ++i) {
      sum += range.curve()[i].loss;
    }
    const double loss = sum / static_cast<double>(i - begin);
    const double share = std::clamp(loss / most, 0.0, 1.0);
    const bool beyond = !(loss <= most);
    rows.push_back(
        {fmt::format("{:.1e}", range.curve()[begin].rate),
         std::isfinite(loss) ? FigureText(loss) : "not finite",
         std::string(static_cast<size_t>(std::lround((beyond ? 1 : share) * kWidth)), '#') +
             (beyond ? " ..." : "")});
  }
  return TableText(rows);
}

// Returns the width of the column of the figure.
size_t WidthOf(const std::string& figure_name) { return std::max<size_t>(11, figure_name.size()); }

void PrintRange(const RangeTest& range, const Trial& trial, const std::string& figure_name,
                bool json) {
  if (json) {
    Json curve = Json::array();
    for (const RatePoint& point : range.curve()) {
      if (std::isfinite(point.loss)) curve.push_back({point.rate, point.loss});
    }
    Tuning::PrintLine({{"range_test", std::move(curve)},
                       {"falls_from", range.begins()},
                       {"lowest_at", range.lowest()},
                       {"grows_from", range.diverges()}});
  } else {
    Print("range test: {} steps, {:.1f} s\n{}", trial.log.step, trial.wall_s, CurveText(range));
    if (range.falls()) {
      Print(
          "the loss falls from {:.1e} on, is lowest at {:.1e}, and is higher than at first from "
          "{:.1e} on\n\n",
          range.begins(), range.lowest(), range.diverges());
      Print("{:>9} {:>8} {:>8} {:>{}} {:>8}\n", "lr", "warm-up", "steps", figure_name,
            WidthOf(figure_name), "seconds");
    }
  }
  std::fflush(stdout);
}

void PrintTrial(const RateTrial& trial, const std::string& figure_name, bool json) {
  if (json) {
    Json line{{"lr", trial.rate}, {"warmup_steps", trial.warmup_steps}, {"steps", trial.steps}};
    if (std::isfinite(trial.figure)) line[figure_name] = trial.figure;
    if (trial.seed) line["seed"] = *trial.seed;
    if (!trial.failure.empty()) line["failure"] = trial.failure;
    line["seconds"] = trial.wall_s;
    Tuning::PrintLine(line);
  } else {
    std::string note = trial.is_users ? "  yours" : "";
    if (trial.seed) note += fmt::format("  with seed {}", *trial.seed);
    if (!trial.failure.empty()) note += (note.empty() ? "  " : ": ") + trial.failure;
    Print("{:>9} {:>8} {:>8} {:>{}} {:>8.1f}{}\n", RateText(trial.rate), trial.warmup_steps,
          trial.steps, std::isfinite(trial.figure) ? FigureText(trial.figure) : "-",
          WidthOf(figure_name), trial.wall_s, note);
  }
  std::fflush(stdout);
}

void Adopt(const FoundRate& found, Tuning& tuning, const std::string& figure_name) {
  const RateTrial& best = *found.best;
  const std::string users =
      found.users && std::isfinite(found.users->figure)
          ? fmt::format(", with a {} of {}", figure_name, FigureText(found.users->figure))
          : "";
  tuning.Adopt({"optimizer.lr", RateText(best.rate),
                fmt::format("lr was {}{}; now {} after {} steps (lockstep tune)",
                            RateText(tuning.config().optimizer().lr()), users,
                            FigureText(best.figure), best.steps)});
  if (found.warmup_steps != tuning.config().schedule().warmup_steps()) {
    tuning.Adopt({"schedule.warmup_steps", std::to_string(found.warmup_steps),
                  fmt::format("warmup_steps was {}; lr was found with this one",
                              tuning.UsersValue("schedule.warmup_steps"))});
  }
}

std::string_view Headline(const FoundRate& found) {
  if (!found.best->is_users) return "suggestion: ";
  if (found.better_in_short) return "yours stays: ";
  return found.tried.size() > 1 ? "nothing better was found than yours: "
                                : "no other rate than yours was tried: ";
}

void Conclude(const FoundRate& found, Tuning& tuning, const std::string& figure_name) {
  if (!found.best) return;
  const RateTrial& best = *found.best;
  const bool is_whole = best.steps == found.run_steps;
  if (!best.is_users) Adopt(found, tuning, figure_name);
  if (tuning.options().json) {
    Json line{{"suggestion",
               {{"optimizer.lr", best.rate}, {"schedule.warmup_steps", found.warmup_steps}}},
              {figure_name, best.figure},
              {"whole_run", is_whole}};
    if (found.better_in_short) line["better_in_short"] = found.better_in_short->rate;
    Tuning::PrintLine(line);
    return;
  }
  Print("\n{}optimizer.lr {}, schedule.warmup_steps {}: {} {}{}\n", Headline(found),
        RateText(best.rate), found.warmup_steps, figure_name, FigureText(best.figure),
        found.users && !best.is_users && std::isfinite(found.users->figure)
            ? fmt::format(", where yours gives {}", FigureText(found.users->figure))
            : "");
  if (found.was_chance) {
    Print("another rate was better at first, but not with another seed: yours stays\n");
  }
  const int more_s = 4 * tuning.options().time_s;
  if (found.better_in_short) {
    Print(
        "{} was better in trainings of {} of the run's {} steps ({} {}), but a longer one wants a "
        "lower rate, which may be yours: --time {} tries longer ones\n",
        RateText(found.better_in_short->rate), best.steps, found.run_steps, figure_name,
        FigureText(found.better_in_short->figure), more_s);
  } else if (!is_whole) {
    Print(
        "the trainings had {} of the run's {} steps, and a longer one often wants a lower rate: "
        "--time {} tries longer ones\n",
        best.steps, found.run_steps, more_s);
  } else if (found.out_of_time) {
    Print("the time was over before the rates next to it were tried: --time {}\n", more_s);
  }
}

}  // namespace

std::optional<ExitStatus> TuneRate(Tuning& tuning, double time_s) {
  const std::string figure_name = FigureName(tuning.config());
  const bool json = tuning.options().json;
  const FoundRate found = FindRate(
      tuning.runner(), tuning.config(), time_s,
      [&](const RangeTest& range, const Trial& trial) {
        PrintRange(range, trial, figure_name, json);
      },
      [&](const RateTrial& trial) { PrintTrial(trial, figure_name, json); });
  Conclude(found, tuning, figure_name);
  if (!found.stopped && !found.best) {
    throw UsageError("no training came to its end, the last one with: {}", found.last_failure);
  }
  return found.stopped;
}

}  // namespace lockstep
