#include "trainer/step.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "trainer/ops/step_decision.h"
#include "trainer/precision.h"
#include "trainer/together.h"

namespace lockstep {
namespace {

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

// Keeps the weights that autocast has rounded, for all micro-batches of a step.
class RoundedWeights {
 public:
  RoundedWeights() { at::autocast::increment_nesting(); }
  ~RoundedWeights() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  RoundedWeights(const RoundedWeights&) = delete;
  RoundedWeights& operator=(const RoundedWeights&) = delete;
};

}  // namespace

Step::Step(const config::Config& config, Model& model, const Preprocessing& preprocessing,
           const SampleSpec& spec, int64_t max_micro_batch, const World& world)
    : config_(config),
      model_(model),
      preprocessing_(preprocessing),
      spec_(spec),
      max_micro_batch_(max_micro_batch),
      world_(world),
      precision_(PrecisionOn(world.device, config.precision())),
      rules_{.max_norm = static_cast<float>(config.optimizer().clip_norm()),
             .scales_loss = precision_ == config::FP16,
             .growth_interval = config.loss_scale().growth_interval(),
             .stops = config.anomaly().policy() != config::Anomaly::SKIP},
      norm_decides_(rules_.max_norm > 0 || config.optimizer().clip_value() > 0 ||
                    rules_.scales_loss || !rules_.stops || world.size() == 1),
      parameters_(TrainedParametersOf(model)) {
  for (const auto& item : model.named_buffers()) buffers_.push_back({item.key(), item.value()});
  reducer_.emplace(parameters_, world.communicator, ReducerOptionsFor(config));
  const at::TensorOptions on_device(world.device);
  values_ = at::zeros({ops::kStepValues}, on_device.dtype(at::kFloat));
  values_[ops::kLossScale].fill_(rules_.scales_loss ? config.loss_scale().initial() : 1.0);
  figures_ = at::zeros({ops::kStepFigures}, on_device.dtype(at::kDouble));
  share_ = at::zeros({}, on_device.dtype(at::kFloat));
  if (config.graph() && world.device.is_cuda()) graphs_.emplace(world.device, world.communicator);
}

void Step::Run(double lr, const MicroBatches& batches) {
  if (!optimizer_) {
    RunFirst(batches);
    optimizer_->SetLearningRate(lr);
    Update();
    return;
  }
  optimizer_->SetLearningRate(lr);
  DeviceBatch first = batches.next();
  const int64_t key = first.origin.global_count;
  SetShare(key);
  const bool known = std::find(seen_keys_.begin(), seen_keys_.end(), key) != seen_keys_.end();
  if (graphs_ && known) return RunGraph(key, batches, std::move(first));
  if (!known) seen_keys_.push_back(key);
  Compute([&](int micro) {
    if (micro > 0) batches.prefetch();
    return micro == 0 ? std::move(first) : batches.next();
  });
  batches.prefetch();
}

// A mistake in a model mostly shows in its first step, and on every rank. There a rank that fails still
// takes part in the step's collectives, and then all agree on what to say.
void Step::RunFirst(const MicroBatches& batches) {
  if (config_.ddp().broadcast_buffers()) BroadcastFromRankZero(buffers_, world_.communicator);
  reducer_->Begin();
  std::optional<Error> error;
  try {
    AccumulateGradients([&](int micro) {
      if (micro > 0) batches.prefetch();
      DeviceBatch batch = batches.next();
      if (micro == 0) {
        SetShare(batch.origin.global_count);
        seen_keys_.push_back(batch.origin.global_count);
      }
      return batch;
    });
    batches.prefetch();
  } catch (const std::exception& exception) {
    // Where the model's own collectives belong to the step, the others cannot get past them.
    if (config_.ddp().sync_batch_norm()) throw;
    error = ErrorOf(exception);
    reducer_->ReduceNow();
    reducer_->Wait();
  }
  AgreeOnErrors(error, world_.host);
  reducer_->Wait();
  reducer_->SettleLayout();
  optimizer_.emplace(config_.optimizer(), *reducer_, values_, rules_.scales_loss);
}

void Step::RunGraph(int64_t key, const MicroBatches& batches, DeviceBatch first) {
  if (slots_.empty()) {
    const at::TensorOptions on_device(world_.device);
    for (int micro = 0; micro < config_.accumulation(); ++micro) {
      slots_.push_back(
          {at::empty(BatchShape(max_micro_batch_, spec_.shape), on_device.dtype(spec_.dtype)),
           at::empty(BatchShape(max_micro_batch_, spec_.target_shape),
                     on_device.dtype(spec_.target_dtype))});
    }
  }
  std::vector<DeviceBatch> micro_batches;
  for (int micro = 0; micro < config_.accumulation(); ++micro) {
    DeviceBatch batch = micro == 0 ? std::move(first) : batches.next();
    const Slot& slot = slots_[micro];
    const int64_t count = batch.input.size(0);
    slot.input.narrow(0, 0, count).copy_(batch.input);
    slot.target.narrow(0, 0, count).copy_(batch.target);
    micro_batches.push_back(
        {std::move(batch.origin), slot.input.narrow(0, 0, count), slot.target.narrow(0, 0, count)});
    batches.prefetch();
  }
  const auto compute = [&] { Compute([&](int micro) { return micro_batches[micro]; }); };
  // A graph waits for nothing that began before it, and ends with nothing under way.
  reducer_->WaitForParameters();
  if (!graphs_->Has(key)) {
    const auto compute_whole = [&] {
      compute();
      reducer_->WaitForParameters();
    };
    try {
      Together(world_.host, [&] { graphs_->Capture(key, compute_whole); });
    } catch (const Error& error) {
      why_no_graph_ = error.what();
      graphs_.reset();
      reducer_->Abandon();
      return compute();
    }
  }
  graphs_->Replay(key);
}

void Step::Compute(const NextMicroBatch& micro_batch) {
  if (config_.ddp().broadcast_buffers()) BroadcastFromRankZero(buffers_, world_.communicator);
  reducer_->Begin();
  AccumulateGradients(micro_batch);
  Update();
}

void Step::AccumulateGradients(const NextMicroBatch& micro_batch) {
  const RoundedWeights rounded_weights;
  for (int micro = 0; micro < config_.accumulation(); ++micro) {
    AddMicroBatch(micro_batch(micro), /*last=*/micro + 1 == config_.accumulation());
  }
  reducer_->Finish();
}

// Adds a micro-batch's share to the gradients and the loss; the last one's backward also reduces.
void Step::AddMicroBatch(const DeviceBatch& batch, bool last) {
  Mark(Phase::kExchange);
  reducer_->WaitForParameters();
  // A rank without samples has nothing to add; only where the ranks share BatchNorm's statistics it
  // must go through the model with the others.
  if (batch.origin.indices.empty() && !config_.ddp().sync_batch_norm()) {
    if (last) reducer_->ReduceNow();
    return;
  }
  Mark(Phase::kForward);
  at::Tensor loss_sum;
  {
    const Autocast autocast(world_.device, precision_);
    loss_sum = model_.LossSum(model_.Forward(preprocessing_(batch.input)), batch.target);
  }
  reducer_->scalars()[kLossScalar].add_(loss_sum.detach() * share_);
  Mark(Phase::kBackward);
  if (last) reducer_->ReduceDuringBackward();
  const at::Tensor scaled_share = share_ * values_[ops::kLossScale];
  loss_sum.backward(scaled_share.to(loss_sum.scalar_type()));
}

void Step::Update() {
  const at::Tensor loss = reducer_->scalars()[kLossScalar];
  Mark(Phase::kExchange);
  if (norm_decides_) {
    reducer_->Wait();
    Mark(Phase::kUpdate);
    ops::DecideStep(values_, figures_, loss, reducer_->Norm(), rules_);
  } else {
    reducer_->Wait(0);
    Mark(Phase::kUpdate);
    ops::DecideStep(values_, figures_, loss, {}, rules_);
  }
  for (size_t stage = 0; stage < reducer_->stages(); ++stage) {
    Mark(Phase::kExchange);
    reducer_->Wait(stage);
    Mark(Phase::kUpdate);
    optimizer_->Update(stage);
    reducer_->GatherParameters(stage);
  }
  if (!norm_decides_) ops::JudgeNorm(figures_, reducer_->Norm());
  Mark(Phase::kRest);
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
