#include "trainer/run/trainer.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <future>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/files/open_file.h"
#include "base/files/output_target.h"
#include "base/files/safetensors.h"
#include "base/host_name.h"
#include "base/mix.h"
#include "base/nearest.h"
#include "base/round.h"
#include "base/say.h"
#include "ckpt/run_lock.h"
#include "ckpt/saver.h"
#include "ckpt/state_tree.h"
#include "ckpt/weights.h"
#include "comm/together.h"
#include "comm/watch/flight_story.h"
#include "data/feed/device_feed.h"
#include "data/tables/csv_cells.h"
#include "observe/flops.h"
#include "observe/metrics_ring.h"
#include "observe/progress.h"
#include "observe/trace.h"
#include "trainer/config/config.h"
#include "trainer/run/checkpointing.h"
#include "trainer/run/evaluate.h"
#include "trainer/run/extensions.h"
#include "trainer/run/run_folder.h"
#include "trainer/run/task.h"
#include "trainer/step/precision.h"
#include "trainer/step/schedule.h"
#include "trainer/step/step.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

// In a checkpoint: a weight and AdamW's two moments, as float32.
constexpr int64_t kStateBytesPerParameter = 12;

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
    throw DataError("{}: samples of shape [{}] where data.input_shape says [{}]",
                    data.train_size() > 0 ? data.train(0) : data.own().name(),
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
  checkpoint::Manifest manifest;         // the checkpoint's
  bool is_of_another_run = false;        // the checkpoint
  std::vector<std::string> differences;  // of its config from this run's; of the run's own: none
  std::string job;                       // this job's own name
};

void RequireMetric(const std::string& metric, const TrainingData& data) {
  if (metric.empty()) return;
  if (!data.validation) {
    throw UsageError(
        "checkpoint.keep_best: no samples are held back to find the best {} on: set "
        "data.validation_fraction or data.validation",
        metric);
  }
  const std::vector<std::string> known = MetricNames(data.validation->spec());
  if (std::ranges::find(known, metric) != known.end()) return;
  throw UsageError("checkpoint.keep_best: no metric \"{}\"{} (of this task: {})", metric,
                   DidYouMean(metric, known), fmt::join(known, ", "));
}

class Trainer {
  // Below it the gradients overflow whatever the scale.
  static constexpr double kLeastLossScale = 1e-3;
  // A share of the time: waiting for samples more than that is worth a word.
  static constexpr double kMuchWaiting = 0.05;

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
    std::optional<OutputTarget> target;
    Together(world_.host, [&] {
      if (!trace.empty() && world_.rank() == 0) target.emplace(trace);
    });
    Begin({});
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
      Together(world_.host, [&] {
        if (target) {
          Trace(*target, world_.device, act);
        } else {
          act();
        }
      });
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

  // Returns what the run was stopped by.
  StopRequest Run(const TrainOptions& options, const RunStart& start, RunFolder* folder) {
    folder_ = folder;
    Begin(start);
    Together(world_.host, [&] {
      if (folder_ != nullptr) folder_->Begin(config_);
    });
    checkpoint::Manifest manifest;
    manifest.set_lockstep_version(options.version);
    manifest.set_config(PrintConfig(config_));
    for (const std::string& line : DataFacts()) manifest.add_data(line);
    if (folder_ != nullptr) {
      progress_.emplace(options.live, config_.epochs(), total_steps_, config_.global_batch());
      LogStart(options);
      for (const std::string& warning : folder_->warnings()) folder_->LogWarning(warning);
      if (start.checkpoint) LogResume(start);
    }
    checkpointing_.emplace(config_, world_, folder_, progress_ ? &*progress_ : nullptr, start.job,
                           manifest, ResumedStep(start), [this] { return State(); });
    if (folder_ != nullptr) stopping_.emplace(StoppingFor(options));
    double first_step_s = 0;
    last_line_ = Clock::now();
    last_line_step_ = first_step_;
    for (int64_t step = first_step_; step < total_steps_; ++step) {
      const StopRequest asked = AskedToStop(step, options);
      step_->Ask({.saves = checkpointing_->Asked(),
                  .stop = asked == StopRequest::kStop,
                  .interrupt = asked == StopRequest::kInterrupt});
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
      if (step + 1 == total_steps_) break;
      if (stop_ != StopRequest::kNone) return StopAfter(step + 1);
      checkpointing_->AfterStep(step + 1, epoch_ends ? EpochOf(step + 1) : 0,
                                epoch_ends && data_.validation);
    }
    Finish(options, first_step_s);
    return StopRequest::kNone;
  }

