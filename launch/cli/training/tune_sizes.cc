// `lockstep tune --global-batch auto`: measures the speed with larger global batches, and suggests one of them. `--only
// largest`: finds the largest micro-batch that fits in memory.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/say.h"
#include "launch/cli/command/table.h"
#include "launch/cli/training/tuning.h"
#include "launch/tune/largest_search.h"
#include "launch/tune/step_meter.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// A global batch that was timed, and the learning rates that the linear and the square-root rule give for it.
struct TimedBatch {
  int64_t global_batch = 0;
  double linear_lr = 0, root_lr = 0;
  StepTrial trial;
};

// Returns whether the learning rate should grow with the square root of the global batch. This is so for optimizers
// whose update does not grow with the gradient's norm: the noise of such an update falls with the square root of the
// batch size, so the learning rate may grow by the same factor.
bool ScalesWithRoot(config::Optimizer::Type type) {
  return type == config::Optimizer::ADAM || type == config::Optimizer::ADAMW ||
         type == config::Optimizer::LAMB;
}

void PrintBatch(const TimedBatch& timed, bool is_users, bool json) {
  const StepTrial& trial = timed.trial;
  const bool fits = trial.failure.empty();
  if (json) {
    Json line{{"global_batch", timed.global_batch},
              {"linear_lr", timed.linear_lr},
              {"square_root_lr", timed.root_lr},
              {"seconds", trial.wall_s}};
    if (fits) {
      line.update(Json{{"samples_per_s", trial.samples_per_s},
                       {"step_ms", trial.step_ms},
                       {"accumulation", trial.accumulation}});
    } else {
      line["failure"] = trial.failure;
    }
    Tuning::PrintLine(line);
    return;
  }
  Print("{:>12} {:>12} {:>10} {:>9} {:>9} {:>11}  {}\n", timed.global_batch,
        fits ? std::to_string(trial.accumulation) : "-",
        fits ? SpeedText(trial.samples_per_s) : "-",
        fits ? fmt::format("{:.2f}", trial.step_ms) : "-", RateText(timed.linear_lr),
        RateText(timed.root_lr), is_users ? "yours" : trial.failure);
  std::fflush(stdout);
}

// Prints which global batch is suggested, and adopts it with its learning rate.
void Conclude(const std::vector<TimedBatch>& tried, bool out_of_time, Tuning& tuning) {
  // The smallest global batch that reaches this fraction of the highest speed is suggested, because with a larger
  // global batch the model gets fewer updates from the same number of samples, and may learn less.
  constexpr double kNearly = 0.95;
  double most = 0;
  for (const TimedBatch& timed : tried) most = std::max(most, timed.trial.samples_per_s);
  const TimedBatch& users = tried.front();
  const TimedBatch* best = &users;
  if (users.trial.samples_per_s < kNearly * most) {
    best = &*std::ranges::find_if(tried, [&](const TimedBatch& timed) {
      return timed.trial.samples_per_s >= kNearly * most;
    });
  }
  const config::Optimizer& optimizer = tuning.config().optimizer();
  const bool by_root = ScalesWithRoot(optimizer.type());
  const bool scales_itself = optimizer.lr_scaling() != config::Optimizer::OFF;
  const double lr = scales_itself ? optimizer.lr() : by_root ? best->root_lr : best->linear_lr;
  const char* rule = scales_itself ? "optimizer.lr_scaling"
                     : by_root     ? "square-root rule"
                                   : "linear rule";
  tuning.step_samples_per_s = best->trial.samples_per_s;
  if (tuning.options().json) {
    Tuning::PrintLine({{"suggestion",
                        {{"global_batch", best->global_batch},
                         {"accumulation", best->trial.accumulation},
                         {"optimizer.lr", lr}}},
                       {"samples_per_s", best->trial.samples_per_s}});
  } else if (best == &users) {
    Print("\n{} yours: {} samples/s\n",
          tried.size() > 1 ? "no other global batch is clearly faster than"
                           : "no other global batch was tried than",
          SpeedText(users.trial.samples_per_s));
  } else {
    Print(
        "\nsuggestion: global_batch {}, optimizer.lr {} ({}): {} samples/s, where yours gives {}\n",
        best->global_batch, RateText(lr), rule, SpeedText(best->trial.samples_per_s),
        SpeedText(users.trial.samples_per_s));
  }
  if (!tuning.options().json) Print("{}\n", out_of_time ? tuning.MoreTime("") + "\n" : "");
  if (best == &users) return;
  const std::string gives =
      fmt::format("which gives {} samples/s; now {} (lockstep tune)",
                  SpeedText(users.trial.samples_per_s), SpeedText(best->trial.samples_per_s));
  tuning.Adopt({"global_batch", std::to_string(best->global_batch),
                fmt::format("global_batch was {}, {}", users.global_batch, gives)});
  if (best->trial.accumulation != tuning.config().accumulation()) {
    tuning.Adopt({"accumulation", std::to_string(best->trial.accumulation),
                  fmt::format("accumulation was {}; the global batch takes it in this many",
                              tuning.UsersValue("accumulation"))});
  }
  if (!scales_itself) {
    tuning.Adopt(
        {"optimizer.lr", RateText(lr),
         fmt::format("lr was {}; for the new global batch the {} gives this (lockstep tune)",
                     RateText(users.linear_lr), rule)});
  }
}

}  // namespace

