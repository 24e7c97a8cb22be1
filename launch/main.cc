#include "launch/main.h"

#include <nccl.h>
#include <torch/version.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/nearest.h"
#include "launch/job.h"
#include "launch/mpirun.h"
#include "trainer/config.h"
#include "trainer/together.h"
#include "trainer/trainer.h"

namespace lockstep {
namespace {

constexpr char kVersion[] = "0.1.0";

// What the process that a user started (or ./lockstep, after a set-up) tells the ranks that it
// becomes.
constexpr char kCommandStart[] = "LOCKSTEP_COMMAND_START_S";  // on the clock of base/clock.h
constexpr char kLive[] = "LOCKSTEP_LIVE";                     // its standard output is a terminal

struct CommandLine {
  int ranks = 0;  // 0: -n was not given
  std::string config;
  std::vector<std::string> assignments;
  std::string run_dir;
  std::vector<std::string> inputs;
  std::string output = "predictions.csv";
  bool print_template = false;
};

void PrintError(const std::string& message) {
  fmt::print(stderr, "lockstep: error: {}\n", message);
}

// The words of the command line without -n N, for the ranks.
std::vector<std::string> WithoutRanks(int argc, char** argv) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "-n" || word == "--ranks") {
      ++i;
    } else if (!(word.starts_with("-n") && word.size() > 2) && !word.starts_with("--ranks=")) {
      words.push_back(word);
    }
  }
  return words;
}

// Says which command was meant where the first word is none.
void CheckCommandName(const CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  for (const std::string& word : words) {
    if (word.starts_with('-')) continue;
    if (std::find(names.begin(), names.end(), word) != names.end()) return;
    throw UsageError("no command \"{}\"{} (known: {})", word, DidYouMean(word, names),
                     fmt::join(names, ", "));
  }
}

// Starts this command again, as ranks. What is wrong with the config is said first, once and fast.
[[noreturn]] void StartRanks(const CommandLine& line, int argc, char** argv) {
  if (Job::IsRank())
    throw UsageError("-n inside mpirun or srun: leave it out, this process is a rank already");
  if (!line.config.empty()) LoadConfig(line.config, line.assignments);
  if (!line.run_dir.empty()) LoadRunConfig(line.run_dir);
  setenv(kCommandStart, std::to_string(ProcessStartSeconds()).c_str(), /*overwrite=*/0);
  if (isatty(STDOUT_FILENO) != 0) setenv(kLive, "1", 1);
  // The path that the user gave reads better than where Bazel's links lead.
  const std::string name = argv[0];
  const std::filesystem::path program = name.find('/') == std::string::npos
                                            ? std::filesystem::read_symlink("/proc/self/exe")
                                            : std::filesystem::absolute(name);
  Become(MpirunCommand(line.ranks, program, WithoutRanks(argc, argv)));
}

// Ends this rank for an error of its own, while others may be waiting for it.
[[noreturn]] void LeaveAlone(Job& job, const std::exception& exception) {
  const Error error = ErrorOf(exception);
  std::fflush(stdout);
  const bool alone = job.host().world_size() == 1;
  PrintError(alone ? error.what() : fmt::format("rank {}: {}", job.host().rank(), error.what()));
  Job::Abort(error.status());
}

TrainOptions MakeTrainOptions(Job& job) {
  const char* start = std::getenv(kCommandStart);
  const bool live = Job::IsRank() ? std::getenv(kLive) != nullptr : isatty(STDOUT_FILENO) != 0;
  return {.version = kVersion,
          .live = live,
          .command_start_s = start != nullptr ? std::strtod(start, nullptr) : ProcessStartSeconds(),
          .leave = [&job](const std::exception& exception) { LeaveAlone(job, exception); }};
}

void RunTrain(const CommandLine& line, const Models& models, Job& job) {
  Config config;
  Together(job.host(), [&] { config = LoadConfig(line.config, line.assignments); });
  const World world = job.Connect(config.device());
  Train(config, models, world, MakeTrainOptions(job));
}

void RunEvaluate(const CommandLine& line, const Models& models, Job& job) {
  Config config;
  Together(job.host(), [&] { config = LoadRunConfig(line.run_dir); });
  const World world = job.Connect(config.device());
  const RunEvaluation evaluation = EvaluateRun(line.run_dir, config, line.inputs, models, world);
  if (world.rank() == 0) {
    fmt::print("loss {:.4f}  accuracy {:.4f}  ({} samples)\n", evaluation.result.loss,
               evaluation.result.accuracy, evaluation.samples);
  }
}

