#include "models/batch_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/generated/variable_factories.h>

#include "models/activation_checkpoint.h"
#include "ops/norm/max_pool.h"
#include "ops/norm/norm_pool.h"

namespace lockstep {
namespace {

class AllRanks : public ops::NormRanks {
 public:
  explicit AllRanks(Communicator& ranks)
      : ranks_(ranks), label_(ranks.MakeLabel("BatchNorm's statistics")) {}

  at::Tensor Gather(const at::Tensor& own) override {
    const at::Tensor all = at::empty({ranks_.world_size(), own.numel()}, own.options());
    ranks_.AllGather(all, own, label_).Wait();
    return all;
  }
  void AddUp(const at::Tensor& sums) override { ranks_.AllReduceSum(sums, label_).Wait(); }

 private:
  Communicator& ranks_;
  Label label_;
};

}  // namespace

std::unique_ptr<ops::NormRanks> NormRanksOf(Communicator* sync) {
  return sync != nullptr ? std::make_unique<AllRanks>(*sync) : nullptr;
}

BatchNorm::BatchNorm(int64_t channels, Communicator* sync, double epsilon, double momentum)
    : ranks_(NormRanksOf(sync)),
      epsilon_(epsilon),
      momentum_(momentum),
      weight_(register_parameter("weight", torch::ones({channels}))),
      bias_(register_parameter("bias", torch::zeros({channels}))),
      running_mean_(register_buffer("running_mean", torch::zeros({channels}))),
      running_var_(register_buffer("running_var", torch::ones({channels}))),
      num_batches_tracked_(register_buffer("num_batches_tracked", torch::zeros({}, torch::kLong))) {
}

at::Tensor BatchNorm::forward(const at::Tensor& input, ops::Activation activation,
                              const at::Tensor& residual) {
  if (is_training()) return ops::BatchNorm(input, NormOf(input), activation, residual);
  return ops::AddAndActivate(at::batch_norm(input, weight_, bias_, running_mean_, running_var_,
                                            /*training=*/false, momentum_, epsilon_,
                                            /*cudnn_enabled=*/true),
                             activation, residual);
}

at::Tensor BatchNorm::Pool(const at::Tensor& input) {
  if (is_training()) return ops::NormPool(input, NormOf(input));
  return ops::MaxPool(forward(input, ops::Activation::kRelu), /*window=*/3, /*stride=*/2,
                      /*padding=*/1);
}

at::Tensor BatchNorm::Join(const at::Tensor& input, BatchNorm& other,
                           const at::Tensor& other_input) {
  if (is_training() && other.is_training()) {
    return ops::JoinBatchNorms(input, NormOf(input), other_input, other.NormOf(other_input));
  }
  return forward(input, ops::Activation::kRelu, other.forward(other_input));
}

ops::ChannelNorm BatchNorm::NormOf(const at::Tensor& input) {
  if (!counters_.defined() || counters_.device() != input.device()) {
    counters_ = ops::NewNormCounters(weight_.numel(), input.device());
  }
  ops::ChannelNorm norm{.weight = weight_,
                        .bias = bias_,
                        .counters = counters_,
                        .ranks = ranks_.get(),
                        .epsilon = epsilon_,
                        .momentum = momentum_};
  if (IsRecomputing()) return norm;
  norm.num_batches_tracked = num_batches_tracked_;
  // One value for each channel has no variance, so the running statistics are not updated from it. If `ranks_` is set,
  // the operation counts the values of all ranks in its collectives, and decides by that number whether to update.
  if (ranks_ != nullptr || input.numel() > input.size(1)) {
    norm.running_mean = running_mean_;
    norm.running_var = running_var_;
  }
  return norm;
}

}  // namespace lockstep
