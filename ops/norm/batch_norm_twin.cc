#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "ops/norm/batch_norm.h"
#include "ops/norm/kept_ranks.h"
#include "ops/product/activation_twin.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Returns all dimensions except that of the channels.
std::vector<int64_t> ReducedDims(const at::Tensor& x) {
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < x.dim(); ++dim) dims.push_back(dim);
  return dims;
}

// Returns `values`, [channels], as [1, channels, 1, ...], which broadcasts to x.
at::Tensor PerChannel(const at::Tensor& values, const at::Tensor& x) {
  std::vector<int64_t> shape(x.dim(), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

struct Statistics {
  at::Tensor mean, variance;  // float32 [channels]; the variance is biased
  at::Tensor rows;            // float32, 0-dimensional
};

// Returns the statistics over the rows of all ranks. Each rank computes the mean of its rows and the sum of squared
// differences from this mean. The formula of Chan et al. (1979) combines these numbers.
Statistics StatisticsOf(const at::Tensor& x, NormRanks& ranks) {
  const int64_t channels = x.size(1);
  const at::Tensor own = at::zeros({2 * channels + 1}, x.options().dtype(at::kFloat));
  if (x.numel() > 0) {
    const at::Tensor values = x.to(at::kFloat);
    const at::Tensor mean = values.mean(ReducedDims(x));
    own.narrow(0, 0, channels).copy_(mean);
    own.narrow(0, channels, channels)
        .copy_((values - PerChannel(mean, x)).square().sum(ReducedDims(x)));
    own[2 * channels].fill_(static_cast<double>(x.numel() / channels));
  }
  const at::Tensor all = ranks.Gather(own);
  const at::Tensor means = all.narrow(1, 0, channels);
  const at::Tensor squares = all.narrow(1, channels, channels);
  const at::Tensor counts = all.narrow(1, 2 * channels, 1);
  // The clamp avoids a division by zero for a batch that is empty on every rank.
  const at::Tensor rows = counts.sum().clamp_min(1);
  const at::Tensor mean = (means * counts).sum(0) / rows;
  return {mean, (squares + counts * (means - mean).square()).sum(0) / rows, rows};
}

void Follow(const Statistics& statistics, const ChannelNorm& norm) {
  const auto& [mean, variance, rows] = statistics;
  // A batch of one row has no unbiased variance, so it does not change the running statistics.
  const at::Tensor weight = at::where(rows > 1, norm.momentum, 0.0).to(at::kFloat);
  norm.running_mean.lerp_(mean, weight);
  norm.running_var.lerp_(variance * (rows / (rows - 1).clamp_min(1)), weight);
}

// Computes y = (x - mean) / sqrt(variance + epsilon) weight + bias, with the mean and variance over the rows of all
// ranks.
class NormOfRanks : public torch::autograd::Function<NormOfRanks> {
 public:
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& weight,
                          const Variable& bias, const ChannelNorm& norm) {
    const Statistics statistics = StatisticsOf(x, *norm.ranks);
    if (norm.running_mean.defined()) Follow(statistics, norm);
    const at::Tensor rstd = (statistics.variance + norm.epsilon).rsqrt();
    const at::Tensor normal =
        (x.to(at::kFloat) - PerChannel(statistics.mean, x)) * PerChannel(rstd, x);
    context->save_for_backward({normal, weight, rstd, statistics.rows});
    KeepRanks(context, norm.ranks);
    return (normal * PerChannel(weight, x) + PerChannel(bias, x)).to(x.scalar_type());
  }

  // Computes dx = weight rstd (dy - mean of dy - normal * mean of dy normal), where `normal` is (x - mean) rstd, and
  // the means are over the rows of all ranks.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& normal = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& rstd = saved[2];
    const at::Tensor& rows = saved[3];

    const at::Tensor dy = gradients[0].to(at::kFloat);
    const at::Tensor own = at::stack({(dy * normal).sum(ReducedDims(dy)), dy.sum(ReducedDims(dy))});
    const at::Tensor all = own.clone();
    RanksOf(context)->AddUp(all);
    const at::Tensor means = all / rows;
    const at::Tensor dx = PerChannel(weight * rstd, dy) *
                          (dy - PerChannel(means[1], dy) - normal * PerChannel(means[0], dy));
    return {dx.to(gradients[0].scalar_type()), own[0], own[1], {}};
  }
};

}  // namespace

void CheckNormActivation(Activation activation) {
  TORCH_CHECK(activation == Activation::kNone || activation == Activation::kRelu ||
                  activation == Activation::kSilu || activation == Activation::kHardswish,
              "batch norm: its activation is ReLU, SiLU, hardswish or none");
}

at::Tensor BatchNormTwin(const at::Tensor& x, const ChannelNorm& norm, Activation activation,
                         const at::Tensor& residual) {
  if (norm.num_batches_tracked.defined()) norm.num_batches_tracked.add_(1);
  return AddAndActivate(
      norm.ranks != nullptr
          ? NormOfRanks::apply(x, norm.weight, norm.bias, norm)
          : at::batch_norm(x, norm.weight, norm.bias, norm.running_mean, norm.running_var,
                           /*training=*/true, norm.momentum, norm.epsilon, /*cudnn_enabled=*/true),
      activation, residual);
}

at::Tensor JoinBatchNormsTwin(const at::Tensor& x_a, const ChannelNorm& norm_a,
                              const at::Tensor& x_b, const ChannelNorm& norm_b) {
  return BatchNormTwin(x_a, norm_a, Activation::kRelu,
                       BatchNormTwin(x_b, norm_b, Activation::kNone));
}

at::Tensor AddAndActivate(at::Tensor y, Activation activation, const at::Tensor& residual) {
  CheckNormActivation(activation);
  if (residual.defined()) y.add_(residual);
  return activation == Activation::kRelu ? y.relu_() : ActivationTwin(y, activation);
}

}  // namespace lockstep::ops
