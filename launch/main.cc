#include "launch/main.h"

#include <c10/cuda/CUDAFunctions.h>
#include <nccl.h>
#include <signal.h>
#include <torch/version.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/scratch_folder.h"
#include "base/nearest.h"
#include "base/say.h"
#include "ckpt/weights.h"
#include "comm/together.h"
#include "comm/watch/flight_story.h"
#include "launch/bundle/bundle.h"
#include "launch/cli/bench.h"
#include "launch/cli/checkpoints.h"
#include "launch/cli/doctor.h"
#include "launch/cli/prepare.h"
#include "launch/cli/slurm.h"
#include "launch/cli/weights.h"
#include "launch/job/early_signals.h"
#include "launch/job/elastic.h"
#include "launch/job/hosts.h"
#include "launch/job/job.h"
#include "launch/job/mpirun.h"
#include "launch/job/sign.h"
#include "launch/job/stop_signals.h"
#include "launch/job/stop_time.h"
#include "launch/job/supervised_job.h"
#include "launch/machine/child_process.h"
#include "launch/machine/driver.h"
#include "trainer/config/config.h"
#include "trainer/run/trainer.h"

namespace lockstep {
namespace {

constexpr char kVersion[] = "0.1.0";

// What the process that a user started (or ./lockstep, after a set-up) tells the ranks that it
// becomes.
constexpr char kCommandStart[] = "LOCKSTEP_COMMAND_START_S";  // in Unix time, which machines share
constexpr char kEndBy[] = "LOCKSTEP_END_BY_S";  // when it is to have ended, in Unix time
constexpr char kLive[] = "LOCKSTEP_LIVE";       // its standard output is a terminal

struct CommandLine {
  int ranks = 0;  // 0: -n was not given
  std::string hosts;
  int restarts = 0;
  bool elastic = false;
  std::string config;
  std::vector<std::string> assignments;
  std::string run_dir;
  std::vector<std::string> inputs;
  std::string output = "predictions.csv";
  bool fresh = false;
  std::string from;
  std::string time_budget;
  std::string stop_at;
  std::vector<std::string> weights;
  std::string weights_output;
  std::string dtype;
  bool print_template = false;
  int last = 20;
  Config::Device device = Config::AUTO;  // of commands that have no config
  BenchOptions bench;
};

// The words of the command line that are for the ranks, too: all but those about starting them.
std::vector<std::string> WordsForRanks(int argc, char** argv) {
  static const std::set<std::string> kWithValue{"-n", "--ranks", "--hosts", "--restarts"};
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (kWithValue.contains(word)) {
      ++i;
    } else if (word != "--elastic" && !word.starts_with("-n") &&
               !kWithValue.contains(word.substr(0, word.find('=')))) {
      words.push_back(word);
    }
  }
  return words;
}

int RanksOn(const std::string& hosts) {
  int ranks = 0;
  for (const Host& host : ParseHosts(hosts)) ranks += host.ranks;
  return ranks;
}

// How many ranks are wanted; 0: this process alone.
int RanksWanted(const CommandLine& line) {
  if (line.hosts.empty()) return line.ranks;
  const int most = RanksOn(line.hosts);
  if (line.ranks > most) {
    throw UsageError(
        "-n {}: the machines of --hosts \"{}\" are for {} ranks: write node1:8,node2:8", line.ranks,
        line.hosts, most);
  }
  return line.ranks > 0 ? line.ranks : most;
}

// Says which command was meant where the first word is none.
void CheckCommandName(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* level = &app;
  for (const std::string& word : words) {
    if (word.starts_with('-')) continue;
    std::vector<std::string> names;
    const CLI::App* meant = nullptr;
    for (const CLI::App* command : level->get_subcommands({})) {
      if (command->get_name() == word) meant = command;
      if (!command->get_group().empty()) names.push_back(command->get_name());
    }
    if (names.empty()) return;
    if (meant == nullptr) {
      throw UsageError("no command \"{}\"{} (known: {})", word, DidYouMean(word, names),
                       fmt::join(names, ", "));
    }
    level = meant;
  }
}

// The path that the user gave, which reads better than where Bazel's links lead.
std::string ProgramPath(const char* name) {
  if (std::string_view(name).find('/') == std::string_view::npos) {
    return std::filesystem::read_symlink("/proc/self/exe");
  }
  return std::filesystem::absolute(name);
}

// When the command was started that this process is, or is a rank of, on the clock of base/clock.h.
double CommandStart() {
  const char* start = std::getenv(kCommandStart);
  if (start == nullptr) return ProcessStartSeconds();
  return SecondsSinceBoot() - (UnixSeconds() - std::strtod(start, nullptr));
}

Config ConfigOfRun(const CommandLine& line) {
  return LoadRunConfig(ParseRunPoint(line.run_dir).run_dir);
}

// The first option that says how this command is started; empty: there is none.
std::string AboutStarting(const CommandLine& line) {
  return line.ranks > 0        ? "-n"
         : !line.hosts.empty() ? "--hosts"
         : line.restarts > 0   ? "--restarts"
         : line.elastic        ? "--elastic"
                               : "";
}

// When the run is to have ended, in Unix time.
double EndBy(const CommandLine& line) {
  // What was decided when the job was started first holds for its restarts, too.
  if (const char* decided = std::getenv(kEndBy)) return std::strtod(decided, nullptr);
  double end_by_s = std::numeric_limits<double>::infinity();
  if (!line.time_budget.empty()) {
    const double started = UnixSeconds() - (SecondsSinceBoot() - CommandStart());
    end_by_s = started + ParseDuration(line.time_budget);
  }
  if (!line.stop_at.empty()) {
    const auto stop_at = static_cast<double>(ParseClockTime(line.stop_at, std::time(nullptr)));
    end_by_s = std::min(end_by_s, stop_at);
  }
  return end_by_s;
}

// A Unix time on the clock of base/clock.h.
double OnBootClock(double unix_s) { return SecondsSinceBoot() + (unix_s - UnixSeconds()); }

// Starts this command again, as ranks, or where -n was not given as one process, and returns the job's exit status.
// What is wrong with the config is said first, once and fast.
int StartJob(const CommandLine& line, bool trains, bool prints_result, int argc, char** argv) {
  if (Job::IsRank()) {
    throw UsageError("{} inside mpirun or srun: leave it out, this process is a rank already",
                     AboutStarting(line));
  }
  if (line.restarts > 0 && !trains) throw UsageError("--restarts: only train goes on by itself");
  if (line.elastic && line.restarts == 0) {
    throw UsageError("--elastic says how a job goes on: add --restarts 10, say");
  }
  SupervisedJob job{.restarts = line.restarts, .prints_result = prints_result};
  bool may_use_gpus = true;
  if (!line.config.empty()) {
    const Config config = LoadConfig(line.config, line.assignments);
    if (!std::filesystem::is_regular_file(line.config)) {
      throw UsageError("{}: {} starts processes that read the config, too: give a plain file",
                       line.config, AboutStarting(line));
    }
    if (trains) job.run_dir = config.run_dir();
    may_use_gpus = config.device() != Config::CPU;
  }
  if (!line.run_dir.empty()) ConfigOfRun(line);
  const double started = UnixSeconds() - (SecondsSinceBoot() - ProcessStartSeconds());
  setenv(kCommandStart, std::to_string(started).c_str(), /*overwrite=*/0);
  const double end_by_s = EndBy(line);
  if (std::isfinite(end_by_s)) {
    setenv(kEndBy, fmt::format("{:.3f}", end_by_s).c_str(), 1);
    job.end_by_s = OnBootClock(end_by_s);
  }
  if (isatty(STDOUT_FILENO) != 0) setenv(kLive, "1", 1);
  const std::string program = ProgramPath(argv[0]);
  const std::vector<std::string> words = WordsForRanks(argc, argv);
  const Machines machines = MachinesFor(line.hosts);
  if (line.elastic && machines.kind == Machines::Kind::kSlurmJob) {
    throw UsageError("--elastic in a Slurm job of several machines: leave it to Slurm (--requeue)");
  }
  const auto start = [&](int ranks, const Machines& on) {
    std::vector<std::string> variables{kJobName, kJobRestarts, kJobHasBegun, kCommandStart};
    for (const char* variable : {kLive, kEndBy}) {
      if (std::getenv(variable) != nullptr) variables.push_back(variable);
    }
    Supervisor::Program job{.command = MpirunCommand(ranks, on, program, words, variables),
                            .name = "mpirun",
                            .end_at_once = SIGTERM};
    Announce(ShellText(job.command));
    return job;
  };
  std::optional<ScratchFolder> scratch;
  const int ranks = RanksWanted(line);
  if (ranks > 0) {
    RequireMpirun();
    // Other machines have no such folder.
    if (machines.one()) KeepMpirunsFilesIn(scratch.emplace().path());
    job.program = start(ranks, machines);
  } else {
    job.program = {.command = words, .name = "lockstep", .end_at_once = SIGKILL, .launches = false};
    job.program.command.insert(job.program.command.begin(), program);
  }
  std::string hosts = machines.hosts;  // that it runs on
  if (machines.kind == Machines::Kind::kListed) {
    job.on_other_machines = true;
    job.why_no_start = [&] { return WhyNoStart(hosts); };
  }
  if (line.elastic && machines.kind == Machines::Kind::kListed) {
    job.what_is_left = [&]() -> std::optional<Supervisor::Program> {
      const Machines left{.kind = Machines::Kind::kListed, .hosts = ReachableHosts(machines.hosts)};
      if (left.hosts.empty()) return std::nullopt;
      if (left.hosts != machines.hosts) Warn(fmt::format("going on with {} alone", left.hosts));
      hosts = left.hosts;
      return start(std::min(ranks, RanksOn(left.hosts)), left);
    };
  } else if (line.elastic && may_use_gpus) {
    const std::vector<std::string> gpus = GpusHere();
    if (gpus.empty() && VisibleGpus() > 0) {
      throw UsageError(
          "--elastic: the driver does not say which GPUs there are: set "
          "CUDA_VISIBLE_DEVICES=0,1");
    }
    job.what_is_left = [&, gpus]() -> std::optional<Supervisor::Program> {
      if (gpus.empty()) return job.program;
      const std::vector<std::string> left = WorkingGpus(gpus, program);
      if (left.empty()) return std::nullopt;
      const std::string list = fmt::format("{}", fmt::join(left, ","));
      if (left != gpus) Warn(fmt::format("going on with GPU {} alone", list));
      setenv("CUDA_VISIBLE_DEVICES", list.c_str(), 1);
      return ranks > 0 ? start(std::min(ranks, static_cast<int>(left.size())), machines)
                       : job.program;
    };
  }
  return RunSupervised(job);
}

// Ends this rank for an error of its own, while others may be waiting for it.
[[noreturn]] void LeaveAlone(Job& job, const std::exception& exception) {
  std::fflush(stdout);
  job.Fail(ErrorOf(exception));
}

// Which program this is: two builds of it may do different things under one name.
std::string ProgramText() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  return fmt::format("program of {} bytes with hash {:016x}", bytes.size(),
                     std::hash<std::string>()(bytes));
}

