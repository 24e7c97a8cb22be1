#include "trainer/trainer.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "ckpt/atomic_file.h"
#include "ckpt/safetensors.h"
#include "comm/flight_story.h"
#include "comm/reducer.h"
#include "data/device_feed.h"
#include "trainer/metrics_ring.h"
#include "trainer/optimizer.h"
#include "trainer/progress.h"
#include "trainer/run_folder.h"
#include "trainer/schedule.h"
#include "trainer/task.h"
#include "trainer/together.h"

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

// A parameter that a model registers under several names is trained once.
std::vector<NamedTensor> TrainedParametersOf(const Model& model) {
  std::vector<NamedTensor> trained;
  std::set<const void*> seen;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor& parameter = item.value();
    if (!parameter.requires_grad()) continue;
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    trained.push_back({item.key(), parameter});
  }
  return trained;
}

ReducerOptions ReducerOptionsFor(const config::Config& config) {
  const config::Ddp& ddp = config.ddp();
  ReducerOptions options{.first_bucket_bytes = ddp.first_bucket_bytes(),
                         .bucket_bytes = ddp.bucket_bytes(),
                         .missing_gradient = ddp.missing_gradient() == config::Ddp::ZERO
                                                 ? MissingGradient::kZero
                                                 : MissingGradient::kError,
                         .shard = config.optimizer().shard()};
  if (ddp.reduce_dtype() == config::Ddp::FP16) options.reduce_dtype = at::kHalf;
  if (ddp.reduce_dtype() == config::Ddp::BF16) options.reduce_dtype = at::kBFloat16;
  return options;
}

SamplerOptions SamplerOptionsFor(const config::Config& config, int64_t samples,
                                 const World& world) {
  return {.samples = samples,
          .global_batch = config.global_batch(),
          .accumulation = config.accumulation(),
          .rank = world.rank(),
          .ranks = world.size(),
          .seed = config.seed(),
          .shuffle = config.data().shuffle(),
          .last_batch = config.data().last_batch() == config::Data::DROP ? LastBatch::kDrop
                                                                         : LastBatch::kKeep};
}

SampleSpec SpecOf(const config::Data& config) {
  return {.shape = {config.input_shape().begin(), config.input_shape().end()},
          .dtype = config.format() == config::Data::CSV ? at::kFloat : at::kByte,
          .classes = config.classes()};
}

// The config as this data resolves it: what it left to the data is written down.
config::Config Resolved(config::Config config, const SampleSpec& spec) {
  config::Data& data = *config.mutable_data();
  if (data.input_shape_size() > 0 && SpecOf(data).shape != spec.shape) {
    throw DataError("{}: samples of shape [{}] where data.input_shape says [{}]", data.train(0),
                    fmt::join(spec.shape, ", "), fmt::join(data.input_shape(), ", "));
  }
  data.mutable_input_shape()->Assign(spec.shape.begin(), spec.shape.end());
  data.set_classes(spec.classes);
  return config;
}

// Samples that all ranks together evaluate at once: as many as they train on at once, which is known
// to fit.
int64_t EvaluationBatch(const config::Config& config) {
  return config.global_batch() / config.accumulation();
}

class Trainer {
  // The reducer's scalars: the step's loss.
  static constexpr int kLoss = 0;

 public:
  Trainer(const config::Config& config, TrainingData data, const Models& models, const World& world)
      : config_(config),
        world_(world),
        data_(std::move(data)),
        preprocessing_(config.data(), data_.train->spec(), world.device),
        model_(MakeModel(config, data_.train->spec(), models, world)),
        parameters_(TrainedParametersOf(*model_)),
        sampler_(SamplerOptionsFor(config, data_.train->size(), world)),
        loader_options_(LoaderOptionsFor(config.loader(), world)),
        loader_(*data_.train, sampler_, loader_options_),
        feed_(loader_, data_.train->spec(), sampler_.max_micro_batch(), world.device),
        metrics_(world.device) {
    total_steps_ = config.epochs() * sampler_.steps_per_epoch();
    if (config.max_steps() > 0) total_steps_ = std::min(total_steps_, config.max_steps());
    for (const auto& item : model_->named_buffers()) buffers_.push_back({item.key(), item.value()});
    // The ranks drew the same initial weights; what a model draws from now on differs, as their
    // samples do.
    at::manual_seed(config.seed() ^ (0x9e3779b97f4a7c15 * (uint64_t{1} + world.rank())));
  }

