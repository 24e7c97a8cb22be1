// lockstep tune: finds better values for some fields of a config by short trials on this machine.
//
// To make the command find values for further fields, write a function like the parts that launch/cli/training/tuning.h
// declares, and add a line to kParts.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/kept_files.h"
#include "base/files/output_target.h"
#include "base/nearest.h"
#include "base/say.h"
#include "base/shell_text.h"
#include "config/kept_inputs.h"
#include "launch/bundle/bundle.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/command/rank_command.h"
#include "launch/cli/training/tuning.h"
#include "launch/job/start_job.h"

namespace lockstep {
namespace {

struct Part {
  const char* name;                                  // the part's name in --only
  const char* finds;                                 // what the part finds, in words
  enum When { kUsually, kWithRanks, kByName } when;  // when the part runs without --only
  double weight;  // the part gets a share of the time in proportion to its weight
  std::optional<ExitStatus> (*tune)(Tuning&, double time_s);
};

// The parts run in this order, because the settings that a part finds may change the best values for later parts.
constexpr Part kParts[] = {
    {"batch", "micro-batches and activation checkpointing", Part::kUsually, 3, &TuneBatch},
    {"precision", "the fastest precision", Part::kByName, 1, &TunePrecision},
    {"largest", "the largest micro-batch that fits", Part::kByName, 2, &TuneLargest},
    {"loader", "threads, slots, decoding and cache", Part::kUsually, 2, &TuneLoader},
    {"exchange", "buckets and their dtype, with -n", Part::kWithRanks, 2, &TuneExchange},
    {"rate", "learning rate and warm-up", Part::kUsually, 3, &TuneRate},
};
// kGlobalBatch runs just before the part "loader" and after the parts "batch" and "precision", because its trials begin
// with the settings that those two parts found.
constexpr Part kGlobalBatch{"", "the global batch", Part::kByName, 2, &TuneGlobalBatch};

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

class TuneCommand final : public Command {
 public:
  explicit TuneCommand(CLI::App& app)
      : Command(
            app, "tune",
            "find the fastest step, the loader's settings and the learning rate of a config, by "
            "short trials") {
    config_.AddFile(options()).Required();
    std::string list;
    std::string usual;
    for (const Part& part : kParts) {
      list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", part.name, part.finds);
      if (part.when == Part::kUsually)
        usual += fmt::format("{}{}", usual.empty() ? "" : ",", part.name);
    }
    options().Add(
        "--only", only_,
        fmt::format("what to find, with commas between: {}; otherwise {}, and exchange if "
                    "there are ranks",
                    list, usual));
    options()
        .Add("--global-batch", global_batch_,
             "auto: also try larger global batches, which changes the training, and the learning "
             "rates for them")
        .OneOf({"auto"});
    options().Add("--time", time_s_, "seconds that it may take").Within(1, 1'000'000).ShowDefault();
    options()
        .Add("--reserve", reserve_, "share of a GPU's memory that is to stay free")
        .Between(0, 0.9)
        .ShowDefault();
    options().Add("--cold", cold_,
                  "time the loader on files that are read from the disk, as those of a first epoch "
                  "or of data that are larger than the memory");
    options().Add("--json", json_, "print each result as a line of JSON");
    config_.AddSet(options());
  }

  int Run(const Invocation& invocation) override {
    if (Job::IsRank()) throw UsageError("tune inside mpirun or srun: it starts ranks itself (-n)");
    if (std::filesystem::exists(config_.path) && !std::filesystem::is_regular_file(config_.path)) {
      throw UsageError("{}: tune writes a file beside the config: name a plain file", config_.path);
    }
    const int ranks = std::max(invocation.start.RanksWanted(), 1);
    const std::vector<const Part*> parts = PartsToFind(ranks);
    Tuning tuning({.path = config_.path,
                   .assignments = config_.assignments,
                   .ranks = ranks,
                   .ranks_here = invocation.start.RanksHere(),
                   .time_s = time_s_,
                   .reserve = reserve_,
                   .cold = cold_,
                   .json = json_},
                  StartOf(invocation));
    // The new config lies beside the user's config, because relative paths in a config are relative to the folder of
    // the config.
    tuned_ = std::filesystem::path(config_.path).replace_extension(".tuned.pbtxt");
    KeptFiles kept;
    kept.Add(config_.path, "the config");
    KeepFilesOf(tuning.config(), "the config", kept);
    target_.emplace(tuned_, kept);  // throws before any trial if the file cannot be written
    std::optional<ExitStatus> stopped;
    try {
      stopped = Find(tuning, parts);
    } catch (const std::exception&) {
      Keep(tuning, invocation);
      throw;
    }
    Keep(tuning, invocation);
    return static_cast<int>(stopped.value_or(ExitStatus::kDone));
  }