TrainOptions MakeTrainOptions(Job& job) {
  const bool live = Job::IsRank() ? std::getenv(kLive) != nullptr : isatty(STDOUT_FILENO) != 0;
  return {.version = kVersion,
          .live = live,
          .command_start_s = CommandStart(),
          .leave = [&job](const std::exception& exception) { LeaveAlone(job, exception); }};
}

// `world`, after a line about what of the machine is in its way.
World WithWarnings(const Job& job, const World& world) {
  if (world.rank() == 0 && !job.what_is_narrow().empty()) Warn(job.what_is_narrow());
  return world;
}

// Connects the devices of ranks that have the same config.
World Connect(Job& job, const Config& config) {
  RequireSame(FieldLines(config), job.host());
  if (job.watchdog() != nullptr) {
    job.watchdog()->SetLimits({.collective_s = config.watchdog().collective_timeout_s(),
                               .heartbeat_s = config.watchdog().heartbeat_timeout_s()});
  }
  // Read by CUDA when it is first used, which is now.
  if (config.debug().launch_blocking()) setenv("CUDA_LAUNCH_BLOCKING", "1", /*overwrite=*/1);
  return WithWarnings(job, job.Connect(config.device()));
}

ExitStatus RunTrain(const CommandLine& line, const Extensions& extensions, StopSignals& signals,
                    Job& job) {
  Config config;
  Together(job.host(), [&] { config = LoadConfig(line.config, line.assignments); });
  RequireSame({"--from " + line.from}, job.host());
  const World world = Connect(job, config);
  TrainOptions options = MakeTrainOptions(job);
  const char* has_begun = std::getenv(kJobHasBegun);
  options.fresh = line.fresh && (has_begun == nullptr || std::string_view(has_begun) != kYes);
  options.from = line.from;
  options.asked_to_stop = [&signals, &world, told = false]() mutable {
    if (world.rank() == 0 && !std::exchange(told, true)) Give(Sign::kTrains);
    return signals.Asked();
  };
  options.end_by_s = OnBootClock(EndBy(line));
  if (const char* name = std::getenv(kJobName)) options.job = name;
  if (const char* restarts = std::getenv(kJobRestarts)) options.restarts = std::atoll(restarts);
  switch (Train(config, extensions, world, options)) {
    case StopRequest::kNone:
      break;
    case StopRequest::kStop:
      return ExitStatus::kStopped;
    case StopRequest::kInterrupt:
      return ExitStatus::kInterrupted;
  }
  return ExitStatus::kDone;
}

