#include "trainer/run/measure.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <functional>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/output_target.h"
#include "base/tensor/range.h"
#include "comm/together.h"
#include "config/kept_inputs.h"
#include "config/peak_learning_rate.h"
#include "data/feed/micro_batches.h"
#include "observe/profile/trace.h"
#include "observe/run_event.h"
#include "trainer/run/device_arithmetic.h"
#include "trainer/run/device_wait.h"
#include "trainer/run/evaluate.h"
#include "trainer/run/fit.h"
#include "trainer/run/memory_account.h"
#include "trainer/step/schedule.h"

namespace lockstep {
namespace {

constexpr int kPhaseSteps = 10;

// Makes all steps of a Fit with one and the same micro-batch, which stays in the device's memory.
class PinnedSteps {
 public:
  PinnedSteps(const config::Config& config, Fit& fit, const World& world)
      : config_(config),
        world_(world),
        fit_(fit),
        total_steps_(StepsOfRun(config, fit.data().train->size())) {
    fit.Begin();
    TogetherInMemory(world.host, [&] { fit.Feed(); });
    TogetherInMemory(world.host, [&] { Pin(); });
    if (batch_.origin.global_count != config.global_batch()) {
      throw Error::OnEveryRank(
          ExitStatus::kUsage, fmt::format("steps of {} samples cannot be timed with {}: take fewer",
                                          config.global_batch(), fit.data().train->size()));
    }
  }

  const DeviceBatch& batch() const { return batch_; }
  int64_t made() const { return made_; }

  void Make() {
    const int64_t step = made_++;
    if (world_.flight != nullptr) world_.flight->SetStep(step + 1);
    if (fit_.TakeFewerMicroBatches(step)) Pin();
    const double lr = peak_lr_ * LearningRateShare(config_.schedule(), step, total_steps_);
    while (!fit_.step().Run(lr, *pinned_)) {
      if (!fit_.GiveWay(step)) fit_.HalveMicroBatches(step, std::nullopt);
      Pin();
    }
  }

 private:
  // Takes a micro-batch from the feed. The feed does not overwrite the micro-batch until the next call of the feed's
  // Next().
  void Pin() {
    batch_ = fit_.input().feed.Next();
    pinned_.emplace(std::vector<DeviceBatch>{batch_});
  }

  const config::Config& config_;
  const World& world_;
  Fit& fit_;
  const double peak_lr_ = PeakLearningRate(config_);
  int64_t total_steps_;
  int64_t made_ = 0;
  DeviceBatch batch_;
  std::optional<PinnedBatches> pinned_;
};

// Makes kPhaseSteps more steps. Rank 0 writes a Chrome trace of these steps to `target`, the file `path`.
void TraceSteps(PinnedSteps& steps, Fit& fit, const World& world,
                std::optional<OutputTarget>& target, const std::string& path) {
  const auto act = [&] {
    for (int i = 0; i < kPhaseSteps; ++i) {
      const Range range(fmt::format("{}{}", kStepRange, steps.made() + 1), Range::Of::kStep);
      steps.Make();
    }
  };
  Together(world.host, [&] {
    if (target) {
      Trace(*target, path, world.device, act, [&] { return fit.step().nodes_of_graphs(); });
    } else {
      act();
    }
  });
}

StepMeasurement Measure(const config::Config& config, Fit& fit, const World& world, int warmup,
                        int steps, const std::string& trace, const KeptFiles& kept,
                        double command_start_s) {
  std::optional<OutputTarget> target;
  Together(world.host, [&] {
    if (!trace.empty() && world.rank() == 0) target.emplace(trace, kept);
  });
  PinnedSteps pinned(config, fit, world);
  StepMeasurement measured;
  pinned.Make();
  WaitForDevice(world.device);
  measured.first_step_s = SecondsSinceBoot() - command_start_s;
  StepClock clock(world.device);
  fit.step().SetClock(&clock);
  while (pinned.made() < warmup) pinned.Make();
  for (int i = 0; i < steps; ++i) {
    clock.BeginStep();
    pinned.Make();
  }
  clock.BeginStep();
  measured.step_ms = clock.StepTimes();
  measured.memory = fit.step().memory().PeakOfDevice();
  for (int i = 0; i < kPhaseSteps; ++i) {
    clock.BeginStep();
    pinned.Make();
    clock.ReadPhases();
  }
  measured.phase_ms = clock.PhaseTimes();
  if (!trace.empty()) TraceSteps(pinned, fit, world, target, trace);
  fit.step().SetClock(nullptr);
  fit.step().WaitForParameters();

  const at::Tensor figures = fit.step().figures().cpu();
  measured.loss = figures[ops::kLoss].item<double>();
  measured.peak_flops = ArithmeticOf(world.device, fit.precision()).peak_flops;
  measured.parameters = fit.step().ParameterCount();
  measured.samples = fit.data().train->size();
  measured.precision = fit.precision();
  measured.accumulation = fit.accumulation();
  // SetMicroBatches() releases the memory of the CUDA graphs, which the forward pass below may need.
  fit.step().SetMicroBatches(static_cast<int>(fit.accumulation()), fit.max_micro_batch());
  measured.forward_flops =
      fit.accumulation() *
      ForwardFlops(fit.model(), fit.preprocessing(), pinned.batch(), fit.precision(), world);
  measured.why_no_graph = fit.step().why_no_graph();
  return measured;
}

}  // namespace

StepMeasurement MeasureSteps(config::Config config, const Extensions& extensions,
                             const World& world, int warmup, int steps, const std::string& trace,
                             KeptFiles kept, const TrainOptions& options) {
  KeepFilesOf(config, "the config", kept);
  RunEvents events;  // has no sinks, so events have no effect
  std::optional<Fit> fit;
  MakeFit(fit, config, extensions, world, events);
  return OrLeave(options, world.device, [&] {
    return Measure(config, *fit, world, warmup, steps, trace, kept, options.command_start_s);
  });
}

}  // namespace lockstep