 private:
  // The step of the run's own checkpoint that it goes on from.
  static std::optional<int64_t> ResumedStep(const RunStart& start) {
    if (!start.checkpoint || start.is_of_another_run) return std::nullopt;
    return start.checkpoint->step;
  }

  void Begin(const RunStart& start) {
    const std::optional<Checkpoint>& checkpoint = start.checkpoint;
    std::vector<int64_t> bucket_order;
    if (checkpoint) {
      Together(world_.host, [&] {
        RequireSameData(start);
        const at::Tensor order =
            ReadShared(StateFiles(*checkpoint, start.manifest), Step::kBucketOrder);
        bucket_order.assign(order.const_data_ptr<int64_t>(),
                            order.const_data_ptr<int64_t>() + order.numel());
        if (world_.rank() != 0) return;
        const std::string path = ModelFile(*checkpoint);
        CopyByName(path, ReadSafetensors(path, kInCheckpoint), model_->State());
      });
    }
    step_.emplace(config_, *model_, preprocessing_, data_.train->spec(), sampler_.max_micro_batch(),
                  world_);
    model_->train();
    BroadcastFromRankZero(model_->State(), world_.communicator);
    if (checkpoint) {
      step_->Resume(bucket_order);
      Together(world_.host, [&] { Resume(*checkpoint, start.manifest); });
    }
    Together(world_.host, [&] { Feed(); });
  }

  Stopping::Options StoppingFor(const TrainOptions& options) const {
    return {.end_by_s = options.end_by_s,
            .state_bytes = kStateBytesPerParameter * ParameterCount(),
            .global_batch = config_.global_batch(),
            .validation_samples = data_.validation ? data_.validation->size() : 0,
            .user_stops = [this] { return folder_->WhyUserStops(); }};
  }

  // What this rank knows of it before `step`.
  StopRequest AskedToStop(int64_t step, const TrainOptions& options) {
    const StopRequest asked = options.asked_to_stop();
    if (!stopping_) return asked;
    const int64_t per_epoch = sampler_.steps_per_epoch();
    const StopRequest found = stopping_->Asked(SecondsSinceBoot(), per_epoch - step % per_epoch,
                                               checkpointing_->slowest_s());
    return std::max(asked, found);
  }

  // ---- Checkpoints ------------------------------------------------------------------------------

  RunState State() {
    step_->WaitForParameters();
    RunState state{.model = model_->State(), .tree = Tree()};
    state.facts.set_metric_step(evaluated_step_);
    for (const Metric& metric : evaluation_) {
      checkpoint::Metric& saved = *state.facts.add_metric();
      saved.set_name(metric.name);
      saved.set_value(metric.value);
    }
    return state;
  }