std::optional<ExitStatus> TuneGlobalBatch(Tuning& tuning, double time_s) {
  constexpr double kWorthFollowing = 1.03;
  constexpr int64_t kLeastStepsOfEpoch = 10;
  const double end_s = SecondsSinceBoot() + time_s;
  const bool json = tuning.options().json;
  const int64_t users_batch = tuning.config().global_batch();
  if (!json) {
    Print("{:>12} {:>12} {:>10} {:>9} {:>9} {:>11}  {}\n", "global batch", "accumulation",
          "samples/s", "ms a step", "lr linear", "lr sq. root", "note");
  }
  std::vector<TimedBatch> tried;
  StepMeter meter(tuning.runner());
  double slowest_s = 0;
  bool out_of_time = false;
  int64_t accumulation = tuning.config().accumulation();
  for (int64_t factor = 1;;) {
    out_of_time = !tried.empty() && SecondsSinceBoot() + slowest_s > end_s;
    if (out_of_time) break;
    const double lr = tuning.config().optimizer().lr();
    TimedBatch timed{.global_batch = factor * users_batch,
                     .linear_lr = static_cast<double>(factor) * lr,
                     .root_lr = std::sqrt(static_cast<double>(factor)) * lr};
    timed.trial = meter(tuning.With({{"global_batch", std::to_string(timed.global_batch)},
                                     {"accumulation", std::to_string(accumulation)}}));
    if (timed.trial.stopped) return timed.trial.stopped;
    slowest_s = std::max(slowest_s, timed.trial.wall_s);
    const StepTrial& trial = timed.trial;
    const bool leaves_too_little = trial.LeavesLessThan(tuning.options().reserve);
    if (trial.failure.empty() && leaves_too_little && trial.micro_batch > 1) {
      accumulation = 2 * trial.accumulation;
      continue;
    }
    accumulation = std::max(accumulation, trial.accumulation);
    factor *= 2;
    PrintBatch(timed, tried.empty(), json);
    if (!timed.trial.failure.empty()) break;
    tried.push_back(timed);
    const double before = tried.size() > 1 ? tried[tried.size() - 2].trial.samples_per_s : 0;
    if (timed.trial.samples_per_s < kWorthFollowing * before) break;
    if (2 * timed.global_batch * kLeastStepsOfEpoch > timed.trial.samples) break;
  }
  if (tried.empty()) {
    tuning.PrintNothing("the global batch", "yours does not fit in memory");
  } else {
    Conclude(tried, out_of_time, tuning);
  }
  return std::nullopt;
}

