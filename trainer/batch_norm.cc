#include "trainer/batch_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/generated/variable_factories.h>

#include <vector>

#include "trainer/activation_checkpoint.h"
#include "trainer/ops/max_pool.h"
#include "trainer/ops/norm_pool.h"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// All dimensions but the channels'.
std::vector<int64_t> ReducedDims(const at::Tensor& input) {
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < input.dim(); ++dim) dims.push_back(dim);
  return dims;
}

// [channels] as [1, channels, 1, ...].
at::Tensor PerChannel(const at::Tensor& values, const at::Tensor& input) {
  std::vector<int64_t> shape(input.dim(), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

struct Statistics {
  at::Tensor mean, var;  // float32 [channels]; var is biased
  at::Tensor count;      // float32, 0-dimensional: values of a channel on all ranks
};

// Each rank's mean and sum of squared differences from it, combined as by Chan et al. (1979).
Statistics StatisticsOfAllRanks(const at::Tensor& input, Communicator& ranks, Label label) {
  const int64_t channels = input.size(1);
  const int64_t count = channels == 0 ? 0 : input.numel() / channels;
  const at::Tensor own = at::zeros({2 * channels + 1}, input.options().dtype(at::kFloat));
  if (count > 0) {
    const at::Tensor values = input.to(at::kFloat);
    const at::Tensor mean = values.mean(ReducedDims(input));
    own.narrow(0, 0, channels).copy_(mean);
    own.narrow(0, channels, channels)
        .copy_((values - PerChannel(mean, input)).square().sum(ReducedDims(input)));
    own[2 * channels].fill_(static_cast<double>(count));
  }
  const at::Tensor all = at::zeros({ranks.world_size(), own.numel()}, own.options());
  ranks.AllGather(all, own, label).Wait();
  const at::Tensor means = all.narrow(1, 0, channels);
  const at::Tensor squares = all.narrow(1, channels, channels);
  const at::Tensor counts = all.narrow(1, 2 * channels, 1);
  // Of a micro-batch that is empty on every rank, too.
  const at::Tensor total = counts.sum().clamp_min(1);
  const at::Tensor mean = (means * counts).sum(0) / total;
  const at::Tensor var = (squares + counts * (means - mean).square()).sum(0) / total;
  return {mean, var, total};
}

// y = (x - mean) / sqrt(var + epsilon) * weight + bias, mean and var being those of all ranks.
class SyncedNorm : public torch::autograd::Function<SyncedNorm> {
 public:
  static Variable forward(AutogradContext* context, const Variable& input, const Variable& weight,
                          const Variable& bias, const at::Tensor& mean, const at::Tensor& var,
                          const at::Tensor& count, double epsilon, Communicator* ranks,
                          int64_t label) {
    const at::Tensor inverse = (var + epsilon).rsqrt();
    const at::Tensor normal =
        (input.to(at::kFloat) - PerChannel(mean, input)) * PerChannel(inverse, input);
    context->save_for_backward({normal, weight, inverse, count});
    context->saved_data["ranks"] = reinterpret_cast<int64_t>(ranks);
    context->saved_data["label"] = label;
    return (normal * PerChannel(weight, input) + PerChannel(bias, input)).to(input.scalar_type());
  }

  // With sums over all ranks' values of a channel:
  // dx = weight / sqrt(var + epsilon) * (dy - sum(dy)/count - normal * sum(dy * normal)/count).
  // weight and bias get this rank's sums, which the reducer adds up.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& normal = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& inverse = saved[2];
    const at::Tensor& count = saved[3];
    auto& ranks = *reinterpret_cast<Communicator*>(context->saved_data["ranks"].toInt());
    const Label label{static_cast<uint32_t>(context->saved_data["label"].toInt())};

    const at::Tensor gradient = gradients[0].to(at::kFloat);
    const int64_t channels = gradient.size(1);
    const at::Tensor own = at::cat(
        {gradient.sum(ReducedDims(gradient)), (gradient * normal).sum(ReducedDims(gradient))});
    const at::Tensor all = own.clone();
    ranks.AllReduceSum(all, label).Wait();
    const at::Tensor means = all / count;
    const at::Tensor input_gradient =
        PerChannel(weight * inverse, gradient) *
        (gradient - PerChannel(means.narrow(0, 0, channels), gradient) -
         normal * PerChannel(means.narrow(0, channels, channels), gradient));
    return {input_gradient.to(gradients[0].scalar_type()),
            own.narrow(0, channels, channels),
            own.narrow(0, 0, channels),
            {},
            {},
            {},
            {},
            {},
            {}};
  }
};

}  // namespace

BatchNorm::BatchNorm(int64_t channels, Communicator* sync, double epsilon, double momentum)
    : sync_(sync),
      label_(sync != nullptr ? sync->MakeLabel("BatchNorm's statistics") : Label{}),
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
  if (IsByBatch()) return ops::BatchNorm(input, NormOf(input), activation, residual);
  return ops::AddAndActivate(
      is_training() ? Synced(input)
                    : at::batch_norm(input, weight_, bias_, running_mean_, running_var_,
                                     /*training=*/false, momentum_, epsilon_,
                                     /*cudnn_enabled=*/true),
      activation, residual);
}

at::Tensor BatchNorm::Pool(const at::Tensor& input) {
  if (IsByBatch()) return ops::NormPool(input, NormOf(input));
  return ops::MaxPool(forward(input, ops::Activation::kRelu), /*window=*/3, /*stride=*/2,
                      /*padding=*/1);
}

at::Tensor BatchNorm::Join(const at::Tensor& input, BatchNorm& other,
                           const at::Tensor& other_input) {
  if (IsByBatch() && other.IsByBatch()) {
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
                        .epsilon = epsilon_,
                        .momentum = momentum_};
  if (IsRecomputing()) return norm;
  norm.num_batches_tracked = num_batches_tracked_;
  // One value has no variance for the running statistics to follow.
  if (input.numel() > input.size(1)) {
    norm.running_mean = running_mean_;
    norm.running_var = running_var_;
  }
  return norm;
}

at::Tensor BatchNorm::Synced(const at::Tensor& input) {
  const bool follows = !IsRecomputing();
  if (follows) num_batches_tracked_.add_(1);
  Statistics statistics;
  {
    const at::NoGradGuard no_grad;
    statistics = StatisticsOfAllRanks(input, *sync_, label_);
    const at::Tensor weight =
        at::where(statistics.count > 1, follows ? momentum_ : 0, 0.0).to(at::kFloat);
    const at::Tensor unbiased =
        statistics.var * (statistics.count / (statistics.count - 1).clamp_min(1));
    running_mean_.lerp_(statistics.mean, weight);
    running_var_.lerp_(unbiased, weight);
  }
  return SyncedNorm::apply(input, weight_, bias_, statistics.mean, statistics.var, statistics.count,
                           epsilon_, sync_, static_cast<int64_t>(label_.id));
}

}  // namespace lockstep
