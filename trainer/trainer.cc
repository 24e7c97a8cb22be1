#include "trainer/trainer.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/mix.h"
#include "base/round.h"
#include "ckpt/atomic_file.h"
#include "ckpt/safetensors.h"
#include "ckpt/saver.h"
#include "comm/flight_story.h"
#include "data/csv_cells.h"
#include "data/device_feed.h"
#include "trainer/config.h"
#include "trainer/flops.h"
#include "trainer/metrics_ring.h"
#include "trainer/precision.h"
#include "trainer/progress.h"
#include "trainer/run_folder.h"
#include "trainer/schedule.h"
#include "trainer/step.h"
#include "trainer/task.h"
#include "trainer/together.h"
#include "trainer/trace.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void WaitForDevice(at::Device device) {
  if (device.is_cuda()) c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
}

SamplerOptions SamplerOptionsFor(const config::Config& config, int64_t accumulation,
                                 int64_t samples, const World& world) {
  return {.samples = samples,
          .global_batch = config.global_batch(),
          .accumulation = static_cast<int>(accumulation),
          .rank = world.rank(),
          .ranks = world.size(),
          .seed = config.seed(),
          .shuffle = config.data().shuffle(),
          .last_batch = config.data().last_batch() == config::Data::DROP ? LastBatch::kDrop
                                                                         : LastBatch::kKeep};
}

// The config as this data resolves it: what it left to the data is written down.
config::Config Resolved(config::Config config, const TrainingData& training) {
  const SampleSpec& spec = training.train->spec();
  config::Data& data = *config.mutable_data();
  if (data.input_shape_size() > 0 && SpecOf(data).shape != spec.shape) {
    throw DataError("{}: samples of shape [{}] where data.input_shape says [{}]", data.train(0),
                    fmt::join(spec.shape, ", "), fmt::join(data.input_shape(), ", "));
  }
  data.mutable_input_shape()->Assign(spec.shape.begin(), spec.shape.end());
  data.set_classes(spec.classes);
  if (data.format() == config::Data::CSV) *data.mutable_csv() = training.csv;
  if (data.format() == config::Data::IMAGES) {
    data.mutable_images()->mutable_classes()->Assign(spec.class_names.begin(),
                                                     spec.class_names.end());
  }
  return config;
}

// A number of the column `name`; a class by its name, where classes have some, or without a fraction.
std::string CsvCellOf(const std::string& name, double value,
                      const std::vector<std::string>& class_names) {
  if (name == "label") {
    return class_names.empty() ? fmt::format("{:.0f}", value)
                               : AsCsvCell(class_names.at(static_cast<size_t>(value)));
  }
  // All that float32 holds.
  return name.starts_with("value") ? fmt::format("{:.9g}", value) : fmt::format("{:.6f}", value);
}

std::string CsvOf(const Predictions& predictions, const std::vector<std::string>& class_names) {
  std::string csv = fmt::format("index,{}\n", fmt::join(predictions.columns, ","));
  const auto values = predictions.values.accessor<double, 2>();
  for (int64_t i = 0; i < values.size(0); ++i) {
    csv += std::to_string(i);
    for (int64_t column = 0; column < values.size(1); ++column) {
      csv += ',' + CsvCellOf(predictions.columns[column], values[i][column], class_names);
    }
    csv += '\n';
  }
  return csv;
}

// Samples that all ranks together evaluate at once: as many as they train on at once, which takes more
// memory.
int64_t EvaluationBatch(const config::Config& config, int64_t accumulation) {
  return config.global_batch() / accumulation;
}

// Where a run begins, the same on all ranks.
struct RunStart {
  std::optional<Checkpoint> checkpoint;  // nothing: at its beginning
  std::string attempt;                   // this job's own name
};

class Trainer {
  // Below it the gradients overflow whatever the scale.
  static constexpr double kLeastLossScale = 1e-3;
  // A share of the time: waiting for samples more than that is worth a word.
  static constexpr double kMuchWaiting = 0.05;
  // Optimizer steps between two looks whether a checkpoint that is late can begin.
  static constexpr int64_t kLateInterval = 8;

 public:
  Trainer(const config::Config& config, TrainingData data, const Models& models, const World& world)
      : config_(config),
        world_(world),
        data_(std::move(data)),
        preprocessing_(config.data(), data_.train->spec(), world.device, precision_),
        model_(MakeModel(config, data_.train->spec(), models, world)),
        sampler_(SamplerOptionsFor(config, config.accumulation(), data_.train->size(), world)),
        loader_options_(LoaderOptionsFor(config.loader(), *data_.train, world)),
        batches_{.next = [this] { return input_->feed.Next(); },
                 .prefetch = [this] { input_->feed.Prefetch(); }},
        peak_lr_(PeakLearningRate(config)),
        plateau_(config.schedule()),
        metrics_(world.device) {
    total_steps_ = config.epochs() * sampler_.steps_per_epoch();
    if (config.max_steps() > 0) total_steps_ = std::min(total_steps_, config.max_steps());
    // The ranks drew the same initial weights; what a model draws from now on differs, as their
    // samples do.
    at::manual_seed(config.seed() ^ (0x9e3779b97f4a7c15 * (uint64_t{1} + world.rank())));
  }

