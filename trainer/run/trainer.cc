#include "trainer/run/trainer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/open_file.h"
#include "base/files/safetensors.h"
#include "base/mix.h"
#include "ckpt/saver.h"
#include "ckpt/state_tree.h"
#include "ckpt/weights.h"
#include "comm/together.h"
#include "comm/watch/flight_story.h"
#include "config/config.h"
#include "config/peak_learning_rate.h"
#include "observe/metric_order.h"
#include "observe/metrics.h"
#include "observe/run_event.h"
#include "trainer/run/anomaly.h"
#include "trainer/run/checkpoint_state.h"
#include "trainer/run/checkpointing.h"
#include "trainer/run/data_warnings.h"
#include "trainer/run/device_wait.h"
#include "trainer/run/early_stopping.h"
#include "trainer/run/evaluate.h"
#include "trainer/run/fit.h"
#include "trainer/run/made_of.h"
#include "trainer/run/run_folder.h"
#include "trainer/run/run_start.h"
#include "trainer/run/run_watch.h"
#include "trainer/run/sinks.h"
#include "trainer/step/schedule.h"

namespace lockstep {
namespace {

// Runs the training loop: makes steps, evaluates, saves checkpoints, and stops.
class Trainer {
  // The smallest useful loss scale. If the scale has fallen below it, the gradients overflow with any scale.
  static constexpr double kLeastLossScale = 1e-3;

 public:
  // Keeps references to all arguments. `folder` is the run folder on rank 0, and null on the other ranks.
  Trainer(const config::Config& config, Fit& fit, const World& world, RunEvents& events,
          RunFolder* folder, const TrainOptions& options, const RunStart& start,
          const std::vector<std::string>& metric_remarks)
      : config_(config),
        fit_(fit),
        world_(world),
        events_(events),
        folder_(folder),
        options_(options),
        start_(start),
        metric_remarks_(metric_remarks),
        watch_(config, world, fit, events),
        records_(*fit.data().train, fit.data().validation.get()),
        plateau_(config.schedule()),
        early_stopping_(config.early_stopping()),
        total_steps_(StepsOfRun(config, fit.data().train->size())) {}

  // Trains, and returns the request that stopped the run, or kNone if the run has reached its end.
  StopRequest Run() {
    try {
      Begin();
      for (int64_t step = first_step_; step < total_steps_; ++step) {
        MakeStep(step);
        const int64_t steps_done = step + 1;
        const bool epoch_ends = steps_done % fit_.steps_per_epoch() == 0;
        const bool is_last = steps_done == total_steps_;
        const bool evaluates = epoch_ends && fit_.data().validation;
        watch_.Queued(steps_done, LearningRateOf(step), is_last);
        TakeFigures(steps_done, /*waits=*/false);
        watch_.EndStep(steps_done, evaluates);
        if (epoch_ends || is_last) EndEpoch(steps_done);
        // Early stopping may have set total_steps_ to this step.
        if (steps_done == total_steps_) break;
        if (stop_ != StopRequest::kNone) return StopAfter(steps_done);
        watch_.Spend(Loss::kCheckpoints, [&] {
          checkpointing_->AfterStep(steps_done, epoch_ends ? fit_.EpochOf(steps_done) : 0,
                                    evaluates ? evaluation_ : std::vector<Metric>());
        });
      }
      Finish();
      return StopRequest::kNone;
    } catch (const std::exception& exception) {
      const Error error = ErrorOf(exception);
      events_.Emit(RunFailed{watch_.step(), static_cast<int>(error.status()), error.what()});
      throw;
    }
  }

 private:
  // ---- The beginning ----------------------------------------------------------------------------