std::optional<ExitStatus> TuneLargest(Tuning& tuning, double time_s) {
  const std::string what = "the largest micro-batch";
  const TuneOptions& options = tuning.options();
  const double end_s = SecondsSinceBoot() + time_s;
  std::optional<ExitStatus> stopped;
  double slowest_s = 0;
  const auto measure = [&](int64_t micro_batch) {
    const Setting setting{{"global_batch", std::to_string(micro_batch * options.ranks)},
                          {"accumulation", "1"},
                          {"micro_batch", "ACCUMULATION"}};
    StepTrial trial =
        tuning.runner().Measure(tuning.With(setting), StepMeter::kWarmup, /*steps=*/1);
    stopped = trial.stopped;
    slowest_s = std::max(slowest_s, trial.wall_s);
    return trial;
  };
  const config::Config& config = tuning.config();
  const int64_t users =
      std::max<int64_t>(config.global_batch() / options.ranks / config.accumulation(), 1);
  const StepTrial first = measure(users);
  if (stopped) return stopped;
  if (first.device_gib == 0 && first.failure.empty()) {
    tuning.PrintNothing(what, "on a CPU nothing but the machine's own memory is a limit");
    return std::nullopt;
  }
  const auto fits = [&](const StepTrial& trial) {
    return trial.failure.empty() && trial.accumulation == 1 &&
           !trial.LeavesLessThan(options.reserve);
  };
  const auto print = [&](int64_t micro_batch, const StepTrial& trial) {
    const bool ran = trial.failure.empty() && trial.accumulation == 1;
    if (options.json) {
      Tuning::PrintLine({{"micro_batch", micro_batch},
                         {"fits", fits(trial)},
                         {"peak_gib", trial.peak_gib},
                         {"left_gib", trial.left_gib},
                         {"seconds", trial.wall_s}});
      return;
    }
    Print("{:>11} {:>9} {:>9}  {}\n", micro_batch,
          ran ? fmt::format("{:.2f}", trial.peak_gib) : "-",
          ran ? fmt::format("{:.2f}", trial.left_gib) : "-",
          !ran ? "does not fit"
          : trial.LeavesLessThan(options.reserve)
              ? fmt::format("leaves less than --reserve {:g}", options.reserve)
              : "fits");
    std::fflush(stdout);
  };
  if (!options.json) Print("{:>11} {:>9} {:>9}\n", "micro-batch", "GiB", "GiB left");
  print(users, first);
  // The first guess assumes that the memory in use is proportional to the micro-batch. A part of the memory does not
  // depend on the micro-batch, so the largest micro-batch that fits is usually larger than the guess.
  const double room_gib = first.left_gib - options.reserve * first.device_gib;
  const auto guess = static_cast<int64_t>(static_cast<double>(users) *
                                          (1 + room_gib / std::max(first.peak_gib, 0.001)));
  const int64_t most = first.samples > 0 ? first.samples / options.ranks : INT32_MAX;
  LargestSearch search(fits(first) ? guess : users / 2, most);
  search.Add(users, fits(first));
  bool out_of_time = false;
  while (const auto micro_batch = search.Next()) {
    out_of_time = SecondsSinceBoot() + slowest_s > end_s;
    if (out_of_time) break;
    const StepTrial trial = measure(*micro_batch);
    if (stopped) return stopped;
    print(*micro_batch, trial);
    search.Add(*micro_batch, fits(trial));
  }
  if (options.json) {
    Tuning::PrintLine({{"largest_micro_batch", search.largest()}, {"out_of_time", out_of_time}});
  } else if (search.largest() == 0) {
    tuning.PrintNothing(what, "none that was tried fits");
  } else {
    Print("\nlargest micro-batch that fits: {}{}\n{}\n", search.largest(),
          search.largest() == most ? ", which is all samples there are" : "",
          out_of_time ? tuning.MoreTime("") + "\n" : "");
  }
  return std::nullopt;
}

}  // namespace lockstep