  // What must be the same on all ranks for their collectives to match.
  std::vector<std::string> Facts() const {
    std::vector<std::string> facts = DataFacts();
    if (data_.validation) {
      facts.push_back(fmt::format("{} validation samples", data_.validation->size()));
    }
    for (const auto& [name, tensor] : model_->State()) {
      facts.push_back(fmt::format("{} of {} [{}]", name, c10::toString(tensor.scalar_type()),
                                  fmt::join(tensor.sizes(), ", ")));
    }
    return facts;
  }

  StepMeasurement Measure(int warmup, int steps, const std::string& trace,
                          const TrainOptions& options) {
    constexpr int kPhaseSteps = 10;
    Begin(std::nullopt);
    StepMeasurement measured;
    TrainStep(0);
    WaitForDevice(world_.device);
    measured.first_step_s = SecondsSinceBoot() - options.command_start_s;

    // From here on the data lie on the device.
    PinBatch();
    if (pinned_batch_.origin.global_count != config_.global_batch()) {
      throw Error::OnEveryRank(
          ExitStatus::kUsage, fmt::format("steps of {} samples cannot be timed with {}: take fewer",
                                          config_.global_batch(), data_.train->size()));
    }
    batches_ = {.next = [this] { return pinned_batch_; }, .prefetch = [] {}};
    StepClock clock(world_.device);
    step_->SetClock(&clock);
    for (int step = 1; step < warmup; ++step) TrainStep(step);
    for (int step = 0; step < steps; ++step) {
      clock.BeginStep();
      TrainStep(warmup + step);
    }
    clock.BeginStep();
    measured.step_ms = clock.StepTimes();
    measured.peak_bytes = step_->peak_memory().Most();
    for (int step = 0; step < kPhaseSteps; ++step) {
      clock.BeginStep();
      TrainStep(warmup + steps + step);
      clock.ReadPhases();
    }
    measured.phase_ms = clock.PhaseTimes();
    if (!trace.empty()) {
      const auto act = [&] {
        for (int step = 0; step < kPhaseSteps; ++step) TrainStep(warmup + steps + step);
      };
      if (world_.rank() == 0) {
        Trace(trace, world_.device, act);
      } else {
        act();
      }
    }
    step_->SetClock(nullptr);
    step_->WaitForParameters();

    const at::Tensor figures = step_->figures().cpu();
    measured.loss = figures[ops::kLoss].item<double>();
    measured.parameters = ParameterCount();
    measured.precision = precision_;
    measured.accumulation = accumulation_;
    measured.forward_flops = accumulation_ * ForwardFlops(pinned_batch_);
    measured.why_no_graph = step_->why_no_graph();
    return measured;
  }

  void Run(const TrainOptions& options, const RunStart& start, RunFolder* folder) {
    folder_ = folder;
    const checkpoint::Manifest resumed = Begin(start.checkpoint);
    Together(world_.host, [&] {
      if (folder_ != nullptr) folder_->Begin(config_);
    });
    checkpoint::Manifest manifest;
    manifest.set_lockstep_version(options.version);
    manifest.set_config(PrintConfig(config_));
    for (const std::string& line : DataFacts()) manifest.add_data(line);
    saver_.emplace(world_.device, Saver::Options{.run_dir = config_.run_dir(),
                                                 .attempt = start.attempt,
                                                 .rank = world_.rank(),
                                                 .ranks = world_.size(),
                                                 .keep = config_.checkpoint().keep(),
                                                 .manifest = manifest});
    if (folder_ != nullptr) {
      progress_.emplace(options.live, config_.epochs(), total_steps_, config_.global_batch());
      LogStart(options);
      for (const std::string& warning : folder_->warnings()) LogWarning(warning);
      if (start.checkpoint) LogResume(*start.checkpoint, resumed);
    }
    double first_step_s = 0;
    last_line_ = Clock::now();
    last_line_step_ = first_step_;
    for (int64_t step = first_step_; step < total_steps_; ++step) {
      try {
        TrainStep(step);
      } catch (...) {
        TellSkipped(*data_.train);  // it may have been one too many
        throw;
      }
      if (step == first_step_) {
        WaitForDevice(world_.device);
        first_step_s = SecondsSinceBoot() - options.command_start_s;
        LogMemory();
        CountWaitingFromHere();
        epoch_begin_ = Clock::now();
      }
      ReportStep(step + 1);
      const bool epoch_ends = (step + 1) % sampler_.steps_per_epoch() == 0;
      if (epoch_ends || step + 1 == total_steps_) EndEpoch(step + 1);
      if (step + 1 < total_steps_) SaveWhereDue(step + 1, epoch_ends);
    }
    Finish(options, first_step_s);
  }

 private:
  // Returns what `checkpoint` says of itself.
  checkpoint::Manifest Begin(const std::optional<Checkpoint>& checkpoint) {
    checkpoint::Manifest manifest;
    std::vector<int64_t> bucket_order;
    if (checkpoint) {
      Together(world_.host, [&] {
        manifest = ReadManifest(*checkpoint);
        RequireSameData(*checkpoint, manifest);
        const at::Tensor order = ReadShared(StateFiles(*checkpoint, manifest), Step::kBucketOrder);
        bucket_order.assign(order.const_data_ptr<int64_t>(),
                            order.const_data_ptr<int64_t>() + order.numel());
        if (world_.rank() != 0) return;
        const std::string path = ModelFile(*checkpoint);
        CopyByName(path, ReadSafetensors(path), model_->State());
      });
    }
    step_.emplace(config_, *model_, preprocessing_, data_.train->spec(), sampler_.max_micro_batch(),
                  world_);
    model_->train();
    BroadcastFromRankZero(model_->State(), world_.communicator);
    if (checkpoint) {
      step_->Resume(bucket_order);
      Together(world_.host, [&] { Resume(*checkpoint, manifest); });
    }
    Together(world_.host, [&] { Feed(); });
    return manifest;
  }

