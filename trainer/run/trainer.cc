#include "trainer/run/trainer.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <cmath>
#include <filesystem>
#include <future>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/open_file.h"
#include "base/files/output_target.h"
#include "base/files/safetensors.h"
#include "base/mix.h"
#include "ckpt/saver.h"
#include "ckpt/state_tree.h"
#include "ckpt/weights.h"
#include "comm/together.h"
#include "comm/watch/flight_story.h"
#include "config/config.h"
#include "data/feed/device_feed.h"
#include "observe/metrics.h"
#include "observe/metrics_ring.h"
#include "observe/profile/trace.h"
#include "observe/run_event.h"
#include "trainer/run/anomaly.h"
#include "trainer/run/checkpointing.h"
#include "trainer/run/data_wait.h"
#include "trainer/run/data_warnings.h"
#include "trainer/run/early_stopping.h"
#include "trainer/run/evaluate.h"
#include "trainer/run/extensions.h"
#include "trainer/run/foretell.h"
#include "trainer/run/input.h"
#include "trainer/run/make_model.h"
#include "trainer/run/memory_account.h"
#include "trainer/run/micro_batch_choice.h"
#include "trainer/run/open_data.h"
#include "trainer/run/profiling.h"
#include "trainer/run/progress.h"
#include "trainer/run/run_folder.h"
#include "trainer/run/run_start.h"
#include "trainer/run/run_state.h"
#include "trainer/run/sinks.h"
#include "trainer/run/time_account.h"
#include "trainer/step/precision.h"
#include "trainer/step/schedule.h"
#include "trainer/step/step.h"

namespace lockstep {
namespace {

void WaitForDevice(at::Device device) {
  if (device.is_cuda()) c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
}

class Trainer {
  // If the scale is below this, the gradients overflow with any scale.
  static constexpr double kLeastLossScale = 1e-3;

 public:
  Trainer(const config::Config& config, TrainingData data, const Models& models, const World& world)
      : config_(config),
        world_(world),
        data_(std::move(data)),
        models_(models),
        preprocessing_(config.data(), data_.train->spec(), world.device, precision_),
        model_(MakeModel(config, data_.train->spec(), models, world)),
        sampler_(
            SamplerOptionsFor(config, config.accumulation(), data_, world.rank(), world.size())),
        loader_options_(LoaderOptionsFor(config.loader(), *data_.train, world)),
        batches_{.next = [this] { return input_->feed.Next(); },
                 .prefetch = [this] { input_->feed.Prefetch(); }},
        peak_lr_(PeakLearningRate(config)),
        plateau_(config.schedule()),
        early_stopping_(config.early_stopping()),
        metrics_(world.device) {
    total_steps_ = StepsOfRun(config, data_.train->size());
    progress_.emplace(PlanOfProgress());
    // The ranks drew the same initial weights; what a model draws from now on differs, as their
    // samples do.
    at::manual_seed(config.seed() ^ (0x9e3779b97f4a7c15 * (uint64_t{1} + world.rank())));
  }

  // Returns lines that must be the same on all ranks so that their collectives match.
  std::vector<std::string> Facts() const {
    return FactsOf(*data_.train, data_.validation.get(), model_->State());
  }