  void Begin() {
    std::vector<int64_t> bucket_order;
    if (start_.checkpoint) {
      Together(world_.host, [&] { bucket_order = ReadModel(*start_.checkpoint); });
    }
    fit_.Begin();
    if (start_.checkpoint) {
      fit_.Resume(bucket_order);
      Together(world_.host, [&] { Resume(*start_.checkpoint, start_.manifest); });
    }
    Together(world_.host, [&] { fit_.Feed(); });
    Together(world_.host, [&] {
      if (folder_ != nullptr) folder_->Begin(config_);
    });
    AddSinks(config_, options_.gpu_users, folder_, options_.live, world_, events_);
    if (start_.failed_at > 0) watch_.ContinueAfter(start_.failed_step, start_.failed_at);
    TellStart();
    checkpoint::Manifest manifest;
    manifest.set_lockstep_version(options_.version);
    manifest.set_config(PrintConfig(config_));
    manifest.set_metric_definitions(MetricDefinitionsOf(start_, config_));
    manifest.mutable_data_set()->Assign(fit_.data_sets().begin(), fit_.data_sets().end());
    for (const std::string& line : DataFacts(*fit_.data().train)) manifest.add_data(line);
    checkpointing_.emplace(config_, world_, folder_, events_, start_.job, manifest, ModelMetadata(),
                           ResumedStep(start_), [this] { return State(); });
    if (folder_ != nullptr) {
      const auto& validation = fit_.data().validation;
      stopping_.emplace(Stopping::Options{
          .end_by_s = options_.end_by_s,
          .state_bytes = Stopping::kStateBytesPerParameter * fit_.step().ParameterCount(),
          .global_batch = config_.global_batch(),
          .validation_samples = validation ? validation->size() : 0,
          .user_stops = [this] { return folder_->WhyUserStops(); }});
    }
    watch_.Begin({.first_step = first_step_,
                  .total_steps = total_steps_,
                  .command_start_s = options_.command_start_s,
                  .version = options_.version});
  }

  // Reads, on rank 0, the model's weights from `checkpoint`. Returns the order of the parameters in the gradient
  // buckets (Step::Resume()) of the job that saved the checkpoint.
  std::vector<int64_t> ReadModel(const Checkpoint& checkpoint) {
    RequireSameData(start_, DataFacts(*fit_.data().train));
    if (const std::string samples = SamplesFile(checkpoint, start_.manifest); !samples.empty()) {
      records_.Resume(samples, start_.manifest.time(), world_.rank(), world_.size());
    }
    const at::Tensor order =
        ReadShared(StateFiles(checkpoint, start_.manifest), Step::kBucketOrder);
    if (world_.rank() == 0) {
      const std::string path = ModelFile(checkpoint);
      RequireSameGraph(config_, fit_.model(), GraphOfWeights(path, kInCheckpoint), checkpoint.path,
                       start_.is_of_another_run ? "" : ", or begin anew with --fresh");
      CopyByName(path, ReadSafetensors(path, kInCheckpoint), fit_.model().State());
    }
    RequireSameParameters(order.numel(), ModelFile(checkpoint));
    const auto* begin = order.const_data_ptr<int64_t>();
    return {begin, begin + order.numel()};
  }

  // Checks that the job that saved the checkpoint has trained as many parameters as this one, because the optimizer's
  // state would not fit otherwise. Another module of the same architecture may have other frozen parameters.
  void RequireSameParameters(int64_t were_trained, const std::string& weights) {
    std::set<const void*> parameters;  // a tied parameter is listed under each of its names
    for (const at::Tensor& parameter : fit_.model().parameters()) {
      if (parameter.requires_grad()) parameters.insert(parameter.unsafeGetTensorImpl());
    }
    const int64_t trained = std::ssize(parameters);
    if (trained == were_trained) return;
    throw UsageError(
        "{}: its run trained {} of the model's parameters, and this one trains {}, which its "
        "optimizer's state does not fit: {}--set init_from={} begins with its weights",
        start_.checkpoint->path, were_trained, trained,
        start_.is_of_another_run ? "leave out --from: " : "with --fresh, ", weights);
  }