  // ---- Checkpoints ------------------------------------------------------------------------------

  // All that the next step depends on, but for the model's parameters and buffers and what follows from the
  // number of steps done. Once a step has run, or was resumed.
  StateTree State() {
    StateTree state;
    state.BeginPart("trainer", 1);
    state.Add("accumulation", accumulation_);
    state.BeginPart("schedule", 1);
    plateau_.AddTo(state);
    step_->AddTo(state);
    const auto add_random = [&](const std::string& name, at::Device device) {
      const at::Generator random = at::globalContext().defaultGenerator(device);
      state.AddOwn(
          name, [random] { return random.get_state(); },
          [random](const at::Tensor& saved) { at::Generator(random).set_state(saved); });
    };
    state.BeginPart("random", 1);
    add_random("cpu", at::kCPU);
    if (world_.device.is_cuda()) add_random("cuda", world_.device);
    // The model's file holds rank 0's.
    state.BeginPart("buffers", 1);
    for (const auto& [name, tensor] : step_->buffers()) {
      if (world_.size() == 1) break;
      state.AddOwn(name, tensor.detach());
    }
    return state;
  }

  // What a run's data must have in common with those it began with.
  std::vector<std::string> DataFacts() const {
    std::vector<std::string> facts{fmt::format("{} training samples", data_.train->size())};
    if (std::string files = data_.train->Fingerprint(); !files.empty()) {
      facts.push_back(std::move(files));
    }
    return facts;
  }

  void RequireSameData(const Checkpoint& checkpoint, const checkpoint::Manifest& manifest) const {
    const std::vector<std::string> now = DataFacts();
    for (int i = 0; i < manifest.data_size(); ++i) {
      const std::string is = i < std::ssize(now) ? now[i] : "nothing";
      if (is == manifest.data(i)) continue;
      throw DataError(
          "{}: {} where the run's checkpoint of step {} has {}: give it the data it began with, or "
          "begin anew with --fresh",
          config_.run_dir(), is, checkpoint.step, manifest.data(i));
    }
  }

  void Resume(const Checkpoint& checkpoint, const checkpoint::Manifest& manifest) {
    first_step_ = checkpoint.step;
    if (first_step_ > total_steps_) {
      throw UsageError(
          "{}: the run's newest checkpoint is of step {}, and {} steps are all: raise epochs or "
          "max_steps, or begin anew with --fresh",
          config_.run_dir(), first_step_, total_steps_);
    }
    const bool as_many_ranks = manifest.ranks() == world_.size();
    // Other ranks go on with random numbers that none has drawn yet.
    if (!as_many_ranks) {
      at::manual_seed(Mix(config_.seed() + static_cast<uint64_t>(first_step_)) ^
                      Mix(uint64_t{1} + world_.rank()));
    }
    Restore(State(), StateFiles(checkpoint, manifest),
            {manifest.part_version().begin(), manifest.part_version().end()},
            {.rank = world_.rank(),
             .as_many_ranks = as_many_ranks,
             .sharded = config_.optimizer().shard()});
    step_->AfterRestore();
    for (const checkpoint::Metric& metric : manifest.metric()) {
      evaluation_.push_back({metric.name(), metric.value()});
    }
    // As many micro-batches as memory was found to need, unless the user has a mind of his own.
    if (ParsePrinted(manifest.config()).accumulation() != config_.accumulation()) {
      accumulation_ = config_.accumulation();
    }
    accumulation_ = std::min(accumulation_, config_.global_batch() / world_.size());
    sampler_ = Sampler(SamplerOptionsFor(config_, accumulation_, data_.train->size(), world_));
    sampler_.Seek(first_step_);
    step_->SetMicroBatches(accumulation_, sampler_.max_micro_batch());
  }

  void SaveWhereDue(int64_t steps_done, bool epoch_ended) {
    TellSaved();
    const config::Checkpoint& when = config_.checkpoint();
    const bool due =
        (when.every_steps() > 0 && steps_done % when.every_steps() == 0) ||
        (when.every_epochs() > 0 && epoch_ended && EpochOf(steps_done) % when.every_epochs() == 0);
    if (!due && !(late_ && steps_done % kLateInterval == 0)) return;
    if (OnAnyRank(save_failed_, "whether a checkpoint failed", world_.host)) saver_->Abandon();
    if (OnAnyRank(saver_->busy(), "whether a checkpoint is being written", world_.host)) {
      if (!std::exchange(late_, true) && folder_ != nullptr) {
        folder_->Log({{"event", "checkpoint_late"}, {"step", steps_done}});
        progress_->Say(fmt::format(
            "step {}: the checkpoint before is still being written; the next begins after it",
            steps_done));
      }
      return;
    }
    Save(steps_done);
  }