  StepMeasurement Measure(int warmup, int steps, const std::string& trace,
                          const TrainOptions& options) {
    constexpr int kPhaseSteps = 10;
    std::optional<OutputTarget> target;
    Together(world_.host, [&] {
      if (!trace.empty() && world_.rank() == 0) target.emplace(trace);
    });
    Begin({});
    Together(world_.host, [&] { PinBatch(); });  // from here on the data lie on the device
    if (pinned_batch_.origin.global_count != config_.global_batch()) {
      throw Error::OnEveryRank(
          ExitStatus::kUsage, fmt::format("steps of {} samples cannot be timed with {}: take fewer",
                                          config_.global_batch(), data_.train->size()));
    }
    batches_ = {.next = [this] { return pinned_batch_; }, .prefetch = [] {}};
    StepMeasurement measured;
    TrainStep(0);
    WaitForDevice(world_.device);
    measured.first_step_s = SecondsSinceBoot() - options.command_start_s;
    StepClock clock(world_.device);
    step_->SetClock(&clock);
    for (int step = 1; step < warmup; ++step) TrainStep(step);
    for (int step = 0; step < steps; ++step) {
      clock.BeginStep();
      TrainStep(warmup + step);
    }
    clock.BeginStep();
    measured.step_ms = clock.StepTimes();
    measured.memory = step_->memory().PeakOfDevice();
    for (int step = 0; step < kPhaseSteps; ++step) {
      clock.BeginStep();
      TrainStep(warmup + steps + step);
      clock.ReadPhases();
    }
    measured.phase_ms = clock.PhaseTimes();
    if (!trace.empty()) {
      const auto act = [&] {
        for (int step = warmup + steps; step < warmup + steps + kPhaseSteps; ++step) {
          const Range range(fmt::format("{}{}", kStepRange, step + 1), Range::Of::kStep);
          TrainStep(step);
        }
      };
      Together(world_.host, [&] {
        if (target) {
          Trace(*target, trace, world_.device, act, [&] { return step_->nodes_of_graphs(); });
        } else {
          act();
        }
      });
    }
    step_->SetClock(nullptr);
    step_->WaitForParameters();

    const at::Tensor figures = step_->figures().cpu();
    measured.loss = figures[ops::kLoss].item<double>();
    measured.peak_flops = time_.peak_flops();
    measured.parameters = step_->ParameterCount();
    measured.samples = data_.train->size();
    measured.precision = precision_;
    measured.accumulation = accumulation_;
    step_->SetMicroBatches(accumulation_, sampler_.max_micro_batch());  // gives graphs' memory back
    measured.forward_flops =
        accumulation_ * ForwardFlops(*model_, preprocessing_, pinned_batch_, precision_, world_);
    measured.why_no_graph = step_->why_no_graph();
    return measured;
  }

  // Returns what the run was stopped by.
  StopRequest Run(const TrainOptions& options, const RunStart& start, RunFolder* folder) {
    folder_ = folder;
    try {
      return RunSteps(options, start);
    } catch (const std::exception& exception) {
      const Error error = ErrorOf(exception);
      events_.Emit(RunFailed{progress_->step(), static_cast<int>(error.status()), error.what()});
      throw;
    }
  }

