// lockstep tune: finds settings of a config by short trainings on this machine.
//
// A new thing to find is a name of --only, and a function like TuneRate() that adds to edits_.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/open_file.h"
#include "base/files/output_target.h"
#include "base/say.h"
#include "comm/together.h"
#include "launch/bundle/bundle.h"
#include "launch/cli/commands.h"
#include "launch/cli/rank_command.h"
#include "launch/cli/table.h"
#include "launch/job/start_job.h"
#include "launch/machine/child_process.h"
#include "launch/tune/rate_trials.h"
#include "launch/tune/step_trials.h"
#include "trainer/config/edit_config.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// The curve with a line for each third of a decade, and a bar whose length is the loss.
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

std::string RateText(double rate) { return fmt::format("{:.3g}", rate); }

// With four digits at least.
std::string SpeedText(double samples_per_s) {
  return samples_per_s < 1000 ? FigureText(samples_per_s) : fmt::format("{:.1f}", samples_per_s);
}

// The names of what --only can ask for.
constexpr char kBatch[] = "batch";
constexpr char kRate[] = "rate";

class TuneCommand final : public Command {
 public:
  explicit TuneCommand(CLI::App& app)
      : Command(app, "tune",
                "find the fastest step and the learning rate of a config, by short trainings") {
    config_.AddFile(options()).Required();
    options()
        .Add("--only", only_,
             "what to find: batch (micro-batches and activation checkpointing) or rate (the "
             "learning rate); both otherwise")
        .OneOf({kBatch, kRate});
    options().Add("--time", time_s_, "seconds that it may take").Within(1, 1'000'000).ShowDefault();
    options()
        .Add("--reserve", reserve_, "share of a GPU's memory that is to stay free")
        .Between(0, 0.9)
        .ShowDefault();
    options().Add("--json", json_, "print each result as a line of JSON");
    config_.AddSet(options());
  }

  int Run(const Invocation& invocation) override {
    if (Job::IsRank()) throw UsageError("tune inside mpirun or srun: it starts ranks itself (-n)");
    if (std::filesystem::exists(config_.path) && !std::filesystem::is_regular_file(config_.path)) {
      throw UsageError("{}: tune writes a file beside the config: name a plain file", config_.path);
    }
    config::Config config = config_.Load();
    // Beside the config, because relative paths count from its folder.
    tuned_ = std::filesystem::path(config_.path).replace_extension(".tuned.pbtxt");
    target_.emplace(tuned_);  // before the time is spent
    const std::filesystem::path run_dir = std::filesystem::absolute(config.run_dir());
    TrialRunner runner(StartOf(invocation), run_dir.parent_path());
    std::optional<ExitStatus> stopped;
    try {
      stopped = Find(runner, config);
    } catch (const std::exception&) {
      Keep(invocation);
      throw;
    }
    Keep(invocation);
    return static_cast<int>(stopped.value_or(ExitStatus::kDone));
  }

 private:
  // Finds what was asked for, and adds it to edits_. Returns the status if a signal has come.
  std::optional<ExitStatus> Find(TrialRunner& runner, config::Config& config) {
    if (only_ == kBatch) return TuneBatch(runner, config, time_s_);
    const double end_s = SecondsSinceBoot() + time_s_;
    if (only_.empty()) {
      try {
        const auto stopped = TuneBatch(runner, config, time_s_ / 2.0);
        if (stopped) return stopped;
      } catch (const Error& error) {
        // A step that cannot be timed, such as one of more samples than there are, can still be trained with.
        if (error.status() != ExitStatus::kUsage) throw;
        PrintNoStep(error.what());
      }
    }
    return TuneRate(runner, config, end_s - SecondsSinceBoot());
  }

  // Writes the user's config with what was found, and prints the command that trains with it.
  void Keep(const Invocation& invocation) {
    if (edits_.empty()) return;
    WriteTuned();
    PrintCommand(invocation);
  }

