#include "trainer/run/fit.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "comm/together.h"
#include "trainer/run/evaluate.h"
#include "trainer/run/extensions.h"
#include "trainer/run/made_of.h"
#include "trainer/run/make_model.h"
#include "trainer/run/memory_account.h"
#include "trainer/run/run_start.h"
#include "trainer/step/precision.h"

namespace lockstep {
namespace {

RunWarning NoRoomForHistograms(int64_t step) {
  return {fmt::format(
      "step {} does not fit in memory with histograms: the run goes on without them: leave out "
      "observe.histograms_every_steps, or take more accumulation",
      step)};
}

}  // namespace

Fit::Fit(const config::Config& config, TrainingData data, const Models& models, const World& world,
         RunEvents& events)
    : config_(config),
      world_(world),
      events_(events),
      precision_(PrecisionOn(world.device, config.precision())),
      data_(std::move(data)),
      data_sets_(DataSetsOf(config.data(), data_)),
      models_(models),
      preprocessing_(config.data(), data_.train->spec(), world.device, precision_),
      model_(MakeModel(config, data_.train->spec(), models, world)),
      accumulation_(config.accumulation()),
      sampler_(SamplerOptionsFor(config, accumulation_, data_, world.rank(), world.size())),
      loader_options_(LoaderOptionsFor(config.loader(), *data_.train, world)),
      data_wait_(*data_.train) {
  // All ranks have drawn the same initial weights from the same seed. From here on each rank has a seed of its own, so
  // that, for example, dropout differs between the ranks.
  at::manual_seed(config.seed() ^ (0x9e3779b97f4a7c15 * (uint64_t{1} + world.rank())));
}

std::vector<std::string> Fit::Facts() const {
  return FactsOf(*data_.train, data_.validation.get(), data_sets_, model_->State());
}

void Fit::Begin() {
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
  // The foretold steps begin to compile the generated kernels, all of which the first step would otherwise have to wait
  // for, one after another.
  if (model_->GeneratesKernels()) ForetoldMemory();
}

void Fit::ResumeAt(int64_t step, int64_t accumulation) {
  accumulation_ = accumulation;
  if (const auto& chosen = micro_batches_->chosen()) accumulation_ = chosen->accumulation;
  accumulation_ = std::min(accumulation_, config_.global_batch() / world_.size());
  SeekTo(step);
}

void Fit::Feed() {
  if (input_) data_wait_.Leave(*input_);
  LoaderOptions options = loader_options_;
  options.augment = AugmentOptionsFor(config_);
  input_.emplace(*data_.train, preprocessing_, sampler_, options, world_.device);
}

bool Fit::TakeFewerMicroBatches(int64_t step) {
  const auto fewer = micro_batches_->Fewer(step, accumulation_);
  if (!fewer) return false;
  accumulation_ = fewer->accumulation;
  BeginAgain(step);
  events_.Emit(*fewer);
  return true;
}

bool Fit::GiveWay(int64_t step) {
  std::optional<RunEvent> gave_way;
  if (step_->DropHistograms()) {
    gave_way = NoRoomForHistograms(step + 1);
  } else if (step_->holds_graphs()) {
    gave_way = GraphsGaveWay{step + 1};
  }
  if (!gave_way) return false;
  BeginAgain(step);
  events_.Emit(*gave_way);
  return true;
}

void Fit::HalveMicroBatches(int64_t step, const std::optional<FailedAllocation>& failed) {
  const auto most = static_cast<int>(config_.global_batch() / world_.size());
  const int64_t too_many = sampler_.max_micro_batch();
  if (accumulation_ >= most) EndForMemory(step + 1, too_many, failed);
  accumulation_ = std::min<int64_t>(2 * accumulation_, most);
  BeginAgain(step);
  events_.Emit(OutOfMemory{step + 1, too_many, sampler_.max_micro_batch(), accumulation_, failed});
}

void Fit::BeginAgain(int64_t step) {
  SeekTo(step);
  Feed();
}

// Sets the sampler to the first micro-batch of `step`, counted from 0, and the Step to the current number of
// micro-batches. Feed() then begins to read at `step`.
void Fit::SeekTo(int64_t step) {
  sampler_ =
      Sampler(SamplerOptionsFor(config_, accumulation_, data_, world_.rank(), world_.size()));
  sampler_.Seek(step);
  step_->SetMicroBatches(static_cast<int>(accumulation_), sampler_.max_micro_batch());
}

const std::optional<MemoryReport>& Fit::ForetoldMemory() {
  if (!foreteller_) foreteller_ = ForetellerOf(config_, models_, world_);
  const StepForm form = StepFormOf(config_, accumulation_, world_.size());
  if (form != foretold_form_) {
    foretold_memory_ = ForetoldMemoryOf(foreteller_.get(), form, world_);
    foretold_form_ = form;
  }
  return foretold_memory_;
}

void MakeFit(std::optional<Fit>& fit, config::Config& config, const Extensions& extensions,
             const World& world, RunEvents& events) {
  TogetherInMemory(world.host, [&] {
    TrainingData data = OpenTrainingData(config, extensions.datasets, world);
    config = Resolved(std::move(config), data);
    if (config.checkpoint().keep_best().empty()) {
      config.mutable_checkpoint()->set_keep_best(config.early_stopping().metric());
    }
    SetUpNumerics(PrecisionOn(world.device, config.precision()), config.deterministic());
    torch::autograd::AnomalyMode::set_enabled(config.debug().anomaly_detection());
    RequireMetric("early_stopping.metric", config.early_stopping().metric(), data.validation.get());
    RequireMetric("checkpoint.keep_best", config.checkpoint().keep_best(), data.validation.get());
    fit.emplace(config, std::move(data), extensions.models, world, events);
  });
  RequireSame(fit->Facts(), world.host);
}

}  // namespace lockstep