  void TellStart() {
    const TrainingData& data = fit_.data();
    RunStarted event{.run_dir = config_.run_dir(),
                     .model = config_.model().name(),
                     .version = options_.version,
                     .precision = config::Precision_Name(fit_.precision()),
                     .restarts = options_.restarts,
                     .ranks = world_.size(),
                     .on_gpu = world_.device.is_cuda(),
                     .samples = data.train->size(),
                     .validation_samples = data.validation ? data.validation->size() : 0,
                     .epochs = config_.epochs(),
                     .steps = total_steps_,
                     .global_batch = config_.global_batch(),
                     .parameters = fit_.step().ParameterCount(),
                     .loader_threads = fit_.loader_options().threads};
    if (config_.data().format() == config::Data::IMAGES) {
      event.decodes_on_gpu = data.train->samples_at_once() > 1;
    }
    events_.Emit(event);
    if (const auto& chosen = fit_.chosen()) events_.Emit(*chosen);
    if (world_.rank() == 0) watch_.ExpectMemory(fit_.ForetoldMemory());
    for (const std::string& remark : data.remarks) events_.Emit(RunWarning{remark});
    if (world_.rank() == 0 && !start_.checkpoint) {
      for (const std::string& warning :
           DataWarnings(config_.data(), *data.train, data.validation.get())) {
        events_.Emit(RunWarning{warning});
      }
    }
    watch_.TellWhyNoGraph();
    if (folder_ != nullptr) {
      for (const std::string& warning : folder_->warnings()) events_.Emit(RunWarning{warning});
    }
    if (start_.checkpoint) events_.Emit(ResumedEvent(start_));
    for (const std::string& remark : metric_remarks_) events_.Emit(RunWarning{remark});
  }

  // ---- Checkpoints ------------------------------------------------------------------------------

  // Returns the metadata of each file of the model's weights.
  std::map<std::string, std::string> ModelMetadata() const {
    const std::string graph = GraphText(fit_.model());
    if (graph.empty()) return {};
    return {{kGraphOfWeights, graph}};
  }

  StateTree Tree() {
    return TreeOf(fit_.accumulation(), plateau_, early_stopping_, fit_.step(), world_);
  }

  CheckpointState State() {
    fit_.step().WaitForParameters();
    CheckpointState state{
        .model = fit_.model().State(), .tree = Tree(), .samples = records_.Merged(world_.host)};
    state.facts.set_metric_step(evaluated_step_);
    state.facts.set_time(UnixSeconds());
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
    // If the number of ranks has changed, the saved random states do not fit the ranks. So every rank continues with a
    // new seed.
    if (!as_many_ranks) {
      at::manual_seed(Mix(config_.seed() + static_cast<uint64_t>(first_step_)) ^
                      Mix(uint64_t{1} + world_.rank()));
    }
    Restore(Tree(), StateFiles(checkpoint, manifest),
            {manifest.part_version().begin(), manifest.part_version().end()},
            {.rank = world_.rank(),
             .as_many_ranks = as_many_ranks,
             .sharded = config_.optimizer().shard()});
    fit_.step().AfterRestore();
    if (!EvaluationsCount(start_, config_)) early_stopping_.BeginAnew();
    if (!LossesCount(start_)) plateau_.BeginAnew();
    EndIfOver(first_step_);
    if (!start_.validates_anew) {
      evaluated_step_ = manifest.metric_step();
      for (const checkpoint::Metric& metric : manifest.metric()) {
        evaluation_.push_back({metric.name(), metric.value()});
      }
    }
    // Unless the user has changed `accumulation` in the config, the run continues with the checkpoint's number of
    // micro-batches, which is higher than the config's if memory has run out before.
    const bool is_users = ParsePrinted(manifest.config()).accumulation() != config_.accumulation();
    fit_.ResumeAt(first_step_, is_users ? config_.accumulation() : fit_.accumulation());
  }

  // ---- Steps ------------------------------------------------------------------------------------