 private:
  StopRequest RunSteps(const TrainOptions& options, const RunStart& start) {
    Begin(start);
    Together(world_.host, [&] {
      if (folder_ != nullptr) folder_->Begin(config_);
    });
    checkpoint::Manifest manifest;
    manifest.set_lockstep_version(options.version);
    manifest.set_config(PrintConfig(config_));
    for (const std::string& line : DataFacts(*data_.train)) manifest.add_data(line);
    AddSinks(config_, options.gpu_users, folder_, options.live, world_, events_);
    events_.Add(time_.ReadingsSink());
    if (start.failed_at > 0) time_.ContinueAfter(start.failed_step, start.failed_at);
    TellStart(options, start);
    checkpointing_.emplace(config_, world_, folder_, events_, start.job, manifest,
                           ResumedStep(start), [this] { return State(); });
    if (folder_ != nullptr) {
      stopping_.emplace(Stopping::Options{
          .end_by_s = options.end_by_s,
          .state_bytes = Stopping::kStateBytesPerParameter * step_->ParameterCount(),
          .global_batch = config_.global_batch(),
          .validation_samples = data_.validation ? data_.validation->size() : 0,
          .user_stops = [this] { return folder_->WhyUserStops(); }});
    }
    profiling_.emplace(config_, world_, events_,
                       Profiling::Options{.version = options.version,
                                          .last_step = total_steps_,
                                          .peak_flops = time_.peak_flops(),
                                          .graphs = [this] { return step_->nodes_of_graphs(); }});
    double first_step_s = 0;
    progress_->Begin(first_step_);
    for (int64_t step = first_step_; step < total_steps_; ++step) {
      const StopRequest asked = AskedToStop(step, options);
      step_->Ask({.saves = checkpointing_->Asked(),
                  .profiled_steps = profiling_->Asked(),
                  .stop = asked == StopRequest::kStop,
                  .interrupt = asked == StopRequest::kInterrupt});
      progress_->BeginStep(step);
      time_.Spend(Loss::kOther, [&] { profiling_->BeforeStep(step + 1); });
      if (HistogramsAreDue(config_.observe(), step + 1)) step_->AskForHistograms(step + 1);
      try {
        TrainStep(step);
      } catch (...) {
        TellSkipped(*data_.train);  // it may have been one too many
        throw;
      }
      if (step == first_step_) {
        WaitForDevice(world_.device);
        first_step_s = SecondsSinceBoot() - options.command_start_s;
        time_.CountFromHere(*input_);
        progress_->CountFromHere();
      }
      ReportStep(step + 1);
      const bool epoch_ends = (step + 1) % sampler_.steps_per_epoch() == 0;
      const bool evaluates = epoch_ends && data_.validation;
      time_.Spend(Loss::kOther, [&] { profiling_->AfterStep(step + 1, evaluates); });
      if (epoch_ends || step + 1 == total_steps_) EndEpoch(step + 1);
      if (step + 1 == total_steps_) break;
      if (stop_ != StopRequest::kNone) return StopAfter(step + 1);
      time_.Spend(Loss::kCheckpoints, [&] {
        checkpointing_->AfterStep(step + 1, epoch_ends ? EpochOf(step + 1) : 0,
                                  evaluates ? evaluation_ : std::vector<Metric>());
      });
    }
    Finish(options, first_step_s);
    return StopRequest::kNone;
  }