 private:
  // Returns the parts that --only asks for, or the usual parts without --only, and kGlobalBatch if --global-batch is
  // given. Throws Error (kUsage).
  std::vector<const Part*> PartsToFind(int ranks) const {
    const std::vector<std::string> asked =
        only_.empty() ? std::vector<std::string>{} : SplitAtCommas(only_);
    std::vector<std::string> names;
    for (const Part& part : kParts) names.emplace_back(part.name);
    for (const std::string& word : asked) {
      if (std::ranges::find(names, word) != names.end()) continue;
      throw UsageError("--only: {} is none of {}{}", word, fmt::join(names, ", "),
                       DidYouMean(word, names));
    }
    std::vector<const Part*> parts;
    for (const Part& part : kParts) {
      const bool is_usual =
          part.when == Part::kUsually || (part.when == Part::kWithRanks && ranks > 1);
      const bool is_asked =
          only_.empty() ? is_usual : std::ranges::find(asked, part.name) != asked.end();
      if (part.tune == &TuneLoader && !global_batch_.empty()) parts.push_back(&kGlobalBatch);
      if (is_asked) parts.push_back(&part);
    }
    return parts;
  }

  // Runs one part after the other. If a signal asks this process to stop, returns the exit status for that signal.
  std::optional<ExitStatus> Find(Tuning& tuning, const std::vector<const Part*>& parts) const {
    const double end_s = SecondsSinceBoot() + time_s_;
    double weights = 0;
    for (const Part* part : parts) weights += part->weight;
    for (const Part* part : parts) {
      const double time_s = (end_s - SecondsSinceBoot()) * part->weight / weights;
      weights -= part->weight;
      if (!tuning.runner().HasTime()) {
        tuning.PrintNothing(part->finds, tuning.MoreTime(""));
        continue;
      }
      try {
        if (const auto stopped = part->tune(tuning, time_s)) return stopped;
      } catch (const Error& error) {
        // If a part cannot time a setting (for example a step of more samples than the data set has), the later parts
        // can still run.
        if (error.status() != ExitStatus::kUsage || part == parts.back()) throw;
        tuning.PrintNothing(part->finds, error.what());
      }
    }
    return std::nullopt;
  }

  // Writes the user's config with the settings that were found to a new file, and prints the command that trains with
  // that file. Does nothing if no settings were found.
  void Keep(const Tuning& tuning, const Invocation& invocation) {
    if (tuning.edits().empty()) return;
    const std::string text = tuning.EditedText();
    target_->Write([&](const AppendBytes& append) { append(std::as_bytes(std::span(text))); });
    PrintCommand(tuning, invocation);
  }

  // Returns the beginning of a command line that starts the ranks that the user asked for. Throws Error (kUsage) if the
  // user gave --restarts or --elastic.
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

  void PrintCommand(const Tuning& tuning, const Invocation& invocation) const {
    if (json_) return Tuning::PrintLine({{"config", tuned_}});
    std::vector<std::string> words = StartOf(invocation);
    words.front() = StartScriptOr(invocation.program);
    words.insert(words.end(), {"train", tuned_});
    for (const std::string& assignment : config_.assignments) {
      const bool is_tuned = std::ranges::any_of(tuning.edits(), [&](const FieldEdit& edit) {
        return assignment.starts_with(edit.name + "=");
      });
      if (!is_tuned) words.insert(words.end(), {"--set", assignment});
    }
    Print("  {}\n", ShellText(words));
  }

  ConfigOptions config_;
  std::string tuned_;  // the path of the config with the settings that were found
  std::optional<OutputTarget> target_;
  std::string only_;  // the value of --only; empty: the usual parts run
  std::string global_batch_;
  int time_s_ = 60;
  double reserve_ = 0.05;
  bool cold_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> NewTuneCommand(CLI::App& app) {
  return std::make_unique<TuneCommand>(app);
}

}  // namespace lockstep