void RunBenchStep(const CommandLine& line, const Extensions& extensions, Job& job) {
  Config config;
  Together(job.host(), [&] { config = LoadConfig(line.config, line.assignments); });
  const World world = Connect(job, config);
  BenchStep(config, line.bench, extensions, world, MakeTrainOptions(job));
}

// Connects a command that has no config.
World Connect(Job& job, const CommandLine& line) {
  return WithWarnings(job, job.Connect(line.device));
}

void RunBenchCollective(Op op, const CommandLine& line, Job& job) {
  BenchCollective(op, line.bench, Connect(job, line));
}

void RunBenchLoader(const CommandLine& line, Job& job) {
  BenchLoader(line.bench, Connect(job, line));
}

int RunBenchScaling(const CommandLine& line, const char* program) {
  if (Job::IsRank())
    throw UsageError("bench scaling inside mpirun or srun: it starts ranks itself");
  const Config config = LoadConfig(line.config, line.assignments);
  const int gpus = config.device() == Config::CPU ? 0 : c10::cuda::device_count();
  const int wanted = RanksWanted(line);
  const int ranks = wanted > 0 ? wanted : (gpus > 0 ? gpus : 2);
  std::vector<std::string> arguments{line.config};
  for (const std::string& assignment : line.assignments) {
    arguments.insert(arguments.end(), {"--set", assignment});
  }
  return BenchScaling(ranks, MachinesFor(line.hosts), config.global_batch(), ProgramPath(program),
                      arguments, line.bench);
}