  // What must be the same on all ranks for their collectives to match.
  std::vector<std::string> Facts() const {
    std::vector<std::string> facts{fmt::format("{} training samples", data_.train->size())};
    if (data_.validation)
      facts.push_back(fmt::format("{} validation samples", data_.validation->size()));
    for (const auto& [name, tensor] : StateOf(*model_)) {
      facts.push_back(fmt::format("{} of {} [{}]", name, c10::toString(tensor.scalar_type()),
                                  fmt::join(tensor.sizes(), ", ")));
    }
    return facts;
  }

  StepTimes Measure(int warmup, int steps) {
    if (config_.global_batch() > data_.train->size()) {
      throw Error::OnEveryRank(
          ExitStatus::kUsage, fmt::format("steps of {} samples cannot be timed with {}: take fewer",
                                          config_.global_batch(), data_.train->size()));
    }
    Begin();
    int step = 0;
    while (step < warmup) TrainStep(step++);
    clock_.emplace(world_.device);
    while (step < warmup + steps) {
      clock_->BeginStep();
      TrainStep(step++);
    }
    clock_->BeginStep();
    return clock_->Times();
  }

  void Run(const TrainOptions& options, RunFolder* folder) {
    folder_ = folder;
    if (folder_ != nullptr) {
      progress_.emplace(options.live, config_.epochs(), total_steps_, config_.global_batch());
      LogStart(options);
    }
    Begin();
    double first_step_s = 0;
    last_line_ = Clock::now();
    for (int64_t step = 0; step < total_steps_; ++step) {
      TrainStep(step);
      if (step == 0) {
        WaitForDevice(world_.device);
        first_step_s = SecondsSinceBoot() - options.command_start_s;
        epoch_begin_ = Clock::now();
      }
      ReportStep(step + 1);
      const bool epoch_ends = (step + 1) % sampler_.steps_per_epoch() == 0;
      if (epoch_ends || step + 1 == total_steps_) EndEpoch(step + 1);
    }
    Finish(options, first_step_s);
  }

 private:
  void Begin() {
    reducer_.emplace(parameters_, world_.communicator, ReducerOptionsFor(config_));
    model_->train();
    BroadcastFromRankZero(StateOf(*model_), world_.communicator);
  }

  // Calls `wait`, which waits for communication.
  template <typename Wait>
  void Waiting(const Wait& wait) {
    if (clock_) {
      clock_->Waiting(wait);
    } else {
      wait();
    }
  }

  // ---- The step ---------------------------------------------------------------------------------

  void TrainStep(int64_t step) {
    if (world_.flight != nullptr) world_.flight->SetStep(step + 1);
    if (config_.ddp().broadcast_buffers()) BroadcastFromRankZero(buffers_, world_.communicator);
    reducer_->Begin();
    if (step == 0) {
      AccumulateGradientsTogether();
      reducer_->SettleLayout();
      optimizer_.emplace(config_.optimizer(), *reducer_, world_.device);
    } else {
      AccumulateGradients();
    }
    if (config_.optimizer().clip_norm() > 0) {
      Waiting([&] { reducer_->Wait(); });
      grad_norm_ = ClipGradNorm(*reducer_, config_.optimizer().clip_norm());
    }
    optimizer_->SetLearningRate(LearningRateOf(step));
    optimizer_->BeginStep();
    for (size_t stage = 0; stage < reducer_->stages(); ++stage) {
      Waiting([&] { reducer_->Wait(stage); });
      optimizer_->Update(stage);
      reducer_->GatherParameters(stage);
    }
  }