  void MakeStep(int64_t step) {
    const StopRequest asked = AskedToStop(step);
    fit_.step().Ask({.saves = checkpointing_->Asked(),
                     .profiled_steps = watch_.ProfilesAsked(),
                     .stop = asked == StopRequest::kStop,
                     .interrupt = asked == StopRequest::kInterrupt});
    fit_.TakeFewerMicroBatches(step);
    watch_.BeforeStep(step);
    if (HistogramsAreDue(config_.observe(), step + 1)) fit_.step().AskForHistograms(step + 1);
    if (world_.flight != nullptr) world_.flight->SetStep(step + 1);
    const double lr = LearningRateOf(step);
    try {
      while (!watch_.OnStep(step, checkpointing_->memories(), [&] { return fit_.Run(lr); })) {
        watch_.Spend(Loss::kMemory, [&] { MakeRoom(step); });
      }
    } catch (...) {
      watch_.TellSkipped(*fit_.data().train);  // too many unreadable samples may be the cause
      throw;
    }
  }

  // Returns whether this rank is asked to stop before `step`, counted from 0.
  StopRequest AskedToStop(int64_t step) {
    const StopRequest asked = options_.asked_to_stop();
    if (!stopping_) return asked;
    const int64_t per_epoch = fit_.steps_per_epoch();
    const StopRequest found = stopping_->Asked(SecondsSinceBoot(), per_epoch - step % per_epoch,
                                               checkpointing_->slowest_s());
    return std::max(asked, found);
  }

  // Releases memory or halves the micro-batches after `step`, counted from 0, did not fit in memory, and prepares Run()
  // to repeat the step.
  void MakeRoom(int64_t step) {
    if (fit_.GiveWay(step)) return;
    if (checkpointing_->LeaveDeviceMemory([this] { TakeAllFigures(); })) {
      fit_.BeginAgain(step);
      events_.Emit(CheckpointsLeftDevice{step + 1});
      return;
    }
    fit_.HalveMicroBatches(step, watch_.FailedInStep());
  }

  double LearningRateOf(int64_t step) const {
    return peak_lr_ * plateau_.share() * LearningRateShare(config_.schedule(), step, total_steps_);
  }

  // Handles the steps' figures that have arrived from the device. If `waits` is set, waits for the figures of all
  // queued steps.
  void TakeFigures(int64_t steps_done, bool waits) {
    while (const std::optional<StepReport> report = watch_.NextSeen(steps_done, waits)) {
      GoOnFrom(*report);
      watch_.Tell(*report);
    }
  }
  void TakeAllFigures() { TakeFigures(/*steps_done=*/0, /*waits=*/true); }

  // Throws Error on every rank if the run cannot continue after the step of `report`. Otherwise stores the requests of
  // all ranks, which are in the step's figures.
  void GoOnFrom(const StepReport& report) {
    const auto& figures = report.figures;
    if (figures[ops::kBadStep] > 0 && config_.anomaly().policy() != config::Anomaly::SKIP) {
      EndForAnomaly({.step = static_cast<int64_t>(figures[ops::kBadStep]),
                     .loss = figures[ops::kBadLoss],
                     .grad_norm = figures[ops::kBadGradNorm]},
                    config_, fit_.data(), /*saves=*/folder_ != nullptr);
    }
    if (fit_.precision() == config::FP16 && figures[ops::kScale] < kLeastLossScale) {
      EndForLossScale(report.step, figures[ops::kScale],
                      static_cast<int64_t>(figures[ops::kSkipped]), config_, fit_.data());
    }
    if (figures[ops::kStopsAsked] > 0) stop_ = StopRequest::kStop;
    if (figures[ops::kInterruptsAsked] > 0) stop_ = StopRequest::kInterrupt;
    checkpointing_->OnFigures(report.step, static_cast<int64_t>(figures[ops::kSavesAsked]));
  }

  // ---- Epochs -----------------------------------------------------------------------------------

  void EndEpoch(int64_t steps_done) {
    Step& step = fit_.step();
    step.WaitForParameters();
    WaitForDevice(world_.device);
    TakeAllFigures();
    watch_.EndEpoch(steps_done);

    // Buffers, such as BatchNorm's running statistics, depend on each rank's own samples. All ranks evaluate and save
    // with the buffers of rank 0.
    BroadcastFromRankZero(step.buffers(), world_.communicator);
    if (fit_.data().validation) {
      const bool averages = config_.optimizer().ema_decay() > 0;
      if (averages) step.SwapAverages();
      EvaluateAt(steps_done);
      if (averages) step.SwapAverages();
    }
    watch_.BeginEpoch(steps_done);
  }