void RunEvaluate(const CommandLine& line, const Extensions& extensions, Job& job) {
  Config config;
  Together(job.host(), [&] { config = ConfigOfRun(line); });
  const World world = Connect(job, config);
  const RunEvaluation evaluation =
      EvaluateRun(line.run_dir, config, line.inputs, extensions, world);
  for (const std::string& why : evaluation.bad_samples) {
    Warn(fmt::format("rank {}: {}", world.rank(), why));
  }
  if (world.rank() == 0) {
    const bool ended = evaluation.weights == RunWeightsPath(line.run_dir);
    Print("{}  ({} samples{}{})\n", MetricsText(evaluation.metrics), evaluation.samples,
          ended ? "" : ", weights of ", ended ? "" : evaluation.weights);
  }
}

void RunPredict(const CommandLine& line, const Extensions& extensions, Job& job) {
  Config config;
  Together(job.host(), [&] { config = ConfigOfRun(line); });
  const World world = Connect(job, config);
  const int64_t rows =
      PredictRun(line.run_dir, config, line.inputs, line.output, extensions, world);
  if (world.rank() == 0) Print("{}: {} predictions\n", line.output, rows);
}

void PrintVersion() {
  Print("lockstep {} (LibTorch {}, NCCL {}.{}.{})\n", kVersion, TORCH_VERSION, NCCL_MAJOR,
        NCCL_MINOR, NCCL_PATCH);
}

// Runs `command` as this rank of its job and returns the exit status.
int RunAsRank(const std::string& name, const std::function<ExitStatus(Job&)>& command) {
  // Outside the try block: the communicators must outlive what fails.
  std::optional<Job> job;
  try {
    job.emplace();
    RequireSame({ProgramText(), "command " + name}, job->host());
    const ExitStatus status = command(*job);
    std::fflush(stdout);
    job->Leave();
    return static_cast<int>(status);
  } catch (const std::exception& exception) {
    const Error error = ErrorOf(exception);
    if (!job) {
      PrintError(error.what());
      std::_Exit(static_cast<int>(error.status()));
    }
    if (!error.on_every_rank()) LeaveAlone(*job, exception);
    std::fflush(stdout);
    if (job->host().rank() == 0) PrintError(error.what());
    job->Leave();
    std::_Exit(static_cast<int>(error.status()));
  }
}