  // All that the next step depends on, but for the model's parameters and buffers and what follows from the
  // number of steps done. Once a step has run, or was resumed.
  StateTree Tree() {
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

  void RequireSameData(const RunStart& start) const {
    const std::vector<std::string> now = DataFacts();
    for (int i = 0; i < start.manifest.data_size(); ++i) {
      const std::string is = i < std::ssize(now) ? now[i] : "nothing";
      if (is == start.manifest.data(i)) continue;
      throw DataError(
          "{}: {} where the run's checkpoint has {}: give it the data it began with, {}",
          start.checkpoint->path, is, start.manifest.data(i),
          start.is_of_another_run ? "or begin from its weights alone, with init_from"
                                  : "or begin anew with --fresh");
    }
  }

  void Resume(const Checkpoint& checkpoint, const checkpoint::Manifest& manifest) {
    first_step_ = checkpoint.step;
    if (first_step_ > total_steps_) {
      throw UsageError(
          "{}: is of step {}, and {} steps are all: raise epochs or max_steps, or begin anew, with "
          "--fresh or without --from",
          checkpoint.path, first_step_, total_steps_);
    }
    const bool as_many_ranks = manifest.ranks() == world_.size();
    // Other ranks go on with random numbers that none has drawn yet.
    if (!as_many_ranks) {
      at::manual_seed(Mix(config_.seed() + static_cast<uint64_t>(first_step_)) ^
                      Mix(uint64_t{1} + world_.rank()));
    }
    Restore(Tree(), StateFiles(checkpoint, manifest),
            {manifest.part_version().begin(), manifest.part_version().end()},
            {.rank = world_.rank(),
             .as_many_ranks = as_many_ranks,
             .sharded = config_.optimizer().shard()});
    step_->AfterRestore();
    evaluated_step_ = manifest.metric_step();
    for (const checkpoint::Metric& metric : manifest.metric()) {
      evaluation_.push_back({metric.name(), metric.value()});
    }
    // As many micro-batches as memory was found to need, unless the user has a mind of his own.
    if (ParsePrinted(manifest.config()).accumulation() != config_.accumulation()) {
      accumulation_ = config_.accumulation();
    }
    accumulation_ = std::min(accumulation_, config_.global_batch() / world_.size());
    SeekTo(first_step_);
  }

  // ---- Steps ------------------------------------------------------------------------------------

  void TrainStep(int64_t step) {
    if (world_.flight != nullptr) world_.flight->SetStep(step + 1);
    while (!step_->Run(LearningRateOf(step), batches_)) MakeRoom(step);
  }

  // `step` did not fit into memory.
  void MakeRoom(int64_t step) {
    if (!checkpointing_ || !checkpointing_->LeaveDeviceMemory([this] { EmitAll(); })) {
      HalveMicroBatches(step);
      return;
    }
    BeginAgain(step);
    if (folder_ == nullptr) return;
    progress_->Say(fmt::format(
        "step {}: out of memory; from here on checkpoints are copied to the host's", step + 1));
  }

  // From `step` on, whose samples were taken already.
  void BeginAgain(int64_t step) {
    SeekTo(step);
    Feed();
    if (pinned_batch_.input.defined()) PinBatch();
  }

  // What Feed() gives from then on are the micro-batches of `step` and those after it.
  void SeekTo(int64_t step) {
    sampler_ = Sampler(SamplerOptionsFor(config_, accumulation_, data_.train->size(), world_));
    sampler_.Seek(step);
    step_->SetMicroBatches(accumulation_, sampler_.max_micro_batch());
  }

  // From `step` on the same samples in smaller pieces.
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
    BeginAgain(step);
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

  // Takes the next micro-batch for all that follow. It stays as it is, since no other is asked for.
  void PinBatch() { pinned_batch_ = input_->feed.Next(); }

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
    StepReport report{.told = due,
                      .step = steps_done,
                      .epoch = EpochOf(steps_done),
                      .lr = LearningRateOf(steps_done - 1)};
    if (due) {
      report.samples_per_s =
          static_cast<double>(SamplesIn(steps_done) - SamplesIn(last_line_step_)) /
          SecondsSince(last_line_);
      report.data_wait = TakeDataWait(SecondsSince(last_line_));
      report.loader_threads = input_->loader.threads();
      last_line_ = Clock::now();
      last_line_step_ = steps_done;
    }
    metrics_.Push(report, step_->figures());
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
      const std::string sample = SampleWithoutNumbers(report.step);
      throw Error::OnEveryRank(
          ExitStatus::kUsage,
          fmt::format(
              "step {}: the loss scale fell to {} because gradients were not finite {} times: {}",
              report.step, figures[ops::kScale], figures[ops::kSkipped],
              sample.empty() ? "lower optimizer.lr, or set precision: BF16 or FP32" : sample));
    }
    if (figures[ops::kStopsAsked] > 0) stop_ = StopRequest::kStop;
    if (figures[ops::kInterruptsAsked] > 0) stop_ = StopRequest::kInterrupt;
    checkpointing_->OnFigures(report.step, static_cast<int64_t>(figures[ops::kSavesAsked]));
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
      saved = AnomalyPath(config_.run_dir());
      if (folder_ != nullptr) SaveAnomaly(saved, step);
      saved = "; its samples are in " + saved;
    }
    const bool loss_is_bad = !std::isfinite(loss);
    const std::string sample = SampleWithoutNumbers(step);
    throw Error::OnEveryRank(
        ExitStatus::kUsage,
        fmt::format("step {}: the {} is {}: {}{}", step, loss_is_bad ? "loss" : "gradient's norm",
                    loss_is_bad ? loss : grad_norm,
                    sample.empty() ? "lower optimizer.lr or set optimizer.clip_norm" : sample,
                    saved));
  }

  // Of all ranks and micro-batches: what a single rank would have trained on at once.
  std::vector<int64_t> SamplesOf(int64_t step) const {
    SamplerOptions options =
        SamplerOptionsFor(config_, /*accumulation=*/1, data_.train->size(), world_);
    options.rank = 0;
    options.ranks = 1;
    Sampler sampler(options);
    sampler.Seek(step - 1);
    return sampler.Next().indices;
  }

  // What to do about the first sample of a step whose input is not all finite numbers; empty: there is none. The same
  // on all ranks.
  std::string SampleWithoutNumbers(int64_t step) const {
    const SampleSpec& spec = data_.train->spec();
    if (spec.dtype != at::kFloat) return "";
    std::vector<float> input(spec.bytes() / sizeof(float));
    std::vector<std::byte> target(spec.target_bytes());
    for (const int64_t sample : SamplesOf(step)) {
      data_.train->Read(sample, /*epoch=*/0, reinterpret_cast<std::byte*>(input.data()),
                        target.data());
      const auto bad = std::ranges::find_if(input, [](float x) { return !std::isfinite(x); });
      if (bad == input.end()) continue;
      return fmt::format("number {} of the input of sample {} in {} is {}: mend or remove it",
                         bad - input.begin(), data_.train->NumberInFiles(sample),
                         config_.data().train_size() > 0 ? config_.data().train(0) : "data", *bad);
    }
    return "";
  }

  void SaveAnomaly(const std::string& path, int64_t step) const {
    std::vector<int64_t> samples = SamplesOf(step);
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
      const double begin_s = SecondsSinceBoot();
      evaluation_ =
          Evaluate(*model_, preprocessing_, *data_.validation,
                   EvaluationBatch(config_, accumulation_), loader_options_, precision_, world_);
      evaluated_step_ = steps_done;
      if (stopping_) stopping_->OnEvaluation(SecondsSinceBoot() - begin_s);
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
               {"restarts", options.restarts},
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
    progress_->Say(
        fmt::format("{}: {} with {} parameters on {} rank{} ({}), {} samples, {}, {} steps of {}",
                    folder_->path(), config_.model().name(), elements, world_.size(),
                    world_.size() == 1 ? "" : "s", world_.device.is_cuda() ? "CUDA" : "CPU",
                    data_.train->size(),
                    data_.validation ? fmt::format("{} held back", validation_samples)
                                     : "none held back (data.validation_fraction does so)",
                    total_steps_, config_.global_batch()));
    for (const std::string& remark : data_.remarks) folder_->LogWarning(remark);
    TellWhyNoGraph();
  }

  void LogResume(const RunStart& start) {
    Json event{{"event", "resume"},
               {"step", start.checkpoint->step},
               {"checkpoint", start.checkpoint->path},
               {"ranks", start.manifest.ranks()}};
    if (start.is_of_another_run) event["differences"] = start.differences;
    folder_->Log(event);
    progress_->Say(fmt::format("going on from {}{}{}", start.checkpoint->path,
                               start.differences.empty() ? "" : ", with ",
                               fmt::join(start.differences, "; ")));
  }

  // The state is committed, from which the run goes on another time.
  StopRequest StopAfter(int64_t steps_done) {
    RequireFolder();
    checkpointing_->SaveLast(steps_done, [this] { EmitAll(); });
    if (folder_ != nullptr) {
      folder_->AnswerStop();
      const std::string why = stopping_->why().empty() ? "a signal" : stopping_->why();
      folder_->Log({{"event", "stopped"},
                    {"step", steps_done},
                    {"epoch", EpochOf(steps_done)},
                    {"why", why}});
      progress_->Say(
          fmt::format("stopped after step {} of {} ({}): the same command goes on from there",
                      steps_done, total_steps_, why));
    }
    return stop_;
  }

  // The state is to be written into it.
  void RequireFolder() {
    Together(world_.host, [&] {
      if (folder_ != nullptr) folder_->RequireOwn(config_);
    });
  }

  void Finish(const TrainOptions& options, double first_step_s) {
    RequireFolder();
    Together(world_.host, [&] { CheckSameOnAllRanks(step_->parameters(), world_.communicator); });
    std::optional<Error> not_saved;
    try {
      checkpointing_->SaveLast(total_steps_, [this] { EmitAll(); });
    } catch (const Error& error) {
      if (error.status() != ExitStatus::kCheckpoint) throw;
      not_saved = error;
    }
    WriteWeights(options);
    if (not_saved) throw Error(*not_saved);
    if (folder_ == nullptr) return;
    folder_->AnswerStop();  // too late for it
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

  // The weights that were evaluated.
  void WriteWeights(const TrainOptions& options) {
    if (config_.optimizer().ema_decay() > 0) step_->SwapAverages();
    Together(world_.host, [&] {
      if (folder_ == nullptr) return;
      WriteSafetensors(RunWeightsPath(folder_->path()), model_->State(),
                       {{"format", "pt"},
                        {"lockstep_version", options.version},
                        {kStepOfWeights, std::to_string(total_steps_)}});
    });
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

  RunFolder* folder_ = nullptr;  // rank 0's
  std::optional<Progress> progress_;
  std::optional<Checkpointing> checkpointing_;
  std::optional<Stopping> stopping_;       // rank 0's
  StopRequest stop_ = StopRequest::kNone;  // what all ranks are asked for

  std::vector<Metric> evaluation_;  // the last
  int64_t evaluated_step_ = 0;      // steps done by then
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
void MakeTrainer(std::optional<Trainer>& trainer, config::Config& config,
                 const Extensions& extensions, const World& world) {
  Together(world.host, [&] {
    TrainingData data = OpenTrainingData(config, extensions.datasets, world);
    config = Resolved(std::move(config), data);
    SetUpNumerics(PrecisionOn(world.device, config.precision()), config.deterministic());
    torch::autograd::AnomalyMode::set_enabled(config.debug().anomaly_detection());
    RequireMetric(config.checkpoint().keep_best(), data);
    trainer.emplace(config, std::move(data), extensions.models, world);
  });
  RequireSame(trainer->Facts(), world.host);
}

// A name that no other job has, the same on all ranks; rank 0's `given`, if it has one.
std::string NameJob(const std::string& given, const World& world) {
  const auto number =
      given.empty() ? static_cast<int64_t>(std::random_device()()) : std::stoll(given, nullptr, 16);
  return fmt::format("{:08x}", FromRankZero(number, "the job's name", world.host));
}

// All ranks must see the folder that rank 0 has locked, as they write into it. Every rank must call it. Throws
// Error on every rank.
void RequireSharedFolder(const std::string& run_dir, const std::string& job, const World& world) {
  // A network's file system may show names late.
  constexpr std::chrono::seconds kLate{10};
  constexpr std::chrono::milliseconds kInterval{50};
  Together(world.host, [&] {
    const auto deadline = Clock::now() + kLate;
    while (!RunLock::IsOf(run_dir, job)) {
      if (Clock::now() > deadline) {
        throw UsageError(
            "{}: the folder of that name on {} is not the one that rank 0 has: give all ranks one "
            "that lies on a disk that their machines share, with --set run_dir=...",
            run_dir, HostName());
      }
      std::this_thread::sleep_for(kInterval);
    }
  });
}

// Reads the checkpoint, each rank a part of it. Every rank must call it. Throws Error (kCheckpoint) on every
// rank where it is not whole.
checkpoint::Manifest Verified(const Checkpoint& checkpoint, const World& world) {
  checkpoint::Manifest manifest;
  Together(world.host, [&] {
    manifest = ReadManifest(checkpoint);
    RequireFiles(checkpoint, manifest);
    VerifyCheckpoint(checkpoint, manifest, world.rank(), world.size());
  });
  return manifest;
}

// The step of rank 0's newest checkpoint, on every rank; nothing: it has none.
std::optional<int64_t> NewestStep(const std::optional<RunFolder>& folder, const World& world) {
  const std::optional<Checkpoint> own = folder ? folder->newest() : std::nullopt;
  const int64_t newest =
      FromRankZero(own ? own->step : -1, "the checkpoint to go on from", world.host);
  return newest < 0 ? std::nullopt : std::optional(newest);
}

// The run folder's newest checkpoint that is whole, or `from`. Every rank must call it. Throws Error on every
// rank.
RunStart FindStart(std::optional<RunFolder>& folder, const config::Config& config,
                   const std::string& from, const std::string& job, const World& world) {
  RunStart start{.job = job};
  while (const std::optional<int64_t> step = NewestStep(folder, world)) {
    start.checkpoint = CheckpointOf(config.run_dir(), *step);
    try {
      start.manifest = Verified(*start.checkpoint, world);
      break;
    } catch (const Error& error) {
      if (error.status() != ExitStatus::kCheckpoint) throw;
      start.checkpoint.reset();
      if (folder) folder->Reject(error.what());
    }
  }
  const auto compare = [&] {
    if (!start.checkpoint) return;
    start.differences = Differences(ParsePrinted(start.manifest.config()), config);
  };
  Together(world.host, [&] {
    compare();
    if (folder) folder->Accept(start.differences);
  });
  if (start.checkpoint || from.empty()) return start;
  // The other run may be training, and its newest one rank's alone.
  int64_t step = 0;
  Together(world.host, [&] {
    if (world.rank() == 0) step = FindCheckpoint(from).step;
  });
  step = FromRankZero(step, "the checkpoint to begin from", world.host);
  start.checkpoint = CheckpointOf(ParseRunPoint(from).run_dir, step);
  start.manifest = Verified(*start.checkpoint, world);
  start.is_of_another_run = true;
  Together(world.host, compare);
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

// A run's model with its weights, and the samples that it is to be used on.
struct LoadedRun {
  std::string weights;  // on rank 0: where they were
  std::shared_ptr<const Dataset> dataset;
  std::shared_ptr<Model> model;
  std::optional<Preprocessing> preprocessing;
  config::Precision precision = config::FP32;
};

// `open` returns the samples, or null where there are none. Every rank must call it. Throws Error on
// every rank.
template <typename Open>
LoadedRun LoadRun(const std::string& run, config::Config config, const Extensions& extensions,
                  const World& world, const Open& open) {
  LoadedRun loaded;
  Together(world.host, [&] {
    loaded.dataset = open();
    if (!loaded.dataset) {
      throw UsageError("{}: the run held no samples back: name some with --input", run);
    }
    config.clear_init_from();
    config.set_replace_head(false);
    loaded.precision = PrecisionOn(world.device, config.precision());
    SetUpNumerics(loaded.precision, config.deterministic());
    loaded.model = MakeModel(config, SpecOf(config.data()), extensions.models, world);
    if (world.rank() == 0) {
      const Weights weights = ReadWeights(run);
      CopyByName(weights.path, weights.tensors, loaded.model->State());
      loaded.weights = weights.path;
    }
    loaded.preprocessing.emplace(config.data(), loaded.dataset->spec(), world.device,
                                 loaded.precision);
  });
  BroadcastFromRankZero(loaded.model->State(), world.communicator);
  return loaded;
}

}  // namespace

StepMeasurement MeasureSteps(config::Config config, const Extensions& extensions,
                             const World& world, int warmup, int steps, const std::string& trace,
                             const TrainOptions& options) {
  std::optional<Trainer> trainer;
  MakeTrainer(trainer, config, extensions, world);
  return OrLeave(options, [&] { return trainer->Measure(warmup, steps, trace, options); });
}

StopRequest Train(config::Config config, const Extensions& extensions, const World& world,
                  const TrainOptions& options) {
  // While the model is being made; its destructor waits.
  // NOLINTNEXTLINE(bugprone-unused-local-non-trivial-variable)
  const std::future<void> reading =
      std::async(std::launch::async, [&world, run_dir = config.run_dir()] {
        try {
          ReadAhead(FindCheckpoint(run_dir), world.rank(), world.size());
        } catch (const std::exception&) {
          // There is none, or whoever needs it will say what is wrong with it.
        }
      });
  std::optional<Trainer> trainer;
  MakeTrainer(trainer, config, extensions, world);
  const std::string job = NameJob(options.job, world);
  std::optional<RunFolder> folder;
  Together(world.host, [&] {
    if (world.rank() == 0) folder.emplace(config, job, options.fresh);
  });
  RequireSharedFolder(config.run_dir(), job, world);
  const RunStart start = FindStart(folder, config, options.from, job, world);
  if (world.flight != nullptr) {
    Together(world.host, [&] {
      std::filesystem::create_directories(config.run_dir() + "/flight");
      world.flight->MoveTo(FlightPath(config.run_dir(), world.rank()));
      world.watchdog->SetRunFolder(config.run_dir());
    });
  }
  return OrLeave(options,
                 [&] { return trainer->Run(options, start, folder ? &*folder : nullptr); });
}

RunEvaluation EvaluateRun(const std::string& run, const config::Config& config,
                          const std::vector<std::string>& files, const Extensions& extensions,
                          const World& world) {
  const LoadedRun loaded = LoadRun(run, config, extensions, world, [&] {
    return files.empty() ? OpenTrainingData(config, extensions.datasets, world).validation
                         : OpenFiles(config, files, SpecOf(config.data()), /*label_optional=*/false,
                                     extensions.datasets, world);
  });
  std::vector<Metric> metrics =
      Evaluate(*loaded.model, *loaded.preprocessing, *loaded.dataset,
               EvaluationBatch(config, config.accumulation()),
               LoaderOptionsFor(config.loader(), *loaded.dataset, world), loaded.precision, world);
  return {.weights = loaded.weights,
          .metrics = std::move(metrics),
          .samples = loaded.dataset->size(),
          .bad_samples = loaded.dataset->TakeReports()};
}

int64_t PredictRun(const std::string& run, const config::Config& config,
                   const std::vector<std::string>& files, const std::string& output,
                   const Extensions& extensions, const World& world) {
  // Before there is work that could be lost.
  std::optional<OutputTarget> target;
  Together(world.host, [&] {
    if (world.rank() == 0) target.emplace(output);
  });
  const LoadedRun loaded = LoadRun(run, config, extensions, world, [&] {
    return OpenFiles(config, files, SpecOf(config.data()), /*label_optional=*/true,
                     extensions.datasets, world);
  });
  const Predictions predictions =
      Predict(*loaded.model, *loaded.preprocessing, *loaded.dataset,
              EvaluationBatch(config, config.accumulation()),
              LoaderOptionsFor(config.loader(), *loaded.dataset, world), loaded.precision, world);
  Together(world.host, [&] {
    if (!target) return;
    const std::string csv = CsvOf(predictions, loaded.dataset->spec().class_names);
    target->Write([&](const AppendBytes& append) { append(std::as_bytes(std::span(csv))); });
  });
  return loaded.dataset->size();
}

}  // namespace lockstep
