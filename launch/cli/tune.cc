// lockstep tune: finds settings of a config by short trainings on this machine.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files/open_file.h"
#include "base/files/output_target.h"
#include "base/say.h"
#include "launch/bundle/bundle.h"
#include "launch/cli/commands.h"
#include "launch/cli/rank_command.h"
#include "launch/cli/table.h"
#include "launch/job/start_job.h"
#include "launch/machine/child_process.h"
#include "launch/tune/rate_trials.h"
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

class TuneCommand final : public Command {
 public:
  explicit TuneCommand(CLI::App& app)
      : Command(app, "tune",
                "find the learning rate of a config, by a range test and short trainings") {
    config_.AddFile(options()).Required();
    options().Add("--time", time_s_, "seconds that it may take").Within(1, 1'000'000).ShowDefault();
    options().Add("--json", json_, "print each result as a line of JSON");
    config_.AddSet(options());
  }

  int Run(const Invocation& invocation) override {
    if (Job::IsRank()) throw UsageError("tune inside mpirun or srun: it starts ranks itself (-n)");
    if (std::filesystem::exists(config_.path) && !std::filesystem::is_regular_file(config_.path)) {
      throw UsageError("{}: tune writes a file beside the config: name a plain file", config_.path);
    }
    const config::Config config = config_.Load();
    // Beside the config, because relative paths count from its folder.
    tuned_ = std::filesystem::path(config_.path).replace_extension(".tuned.pbtxt");
    target_.emplace(tuned_);  // before the time is spent
    const std::filesystem::path run_dir = std::filesystem::absolute(config.run_dir());
    TrialRunner runner(StartOf(invocation), run_dir.parent_path());
    const std::string loss_name = LossName(config);
    const auto on_range = [&](const RangeTest& range, const Trial& trial) {
      PrintRange(range, trial, loss_name);
    };
    const auto on_trial = [&](const RateTrial& trial) { PrintTrial(trial, loss_name); };
    const FoundRate found = FindRate(runner, config, time_s_, on_range, on_trial);
    Conclude(found, invocation, config, loss_name);
    if (found.stopped) return static_cast<int>(*found.stopped);
    if (!found.best) {
      throw UsageError("no training came to its end, the last one with: {}", found.last_failure);
    }
    return static_cast<int>(ExitStatus::kDone);
  }

 private:
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

  void Conclude(const FoundRate& found, const Invocation& invocation, const config::Config& config,
                const std::string& loss_name) {
    if (!found.best) return;
    const RateTrial& best = *found.best;
    const bool is_whole = best.steps == found.run_steps;
    if (!best.is_users) WriteTuned(found, config, loss_name);
    if (json_) {
      Json line{{"suggestion",
                 {{"optimizer.lr", best.rate}, {"schedule.warmup_steps", found.warmup_steps}}},
                {loss_name, best.loss},
                {"whole_run", is_whole}};
      if (!best.is_users) line["config"] = tuned_;
      Print("{}\n", line.dump(-1, ' ', false, Json::error_handler_t::replace));
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
    if (best.is_users) return;
    std::vector<std::string> words = StartOf(invocation);
    words.front() = StartScriptOr(invocation.program);
    words.insert(words.end(), {"train", tuned_});
    for (const std::string& assignment : config_.assignments) {
      if (assignment.starts_with("optimizer.lr=")) continue;
      if (assignment.starts_with("schedule.warmup_steps=")) continue;
      words.insert(words.end(), {"--set", assignment});
    }
    Print("  {}\n", ShellText(words));
  }

  // Writes the user's config with what was found.
  void WriteTuned(const FoundRate& found, const config::Config& config,
                  const std::string& loss_name) {
    constexpr size_t kMostText = size_t{16} << 20;
    std::string why_not;
    const std::string text = ReadGivenFile(config_.path, kMostText, why_not);
    if (!why_not.empty()) throw UsageError("{}: cannot be read again: {}", config_.path, why_not);
    const RateTrial& best = *found.best;
    std::vector<FieldEdit> edits;
    const std::string users =
        found.users && std::isfinite(found.users->loss)
            ? fmt::format(", with a {} of {}", loss_name, FigureText(found.users->loss))
            : "";
    edits.push_back(
        {"optimizer.lr", RateText(best.rate),
         fmt::format("lr was {}{}; now {} after {} steps (lockstep tune)",
                     RateText(config.optimizer().lr()), users, FigureText(best.loss), best.steps)});
    if (found.warmup_steps != config.schedule().warmup_steps()) {
      edits.push_back({"schedule.warmup_steps", std::to_string(found.warmup_steps),
                       fmt::format("warmup_steps was {}; lr was found with this one",
                                   config.schedule().warmup_steps())});
    }
    const std::string edited = EditedConfig(config_.path, text, edits);
    target_->Write([&](const AppendBytes& append) { append(std::as_bytes(std::span(edited))); });
  }

  ConfigOptions config_;
  std::string tuned_;  // the path of the config with what was found
  std::optional<OutputTarget> target_;
  int time_s_ = 60;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> NewTuneCommand(CLI::App& app) {
  return std::make_unique<TuneCommand>(app);
}

}  // namespace lockstep