  // A mistake in a model mostly shows in its first step, and on every rank. There a rank that fails
  // still takes part in the step's collectives, and then all agree on what to say.
  void AccumulateGradientsTogether() {
    std::optional<Error> error;
    try {
      AccumulateGradients();
    } catch (const std::exception& exception) {
      // Where the model's own collectives belong to the step, the others cannot get past them.
      if (config_.ddp().sync_batch_norm()) throw;
      error = ErrorOf(exception);
      reducer_->ReduceNow();
      reducer_->Wait();
    }
    AgreeOnErrors(error, world_.host);
    reducer_->Wait();
  }

  void AccumulateGradients() {
    for (int micro = 0; micro < config_.accumulation(); ++micro) {
      AddMicroBatch(feed_.Next(), /*last=*/micro + 1 == config_.accumulation());
      feed_.Prefetch();
    }
    reducer_->Finish();
  }

  // Adds a micro-batch's share to the gradients and the loss; the last one's backward also reduces.
  // The loss of the step is the mean over its global batch: the micro-batches' sums over one global
  // count.
  void AddMicroBatch(const DeviceBatch& batch, bool last) {
    Waiting([&] { reducer_->WaitForParameters(); });
    // A rank without samples has nothing to add; only where the ranks share BatchNorm's statistics it
    // must go through the model with the others.
    if (batch.origin.indices.empty() && !config_.ddp().sync_batch_norm()) {
      if (last) reducer_->ReduceNow();
      return;
    }
    const double share = 1.0 / static_cast<double>(batch.origin.global_count);
    const at::Tensor loss_sum =
        model_->LossSum(model_->Forward(preprocessing_(batch.input)), batch.target);
    reducer_->scalars()[kLoss].add_(loss_sum.detach(), share);
    if (last) reducer_->ReduceDuringBackward();
    loss_sum.backward(at::full_like(loss_sum, share));
  }