  void EvaluateAt(int64_t steps_done) {
    const Dataset& validation = *fit_.data().validation;
    const double seconds = watch_.Evaluation(steps_done, checkpointing_->memories(), [&] {
      evaluation_ = Evaluate(fit_.model(), fit_.preprocessing(), validation,
                             EvaluationBatch(config_, fit_.accumulation()), fit_.loader_options(),
                             fit_.precision(), world_);
    });
    evaluated_step_ = steps_done;
    if (stopping_) stopping_->OnEvaluation(seconds);
    watch_.TellSkipped(validation);
    const int64_t epoch = fit_.EpochOf(steps_done);
    events_.Emit(Evaluated{steps_done, epoch, evaluation_});
    TellOfMetrics();
    // An evaluation that is not at the end of an epoch happens only at the end of a run. If the run is continued later
    // with more steps, the epoch is evaluated again, so the evaluation here must not count.
    if (steps_done % fit_.steps_per_epoch() != 0) return;
    if (config_.schedule().type() == config::Schedule::PLATEAU) {
      plateau_.OnValidation(evaluation_.front().value);
    }
    early_stopping_.OnEvaluation(evaluation_, epoch);
    EndIfOver(steps_done);
  }

  // Tells the user once about each metric of the evaluation that is not defined or leaves something out, if short lines
  // contain the metric or the config names it.
  void TellOfMetrics() {
    if (world_.rank() != 0) return;
    std::vector<Metric> seen;
    std::ranges::copy_if(evaluation_, std::back_inserter(seen), [&](const Metric& metric) {
      return IsBrief(metric.name) || metric.name == config_.checkpoint().keep_best() ||
             metric.name == config_.early_stopping().metric();
    });
    for (const std::string& remark : MetricRemarks(seen)) {
      if (told_of_metrics_.insert(remark).second) events_.Emit(RunWarning{"validation: " + remark});
    }
  }

  // Makes step `steps_done` the run's last one if early stopping says that the run is over.
  void EndIfOver(int64_t steps_done) {
    if (early_stopping_.is_over()) total_steps_ = steps_done;
  }

  // ---- The end ----------------------------------------------------------------------------------

  // Stops the run after step `steps_done` because of a request. Commits the state, so that the run can continue later,
  // and returns the request.
  StopRequest StopAfter(int64_t steps_done) {
    RequireFolder();
    TakeAllFigures();
    watch_.EndMemory();
    watch_.EndProfile(steps_done);
    const SecondsReport seconds = watch_.ReportLast(steps_done);
    checkpointing_->SaveLast(steps_done, [this] { TakeAllFigures(); });
    if (folder_ != nullptr) {
      folder_->AnswerStop();
      events_.Emit(seconds);
      const std::string why = stopping_->why().empty() ? "a signal" : stopping_->why();
      events_.Emit(RunStopped{.step = steps_done,
                              .steps = total_steps_,
                              .epoch = fit_.EpochOf(steps_done),
                              .why = why});
    }
    return stop_;
  }

  // Throws Error on every rank if another job has taken the run folder. Makes the folder again if it was removed. Call
  // it before the state is written into the folder.
  void RequireFolder() {
    Together(world_.host, [&] {
      if (folder_ != nullptr) folder_->RequireOwn(config_);
    });
  }