  void Save(int64_t steps_done) {
    TellSaved();
    save_failed_ = late_ = false;
    step_->WaitForParameters();
    std::vector<checkpoint::Metric> metrics;
    for (const Metric& metric : evaluation_) {
      checkpoint::Metric& saved = metrics.emplace_back();
      saved.set_name(metric.name);
      saved.set_value(metric.value);
    }
    saver_->Save(steps_done, model_->State(), State(), metrics);
    // What the figures say of this step decides whether it is committed.
    metrics_.Push({.told = false, .saved = true, .step = steps_done}, step_->figures());
  }

  // The state at the end of the run, unless it was resumed from that. Returns once it is committed. Throws
  // Error on every rank.
  void SaveLast() {
    EmitAll();
    FinishSaving();
    if (first_step_ == total_steps_) return;
    Save(total_steps_);
    EmitAll();
    const bool gave_up = FinishSaving();
    Together(world_.host, [&] {
      const std::optional<Saver::Outcome> outcome = saver_->TakeOutcome();
      if (!outcome) return;
      // Where rank 0 gave up another rank says why.
      const bool reason_is_here = world_.rank() != 0 || !gave_up;
      if (!outcome->error.empty() && reason_is_here) throw CheckpointError("{}", outcome->error);
      if (outcome->error.empty()) TellSaved(*outcome);
    });
  }

  // Returns once nothing is being written any more; true: because a rank could not write its part. The ranks
  // wait together, so that none seems stuck to the watchdog.
  bool FinishSaving() {
    constexpr std::chrono::milliseconds kInterval{5};
    bool gave_up = false;
    while (OnAnyRank(saver_->busy(), "whether a checkpoint is being written", world_.host)) {
      const bool failed = world_.rank() != 0 && (saver_->failed() || save_failed_);
      if (OnAnyRank(failed, "whether a checkpoint failed", world_.host)) {
        gave_up = true;
        saver_->Abandon();
      }
      std::this_thread::sleep_for(kInterval);
    }
    return gave_up;
  }

  void TellSaved() {
    if (const std::optional<Saver::Outcome> outcome = saver_->TakeOutcome()) TellSaved(*outcome);
  }

  void TellSaved(const Saver::Outcome& outcome) {
    if (!outcome.error.empty()) save_failed_ = true;
    if (folder_ == nullptr) {
      if (outcome.error.empty()) return;
      Warn(fmt::format("rank {}: no checkpoint of step {}: {}", world_.rank(), outcome.step,
                       outcome.error));
      return;
    }
    if (!outcome.error.empty()) {
      folder_->Log(
          {{"event", "checkpoint_failed"}, {"step", outcome.step}, {"reason", outcome.error}});
      Warn(fmt::format("no checkpoint of step {}: {}", outcome.step, outcome.error));
      return;
    }
    folder_->Log({{"event", "checkpoint"},
                  {"step", outcome.step},
                  {"stall_ms", Round(1e3 * outcome.snapshot_s, 2)},
                  {"seconds", Round(outcome.seconds, 3)},
                  {"bytes", outcome.bytes}});
    if (!outcome.warning.empty()) LogWarning(outcome.warning);
  }

  void LogWarning(const std::string& reason) {
    folder_->Log({{"event", "warning"}, {"reason", reason}});
    Warn(reason);
  }

  static void Warn(const std::string& reason) {
    fmt::print(stderr, "lockstep: warning: {}\n", reason);
  }

  // ---- Steps ------------------------------------------------------------------------------------

  void TrainStep(int64_t step) {
    if (world_.flight != nullptr) world_.flight->SetStep(step + 1);
    while (!step_->Run(LearningRateOf(step), batches_)) HalveMicroBatches(step);
  }

  // `step` did not fit into memory: from it on, the same samples in smaller pieces.
  void HalveMicroBatches(int64_t step) {
    const auto most = static_cast<int>(config_.global_batch() / world_.size());
    if (accumulation_ >= most) {
      throw Error::OnEveryRank(
          ExitStatus::kUsage,
          fmt::format("step {}: out of memory with micro-batches of {} sample{}: {}", step + 1,
                      sampler_.max_micro_batch(), sampler_.max_micro_batch() == 1 ? "" : "s",
                      kLessMemory));
    }
    const int64_t too_many = sampler_.max_micro_batch();
    accumulation_ = std::min<int64_t>(2 * accumulation_, most);
    sampler_ = Sampler(SamplerOptionsFor(config_, accumulation_, data_.train->size(), world_));
    sampler_.Seek(step);
    Feed();
    if (pinned_batch_.input.defined()) PinBatch();
    step_->SetMicroBatches(accumulation_, sampler_.max_micro_batch());
    if (folder_ == nullptr) return;
    folder_->Log({{"event", "out_of_memory"},
                  {"step", step + 1},
                  {"micro_batch", sampler_.max_micro_batch()},
                  {"accumulation", accumulation_}});
    progress_->Say(fmt::format(
        "step {}: out of memory with micro-batches of {} samples; going on with the same steps of "
        "{} micro-batches of {}: set accumulation: {} to start so",
        step + 1, too_many, accumulation_, sampler_.max_micro_batch(), accumulation_));
  }