  double LearningRateOf(int64_t step) const {
    return config_.optimizer().lr() * LearningRateShare(config_.schedule(), step, total_steps_);
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
      last_line_ = Clock::now();
      last_line_step_ = steps_done;
      metrics_.Push(report, reducer_->scalars()[kLoss], grad_norm_);
    }
    while (const std::optional<StepReport> report = metrics_.Pop(steps_done)) EmitStep(*report);
  }

  void EmitStep(const StepReport& report) {
    if (!std::isfinite(report.loss)) {
      throw Error::OnEveryRank(
          ExitStatus::kUsage,
          fmt::format("step {}: the loss is {}: lower optimizer.lr or set optimizer.clip_norm",
                      report.step, report.loss));
    }
    if (folder_ == nullptr) return;
    Json event{{"event", "step"},       {"step", report.step},
               {"epoch", report.epoch}, {"loss", report.loss},
               {"lr", report.lr},       {"samples_per_s", std::round(report.samples_per_s)}};
    if (report.grad_norm >= 0) event["grad_norm"] = report.grad_norm;
    folder_->Log(event);
    progress_->OnStep(report);
  }

  void EndEpoch(int64_t steps_done) {
    reducer_->WaitForParameters();
    WaitForDevice(world_.device);
    const double seconds = SecondsSince(epoch_begin_);
    const int64_t epoch = EpochOf(steps_done);
    const int64_t epoch_first_step = (epoch - 1) * sampler_.steps_per_epoch();
    // The first epoch counts only while there is no other, and without its first step, which warms
    // up.
    if (epoch <= 2) {
      rated_samples_ = 0;
      rated_seconds_ = 0;
    }
    rated_samples_ += SamplesIn(steps_done) - SamplesIn(std::max<int64_t>(epoch_first_step, 1));
    rated_seconds_ += seconds;
    while (const std::optional<StepReport> report = metrics_.PopAnyway()) EmitStep(*report);

    // Buffers follow each rank's own samples (BatchNorm's statistics); what is evaluated and saved is
    // rank 0's, on every rank.
    BroadcastFromRankZero(buffers_, world_.communicator);
    if (data_.validation) {
      evaluation_ = Evaluate(*model_, preprocessing_, *data_.validation, EvaluationBatch(config_),
                             loader_options_, world_);
      if (folder_ != nullptr) {
        folder_->Log({{"event", "eval"},
                      {"step", steps_done},
                      {"epoch", epoch},
                      {"loss", evaluation_->loss},
                      {"accuracy", evaluation_->accuracy}});
        progress_->Say(fmt::format(
            "epoch {}/{}  step {}/{}  validation loss {:.4f}  accuracy {:.4f}", epoch,
            config_.epochs(), steps_done, total_steps_, evaluation_->loss, evaluation_->accuracy));
      }
    }
    epoch_begin_ = last_line_ = Clock::now();
    last_line_step_ = steps_done;
  }

  void LogStart(const TrainOptions& options) {
    int64_t elements = 0;
    for (const NamedTensor& parameter : parameters_) elements += parameter.tensor.numel();
    const int64_t validation_samples = data_.validation ? data_.validation->size() : 0;
    folder_->Log({{"event", "start"},
                  {"version", options.version},
                  {"world_size", world_.size()},
                  {"device", world_.device.is_cuda() ? "cuda" : "cpu"},
                  {"samples", data_.train->size()},
                  {"validation_samples", validation_samples},
                  {"steps", total_steps_},
                  {"parameters", elements},
                  {"loader_threads", loader_options_.threads}});
    progress_->Say(fmt::format(
        "{}: {} with {} parameters on {} rank{} ({}), {} samples, {} held back, {} steps of {}",
        folder_->path(), config_.model().name(), elements, world_.size(),
        world_.size() == 1 ? "" : "s", world_.device.is_cuda() ? "CUDA" : "CPU",
        data_.train->size(), validation_samples, total_steps_, config_.global_batch()));
  }

  void Finish(const TrainOptions& options, double first_step_s) {
    Together(world_.host, [&] { CheckSameOnAllRanks(parameters_, world_.communicator); });
    if (folder_ == nullptr) return;
    WriteSafetensors(RunWeightsPath(folder_->path()), StateOf(*model_),
                     {{"format", "pt"}, {"lockstep_version", options.version}});
    const double samples_per_s =
        rated_seconds_ > 0 ? static_cast<double>(rated_samples_) / rated_seconds_ : 0;
    Json event{{"event", "done"}, {"step", total_steps_}, {"epoch", EpochOf(total_steps_)}};
    if (evaluation_)
      event.update({{"loss", evaluation_->loss}, {"accuracy", evaluation_->accuracy}});
    event.update(
        {{"first_step_s", std::round(first_step_s * 1e3) / 1e3},
         {"samples_per_s", std::round(samples_per_s)},
         {"total_s", std::round((SecondsSinceBoot() - options.command_start_s) * 1e3) / 1e3}});
    folder_->Log(event);
    progress_->Say(fmt::format("done: {:.0f} samples/s, first step after {:.2f} s; weights in {}",
                               samples_per_s, first_step_s, RunWeightsPath(folder_->path())));
  }

  const config::Config& config_;
  const World& world_;
  std::optional<StepClock> clock_;  // where steps are timed
  TrainingData data_;
  Preprocessing preprocessing_;
  std::shared_ptr<Model> model_;
  std::vector<NamedTensor> parameters_;  // those that are trained
  std::vector<NamedTensor> buffers_;
  std::optional<Reducer> reducer_;
  std::optional<Optimizer> optimizer_;  // from the first step's gradients on
  Sampler sampler_;
  LoaderOptions loader_options_;
  Loader loader_;
  DeviceFeed feed_;
  MetricsRing metrics_;
  int64_t total_steps_ = 0;
  at::Tensor grad_norm_;  // of the step, where it is clipped

  RunFolder* folder_ = nullptr;  // rank 0's
  std::optional<Progress> progress_;
  std::optional<Evaluation> evaluation_;
  Clock::time_point last_line_;
  int64_t last_line_step_ = 0;
  Clock::time_point epoch_begin_;
  int64_t rated_samples_ = 0;
  double rated_seconds_ = 0;
};