  void Finish() {
    RequireFolder();
    watch_.EndMemory();
    Step& step = fit_.step();
    Together(world_.host, [&] { CheckSameOnAllRanks(step.parameters(), world_.communicator); });
    const SecondsReport seconds = watch_.ReportLast(total_steps_);
    std::optional<Error> not_saved;
    try {
      checkpointing_->SaveLast(total_steps_, [this] { TakeAllFigures(); });
    } catch (const Error& error) {
      if (error.status() != ExitStatus::kCheckpoint) throw;
      not_saved = error;
    }
    // With ema_decay, the averaged weights are written to the file, because the evaluations used them.
    if (config_.optimizer().ema_decay() > 0) step.SwapAverages();
    Together(world_.host, [&] {
      if (folder_ == nullptr) return;
      std::map<std::string, std::string> metadata = ModelMetadata();
      metadata["format"] = "pt";
      metadata["lockstep_version"] = options_.version;
      metadata[kStepOfWeights] = std::to_string(total_steps_);
      WriteSafetensors(RunWeightsPath(folder_->path()), fit_.model().State(), metadata);
    });
    if (not_saved) throw Error(*not_saved);
    if (folder_ == nullptr) return;
    folder_->AnswerStop();  // a file STOP that came too late has no effect
    events_.Emit(seconds);
    events_.Emit(RunDone{.step = total_steps_,
                         .epoch = fit_.EpochOf(total_steps_),
                         .metrics = evaluation_,
                         .weights = RunWeightsPath(folder_->path()),
                         .first_step_s = watch_.first_step_s(),
                         .samples_per_s = watch_.samples_per_s(),
                         .total_s = SecondsSinceBoot() - options_.command_start_s,
                         .data_wait = watch_.DataWaitShare(),
                         .early = early_stopping_.why()});
  }

  const config::Config& config_;
  Fit& fit_;
  const World& world_;
  RunEvents& events_;
  RunFolder* folder_;
  const TrainOptions& options_;
  const RunStart& start_;
  const std::vector<std::string>& metric_remarks_;  // the result of FollowMetrics()
  RunWatch watch_;
  SampleRecords records_;
  const double peak_lr_ = PeakLearningRate(config_);
  Plateau plateau_;
  EarlyStopping early_stopping_;
  int64_t first_step_ = 0;  // the first step of this process, counted from 0
  int64_t total_steps_;
  std::optional<Checkpointing> checkpointing_;  // has a value from Begin() on
  std::optional<Stopping> stopping_;            // has a value only on rank 0
  StopRequest stop_ = StopRequest::kNone;       // the request to stop that all ranks obey

  std::vector<Metric> evaluation_;         // metrics of the last evaluation
  int64_t evaluated_step_ = 0;             // steps done at the last evaluation
  std::set<std::string> told_of_metrics_;  // the lines of TellOfMetrics() so far
};

}  // namespace

StopRequest Train(config::Config config, const Extensions& extensions, const World& world,
                  const TrainOptions& options) {
  // A thread reads the checkpoint into the page cache while the model is being made. The destructor of `reading` waits
  // for this thread.
  // NOLINTNEXTLINE(bugprone-unused-local-non-trivial-variable)
  const std::future<void> reading = ReadCheckpointAhead(config.run_dir(), world);
  RunEvents events;
  std::optional<Fit> fit;
  MakeFit(fit, config, extensions, world, events);
  const std::string job = NameJob(options.job, world);
  std::optional<RunFolder> folder;
  Together(world.host, [&] {
    if (world.rank() == 0) folder.emplace(config, job, options.fresh);
  });
  RequireSharedFolder(config.run_dir(), job, world);
  const RunStart start =
      FindStart(folder, config, fit->data_sets(), options.from, options.restarts, job, world);
  const std::vector<std::string> metric_remarks = FollowMetrics(start, config);
  if (world.flight != nullptr) {
    Together(world.host, [&] {
      std::filesystem::create_directories(config.run_dir() + "/flight");
      world.flight->MoveTo(FlightPath(config.run_dir(), world.rank()));
      world.watchdog->SetRunFolder(config.run_dir());
    });
  }
  std::optional<Trainer> trainer;
  return OrLeave(options, world.device, [&] {
    trainer.emplace(config, *fit, world, events, folder ? &*folder : nullptr, options, start,
                    metric_remarks);
    return trainer->Run();
  });
}

}  // namespace lockstep
