#include "trainer/run/run_watch.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "ops/generated/kernel_cache.h"
#include "trainer/run/device_wait.h"

namespace lockstep {
namespace {

ProgressPlan PlanOf(const config::Config& config, const Fit& fit, int64_t total_steps) {
  const int64_t steps_per_epoch = fit.steps_per_epoch();
  return {.steps = total_steps,
          .steps_per_epoch = steps_per_epoch,
          .global_batch = config.global_batch(),
          .samples_per_epoch = config.data().last_batch() == config::Data::DROP
                                   ? steps_per_epoch * config.global_batch()
                                   : fit.data().train->size(),
          .evaluates = fit.data().validation != nullptr};
}

}  // namespace

RunWatch::RunWatch(const config::Config& config, const World& world, Fit& fit, RunEvents& events)
    : config_(config),
      world_(world),
      fit_(fit),
      events_(events),
      time_(config, fit.precision(), world, *fit.data().train, fit.data_wait()),
      memory_(config, world, events),
      metrics_(world.device) {}

void RunWatch::Begin(const Start& start) {
  start_ = start;
  events_.Add(time_.ReadingsSink());
  profiling_.emplace(
      config_, world_, events_,
      Profiling::Options{.version = start.version,
                         .last_step = start.total_steps,
                         .peak_flops = time_.peak_flops(),
                         .graphs = [this] { return fit_.step().nodes_of_graphs(); }});
  progress_.emplace(PlanOf(config_, fit_, start.total_steps));
  progress_->Begin(start.first_step);
}

void RunWatch::BeforeStep(int64_t step) {
  progress_->BeginStep(step);
  Spend(Loss::kOther, [&] { profiling_->BeforeStep(step + 1); });
  metrics_.BeginStep(time_.DelayBeforeStep(fit_.step().why_no_graph()));
}

bool RunWatch::OnStep(int64_t step, const std::vector<NamedTensor>& snapshots,
                      const std::function<bool()>& make) {
  const auto watched = [&] {
    return memory_.Watch(step + 1, fit_.step(), fit_.input(), snapshots, make);
  };
  return step == start_.first_step ? time_.WatchFirstStep(watched) : watched();
}

void RunWatch::Queued(int64_t steps_done, double lr, bool is_last) {
  if (steps_done - 1 == start_.first_step) CountFromHere();
  if (const auto histograms = fit_.step().TakeHistograms()) events_.Emit(*histograms);
  is_told_ = IsTold(steps_done, is_last);
  StepReport report{.told = is_told_,
                    .step = steps_done,
                    .epoch = fit_.EpochOf(steps_done),
                    .lr = lr,
                    .has_loss_scale = fit_.precision() == config::FP16};
  if (is_told_) {
    const Progress::Line line = progress_->TakeLine(steps_done);
    report.samples_per_s = line.samples_per_s;
    report.seconds_left = line.seconds_left;
    report.data_wait = fit_.data_wait().TakeShare(fit_.input(), line.seconds);
    report.loader_threads = fit_.input().loader.threads();
  }
  report.time.shape = progress_->SamplesOf(steps_done);
  time_.OnQueued(fit_.input(), fit_.step().preprocessing_s(), report);
  metrics_.Push(report, fit_.step().figures());
}

// Begins to count time after the process's first step, whose time includes warm-up work.
void RunWatch::CountFromHere() {
  WaitForDevice(world_.device);
  first_step_s_ = SecondsSinceBoot() - start_.command_start_s;
  time_.CountFromHere(fit_.input());
  progress_->CountFromHere();
  const ops::KernelReport kernels = ops::GeneratedKernels();
  if (kernels.compiled + kernels.kept == 0) return;
  events_.Emit(KernelsGenerated{.compiled = kernels.compiled,
                                .kept = kernels.kept,
                                .compiling_s = kernels.compiling_s,
                                .waited_s = kernels.waited_s});
}

bool RunWatch::IsTold(int64_t steps_done, bool is_last) const {
  return steps_done == 1 || steps_done % config_.log().every_steps() == 0 || is_last;
}

std::optional<StepReport> RunWatch::NextSeen(int64_t steps_done, bool waits) {
  return waits ? metrics_.PopAnyway() : metrics_.Pop(steps_done);
}

void RunWatch::Tell(const StepReport& report) {
  profiling_->OnFigures(static_cast<int64_t>(report.figures[ops::kProfilesAsked]));
  time_.OnSeen(fit_.input(), report);
  progress_->OnLoss(report.step, report.loss());
  events_.SetSteps(report.step);
  if (!report.told) return;
  events_.Emit(StepDone{report});
  if (const auto seconds = time_.Report(fit_.input(), TimeAt(report.step))) events_.Emit(*seconds);
  TellWhyNoGraph();
}

void RunWatch::EndStep(int64_t steps_done, bool evaluates) {
  if (is_told_) TellSkipped(*fit_.data().train);
  progress_->EndStep();
  Spend(Loss::kOther, [&] { profiling_->AfterStep(steps_done, evaluates); });
}

void RunWatch::TellSkipped(const Dataset& dataset) {
  for (const std::string& why : dataset.TakeReports()) events_.Emit(BadSample{why});
}

void RunWatch::TellWhyNoGraph() {
  const std::string& why = fit_.step().why_no_graph();
  if (why.empty() || std::exchange(told_why_no_graph_, true)) return;
  events_.Emit(RunsWithoutGraph{why});
}

TimeAccount::Now RunWatch::TimeAt(int64_t steps_done) const {
  return {.step = steps_done,
          .accumulation = fit_.accumulation(),
          .preprocessing_s = fit_.step().preprocessing_s(),
          .parameters = fit_.step().ParameterCount(),
          .why_no_graph = fit_.step().why_no_graph(),
          .growth = memory_.Growth()};
}

void RunWatch::EndEpoch(int64_t steps_done) {
  const Progress::Epoch figures = progress_->EndEpoch(steps_done);
  events_.Emit(EpochDone{steps_done, fit_.EpochOf(steps_done), figures.loss, figures.seconds,
                         figures.samples_per_s});
}

double RunWatch::Evaluation(int64_t steps_done, const std::vector<NamedTensor>& snapshots,
                            const std::function<void()>& evaluate) {
  const double seconds = Spend(Loss::kEvaluation, [&] {
    memory_.WatchEvaluation(steps_done, fit_.step(), fit_.input(), snapshots, evaluate);
  });
  progress_->OnEvaluation(seconds);
  return seconds;
}

void RunWatch::BeginEpoch(int64_t steps_done) {
  fit_.input().loader.Rest();
  progress_->BeginEpoch(steps_done);
  fit_.data_wait().Forget(fit_.input());
}

double RunWatch::DataWaitShare() {
  const double trained_s = progress_->trained_s();
  if (trained_s <= 0) return 0;
  return std::min(1.0, fit_.data_wait().Seconds(fit_.input()) / trained_s);
}

}  // namespace lockstep