  void Begin(const RunStart& start) {
    const std::optional<Checkpoint>& checkpoint = start.checkpoint;
    std::vector<int64_t> bucket_order;
    if (checkpoint) {
      Together(world_.host, [&] {
        RequireSameData(start, DataFacts(*data_.train));
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
    if (config_.micro_batch() == config::MicroBatch::AUTO) {
      foreteller_ = ForetellerOf(config_, models_, world_);
    }
    micro_batches_.emplace(config_, foreteller_.get(), world_);
    if (const auto& chosen = micro_batches_->chosen()) {
      accumulation_ = chosen->accumulation;
      SeekTo(0);
    }
    if (checkpoint) {
      step_->Resume(bucket_order);
      Together(world_.host, [&] { Resume(*checkpoint, start.manifest); });
    }
    Together(world_.host, [&] { Feed(); });
  }

  // Returns what this rank is asked to do before `step`.
  StopRequest AskedToStop(int64_t step, const TrainOptions& options) {
    const StopRequest asked = options.asked_to_stop();
    if (!stopping_) return asked;
    const int64_t per_epoch = sampler_.steps_per_epoch();
    const StopRequest found = stopping_->Asked(SecondsSinceBoot(), per_epoch - step % per_epoch,
                                               checkpointing_->slowest_s());
    return std::max(asked, found);
  }

  // ---- Checkpoints ------------------------------------------------------------------------------

  StateTree Tree() { return TreeOf(accumulation_, plateau_, early_stopping_, *step_, world_); }

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

  void Resume(const Checkpoint& checkpoint, const checkpoint::Manifest& manifest) {
    first_step_ = checkpoint.step;
    if (first_step_ > total_steps_) {
      throw UsageError(
          "{}: is of step {}, and {} steps are all: raise epochs or max_steps, or begin anew, with "
          "--fresh or without --from",
          checkpoint.path, first_step_, total_steps_);
    }
    const bool as_many_ranks = manifest.ranks() == world_.size();
    // Other ranks continue with random numbers that no rank has drawn yet.
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
    EndIfOver(first_step_);
    evaluated_step_ = manifest.metric_step();
    for (const checkpoint::Metric& metric : manifest.metric()) {
      evaluation_.push_back({metric.name(), metric.value()});
    }
    // Takes as many micro-batches as memory was found to need, unless the user has set their number.
    if (ParsePrinted(manifest.config()).accumulation() != config_.accumulation()) {
      accumulation_ = config_.accumulation();
    }
    if (const auto& chosen = micro_batches_->chosen()) accumulation_ = chosen->accumulation;
    accumulation_ = std::min(accumulation_, config_.global_batch() / world_.size());
    SeekTo(first_step_);
  }

  // ---- Steps ------------------------------------------------------------------------------------

  void TrainStep(int64_t step) {
    if (world_.flight != nullptr) world_.flight->SetStep(step + 1);
    if (const auto fewer = micro_batches_->Fewer(step, accumulation_)) {
      accumulation_ = fewer->accumulation;
      BeginAgain(step);
      events_.Emit(*fewer);
    }
    if (checkpointing_) metrics_.BeginStep(time_.DelayBeforeStep(step_->why_no_graph()));
    const auto run_step = [&] { return step_->Run(LearningRateOf(step), batches_); };
    const auto run = [&] { return memory_.Watch(step + 1, *step_, *input_, run_step); };
    while (!(step == first_step_ ? time_.WatchFirstStep(run) : run())) {
      time_.Spend(Loss::kMemory, [&] { MakeRoom(step); });
    }
  }

  // Makes room in memory after `step` did not fit.
  void MakeRoom(int64_t step) {
    std::optional<RunEvent> gave_way;
    if (step_->DropHistograms()) {
      gave_way = NoRoomForHistograms(step + 1);
    } else if (step_->holds_graphs()) {
      gave_way = GraphsGaveWay{step + 1};
    } else if (checkpointing_ && checkpointing_->LeaveDeviceMemory([this] { EmitAll(); })) {
      gave_way = CheckpointsLeftDevice{step + 1};
    }
    if (!gave_way) return HalveMicroBatches(step);
    BeginAgain(step);
    events_.Emit(*gave_way);
  }

  // Begins again with `step`, whose samples were already taken from the feed.
  void BeginAgain(int64_t step) {
    SeekTo(step);
    Feed();
    if (pinned_batch_.input.defined()) PinBatch();
  }

  // Makes Feed() give the micro-batches of `step` and of the steps after it.
  void SeekTo(int64_t step) {
    sampler_ =
        Sampler(SamplerOptionsFor(config_, accumulation_, data_, world_.rank(), world_.size()));
    sampler_.Seek(step);
    step_->SetMicroBatches(accumulation_, sampler_.max_micro_batch());
  }

  // Makes `step` and the steps after it with the same samples in smaller pieces.
  void HalveMicroBatches(int64_t step) {
    const auto most = static_cast<int>(config_.global_batch() / world_.size());
    const std::optional<FailedAllocation> failed = memory_.Failure(*step_);
    const int64_t too_many = sampler_.max_micro_batch();
    if (accumulation_ >= most) EndForMemory(step + 1, too_many, failed);
    accumulation_ = std::min<int64_t>(2 * accumulation_, most);
    BeginAgain(step);
    events_.Emit(
        OutOfMemory{step + 1, too_many, sampler_.max_micro_batch(), accumulation_, failed});
  }

  // Takes the next micro-batch for all steps that follow. It does not change, because no other is asked for.
  void PinBatch() { pinned_batch_ = input_->feed.Next(); }

  // Begins to read samples at the sampler's position.
  void Feed() {
    if (input_) data_wait_.Leave(*input_);
    LoaderOptions options = loader_options_;
    options.augment = AugmentOptionsFor(config_);
    input_.emplace(*data_.train, preprocessing_, sampler_, options, world_.device);
  }

  double LearningRateOf(int64_t step) const {
    return peak_lr_ * plateau_.share() * LearningRateShare(config_.schedule(), step, total_steps_);
  }

  // ---- Reports ----------------------------------------------------------------------------------

  int64_t EpochOf(int64_t steps_done) const {
    return 1 + (steps_done - 1) / sampler_.steps_per_epoch();
  }

  ProgressPlan PlanOfProgress() const {
    const int64_t steps_per_epoch = sampler_.steps_per_epoch();
    return {.steps = total_steps_,
            .steps_per_epoch = steps_per_epoch,
            .global_batch = config_.global_batch(),
            .samples_per_epoch = config_.data().last_batch() == config::Data::DROP
                                     ? steps_per_epoch * config_.global_batch()
                                     : data_.train->size(),
            .evaluates = data_.validation != nullptr};
  }

  void ReportStep(int64_t steps_done) {
    if (const auto histograms = step_->TakeHistograms()) events_.Emit(*histograms);
    const bool due = steps_done == 1 || steps_done % config_.log().every_steps() == 0 ||
                     steps_done == total_steps_;
    StepReport report{.told = due,
                      .step = steps_done,
                      .epoch = EpochOf(steps_done),
                      .lr = LearningRateOf(steps_done - 1),
                      .has_loss_scale = precision_ == config::FP16};
    if (due) {
      const Progress::Line line = progress_->TakeLine(steps_done);
      report.samples_per_s = line.samples_per_s;
      report.seconds_left = line.seconds_left;
      report.data_wait = data_wait_.TakeShare(*input_, line.seconds);
      report.loader_threads = input_->loader.threads();
    }
    report.time.shape = progress_->SamplesOf(steps_done);
    time_.OnQueued(*input_, step_->preprocessing_s(), report);
    metrics_.Push(report, step_->figures());
    while (const std::optional<StepReport> report = metrics_.Pop(steps_done)) EmitStep(*report);
    if (due) TellSkipped(*data_.train);
    progress_->EndStep();
  }

  // Reports the samples that this rank could not read.
  void TellSkipped(const Dataset& dataset) {
    for (const std::string& why : dataset.TakeReports()) events_.Emit(BadSample{why});
  }

  // Emits the reports of all steps. It waits for the device.
  void EmitAll() {
    while (const std::optional<StepReport> report = metrics_.PopAnyway()) EmitStep(*report);
  }

  void EmitStep(const StepReport& report) {
    const auto& figures = report.figures;
    if (figures[ops::kBadStep] > 0 && config_.anomaly().policy() != config::Anomaly::SKIP) {
      EndForAnomaly({.step = static_cast<int64_t>(figures[ops::kBadStep]),
                     .loss = figures[ops::kBadLoss],
                     .grad_norm = figures[ops::kBadGradNorm]},
                    config_, data_, /*saves=*/folder_ != nullptr);
    }
    if (precision_ == config::FP16 && figures[ops::kScale] < kLeastLossScale) {
      EndForLossScale(report.step, figures[ops::kScale],
                      static_cast<int64_t>(figures[ops::kSkipped]), config_, data_);
    }
    if (figures[ops::kStopsAsked] > 0) stop_ = StopRequest::kStop;
    if (figures[ops::kInterruptsAsked] > 0) stop_ = StopRequest::kInterrupt;
    checkpointing_->OnFigures(report.step, static_cast<int64_t>(figures[ops::kSavesAsked]));
    profiling_->OnFigures(static_cast<int64_t>(figures[ops::kProfilesAsked]));
    time_.OnSeen(*input_, report);
    progress_->OnLoss(report.step, report.loss());
    events_.SetSteps(report.step);
    if (!report.told) return;
    events_.Emit(StepDone{report});
    if (const auto seconds = time_.Report(*input_, TimeAt(report.step))) events_.Emit(*seconds);
    TellWhyNoGraph();
  }

  TimeAccount::Now TimeAt(int64_t step) const {
    return {.step = step,
            .accumulation = accumulation_,
            .preprocessing_s = step_->preprocessing_s(),
            .parameters = step_->ParameterCount(),
            .why_no_graph = step_->why_no_graph(),
            .growth = memory_.Growth()};
  }

  void TellWhyNoGraph() {
    if (step_->why_no_graph().empty() || std::exchange(told_why_no_graph_, true)) return;
    events_.Emit(RunsWithoutGraph{step_->why_no_graph()});
  }

  void EndEpoch(int64_t steps_done) {
    step_->WaitForParameters();
    WaitForDevice(world_.device);
    EmitAll();
    const int64_t epoch = EpochOf(steps_done);
    const Progress::Epoch figures = progress_->EndEpoch(steps_done);
    events_.Emit(
        EpochDone{steps_done, epoch, figures.loss, figures.seconds, figures.samples_per_s});

    // Buffers, such as BatchNorm's statistics, follow each rank's own samples. All ranks evaluate and
    // save those of rank 0.
    BroadcastFromRankZero(step_->buffers(), world_.communicator);
    const bool averages = config_.optimizer().ema_decay() > 0 && data_.validation;
    if (averages) step_->SwapAverages();
    if (data_.validation) {
      const double evaluation_s = time_.Spend(Loss::kEvaluation, [&] {
        memory_.WatchEvaluation(steps_done, *step_, *input_, [&] {
          evaluation_ = Evaluate(*model_, preprocessing_, *data_.validation,
                                 EvaluationBatch(config_, accumulation_), loader_options_,
                                 precision_, world_);
        });
      });
      evaluated_step_ = steps_done;
      if (stopping_) stopping_->OnEvaluation(evaluation_s);
      progress_->OnEvaluation(evaluation_s);
      TellSkipped(*data_.validation);
      events_.Emit(Evaluated{steps_done, epoch, evaluation_});
      // A run that ends within an epoch may continue it, so this evaluation does not count.
      if (steps_done % sampler_.steps_per_epoch() == 0) {
        if (config_.schedule().type() == config::Schedule::PLATEAU) {
          plateau_.OnValidation(evaluation_.front().value);
        }
        early_stopping_.OnEvaluation(evaluation_, epoch);
        EndIfOver(steps_done);
      }
    }
    if (averages) step_->SwapAverages();
    input_->loader.Rest();
    progress_->BeginEpoch(steps_done);
    data_wait_.Forget(*input_);
  }

  // Makes this step the run's last if validation has not become better for long enough.
  void EndIfOver(int64_t steps_done) {
    if (early_stopping_.is_over()) total_steps_ = steps_done;
  }

  void TellStart(const TrainOptions& options, const RunStart& start) {
    RunStarted event{.run_dir = config_.run_dir(),
                     .model = config_.model().name(),
                     .version = options.version,
                     .precision = config::Precision_Name(precision_),
                     .restarts = options.restarts,
                     .ranks = world_.size(),
                     .on_gpu = world_.device.is_cuda(),
                     .samples = data_.train->size(),
                     .validation_samples = data_.validation ? data_.validation->size() : 0,
                     .epochs = config_.epochs(),
                     .steps = total_steps_,
                     .global_batch = config_.global_batch(),
                     .parameters = step_->ParameterCount(),
                     .loader_threads = loader_options_.threads};
    if (config_.data().format() == config::Data::IMAGES) {
      event.decodes_on_gpu = data_.train->samples_at_once() > 1;
    }
    events_.Emit(event);
    if (const auto& chosen = micro_batches_->chosen()) events_.Emit(*chosen);
    if (world_.rank() == 0) {
      if (!foreteller_) foreteller_ = ForetellerOf(config_, models_, world_);
      const StepForm form = StepFormOf(config_, accumulation_, world_.size());
      memory_.Expect(ForetoldMemoryOf(foreteller_.get(), form, world_));
    }
    for (const std::string& remark : data_.remarks) events_.Emit(RunWarning{remark});
    if (world_.rank() == 0 && !start.checkpoint) {
      for (const std::string& warning :
           DataWarnings(config_.data(), *data_.train, data_.validation.get())) {
        events_.Emit(RunWarning{warning});
      }
    }
    TellWhyNoGraph();
    if (folder_ != nullptr) {
      for (const std::string& warning : folder_->warnings()) events_.Emit(RunWarning{warning});
    }
    if (start.checkpoint) events_.Emit(ResumedEvent(start));
  }

  // Stops. The run can continue later from the state that is committed here.
  StopRequest StopAfter(int64_t steps_done) {
    RequireFolder();
    EmitAll();
    memory_.End();
    profiling_->AfterStep(steps_done, /*ends=*/true);
    const SecondsReport seconds = time_.ReportLast(*input_, TimeAt(steps_done));
    checkpointing_->SaveLast(steps_done, [this] { EmitAll(); });
    if (folder_ != nullptr) {
      folder_->AnswerStop();
      events_.Emit(seconds);
      const std::string why = stopping_->why().empty() ? "a signal" : stopping_->why();
      events_.Emit(RunStopped{
          .step = steps_done, .steps = total_steps_, .epoch = EpochOf(steps_done), .why = why});
    }
    return stop_;
  }

  // Throws unless the run folder is still this job's, because the state will be written into it.
  void RequireFolder() {
    Together(world_.host, [&] {
      if (folder_ != nullptr) folder_->RequireOwn(config_);
    });
  }

  void Finish(const TrainOptions& options, double first_step_s) {
    RequireFolder();
    memory_.End();
    Together(world_.host, [&] { CheckSameOnAllRanks(step_->parameters(), world_.communicator); });
    const SecondsReport seconds = time_.ReportLast(*input_, TimeAt(total_steps_));
    std::optional<Error> not_saved;
    try {
      checkpointing_->SaveLast(total_steps_, [this] { EmitAll(); });
    } catch (const Error& error) {
      if (error.status() != ExitStatus::kCheckpoint) throw;
      not_saved = error;
    }
    // The weights that were evaluated.
    if (config_.optimizer().ema_decay() > 0) step_->SwapAverages();
    Together(world_.host, [&] {
      if (folder_ == nullptr) return;
      WriteSafetensors(RunWeightsPath(folder_->path()), model_->State(),
                       {{"format", "pt"},
                        {"lockstep_version", options.version},
                        {kStepOfWeights, std::to_string(total_steps_)}});
    });
    if (not_saved) throw Error(*not_saved);
    if (folder_ == nullptr) return;
    folder_->AnswerStop();  // too late for it
    const double trained_s = progress_->trained_s();
    const double data_wait =
        trained_s > 0 ? std::min(1.0, data_wait_.Seconds(*input_) / trained_s) : 0;
    events_.Emit(seconds);
    events_.Emit(RunDone{.step = total_steps_,
                         .epoch = EpochOf(total_steps_),
                         .metrics = evaluation_,
                         .weights = RunWeightsPath(folder_->path()),
                         .first_step_s = first_step_s,
                         .samples_per_s = progress_->samples_per_s(),
                         .total_s = SecondsSinceBoot() - options.command_start_s,
                         .data_wait = data_wait,
                         .early = early_stopping_.why()});
  }

  const config::Config& config_;
  const World& world_;
  config::Precision precision_ = PrecisionOn(world_.device, config_.precision());
  TrainingData data_;
  const Models& models_;
  Preprocessing preprocessing_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<Foreteller> foreteller_;  // made when it is needed
  std::optional<MicroBatchChoice> micro_batches_;
  std::optional<Step> step_;
  int64_t accumulation_ = config_.accumulation();
  Sampler sampler_;
  LoaderOptions loader_options_;
  std::optional<Input> input_;
  DataWait data_wait_{*data_.train};
  TimeAccount time_{config_, precision_, world_, *data_.train, data_wait_};
  MicroBatches batches_;      // the feed's
  DeviceBatch pinned_batch_;  // what steps are measured with
  double peak_lr_;
  Plateau plateau_;
  EarlyStopping early_stopping_;
  MetricsRing metrics_;
  std::optional<Progress> progress_;
  int64_t first_step_ = 0;  // that this process runs
  int64_t total_steps_ = 0;
  bool told_why_no_graph_ = false;
  RunFolder* folder_ = nullptr;  // rank 0's
  RunEvents events_;
  MemoryAccount memory_{config_, world_, checkpointing_, events_};
  std::optional<Checkpointing> checkpointing_;
  std::optional<Profiling> profiling_;
  std::optional<Stopping> stopping_;       // rank 0's
  StopRequest stop_ = StopRequest::kNone;  // what all ranks are asked for

  std::vector<Metric> evaluation_;  // the last
  int64_t evaluated_step_ = 0;      // steps done by then
};

// Makes a trainer. It completes `config` and keeps a reference to it. Throws Error on every rank.
void MakeTrainer(std::optional<Trainer>& trainer, config::Config& config,
                 const Extensions& extensions, const World& world) {
  Together(world.host, [&] {
    TrainingData data = OpenTrainingData(config, extensions.datasets, world);
    config = Resolved(std::move(config), data);
    if (config.checkpoint().keep_best().empty()) {
      config.mutable_checkpoint()->set_keep_best(config.early_stopping().metric());
    }
    SetUpNumerics(PrecisionOn(world.device, config.precision()), config.deterministic());
    torch::autograd::AnomalyMode::set_enabled(config.debug().anomaly_detection());
    RequireMetric("early_stopping.metric", config.early_stopping().metric(), data.validation.get());
    RequireMetric("checkpoint.keep_best", config.checkpoint().keep_best(), data.validation.get());
    trainer.emplace(config, std::move(data), extensions.models, world);
  });
  RequireSame(trainer->Facts(), world.host);
}

// Whether a kernel has left the GPU in a state in which nothing works any more.
bool IsLost(at::Device device) {
  if (!device.is_cuda()) return false;
  const cudaError_t state = cudaStreamQuery(c10::cuda::getCurrentCUDAStream(device.index()));
  return state != cudaSuccess && state != cudaErrorNotReady;
}

// Calls `act`. An error of this rank alone ends the process here. The trainer must not be destroyed
// while other ranks wait for this one, because a loader's thread may wait for a copy that is queued
// after a collective that never ends. Nor on a lost GPU: LibTorch's destructors throw there.
template <typename Act>
auto OrLeave(const TrainOptions& options, at::Device device, const Act& act) {
  try {
    return act();
  } catch (const std::exception& exception) {
    if (!ErrorOf(exception).on_every_rank() || IsLost(device)) options.leave(exception);
    throw;
  }
}

}  // namespace

StepMeasurement MeasureSteps(config::Config config, const Extensions& extensions,
                             const World& world, int warmup, int steps, const std::string& trace,
                             const TrainOptions& options) {
  std::optional<Trainer> trainer;
  MakeTrainer(trainer, config, extensions, world);
  return OrLeave(options, world.device,
                 [&] { return trainer->Measure(warmup, steps, trace, options); });
}

StopRequest Train(config::Config config, const Extensions& extensions, const World& world,
                  const TrainOptions& options) {
  // It reads while the model is being made. Its destructor waits.
  // NOLINTNEXTLINE(bugprone-unused-local-non-trivial-variable)
  const std::future<void> reading = ReadCheckpointAhead(config.run_dir(), world);
  std::optional<Trainer> trainer;
  MakeTrainer(trainer, config, extensions, world);
  const std::string job = NameJob(options.job, world);
  std::optional<RunFolder> folder;
  Together(world.host, [&] {
    if (world.rank() == 0) folder.emplace(config, job, options.fresh);
  });
  RequireSharedFolder(config.run_dir(), job, world);
  const RunStart start = FindStart(folder, config, options.from, options.restarts, job, world);
  if (world.flight != nullptr) {
    Together(world.host, [&] {
      std::filesystem::create_directories(config.run_dir() + "/flight");
      world.flight->MoveTo(FlightPath(config.run_dir(), world.rank()));
      world.watchdog->SetRunFolder(config.run_dir());
    });
  }
  return OrLeave(options, world.device,
                 [&] { return trainer->Run(options, start, folder ? &*folder : nullptr); });
}

}  // namespace lockstep