  // Takes the next micro-batch for all that follow.
  void PinBatch() {
    pinned_batch_ = input_->feed.Next();
    pinned_batch_.input = pinned_batch_.input.clone();
    pinned_batch_.target = pinned_batch_.target.clone();
    if (pinned_batch_.draws.defined()) pinned_batch_.draws = pinned_batch_.draws.clone();
  }

  // Reads from where the sampler stands.
  void Feed() {
    if (input_) {
      waited_before_s_ += input_->feed.waited_s();
      loader_before_ = loader_before_ + input_->loader.times();
    }
    LoaderOptions options = loader_options_;
    options.augment = AugmentOptionsFor(config_);
    input_.emplace(*data_.train, preprocessing_, sampler_, options, world_.device);
  }

  // ---- Waiting for samples ----------------------------------------------------------------------

  // Seconds since CountWaitingFromHere(), of all loaders that there were.
  double WaitedSeconds() { return waited_before_s_ + input_->feed.waited_s(); }
  LoaderTimes TimesOfLoaders() const { return loader_before_ + input_->loader.times(); }

  void CountWaitingFromHere() {
    waited_before_s_ = -input_->feed.waited_s();
    loader_before_ = LoaderTimes{} - input_->loader.times();
    reads_before_ = data_.train->times();
    trained_s_ = waited_when_told_s_ = 0;
  }

  int64_t ForwardFlops(const DeviceBatch& batch) {
    const at::NoGradGuard no_grad;
    const Autocast autocast(world_.device, precision_);
    model_->eval();
    const int64_t flops = CountFlops([&] { model_->Forward(preprocessing_(batch.input)); });
    model_->train();
    return flops;
  }

  // Numbers that are trained.
  int64_t ParameterCount() const {
    int64_t count = 0;
    for (const NamedTensor& parameter : step_->parameters()) count += parameter.tensor.numel();
    return count;
  }

  double LearningRateOf(int64_t step) const {
    return peak_lr_ * plateau_.share() * LearningRateShare(config_.schedule(), step, total_steps_);
  }

  // ---- What is seen of it -----------------------------------------------------------------------

  int64_t EpochOf(int64_t steps_done) const {
    return 1 + (steps_done - 1) / sampler_.steps_per_epoch();
  }

  // Samples that the first `steps` optimizer steps trained on.
  int64_t SamplesIn(int64_t steps) const {
    const int64_t per_epoch = config_.data().last_batch() == config::Data::DROP
                                  ? sampler_.steps_per_epoch() * config_.global_batch()
                                  : data_.train->size();
    const int64_t epochs = steps / sampler_.steps_per_epoch();
    return epochs * per_epoch + steps % sampler_.steps_per_epoch() * config_.global_batch();
  }

  void ReportStep(int64_t steps_done) {
    const bool due = steps_done == 1 || steps_done % config_.log().every_steps() == 0 ||
                     steps_done == total_steps_;
    if (due) {
      StepReport report{
          .step = steps_done, .epoch = EpochOf(steps_done), .lr = LearningRateOf(steps_done - 1)};
      report.samples_per_s =
          static_cast<double>(SamplesIn(steps_done) - SamplesIn(last_line_step_)) /
          SecondsSince(last_line_);
      report.data_wait = TakeDataWait(SecondsSince(last_line_));
      report.loader_threads = input_->loader.threads();
      last_line_ = Clock::now();
      last_line_step_ = steps_done;
      metrics_.Push(report, step_->figures());
    }
    while (const std::optional<StepReport> report = metrics_.Pop(steps_done)) EmitStep(*report);
    if (due) TellSkipped(*data_.train);
  }

  // The share of the last `seconds` in which training stood still for want of samples.
  double TakeDataWait(double seconds) {
    const double waited = WaitedSeconds();
    return std::clamp((waited - std::exchange(waited_when_told_s_, waited)) / seconds, 0.0, 1.0);
  }

  std::string DataLimit() const {
    return LimitOf(TimesOfLoaders(), data_.train->times() - reads_before_);
  }

  // Says which samples could not be read, on the rank that tried.
  void TellSkipped(const Dataset& dataset) {
    for (const std::string& why : dataset.TakeReports()) {
      if (folder_ == nullptr) {
        Warn(fmt::format("rank {}: {}", world_.rank(), why));
        continue;
      }
      folder_->Log({{"event", "bad_sample"}, {"reason", why}});
      progress_->Say(why);
    }
  }

  // Waits for the device.
  void EmitAll() {
    while (const std::optional<StepReport> report = metrics_.PopAnyway()) EmitStep(*report);
  }

  void EmitStep(const StepReport& report) {
    const auto& figures = report.figures;
    if (figures[ops::kBadStep] > 0 && config_.anomaly().policy() != config::Anomaly::SKIP) {
      Stop(static_cast<int64_t>(figures[ops::kBadStep]), figures[ops::kBadLoss],
           figures[ops::kBadGradNorm]);
    }
    if (precision_ == config::FP16 && figures[ops::kScale] < kLeastLossScale) {
      throw Error::OnEveryRank(
          ExitStatus::kUsage,
          fmt::format(
              "step {}: the loss scale fell to {} because gradients were not finite {} times: "
              "lower optimizer.lr, or set precision: BF16 or FP32",
              report.step, figures[ops::kScale], figures[ops::kSkipped]));
    }
    if (report.saved) saver_->Release(report.step);
    if (folder_ == nullptr || !report.told) return;
    Json event{{"event", "step"},
               {"step", report.step},
               {"epoch", report.epoch},
               {"loss", report.loss()},
               {"lr", report.lr},
               {"samples_per_s", Round(report.samples_per_s, 0)},
               {"data_wait", Round(report.data_wait, 3)},
               {"loader_threads", report.loader_threads},
               {"grad_norm", figures[ops::kGradNorm]}};
    if (precision_ == config::FP16) event["loss_scale"] = figures[ops::kScale];
    if (figures[ops::kSkipped] > 0) event["skipped_steps"] = figures[ops::kSkipped];
    folder_->Log(event);
    progress_->OnStep(report);
    TellWhyNoGraph();
  }

