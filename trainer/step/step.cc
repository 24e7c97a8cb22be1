#include "trainer/step/step.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <algorithm>
#include <exception>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/tensor/autocast.h"
#include "base/tensor/foretold_gpu.h"
#include "comm/together.h"
#include "observe/hidden_syncs.h"
#include "trainer/step/histograms.h"
#include "trainer/step/precision.h"

namespace lockstep {
namespace {

static_assert(Reducer::kScalars == ops::kStepSums);

// Returns the model's parameters that require gradients. A parameter that the model registers under several names is
// listed once.
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

// Tells the model the gradient with which the loss's backward will be called. The destructor tells the model that the
// gradient is unknown.
class KnownLossGradient {
 public:
  KnownLossGradient(Model& model, const at::Tensor& gradient) : model_(model) {
    model_.SetLossGradient(gradient);
  }
  ~KnownLossGradient() { model_.SetLossGradient({}); }
  KnownLossGradient(const KnownLossGradient&) = delete;
  KnownLossGradient& operator=(const KnownLossGradient&) = delete;

 private:
  Model& model_;
};

// Saves the buffers and the states of the random number generators, which a step changes before its update, so that the
// step can be undone.
class Snapshot {
 public:
  Snapshot(const std::vector<NamedTensor>& buffers, at::Device device) {
    random_.push_back(at::globalContext().defaultGenerator(at::kCPU));
    if (device.is_cuda()) random_.push_back(at::globalContext().defaultGenerator(device));
    for (const at::Generator& random : random_) random_before_.push_back(random.get_state());
    for (const NamedTensor& buffer : buffers) {
      buffers_.push_back(buffer.tensor.detach());
      buffers_before_.push_back(buffer.tensor.detach().clone());
    }
  }

  void Restore() const {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(buffers_before_[i]);
    for (size_t i = 0; i < random_.size(); ++i) {
      at::Generator random = random_[i];
      random.set_state(random_before_[i]);
    }
  }