void RunPredict(const CommandLine& line, const Models& models, Job& job) {
  Config config;
  Together(job.host(), [&] { config = LoadRunConfig(line.run_dir); });
  const World world = job.Connect(config.device());
  const int64_t rows = PredictRun(line.run_dir, config, line.inputs, line.output, models, world);
  if (world.rank() == 0) fmt::print("{}: {} predictions\n", line.output, rows);
}

void PrintVersion() {
  fmt::print("lockstep {} (LibTorch {}, NCCL {}.{}.{})\n", kVersion, TORCH_VERSION, NCCL_MAJOR,
             NCCL_MINOR, NCCL_PATCH);
}

// Runs `command` as this rank of its job and returns the exit status.
template <typename Command>
int RunAsRank(const Command& command) {
  // Outside the try block: the communicators must outlive what fails.
  std::optional<Job> job;
  try {
    job.emplace();
    command(*job);
    std::fflush(stdout);
    job->Leave();
    return static_cast<int>(ExitStatus::kDone);
  } catch (const std::exception& exception) {
    const Error error = ErrorOf(exception);
    if (!job) {
      PrintError(error.what());
      Job::Abort(error.status());
    }
    if (!error.on_every_rank()) LeaveAlone(*job, exception);
    std::fflush(stdout);
    if (job->host().rank() == 0) PrintError(error.what());
    job->Leave();
    Job::Abort(error.status());
  }
}

}  // namespace

int Main(int argc, char** argv, const Models& models) {
  CommandLine line;
  CLI::App app("Lockstep trains PyTorch-style models on every GPU that mpirun gives it.",
               "lockstep");
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("-n,--ranks", line.ranks, "start N ranks on this machine through mpirun")
      ->check(CLI::Range(1, 4096));

  CLI::App* train = app.add_subcommand("train", "train a config into a new run folder");
  train->add_option("CONFIG", line.config, "config file (lockstep config --template shows one)")
      ->required();
  CLI::App* evaluate = app.add_subcommand("evaluate", "loss and accuracy of a run's weights");
  evaluate->add_option("RUN", line.run_dir, "run folder")->required();
  evaluate->add_option("--input", line.inputs,
                       "files to evaluate on instead of the samples held back");
  CLI::App* predict = app.add_subcommand("predict", "predictions of a run's weights, as CSV");
  predict->add_option("RUN", line.run_dir, "run folder")->required();
  predict->add_option("--input", line.inputs, "files to predict, with or without labels")
      ->required();
  predict->add_option("--output", line.output, "CSV file to write")->capture_default_str();
  CLI::App* config =
      app.add_subcommand("config", "print a config with every field, or a commented template");
  config->add_option("CONFIG", line.config, "config file");
  config->add_flag("--template", line.print_template,
                   "print every field at its default, with comments");
  CLI::App* version =
      app.add_subcommand("version", "print the version and those of what it stands on");
  for (CLI::App* command : {train, config}) {
    command->add_option("--set", line.assignments, "override a field: --set optimizer.lr=0.01")
        ->allow_extra_args(false)
        ->take_all();
  }

  try {
    CheckCommandName(app, WithoutRanks(argc, argv));
    app.parse(argc, argv);
    if (line.ranks > 0 && (train->parsed() || evaluate->parsed() || predict->parsed()))
      StartRanks(line, argc, argv);
    if (train->parsed()) return RunAsRank([&](Job& job) { RunTrain(line, models, job); });
    if (evaluate->parsed()) return RunAsRank([&](Job& job) { RunEvaluate(line, models, job); });
    if (predict->parsed()) return RunAsRank([&](Job& job) { RunPredict(line, models, job); });
    if (version->parsed()) PrintVersion();
    if (config->parsed()) {
      if (line.print_template == !line.config.empty())
        throw UsageError("config: give a CONFIG or --template");
      fmt::print("{}", line.print_template
                           ? ConfigTemplate()
                           : PrintConfig(LoadConfig(line.config, line.assignments)));
    }
    return static_cast<int>(ExitStatus::kDone);
  } catch (const CLI::CallForHelp&) {
    for (const CLI::App* command : app.get_subcommands()) {
      fmt::print("{}", command->help());
      return static_cast<int>(ExitStatus::kDone);
    }
    fmt::print("{}", app.help());
    return static_cast<int>(ExitStatus::kDone);
  } catch (const CLI::ParseError& error) {
    PrintError(fmt::format("{} (lockstep --help shows how)", error.what()));
    return static_cast<int>(ExitStatus::kUsage);
  } catch (const std::exception& exception) {
    const Error error = ErrorOf(exception);
    PrintError(error.what());
    return static_cast<int>(error.status());
  }
}

}  // namespace lockstep