  void TellWhyNoGraph() {
    if (step_->why_no_graph().empty() || std::exchange(told_why_no_graph_, true)) return;
    folder_->Log({{"event", "no_graph"}, {"reason", step_->why_no_graph()}});
    progress_->Say(fmt::format("steps run without a CUDA graph: {}", step_->why_no_graph()));
  }

  // Ends the run because of an anomaly in `step`.
  [[noreturn]] void Stop(int64_t step, double loss, double grad_norm) {
    std::string saved;
    if (config_.anomaly().policy() == config::Anomaly::STOP_AND_SAVE) {
      saved = config_.run_dir() + "/anomaly.json";
      if (folder_ != nullptr) SaveAnomaly(saved, step);
      saved = "; its samples are in " + saved;
    }
    const bool loss_is_bad = !std::isfinite(loss);
    throw Error::OnEveryRank(
        ExitStatus::kUsage,
        fmt::format("step {}: the {} is {}: lower optimizer.lr or set optimizer.clip_norm{}", step,
                    loss_is_bad ? "loss" : "gradient's norm", loss_is_bad ? loss : grad_norm,
                    saved));
  }

  void SaveAnomaly(const std::string& path, int64_t step) const {
    // Of all ranks and micro-batches: what a single rank would have trained on at once.
    SamplerOptions options =
        SamplerOptionsFor(config_, /*accumulation=*/1, data_.train->size(), world_);
    options.rank = 0;
    options.ranks = 1;
    Sampler sampler(options);
    sampler.Seek(step - 1);
    std::vector<int64_t> samples = sampler.Next().indices;
    for (int64_t& sample : samples) sample = data_.train->NumberInFiles(sample);
    const Json anomaly{{"step", step}, {"samples", samples}};
    WriteFileAtomically(path, anomaly.dump() + "\n");
  }

  void EndEpoch(int64_t steps_done) {
    step_->WaitForParameters();
    WaitForDevice(world_.device);
    const double seconds = SecondsSince(epoch_begin_);
    trained_s_ += seconds;
    const int64_t epoch = EpochOf(steps_done);
    const int64_t epoch_first_step = (epoch - 1) * sampler_.steps_per_epoch();
    // This process's first epoch counts only while there is no other, and without its first step, which warms
    // up.
    if (epoch <= EpochOf(first_step_ + 1) + 1) {
      rated_samples_ = 0;
      rated_seconds_ = 0;
    }
    rated_samples_ +=
        SamplesIn(steps_done) - SamplesIn(std::max(epoch_first_step, first_step_ + 1));
    rated_seconds_ += seconds;
    EmitAll();

    // Buffers follow each rank's own samples (BatchNorm's statistics); what is evaluated and saved is
    // rank 0's, on every rank.
    BroadcastFromRankZero(step_->buffers(), world_.communicator);
    const bool averages = config_.optimizer().ema_decay() > 0 && data_.validation;
    if (averages) step_->SwapAverages();
    if (data_.validation) {
      evaluation_ =
          Evaluate(*model_, preprocessing_, *data_.validation,
                   EvaluationBatch(config_, accumulation_), loader_options_, precision_, world_);
      TellSkipped(*data_.validation);
      if (folder_ != nullptr) {
        Json event{{"event", "eval"}, {"step", steps_done}, {"epoch", epoch}};
        for (const Metric& metric : evaluation_) event[metric.name] = metric.value;
        folder_->Log(event);
        progress_->Say(fmt::format("epoch {}/{}  step {}/{}  validation {}", epoch,
                                   config_.epochs(), steps_done, total_steps_,
                                   MetricsText(evaluation_)));
      }
      // Not where a run ends within an epoch, from where it may go on.
      if (config_.schedule().type() == config::Schedule::PLATEAU &&
          steps_done % sampler_.steps_per_epoch() == 0) {
        plateau_.OnValidation(evaluation_.front().value);
      }
    }
    if (averages) step_->SwapAverages();
    input_->loader.Rest();
    epoch_begin_ = last_line_ = Clock::now();
    last_line_step_ = steps_done;
    waited_when_told_s_ = WaitedSeconds();
  }

  // Peaks of the step that has just run.
  void LogMemory() {
    if (folder_ == nullptr || !world_.device.is_cuda()) return;
    Json event{{"event", "memory"}};
    for (const Phase phase : kPhases) {
      event[std::string(NameOf(phase)) + "_bytes"] =
          step_->peak_memory().bytes()[static_cast<size_t>(phase)];
    }
    folder_->Log(event);
  }