 private:
  std::vector<at::Generator> random_;
  std::vector<at::Tensor> random_before_;
  std::vector<at::Tensor> buffers_, buffers_before_;
};

}  // namespace

Step::Step(const config::Config& config, Model& model, const Preprocessing& preprocessing,
           const SampleSpec& spec, int64_t max_micro_batch, const World& world)
    : config_(config),
      model_(model),
      preprocessing_(preprocessing),
      augment_(AugmentOptionsFor(config)),
      spec_(spec),
      accumulation_(config.accumulation()),
      max_micro_batch_(max_micro_batch),
      world_(world),
      precision_(PrecisionOn(world.device, config.precision())),
      rules_{.max_norm = static_cast<float>(config.optimizer().clip_norm()),
             .scales_loss = precision_ == config::FP16,
             .growth_interval = config.loss_scale().growth_interval(),
             .stops = config.anomaly().policy() != config::Anomaly::SKIP,
             .weighs_targets = model.WeighsTargets()},
      norm_decides_(rules_.max_norm > 0 || config.optimizer().clip_value() > 0 ||
                    rules_.scales_loss || rules_.weighs_targets || !rules_.stops ||
                    world.size() == 1),
      parameters_(TrainedParametersOf(model)),
      scales_loss_(rules_.scales_loss),
      memory_(world.device) {
  for (const auto& item : model.named_buffers()) buffers_.push_back({item.key(), item.value()});
  reducer_.emplace(parameters_, world.communicator, ReducerOptionsFor(config));
  const at::TensorOptions on_device(world.device);
  values_ = at::zeros({ops::kStepValues}, on_device.dtype(at::kFloat));
  values_[ops::kLossScale].fill_(rules_.scales_loss ? config.loss_scale().initial() : 1.0);
  figures_ = at::zeros({ops::kStepFigures}, on_device.dtype(at::kDouble));
  requests_ = at::zeros({ops::kStepSums}, on_device.dtype(at::kFloat));
  share_ = at::zeros({}, on_device.dtype(at::kFloat));
  SetUpGraphs();
}

bool Step::Run(double lr, MicroBatches& batches) {
  phase_range_.reset();  // phase_range_ is still set if the last step threw
  has_captured_ = false;
  lacked_memory_ = false;
  const Range rest(std::string(NameOf(Phase::kRest)), Range::Of::kStep);
  if (seen_keys_.empty() || histograms_of_ > 0) return RunEagerly(lr, batches);
  DeviceBatch first = batches.Next();
  const int64_t key = first.origin.global_count;
  KeptBatch from_first(std::move(first), batches);
  const bool seen = std::ranges::find(seen_keys_, key) != seen_keys_.end();
  return seen ? RunGraph(lr, key, from_first) : RunEagerly(lr, from_first);
}

// Makes a step without a CUDA graph. A mistake in a model usually throws in the first step, on every rank. A rank that
// throws in the first step still takes part in the step's collectives, and then all ranks agree on one error. A rank
// that runs out of memory, in any step, still takes part in that step's collectives.
bool Step::RunEagerly(double lr, MicroBatches& batches) {
  const bool is_first = !agreed_;
  const Snapshot before(buffers_, world_.device);
  int64_t global_count = 0;
  bool out_of_memory = false;
  std::optional<Error> error;
  BeginStep();
  try {
    global_count = AccumulateGradients(batches);
    batches.Prefetch();
  } catch (const std::exception& exception) {
    // With sync_batch_norm the model's forward and backward contain collectives, in which the other ranks would wait
    // for this rank forever. So this rank throws at once, and takes part in no further collectives of the step.
    if (config_.ddp().sync_batch_norm()) throw;
    out_of_memory = IsOutOfMemory(exception);
    if (!is_first && !out_of_memory) throw;
    if (!out_of_memory) error = ErrorOf(exception);
    reducer_->GiveUp();
    phase_range_.reset();
  }
  lacked_memory_ = out_of_memory;
  if (is_first) AgreeOnErrors(error, world_.host);
  if (OnAnyRank(out_of_memory, "whether the step had memory enough", world_.host)) {
    reducer_->Wait();
    before.Restore();
    return false;
  }
  agreed_ = true;
  if (!optimizer_) {
    reducer_->Wait();
    Together(world_.host, [&] {
      // Without EmptyCache() the moments, which exist for the whole run, would be allocated in large cached blocks that
      // held activations, and these blocks could not be freed any more.
      EmptyCache(world_.device);
      reducer_->SettleLayout();
      MakeOptimizer();
    });
  }
  if (!copies_.is_settled()) {
    copies_.Settle();
    optimizer_->WriteCopies(copies_);
  }
  if (graphs_ && std::ranges::find(seen_keys_, global_count) == seen_keys_.end()) {
    seen_keys_.push_back(global_count);
  }
  optimizer_->SetLearningRate(lr);
  Update();
  return true;
}

void Step::Ask(const Requests& requests) {
  if (std::exchange(asked_, requests) == requests) return;
  requests_[ops::kSaveSum].fill_(requests.saves);
  requests_[ops::kStopSum].fill_(requests.stop ? 1 : 0);
  requests_[ops::kInterruptSum].fill_(requests.interrupt ? 1 : 0);
  requests_[ops::kProfileSum].fill_(requests.profiled_steps);
}

void Step::Resume(const std::vector<int64_t>& order) {
  reducer_->SettleLayout(order);
  MakeOptimizer();
}

void Step::MakeOptimizer() {
  optimizer_.emplace(config_.optimizer(), *reducer_, model_.StackedVectors(), values_,
                     rules_.scales_loss || rules_.weighs_targets);
}

void Step::AddTo(StateTree& state) {
  state.BeginPart("step", 1);
  state.Add("scales_loss", scales_loss_);
  state.Add("values", values_);
  state.Add("figures", figures_.narrow(0, 0, ops::kLastingFigures));
  state.Add("bucket_order", at::tensor(reducer_->order(), at::kLong));
  state.BeginPart("optimizer", 1);
  optimizer_->AddTo(state);
}

void Step::AfterRestore() {
  const bool scaled = std::exchange(scales_loss_, rules_.scales_loss) != 0;
  if (scaled != rules_.scales_loss) {
    values_[ops::kLossScale].fill_(rules_.scales_loss ? config_.loss_scale().initial() : 1.0);
    values_[ops::kGrowthTracker].zero_();
  }
  // The job that saved the state may have skipped a step whose loss or gradient was not finite. The figures of that
  // step are cleared here, so that this job does not end because of it.
  for (const ops::StepFigure figure : {ops::kBadStep, ops::kBadLoss, ops::kBadGradNorm}) {
    figures_[figure].zero_();
  }
}

bool Step::RunGraph(double lr, int64_t key, MicroBatches& batches) {
  if (slots_.empty()) {
    const MemoryScope scope(MemoryOwner::kSamples);
    for (int micro = 0; micro < accumulation_; ++micro) {
      slots_.push_back({EmptyInputs(spec_, max_micro_batch_, world_.device),
                        EmptyTargets(spec_, max_micro_batch_, world_.device),
                        EmptyDraws(augment_, max_micro_batch_, world_.device)});
    }
  }
  std::vector<DeviceBatch> micro_batches;
  for (int micro = 0; micro < accumulation_; ++micro) {
    DeviceBatch batch = batches.Next();
    const Range range("copy", Range::Of::kStep);
    const Slot& slot = slots_[micro];
    const int64_t count = batch.input.size(0);
    slot.input.narrow(0, 0, count).copy_(batch.input);
    slot.target.narrow(0, 0, count).copy_(batch.target);
    micro_batches.push_back(
        {std::move(batch.origin), slot.input.narrow(0, 0, count), slot.target.narrow(0, 0, count)});
    if (slot.draws.defined()) {
      micro_batches.back().draws = slot.draws.narrow(0, 0, count);
      micro_batches.back().draws.copy_(batch.draws);
    }
    if (micro + 1 < accumulation_) batches.Prefetch();
  }
  const auto compute = [&] {
    BeginStep();
    PinnedBatches in_slots(micro_batches);
    AccumulateGradients(in_slots);
    Update();
  };
  optimizer_->SetLearningRate(lr);
  SetShare(key);
  // A captured graph must not wait for a collective that began before the capture, and must not end before the
  // collectives in it have ended.
  reducer_->WaitForParameters();
  if (!graphs_->Has(key)) {
    const auto compute_whole = [&] {
      compute();
      reducer_->WaitForParameters();
    };
    try {
      Together(world_.host, [&] { graphs_->Capture(key, compute_whole); });
      has_captured_ = true;
    } catch (const Error& error) {
      graphs_.reset();
      slots_.clear();
      seen_keys_.clear();
      reducer_->Abandon();
      PinnedBatches in_slots(std::move(micro_batches));
      const bool fits = RunEagerly(lr, in_slots);
      // If memory ran out in the capture and in the eager step, why_no_graph_ stays empty, because smaller
      // micro-batches may fit in memory as a graph.
      if (fits || !IsOutOfMemory(error)) why_no_graph_ = error.what();
      return fits;
    }
  }
  graphs_->Replay(key);
  // Prefetch() is called after Replay(), so that the device computes this step while the host waits for a late batch.
  batches.Prefetch();
  return true;
}

void Step::SetMicroBatches(int accumulation, int64_t max_micro_batch) {
  accumulation_ = accumulation;
  max_micro_batch_ = max_micro_batch;
  memory_.ForgetMost();
  SetUpGraphs();
  seen_keys_.clear();
  slots_.clear();
}

void Step::SetUpGraphs() {
  graphs_.reset();
  if (!config_.graph() || !IsOnGpu(world_.device) || !why_no_graph_.empty()) return;
  if (config_.debug().anomaly_detection() || config_.debug().launch_blocking()) {
    why_no_graph_ = "debug is set";
    return;
  }
  graphs_.emplace(world_.device, world_.communicator);
}

void Step::BeginStep() {
  if (config_.ddp().broadcast_buffers()) BroadcastFromRankZero(buffers_, world_.communicator);
  reducer_->Begin();
  reducer_->scalars().copy_(requests_);
}

int64_t Step::AccumulateGradients(MicroBatches& batches) {
  const RoundedWeights rounded_weights;  // keeps rounded weights for all micro-batches
  // With a sharded optimizer the copies are not used, because the shards that other ranks have updated are gathered
  // into the parameters, but not into the copies.
  const ops::WeightCopies::Use copies(config_.optimizer().shard() ? nullptr : &copies_);
  int64_t global_count = 0;
  for (int micro = 0; micro < accumulation_; ++micro) {
    if (micro > 0) batches.Prefetch();
    const DeviceBatch batch = batches.Next();
    global_count = batch.origin.global_count;
    SetShare(global_count);
    AddMicroBatch(batch, /*last=*/micro + 1 == accumulation_);
  }
  reducer_->Finish();
  return global_count;
}

at::Tensor Step::Forward(const at::Tensor& input) {
  const ForwardPass pass;
  return model_.Forward(input);
}

// Runs the forward pass of a micro-batch and returns the sum of the losses, whose backward will be called with
// `gradient`.
at::Tensor Step::LossSumOf(const DeviceBatch& batch, const at::Tensor& gradient) {
  const Autocast autocast(world_.device, precision_);
  const double begin_s = SecondsSinceBoot();
  const at::Tensor input = preprocessing_(batch.input, batch.draws);
  if (world_.device.is_cpu()) preprocessing_s_ += SecondsSinceBoot() - begin_s;
  // Samples are mixed (MixUp, CutMix) with other samples of the micro-batch. A single sample could be mixed only with
  // itself, which changes nothing, so its loss is the plain loss.
  if (!augment_.Mixes() || batch.input.size(0) < 2) {
    const KnownLossGradient known(model_, gradient);
    const at::Tensor output = Forward(input);
    const Range range("loss");
    return model_.LossSum(output, batch.target);
  }
  const at::Tensor output = Forward(input);
  const Range range("loss");
  const at::Tensor own = batch.draws[0][kOwnInLoss];
  // The second loss gets a copy of the output, because the backward of a loss may overwrite the output with the
  // gradient.
  return own * model_.LossSum(output, batch.target) +
         (1 - own) * model_.LossSum(output.clone(), batch.target.roll(1, 0));
}

// Adds a micro-batch's gradients and loss to the sums of the step. In the backward of the last micro-batch the reducer
// also sums the gradients over the ranks.
void Step::AddMicroBatch(const DeviceBatch& batch, bool last) {
  if (config_.optimizer().shard()) Exchange([&] { reducer_->WaitForParameters(); });
  // A rank without samples has nothing to add. With sync_batch_norm such a rank must still run the model, because the
  // model contains collectives, in which every rank must take part.
  if (batch.origin.indices.empty() && !config_.ddp().sync_batch_norm()) {
    if (last) reducer_->ReduceNow();
    return;
  }
  Mark(Phase::kForward);
  const at::Tensor loss_gradient = share_ * values_[ops::kLossScale];
  const at::Tensor loss_sum = LossSumOf(batch, loss_gradient);
  if (model_.IgnoresLoss()) {
    throw UsageError("loss: the model \"{}\" computes a loss of its own: leave it out",
                     config_.model().name());
  }
  reducer_->scalars()[ops::kLossSum].add_(loss_sum.detach() * share_);
  if (rules_.weighs_targets) {
    reducer_->scalars()[ops::kWeightSum].add_(model_.WeightSum(batch.target) * share_);
  }
  Mark(Phase::kBackward);
  if (last) reducer_->ReduceDuringBackward();
  try {
    loss_sum.backward(loss_gradient.to(loss_sum.scalar_type()));
  } catch (const c10::Error& error) {
    if (!torch::autograd::AnomalyMode::is_enabled() || IsOutOfMemory(error)) throw;
    throw UsageError("debug.anomaly_detection: {}", FirstLine(WhatOf(error)));
  }
}

void Step::Update() {
  const at::Tensor sums = reducer_->scalars();
  if (norm_decides_) {
    Exchange([&] { reducer_->Wait(); });
    Mark(Phase::kUpdate);
    ops::DecideStep(values_, figures_, sums, reducer_->Norm(), rules_);
  } else {
    Exchange([&] { reducer_->Wait(0); });
    Mark(Phase::kUpdate);
    ops::DecideStep(values_, figures_, sums, {}, rules_);
  }
  if (histograms_of_ > 0) TakeHistogramsNow();
  for (size_t stage = 0; stage < reducer_->stages(); ++stage) {
    Exchange([&] { reducer_->Wait(stage); });
    Mark(Phase::kUpdate);
    optimizer_->Update(stage);
    reducer_->GatherParameters(stage);
  }
  if (!norm_decides_) ops::JudgeNorm(figures_, reducer_->Norm());
  reducer_->ReleaseGradients();
  Mark(Phase::kRest);
}

int64_t Step::ParameterCount() const {
  int64_t count = 0;
  for (const NamedTensor& parameter : parameters_) count += parameter.tensor.numel();
  return count;
}

std::vector<OwnedTensor> Step::HeldTensors() {
  std::vector<OwnedTensor> held;
  const auto add = [&](MemoryOwner owner, const at::Tensor& tensor) {
    held.push_back({owner, tensor});
  };
  for (const auto& list : {parameters_, buffers_}) {
    for (const NamedTensor& named : list) add(MemoryOwner::kParameters, named.tensor);
  }
  for (const at::Tensor& copy : copies_.All()) add(MemoryOwner::kParameters, copy);
  for (const at::Tensor& memory : reducer_->GradientMemories()) {
    add(MemoryOwner::kGradients, memory);
  }
  if (optimizer_) {
    StateTree moments;
    moments.BeginPart("optimizer", 1);
    optimizer_->AddTo(moments);
    for (const StateEntry& entry : moments.entries()) add(MemoryOwner::kMoments, entry.get());
  }
  for (const Slot& slot : slots_) {
    for (const at::Tensor& tensor : {slot.input, slot.target, slot.draws}) {
      add(MemoryOwner::kSamples, tensor);
    }
  }
  return held;
}

void Step::TakeHistogramsNow() {
  reducer_->Wait();
  at::Tensor scale = figures_[ops::kScale];
  if (rules_.weighs_targets) {
    const at::Tensor weight = reducer_->scalars()[ops::kWeightSum];
    scale = scale * at::where(weight.gt(0), weight, 1);
  }
  std::vector<Histogram> histograms =
      HistogramsOf(parameters_, *reducer_, scale, config_.optimizer().shard(), world_.host);
  const int64_t step = std::exchange(histograms_of_, 0);
  if (!histograms.empty()) histograms_ = Histograms{step, std::move(histograms)};
}

bool Step::DropHistograms() {
  if (std::exchange(histograms_of_, 0) == 0) return false;
  return dropped_histograms_ = true;
}

void Step::SetShare(int64_t global_count) {
  if (std::exchange(share_of_, global_count) == global_count) return;
  share_.fill_(1.0 / static_cast<double>(global_count * spec_.targets()));
}

void Step::SwapAverages() {
  reducer_->WaitForParameters();
  optimizer_->SwapAverages();
  for (size_t stage = 0; stage < reducer_->stages(); ++stage) reducer_->GatherParameters(stage);
  reducer_->WaitForParameters();
}

}  // namespace lockstep