// Returns the exit status. `prints_result`: whether what it prints is its result, or tells of one that lies elsewhere.
int RunCommandLine(int argc, char** argv, const Extensions& extensions, bool& prints_result) {
  CommandLine line;
  CLI::App app("Lockstep trains PyTorch-style models on every GPU that mpirun gives it.",
               "lockstep");
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("-n,--ranks", line.ranks, "start N ranks on this machine through mpirun")
      ->check(CLI::Range(1, 4096));
  app.add_option("--hosts", line.hosts,
                 "node1:8,node2:8: start so many ranks on each of these machines, through ssh");
  app.add_flag("--elastic", line.elastic,
               "with --restarts: go on without machines and GPUs that have failed");
  app.add_option("--restarts", line.restarts,
                 "of train: start a job that failed again, so often, from its newest checkpoint")
      ->check(CLI::Range(0, 1'000'000));

  CLI::App* train =
      app.add_subcommand("train", "train a config, or go on from its newest checkpoint");
  train->add_option("CONFIG", line.config, "config file (lockstep config --template shows one)")
      ->required();
  train->add_flag("--fresh", line.fresh,
                  "begin anew: a run that is in the folder is moved to another name");
  train->add_option("--from", line.from,
                    "RUN@STEP: another run's checkpoint to begin from where this one has none");
  constexpr char kRunPoint[] = "run folder; RUN@STEP for one of its checkpoints";
  train->add_option("--time-budget", line.time_budget,
                    "8h30m: stop in time for the command to have ended after that, with status 75");
  train->add_option("--stop-at", line.stop_at,
                    "18:30 or \"2026-12-01 18:30\": the same, by the clock");
  CLI::App* evaluate = app.add_subcommand("evaluate", "loss and accuracy of a run's weights");
  evaluate->add_option("RUN", line.run_dir, kRunPoint)->required();
  evaluate->add_option("--input", line.inputs,
                       "files to evaluate on instead of the samples held back");
  CLI::App* predict = app.add_subcommand("predict", "predictions of a run's weights, as CSV");
  predict->add_option("RUN", line.run_dir, kRunPoint)->required();
  predict->add_option("--input", line.inputs, "files to predict, with or without labels")
      ->required();
  predict->add_option("--output", line.output, "CSV file to write")->capture_default_str();
  CLI::App* config =
      app.add_subcommand("config", "print a config with every field, or a commented template");
  config->add_option("CONFIG", line.config, "config file");
  config->add_flag("--template", line.print_template,
                   "print every field at its default, with comments");
  CLI::App* flight =
      app.add_subcommand("flight", "what each rank of a run last exchanged with the others");
  flight->add_option("RUN", line.run_dir, "run folder")->required();
  flight->add_option("--last", line.last, "collectives to print")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  CLI::App* checkpoints = app.add_subcommand("checkpoints", "a run's checkpoints");
  CLI::App* verify = app.add_subcommand("verify", "whether a run's checkpoints are whole");
  CLI::App* checkpoint =
      app.add_subcommand("checkpoint", "have the job that trains in a run folder save its state");
  CLI::App* stop =
      app.add_subcommand("stop", "have the job that trains in a run folder save its state and end");
  for (CLI::App* command : {checkpoints, verify, checkpoint, stop}) {
    command->add_option("RUN", line.run_dir, "run folder")->required();
  }
  CLI::App* export_weights =
      app.add_subcommand("export", "weights of a run or a checkpoint, for other programs");
  export_weights->add_option("SOURCE", line.weights, "RUN, RUN@STEP, or a safetensors file")
      ->required()
      ->expected(1);
  CLI::App* average = app.add_subcommand("average", "the mean of several weights");
  average->add_option("SOURCE", line.weights, "RUN, RUN@STEP, or a safetensors file, each")
      ->required()
      ->expected(2, 1 << 20);
  for (CLI::App* command : {export_weights, average}) {
    command->add_option("--output", line.weights_output, "safetensors file to write")->required();
    command->add_option("--dtype", line.dtype, "float32, bfloat16 or float16; as it is without")
        ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  }
  SlurmCommand slurm(app);
  PrepareCommand prepare(app);
  BundleCommand bundle(app);
  CLI::App* bench = app.add_subcommand("bench", "measurements on this machine");
  bench->require_subcommand(1);
  std::vector<std::pair<CLI::App*, Op>> collectives;
  for (const auto& [name, op] :
       {std::pair("allreduce", Op::kAllReduce), std::pair("reduce-scatter", Op::kReduceScatter),
        std::pair("all-gather", Op::kAllGather)}) {
    CLI::App* collective =
        bench->add_subcommand(name, fmt::format("time and bandwidth: {}", NameOf(op)));
    collective->add_option("--bytes", line.bench.bytes, "one size instead of several")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
    collective->add_option("--dtype", line.bench.dtype, "float32, float16, bfloat16 or float64")
        ->capture_default_str();
    collectives.emplace_back(collective, op);
  }
  CLI::App* loader = bench->add_subcommand("loader", "images/s of the loader, and its limit");
  loader
      ->add_option("--images", line.bench.images,
                   "folder of images: of a folder for each class, or of shards")
      ->required();
  loader->add_option("--batch", line.bench.batch, "images of a batch on each rank")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  loader->add_option("--threads", line.bench.threads, "of each rank; -1: chosen from its cores")
      ->check(CLI::Range(-1, 256))
      ->capture_default_str();
  const std::map<std::string, config::Images::Decode> decodes{
      {"auto", config::Images::AUTO}, {"cpu", config::Images::CPU}, {"gpu", config::Images::GPU}};
  loader->add_option("--decode", line.bench.decode, "images on the cpu or the gpu, or auto")
      ->transform(CLI::CheckedTransformer(decodes))
      ->default_str("auto");
  DoctorOptions examined{.version = kVersion};
  CLI::App* doctor =
      app.add_subcommand("doctor", "whether this machine, or with -n each rank, has all it needs");
  doctor->add_option("--folder", examined.folder, "where runs will be")->capture_default_str();
  doctor->add_flag("--json", examined.json, "a line of JSON for each finding of each rank");
  const std::map<std::string, Config::Device> devices{
      {"auto", Config::AUTO}, {"cpu", Config::CPU}, {"cuda", Config::CUDA}};
  for (CLI::App* command :
       {collectives[0].first, collectives[1].first, collectives[2].first, loader, doctor}) {
    command->add_option("--device", line.device, "cpu, cuda or auto")
        ->transform(CLI::CheckedTransformer(devices))
        ->default_str("auto");
  }
  CLI::App* scaling =
      bench->add_subcommand("scaling", "step time of a config on 1, 2, 4, ... ranks, up to -n");
  scaling->add_flag("--weak", line.bench.weak,
                    "global_batch for each rank instead of all together");
  CLI::App* step =
      bench->add_subcommand("step", "step time of a config on data that lie on the device");
  step->add_option("--trace", line.bench.trace,
                   "file for a Chrome trace of ten more steps, kernel by kernel");
  for (CLI::App* command : {scaling, step}) {
    command->add_option("CONFIG", line.config, "config file")->required();
    command->add_option("--steps", line.bench.steps, "steps to time")
        ->check(CLI::Range(1, 100'000))
        ->capture_default_str();
  }
  for (CLI::App* command :
       {collectives[0].first, collectives[1].first, collectives[2].first, loader, scaling, step}) {
    command->add_flag("--json", line.bench.json, "a line of JSON for each measurement");
  }
  CLI::App* version =
      app.add_subcommand("version", "print the version and those of what it stands on");
  // For other processes of this program.
  CLI::App* probe_gpu = app.add_subcommand(kProbeGpu)->group("");
  for (CLI::App* command : {train, config, scaling, step}) {
    command->add_option("--set", line.assignments, "override a field: --set optimizer.lr=0.01")
        ->allow_extra_args(false)
        ->take_all();
  }

  // The commands whose results are files.
  const std::set<const CLI::App*> makes_files{train, predict, export_weights, average};

  // The commands that ranks run.
  const std::set<const CLI::App*> ranked{train, evaluate, predict, bench, doctor};

  try {
    CheckCommandName(app, WordsForRanks(argc, argv));
    app.parse(argc, argv);
    prints_result = !std::ranges::any_of(
        app.get_subcommands(), [&](CLI::App* command) { return makes_files.contains(command); });
    const std::string about_starting = AboutStarting(line);
    if (!train->parsed() && about_starting.empty()) LetEarlySignalsCome();
    if (scaling->parsed()) {
      LetEarlySignalsCome();
      if (!about_starting.empty() && about_starting != "-n") {
        throw UsageError("{}: bench scaling starts its jobs itself, on this machine: -n 8",
                         about_starting);
      }
      return RunBenchScaling(line, argv[0]);
    }
    for (const CLI::App* command : app.get_subcommands()) {
      if (!about_starting.empty() && !ranked.contains(command)) {
        throw UsageError("{}: {} runs in one process", about_starting, command->get_name());
      }
    }
    if (flight->parsed()) {
      const Flights flights = ReadFlights(line.run_dir);
      for (const std::string& why : flights.damaged) Warn(why);
      Print("{}", Story(flights.read, line.last));
    }
    if (checkpoints->parsed()) PrintCheckpoints(line.run_dir);
    if (verify->parsed()) VerifyCheckpoints(line.run_dir);
    if (checkpoint->parsed()) RequestCheckpoint(line.run_dir);
    if (stop->parsed()) RequestStop(line.run_dir);
    if (export_weights->parsed() || average->parsed()) {
      ExportWeights(line.weights, line.weights_output, line.dtype);
    }
    if (version->parsed()) PrintVersion();
    if (probe_gpu->parsed()) return ProbeGpu();
    if (slurm.parsed()) slurm.Run(StartScriptOr(ProgramPath(argv[0])));
    if (bundle.parsed()) bundle.Run(kVersion);
    if (prepare.parsed()) prepare.Run();
    // The others run as ranks.
    std::optional<StopSignals> signals;
    const auto until_done = [](std::function<void(Job&)> run) {
      return [run = std::move(run)](Job& job) {
        run(job);
        return ExitStatus::kDone;
      };
    };
    std::vector<std::pair<const CLI::App*, std::function<ExitStatus(Job&)>>> commands{
        {train, [&](Job& job) { return RunTrain(line, extensions, *signals, job); }},
        {evaluate, until_done([&](Job& job) { RunEvaluate(line, extensions, job); })},
        {predict, until_done([&](Job& job) { RunPredict(line, extensions, job); })},
        {loader, until_done([&](Job& job) { RunBenchLoader(line, job); })},
        {step, until_done([&](Job& job) { RunBenchStep(line, extensions, job); })},
        {doctor, [&](Job& job) {
           examined.device = line.device;
           return RunDoctor(examined, job);
         }}};
    for (const auto& [command, op] : collectives) {
      commands.emplace_back(
          command, until_done([&line, op = op](Job& job) { RunBenchCollective(op, line, job); }));
    }
    for (const auto& [command, run] : commands) {
      if (!command->parsed()) continue;
      if (train->parsed()) EndBy(line);  // says what is wrong with it
      if (!about_starting.empty()) {
        return StartJob(line, train->parsed(), prints_result, argc, argv);
      }
      if (train->parsed()) signals.emplace(Job::IsRank());
      LetEarlySignalsCome();
      return RunAsRank(command->get_name(), run);
    }
    if (config->parsed()) {
      if (line.print_template == !line.config.empty())
        throw UsageError("config: give a CONFIG or --template");
      Print("{}", line.print_template ? ConfigTemplate()
                                      : PrintConfig(LoadConfig(line.config, line.assignments)));
    }
    return static_cast<int>(ExitStatus::kDone);
  } catch (const CLI::CallForHelp&) {
    for (const CLI::App* command : app.get_subcommands()) {
      Print("{}", command->help());
      return static_cast<int>(ExitStatus::kDone);
    }
    Print("{}", app.help());
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

}  // namespace

int Main(int argc, char** argv, Models models, Datasets datasets) {
  SecureStandardStreams();
  bool prints_result = false;
  const int status = RunCommandLine(
      argc, argv, {.models = std::move(models), .datasets = std::move(datasets)}, prints_result);
  if (status != 0 || !prints_result || OutputError() == 0) return status;
  const Error lost = LostOutput(OutputError());
  PrintError(lost.what());
  return static_cast<int>(lost.status());
}

}  // namespace lockstep