  void LogStart(const TrainOptions& options) {
    const int64_t elements = ParameterCount();
    const int64_t validation_samples = data_.validation ? data_.validation->size() : 0;
    Json event{{"event", "start"},
               {"version", options.version},
               {"world_size", world_.size()},
               {"device", world_.device.is_cuda() ? "cuda" : "cpu"},
               {"samples", data_.train->size()},
               {"validation_samples", validation_samples},
               {"steps", total_steps_},
               {"precision", config::Precision_Name(precision_)},
               {"parameters", elements},
               {"loader_threads", loader_options_.threads}};
    if (config_.data().format() == config::Data::IMAGES) {
      event["decode"] = data_.train->samples_at_once() > 1 ? "GPU" : "CPU";
    }
    folder_->Log(event);
    progress_->Say(fmt::format(
        "{}: {} with {} parameters on {} rank{} ({}), {} samples, {} held back, {} steps of {}",
        folder_->path(), config_.model().name(), elements, world_.size(),
        world_.size() == 1 ? "" : "s", world_.device.is_cuda() ? "CUDA" : "CPU",
        data_.train->size(), validation_samples, total_steps_, config_.global_batch()));
    TellWhyNoGraph();
  }

  void LogResume(const Checkpoint& checkpoint, const checkpoint::Manifest& manifest) {
    folder_->Log({{"event", "resume"},
                  {"step", checkpoint.step},
                  {"checkpoint", checkpoint.path},
                  {"ranks", manifest.ranks()}});
    progress_->Say(fmt::format("going on from {}", checkpoint.path));
  }

  void Finish(const TrainOptions& options, double first_step_s) {
    Together(world_.host, [&] { CheckSameOnAllRanks(step_->parameters(), world_.communicator); });
    SaveLast();
    // The weights that were evaluated.
    if (config_.optimizer().ema_decay() > 0) step_->SwapAverages();
    if (folder_ == nullptr) return;
    WriteSafetensors(RunWeightsPath(folder_->path()), model_->State(),
                     {{"format", "pt"}, {"lockstep_version", options.version}});
    const double samples_per_s =
        rated_seconds_ > 0 ? static_cast<double>(rated_samples_) / rated_seconds_ : 0;
    Json event{{"event", "done"}, {"step", total_steps_}, {"epoch", EpochOf(total_steps_)}};
    for (const Metric& metric : evaluation_) event[metric.name] = metric.value;
    event.update({{"first_step_s", Round(first_step_s, 3)},
                  {"samples_per_s", Round(samples_per_s, 0)},
                  {"total_s", Round(SecondsSinceBoot() - options.command_start_s, 3)}});
    const double data_wait = trained_s_ > 0 ? std::min(1.0, WaitedSeconds() / trained_s_) : 0;
    event["data_wait"] = Round(data_wait, 4);
    if (data_wait > kMuchWaiting) {
      event["data_limit"] = DataLimit();
      progress_->Say(
          fmt::format("{:.0f}% of the time was spent on waiting for samples; the limit: {}",
                      100 * data_wait, DataLimit()));
    }
    folder_->Log(event);
    progress_->Say(fmt::format("done: {:.0f} samples/s, first step after {:.2f} s; weights in {}",
                               samples_per_s, first_step_s, RunWeightsPath(folder_->path())));
  }

  const config::Config& config_;
  const World& world_;
  config::Precision precision_ = PrecisionOn(world_.device, config_.precision());
  TrainingData data_;
  Preprocessing preprocessing_;
  std::shared_ptr<Model> model_;
  std::optional<Step> step_;
  int64_t accumulation_ = config_.accumulation();
  Sampler sampler_;
  LoaderOptions loader_options_;
  std::optional<Input> input_;
  MicroBatches batches_;      // the feed's
  DeviceBatch pinned_batch_;  // what steps are measured with
  double peak_lr_;
  Plateau plateau_;
  MetricsRing metrics_;
  int64_t first_step_ = 0;  // that this process runs
  int64_t total_steps_ = 0;
  bool told_why_no_graph_ = false;

  std::optional<Saver> saver_;
  bool save_failed_ = false;  // on this rank, and the others do not know yet
  bool late_ = false;         // a checkpoint is due

  RunFolder* folder_ = nullptr;  // rank 0's
  std::optional<Progress> progress_;
  std::vector<Metric> evaluation_;  // the last
  Clock::time_point last_line_;
  int64_t last_line_step_ = 0;
  Clock::time_point epoch_begin_;
  int64_t rated_samples_ = 0;
  double rated_seconds_ = 0;
  double waited_before_s_ = 0;  // these two: for and of loaders that are gone
  LoaderTimes loader_before_;
  ReadTimes reads_before_;         // when counting began, after the first step
  double trained_s_ = 0;           // since then, without evaluation
  double waited_when_told_s_ = 0;  // at the last step line
};

// Makes a trainer of `config`, which it refers to and completes. Throws Error on every rank.
void MakeTrainer(std::optional<Trainer>& trainer, config::Config& config, const Models& models,
                 const World& world) {
  Together(world.host, [&] {
    TrainingData data = OpenTrainingData(config, world);
    config = Resolved(std::move(config), data);
    SetUpNumerics(PrecisionOn(world.device, config.precision()), config.deterministic());
    torch::autograd::AnomalyMode::set_enabled(config.debug().anomaly_detection());
    trainer.emplace(config, std::move(data), models, world);
  });
  RequireSame(trainer->Facts(), world.host);
}