  // Finds the fastest way to make a step, and sets it in `config`. Returns the status if a signal has come.
  std::optional<ExitStatus> TuneBatch(TrialRunner& runner, config::Config& config, double time_s) {
    if (!json_) {
      Print("{:>11} {:>12} {:>13} {:>10} {:>9} {:>9} {:>7}  {}\n", "micro-batch", "accumulation",
            "checkpointing", "samples/s", "ms a step", "GiB", "of peak", "note");
    }
    const FoundWay found =
        FindWay(runner, config, time_s, reserve_, [&](const TimedWay& timed) { PrintWay(timed); });
    ConcludeBatch(found, config);
    return found.stopped;
  }

  void PrintWay(const TimedWay& timed) const {
    const StepTrial& trial = timed.trial;
    const bool fits = trial.failure.empty();
    const bool as_asked = trial.accumulation == timed.way.accumulation;
    if (json_) {
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
      Print("{}\n", line.dump(-1, ' ', false, Json::error_handler_t::replace));
      std::fflush(stdout);
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
                      trial.device_gib, reserve_));
    }
    const auto known = [&](double value, const std::string& text) {
      return value > 0 ? text : std::string("-");
    };
    Print("{:>11} {:>12} {:>13} {:>10} {:>9} {:>9} {:>7}  {}\n",
          known(static_cast<double>(trial.micro_batch), std::to_string(trial.micro_batch)),
          fits ? trial.accumulation : timed.way.accumulation,
          timed.way.checkpointing ? "yes" : "no",
          known(trial.samples_per_s, SpeedText(trial.samples_per_s)),
          known(trial.step_ms, fmt::format("{:.2f}", trial.step_ms)),
          known(trial.peak_gib, fmt::format("{:.2f}", trial.peak_gib)),
          known(trial.of_peak, fmt::format("{:.0f} %", 100 * trial.of_peak)), note);
    std::fflush(stdout);
  }

  // What came of the user's way: "gives 577.2 samples/s".
  static std::string FateOf(const std::optional<TimedWay>& users, int64_t accumulation) {
    if (!users || users->trial.accumulation != accumulation) return "does not fit in memory";
    if (users->leaves_too_little) return "leaves too little memory";
    return fmt::format("gives {} samples/s", SpeedText(users->trial.samples_per_s));
  }

  void PrintNoStep(const std::string& why) const {
    if (json_) {
      Print("{}\n", Json{{"suggestion", nullptr}, {"reason", why}}.dump(
                        -1, ' ', false, Json::error_handler_t::replace));
    } else {
      Print("\nnothing is suggested for the step: {}\n\n", why);
    }
  }

  void ConcludeBatch(const FoundWay& found, config::Config& config) {
    if (!found.best) {
      if (found.stopped) return;
      if (!found.fits) throw UsageError("no step fits in memory: {}", kLessMemory);
      PrintNoStep(fmt::format("all that was tried leaves less than --reserve {:g} of the memory{}",
                              reserve_, found.out_of_time ? MoreTime("; ") : ""));
      return;
    }
    const StepTrial& best = found.best->trial;
    const bool checkpointing = found.best->way.checkpointing;
    const bool splits = best.accumulation != config.accumulation();
    const bool switches = checkpointing != config.model().activation_checkpointing();
    const std::string fate = FateOf(found.users, config.accumulation());
    if (json_) {
      Print("{}\n", Json{{"suggestion",
                          {{"accumulation", best.accumulation},
                           {"model.activation_checkpointing", checkpointing}}},
                         {"samples_per_s", best.samples_per_s}}
                        .dump());
    } else {
      const bool is_users = !splits && !switches;
      Print("\n{}accumulation {}, activation checkpointing {}: {} samples/s{}\n",
            is_users ? "nothing faster was found than yours: " : "suggestion: ", best.accumulation,
            checkpointing ? "on" : "off", SpeedText(best.samples_per_s),
            is_users ? "" : ", where yours " + fate);
      if (found.out_of_time) Print("{}\n", MoreTime(""));
      Print("\n");
    }
    const auto edit = [&](const std::string& name, const std::string& before,
                          const std::string& now) {
      edits_.push_back(
          {name, now,
           fmt::format("{} was {}, which {}; now {} samples/s with micro-batches of {} "
                       "(lockstep tune)",
                       name.substr(name.find('.') + 1), before, fate, SpeedText(best.samples_per_s),
                       best.micro_batch)});
    };
    if (splits) {
      edit("accumulation", std::to_string(config.accumulation()),
           std::to_string(best.accumulation));
      config.set_accumulation(static_cast<int>(best.accumulation));
    }
    if (switches) {
      edit("model.activation_checkpointing", fmt::format("{}", !checkpointing),
           fmt::format("{}", checkpointing));
      config.mutable_model()->set_activation_checkpointing(checkpointing);
    }
  }

  std::string MoreTime(const std::string& before) const {
    return fmt::format("{}the time was over before all was tried: --time {}", before, 4 * time_s_);
  }

  // Finds the learning rate. Returns the status if a signal has come. Throws Error if no training came to its end.
  std::optional<ExitStatus> TuneRate(TrialRunner& runner, const config::Config& config,
                                     double time_s) {
    const std::string loss_name = LossName(config);
    const auto on_range = [&](const RangeTest& range, const Trial& trial) {
      PrintRange(range, trial, loss_name);
    };
    const auto on_trial = [&](const RateTrial& trial) { PrintTrial(trial, loss_name); };
    const FoundRate found = FindRate(runner, config, time_s, on_range, on_trial);
    ConcludeRate(found, config, loss_name);
    if (!found.stopped && !found.best) {
      throw UsageError("no training came to its end, the last one with: {}", found.last_failure);
    }
    return found.stopped;
  }

  // The words that start a training on the ranks that the user asked for.
  static std::vector<std::string> StartOf(const Invocation& invocation) {
    const StartOptions& start = invocation.start;
    if (start.restarts > 0 || start.elastic) {
      throw UsageError("--restarts, --elastic: tune makes trials, which are not started again");
    }
    std::vector<std::string> words{invocation.program};
    if (start.ranks > 0) words.insert(words.end(), {"-n", std::to_string(start.ranks)});
    if (!start.hosts.empty()) words.insert(words.end(), {"--hosts", start.hosts});
    return words;
  }

  void PrintRange(const RangeTest& range, const Trial& trial, const std::string& loss_name) const {
    if (json_) {
      Json curve = Json::array();
      for (const RatePoint& point : range.curve()) {
        if (std::isfinite(point.loss)) curve.push_back({point.rate, point.loss});
      }
      Print("{}\n", Json{{"range_test", std::move(curve)},
                         {"falls_from", range.begins()},
                         {"lowest_at", range.lowest()},
                         {"grows_from", range.diverges()}}
                        .dump());
    } else {
      Print("range test: {} steps, {:.1f} s\n{}", trial.log.step, trial.wall_s, CurveText(range));
      if (range.falls()) {
        Print(
            "the loss falls from {:.1e} on, is lowest at {:.1e}, and is higher than at first from "
            "{:.1e} on\n\n",
            range.begins(), range.lowest(), range.diverges());
        Print("{:>9} {:>8} {:>8} {:>11} {:>8}\n", "lr", "warm-up", "steps", loss_name, "seconds");
      }
    }
    std::fflush(stdout);
  }

  void PrintTrial(const RateTrial& trial, const std::string& loss_name) const {
    if (json_) {
      Json line{{"lr", trial.rate}, {"warmup_steps", trial.warmup_steps}, {"steps", trial.steps}};
      if (std::isfinite(trial.loss)) line[loss_name] = trial.loss;
      if (!trial.failure.empty()) line["failure"] = trial.failure;
      line["seconds"] = trial.wall_s;
      Print("{}\n", line.dump(-1, ' ', false, Json::error_handler_t::replace));
    } else {
      std::string note = trial.is_users ? "  yours" : "";
      if (!trial.failure.empty()) note += (note.empty() ? "  " : ": ") + trial.failure;
      Print("{:>9} {:>8} {:>8} {:>11} {:>8.1f}{}\n", RateText(trial.rate), trial.warmup_steps,
            trial.steps, std::isfinite(trial.loss) ? FigureText(trial.loss) : "-", trial.wall_s,
            note);
    }
    std::fflush(stdout);
  }

  void ConcludeRate(const FoundRate& found, const config::Config& config,
                    const std::string& loss_name) {
    if (!found.best) return;
    const RateTrial& best = *found.best;
    const bool is_whole = best.steps == found.run_steps;
    if (!best.is_users) EditRate(found, config, loss_name);
    if (json_) {
      Print("{}\n",
            Json{{"suggestion",
                  {{"optimizer.lr", best.rate}, {"schedule.warmup_steps", found.warmup_steps}}},
                 {loss_name, best.loss},
                 {"whole_run", is_whole}}
                .dump());
      return;
    }
    Print("\n{}optimizer.lr {}, schedule.warmup_steps {}: {} {}{}\n",
          best.is_users ? "nothing better was found than yours: " : "suggestion: ",
          RateText(best.rate), found.warmup_steps, loss_name, FigureText(best.loss),
          found.users && !best.is_users && std::isfinite(found.users->loss)
              ? fmt::format(", where yours gives {}", FigureText(found.users->loss))
              : "");
    if (!is_whole) {
      Print(
          "the trainings had {} of the run's {} steps, and a longer one often wants a lower rate: "
          "--time {} tries longer ones\n",
          best.steps, found.run_steps, 4 * time_s_);
    } else if (found.out_of_time) {
      Print("the time was over before the rates next to it were tried: --time {}\n", 4 * time_s_);
    }
  }

  void EditRate(const FoundRate& found, const config::Config& config,
                const std::string& loss_name) {
    const RateTrial& best = *found.best;
    const std::string users =
        found.users && std::isfinite(found.users->loss)
            ? fmt::format(", with a {} of {}", loss_name, FigureText(found.users->loss))
            : "";
    edits_.push_back(
        {"optimizer.lr", RateText(best.rate),
         fmt::format("lr was {}{}; now {} after {} steps (lockstep tune)",
                     RateText(config.optimizer().lr()), users, FigureText(best.loss), best.steps)});
    if (found.warmup_steps != config.schedule().warmup_steps()) {
      edits_.push_back({"schedule.warmup_steps", std::to_string(found.warmup_steps),
                        fmt::format("warmup_steps was {}; lr was found with this one",
                                    config.schedule().warmup_steps())});
    }
  }

  void WriteTuned() {
    constexpr size_t kMostText = size_t{16} << 20;
    std::string why_not;
    const std::string text = ReadGivenFile(config_.path, kMostText, why_not);
    if (!why_not.empty()) throw UsageError("{}: cannot be read again: {}", config_.path, why_not);
    const std::string edited = EditedConfig(config_.path, text, edits_);
    target_->Write([&](const AppendBytes& append) { append(std::as_bytes(std::span(edited))); });
  }

  void PrintCommand(const Invocation& invocation) const {
    if (json_) {
      Print("{}\n", Json{{"config", tuned_}}.dump(-1, ' ', false, Json::error_handler_t::replace));
      return;
    }
    std::vector<std::string> words = StartOf(invocation);
    words.front() = StartScriptOr(invocation.program);
    words.insert(words.end(), {"train", tuned_});
    for (const std::string& assignment : config_.assignments) {
      const bool is_tuned = std::ranges::any_of(
          edits_, [&](const FieldEdit& edit) { return assignment.starts_with(edit.name + "="); });
      if (!is_tuned) words.insert(words.end(), {"--set", assignment});
    }
    Print("  {}\n", ShellText(words));
  }

  ConfigOptions config_;
  std::string tuned_;  // the path of the config with what was found
  std::optional<OutputTarget> target_;
  std::vector<FieldEdit> edits_;  // what was found
  std::string only_;              // empty: all
  int time_s_ = 60;
  double reserve_ = 0.05;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> NewTuneCommand(CLI::App& app) {
  return std::make_unique<TuneCommand>(app);
}

}  // namespace lockstep