// Makes a trainer of `config`, which it refers to and completes. Throws Error on every rank.
void MakeTrainer(std::optional<Trainer>& trainer, config::Config& config, const Models& models,
                 const World& world) {
  Together(world.host, [&] {
    TrainingData data = OpenTrainingData(config);
    config = Resolved(std::move(config), data.train->spec());
    trainer.emplace(config, std::move(data), models, world);
  });
  RequireSame(trainer->Facts(), world.host);
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
    run.model = MakeModel(config, SpecOf(config.data()), models, world);
    run.preprocessing.emplace(config.data(), run.dataset->spec(), world.device);
  });
  return run;
}

}  // namespace

StepTimes MeasureSteps(config::Config config, const Models& models, const World& world, int warmup,
                       int steps, const TrainOptions& options) {
  std::optional<Trainer> trainer;
  MakeTrainer(trainer, config, models, world);
  return OrLeave(options, [&] { return trainer->Measure(warmup, steps); });
}

void Train(config::Config config, const Models& models, const World& world,
           const TrainOptions& options) {
  std::optional<Trainer> trainer;
  MakeTrainer(trainer, config, models, world);
  std::optional<RunFolder> folder;
  Together(world.host, [&] {
    if (world.rank() == 0) folder.emplace(config);
  });
  if (world.flight != nullptr) {
    // On every machine: where they share no disk, each keeps its own ranks' records.
    Together(world.host, [&] {
      std::filesystem::create_directories(config.run_dir() + "/flight");
      world.flight->MoveTo(FlightPath(config.run_dir(), world.rank()));
      world.watchdog->SetRunFolder(config.run_dir());
    });
  }
  OrLeave(options, [&] { trainer->Run(options, folder ? &*folder : nullptr); });
}

RunEvaluation EvaluateRun(const std::string& run_dir, const config::Config& config,
                          const std::vector<std::string>& files, const Models& models,
                          const World& world) {
  const LoadedRun run = LoadRun(run_dir, config, models, world, [&] {
    return files.empty()
               ? OpenTrainingData(config).validation
               : OpenFiles(config, files, SpecOf(config.data()), /*label_optional=*/false);
  });
  return {.result = Evaluate(*run.model, *run.preprocessing, *run.dataset, EvaluationBatch(config),
                             LoaderOptionsFor(config.loader(), world), world),
          .samples = run.dataset->size()};
}

int64_t PredictRun(const std::string& run_dir, const config::Config& config,
                   const std::vector<std::string>& files, const std::string& output,
                   const Models& models, const World& world) {
  const LoadedRun run = LoadRun(run_dir, config, models, world, [&] {
    return OpenFiles(config, files, SpecOf(config.data()), /*label_optional=*/true);
  });
  const std::vector<Prediction> predictions =
      Predict(*run.model, *run.preprocessing, *run.dataset, EvaluationBatch(config),
              LoaderOptionsFor(config.loader(), world), world);
  Together(world.host, [&] {
    if (world.rank() != 0) return;
    std::string csv = "index,label,probability\n";
    for (size_t i = 0; i < predictions.size(); ++i) {
      csv += fmt::format("{},{},{:.6f}\n", i, predictions[i].label, predictions[i].probability);
    }
    WriteFileAtomically(output,
                        [&](const AppendBytes& append) { append(std::as_bytes(std::span(csv))); });
  });
  return run.dataset->size();
}

}  // namespace lockstep