// What rank 0 found in its folder and named this job, for every rank.
RunStart AgreeOnStart(const std::optional<RunFolder>& folder, const config::Config& config,
                      const World& world) {
  // The step to go on from, or -1, and the attempt.
  const at::Tensor facts = at::full({2}, int64_t{-1}, at::kLong);
  auto* fact = facts.mutable_data_ptr<int64_t>();
  if (folder && folder->newest()) fact[0] = folder->newest()->step;
  fact[1] = static_cast<int64_t>(std::random_device()());
  world.host.Broadcast(facts, 0, world.host.MakeLabel("where the run begins")).Wait();
  RunStart start{.checkpoint = std::nullopt, .attempt = fmt::format("{:08x}", fact[1])};
  if (fact[0] >= 0) start.checkpoint = CheckpointOf(config.run_dir(), fact[0]);
  return start;
}

// Calls `act`. An error of this rank alone ends the process here: what `act` works on must not be
// torn down where other ranks wait for this one, because a loader's thread may be waiting for a copy
// behind a collective that never ends.
template <typename Act>
auto OrLeave(const TrainOptions& options, const Act& act) {
  try {
    return act();
  } catch (const std::exception& exception) {
    if (!ErrorOf(exception).on_every_rank()) options.leave(exception);
    throw;
  }
}

// A run's model with its final weights, and the samples that it is to be used on.
struct LoadedRun {
  std::shared_ptr<const Dataset> dataset;
  std::shared_ptr<Model> model;
  std::optional<Preprocessing> preprocessing;
  config::Precision precision = config::FP32;
};

// `open` returns the samples, or null where there are none. Every rank must call it. Throws Error on
// every rank.
template <typename Open>
LoadedRun LoadRun(const std::string& run_dir, config::Config config, const Models& models,
                  const World& world, const Open& open) {
  LoadedRun run;
  Together(world.host, [&] {
    run.dataset = open();
    if (!run.dataset) {
      throw UsageError("{}: the run held no samples back: name some with --input", run_dir);
    }
    config.set_init_from(RunWeightsPath(run_dir));
    config.set_replace_head(false);
    run.precision = PrecisionOn(world.device, config.precision());
    SetUpNumerics(run.precision, config.deterministic());
    run.model = MakeModel(config, SpecOf(config.data()), models, world);
    run.preprocessing.emplace(config.data(), run.dataset->spec(), world.device, run.precision);
  });
  return run;
}

}  // namespace

StepMeasurement MeasureSteps(config::Config config, const Models& models, const World& world,
                             int warmup, int steps, const std::string& trace,
                             const TrainOptions& options) {
  std::optional<Trainer> trainer;
  MakeTrainer(trainer, config, models, world);
  return OrLeave(options, [&] { return trainer->Measure(warmup, steps, trace, options); });
}

void Train(config::Config config, const Models& models, const World& world,
           const TrainOptions& options) {
  std::optional<Trainer> trainer;
  MakeTrainer(trainer, config, models, world);
  std::optional<RunFolder> folder;
  Together(world.host, [&] {
    if (world.rank() == 0) folder.emplace(config, options.fresh);
  });
  const RunStart start = AgreeOnStart(folder, config, world);
  if (world.flight != nullptr) {
    // On every machine: where they share no disk, each keeps its own ranks' records.
    Together(world.host, [&] {
      std::filesystem::create_directories(config.run_dir() + "/flight");
      world.flight->MoveTo(FlightPath(config.run_dir(), world.rank()));
      world.watchdog->SetRunFolder(config.run_dir());
    });
  }
  OrLeave(options, [&] { trainer->Run(options, start, folder ? &*folder : nullptr); });
}

RunEvaluation EvaluateRun(const std::string& run_dir, const config::Config& config,
                          const std::vector<std::string>& files, const Models& models,
                          const World& world) {
  const LoadedRun run = LoadRun(run_dir, config, models, world, [&] {
    return files.empty()
               ? OpenTrainingData(config, world).validation
               : OpenFiles(config, files, SpecOf(config.data()), /*label_optional=*/false, world);
  });
  std::vector<Metric> metrics = Evaluate(
      *run.model, *run.preprocessing, *run.dataset, EvaluationBatch(config, config.accumulation()),
      LoaderOptionsFor(config.loader(), *run.dataset, world), run.precision, world);
  return {.metrics = std::move(metrics),
          .samples = run.dataset->size(),
          .bad_samples = run.dataset->TakeReports()};
}

int64_t PredictRun(const std::string& run_dir, const config::Config& config,
                   const std::vector<std::string>& files, const std::string& output,
                   const Models& models, const World& world) {
  const LoadedRun run = LoadRun(run_dir, config, models, world, [&] {
    return OpenFiles(config, files, SpecOf(config.data()), /*label_optional=*/true, world);
  });
  const Predictions predictions = Predict(
      *run.model, *run.preprocessing, *run.dataset, EvaluationBatch(config, config.accumulation()),
      LoaderOptionsFor(config.loader(), *run.dataset, world), run.precision, world);
  Together(world.host, [&] {
    if (world.rank() != 0) return;
    WriteFileAtomically(output, CsvOf(predictions, run.dataset->spec().class_names));
  });
  return run.dataset->size();
}

}  // namespace lockstep
