#include "ops/norm/batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

#include "ops/common/launch_arguments.h"
#include "ops/norm/batch_norm_kernel.h"
#include "ops/norm/kept_ranks.h"
#include "ops/product/weight_gradient.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Returns the memory format in which the channels of a row lie side by side.
at::MemoryFormat FormatOf(const at::Tensor& x) {
  return x.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

BatchNormShape ShapeOf(const at::Tensor& x) {
  return {.rows = x.numel() / x.size(1),
          .channels = x.size(1),
          .multiprocessors = TraitsOf(x.device()).multiprocessors};
}

// Returns whether the kernels can add `tensor` to x.
bool IsLike(const at::Tensor& tensor, const at::Tensor& x) {
  return tensor.sizes() == x.sizes() && tensor.scalar_type() == x.scalar_type() &&
         tensor.device() == x.device() && tensor.is_contiguous(FormatOf(x));
}

// Returns scratch memory for `sums` sums over rows.
at::Tensor EmptyPartials(const at::Tensor& x, const BatchNormShape& shape, int sums) {
  return at::empty({BatchNormPartials(TypeOf(x), shape, sums)}, x.options().dtype(at::kFloat));
}

// Returns the norm's counters, or new counters for this call if the norm has none.
at::Tensor CountersOf(const at::Tensor& of_norm, const at::Tensor& x) {
  return of_norm.defined() ? of_norm : NewNormCounters(x.size(1), x.device());
}

at::Tensor EmptyMask(const at::Tensor& x, const BatchNormShape& shape) {
  return at::empty({shape.rows, shape.channels / ChannelsOfPack(TypeOf(x))},
                   x.options().dtype(at::kByte));
}

// Saves (in forward) the tensors to which backward adds the gradients of a norm's weight and bias.
void KeepGradients(AutogradContext* context, const char* name, const Variable& weight,
                   const Variable& bias) {
  context->saved_data[name] =
      std::vector<at::Tensor>{GradientToAddTo(weight), GradientToAddTo(bias)};
}

struct NormGradients {
  GradientSums weight;
  GradientSums bias;
};

// Returns (in backward) the memory for the gradients of a norm's weight and bias. Input number `weight` of the Function
// is the norm's weight, and the next input is the norm's bias.
NormGradients NewNormGradients(AutogradContext* context, const char* name, size_t weight,
                               const at::Tensor& x) {
  const std::vector<at::Tensor> kept = context->saved_data[name].toTensorVector();
  const auto new_sums = [&](size_t i) {
    return NewGradientSums(context->needs_input_grad(weight + i) ? kept[i] : at::Tensor(),
                           x.size(1), x.options());
  };
  return {new_sums(0), new_sums(1)};
}

// The gradient dy of the operation's result, in the layout that the kernels of backward read, and memory for one of
// their results (`made`). `made` is the memory of dy if nobody else refers to it. This is safe, because each GPU thread
// overwrites only values of dy that the same thread has read.
struct ResultGradient {
  at::Tensor dy;
  at::Tensor made;
};

ResultGradient TakeOver(const at::Tensor& gradient, const at::Tensor& x) {
  const bool is_own = IsOwn(gradient);
  const at::Tensor dy = Aligned(gradient.contiguous(FormatOf(x)));
  return {dy, is_own ? dy : at::empty_like(x)};
}

BatchNormInput InputOf(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const at::Tensor& statistics) {
  return {.x = x.const_data_ptr(),
          .weight = weight.const_data_ptr<float>(),
          .bias = bias.const_data_ptr<float>(),
          .statistics = statistics.const_data_ptr<float>()};
}

BatchNormForm FormOf(bool adds, Activation activation) {
  if (adds) return BatchNormForm::kAddRelu;
  switch (activation) {
    case Activation::kRelu:
      return BatchNormForm::kRelu;
    case Activation::kSilu:
      return BatchNormForm::kSilu;
    case Activation::kHardswish:
      return BatchNormForm::kHardswish;
    default:
      return BatchNormForm::kNorm;
  }
}

class FusedBatchNorm : public torch::autograd::Function<FusedBatchNorm> {
 public:
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& weight,
                          const Variable& bias, const std::optional<Variable>& residual,
                          const ChannelNorm& norm, Activation activation) {
    const c10::DeviceGuard guard(x.device());
    const BatchNormShape shape = ShapeOf(x);
    const BatchNormForm form = FormOf(residual.has_value(), activation);
    const at::Tensor statistics = BatchStatistics(x, norm);
    const at::Tensor y = at::empty_like(x);
    const at::Tensor mask = HasMask(form) ? EmptyMask(x, shape) : at::Tensor();
    Launch(x, [&](cudaStream_t stream) {
      LaunchBatchNorm({.form = form,
                       .inputs = {InputOf(x, weight, bias, statistics)},
                       .residual = residual ? residual->const_data_ptr() : nullptr,
                       .y = y.mutable_data_ptr(),
                       .mask = HasMask(form) ? mask.mutable_data_ptr<uint8_t>() : nullptr},
                      TypeOf(x), shape, stream);
    });
    context->save_for_backward({x, weight, bias, statistics, mask});
    context->saved_data["form"] = static_cast<int64_t>(form);
    context->saved_data["counters"] = norm.counters;
    KeepRanks(context, norm.ranks);
    KeepGradients(context, "gradients", weight, bias);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& mask = saved[4];
    const auto form = static_cast<BatchNormForm>(context->saved_data["form"].toInt());
    const c10::DeviceGuard guard(x.device());
    const BatchNormShape shape = ShapeOf(x);
    const auto [dy, made] = TakeOver(gradients[0], x);
    const at::Tensor partials = EmptyPartials(x, shape, 2);
    const at::Tensor counters = CountersOf(context->saved_data["counters"].toTensor(), x);
    const at::Tensor d_weights = at::empty({2, shape.channels}, partials.options());
    const bool has_two = form == BatchNormForm::kAddRelu && context->needs_input_grad(3);
    const at::Tensor d_residual = has_two ? made : at::Tensor();
    const at::Tensor dx = has_two ? at::empty_like(x) : made;
    const NormGradients own = NewNormGradients(context, "gradients", 1, x);
    const BatchNormBackward tensors{
        .form = form,
        .inputs = {InputOf(x, saved[1], saved[2], saved[3])},
        .dy = dy.const_data_ptr(),
        .mask = HasMask(form) ? mask.const_data_ptr<uint8_t>() : nullptr,
        .partials = partials.mutable_data_ptr<float>(),
        .counters = counters.mutable_data_ptr<int>(),
        .d_weights = d_weights.mutable_data_ptr<float>(),
        .d_weight = {own.weight.to},
        .d_bias = {own.bias.to},
        .dx = {dx.mutable_data_ptr()},
        .d_residual = has_two ? d_residual.mutable_data_ptr() : nullptr};
    Launch(x, [&](cudaStream_t stream) { LaunchBatchNormSums(tensors, TypeOf(x), shape, stream); });
    NormRanks* const ranks = RanksOf(context);
    // If only the residual needs a gradient, this rank exchanges no sums: other ranks may run the twin
    // (BatchNormTwin()), which exchanges none in this case.
    const bool has_sums = context->needs_input_grad(0) || context->needs_input_grad(1) ||
                          context->needs_input_grad(2);
    if (ranks != nullptr && has_sums) ranks->AddUp(d_weights);
    Launch(x, [&](cudaStream_t stream) {
      LaunchBatchNormBackward(tensors, TypeOf(x), shape, stream);
    });
    return {dx, own.weight.result, own.bias.result, d_residual, {}, {}};
  }
};

class FusedJoin : public torch::autograd::Function<FusedJoin> {
 public:
  static Variable forward(AutogradContext* context, const Variable& x_a, const Variable& weight_a,
                          const Variable& bias_a, const Variable& x_b, const Variable& weight_b,
                          const Variable& bias_b, const ChannelNorm& norm_a,
                          const ChannelNorm& norm_b) {
    const c10::DeviceGuard guard(x_a.device());
    const BatchNormShape shape = ShapeOf(x_a);
    const at::Tensor statistics_a = BatchStatistics(x_a, norm_a);
    const at::Tensor statistics_b = BatchStatistics(x_b, norm_b);
    const at::Tensor y = at::empty_like(x_a);
    const at::Tensor mask = EmptyMask(x_a, shape);
    Launch(x_a, [&](cudaStream_t stream) {
      LaunchBatchNorm({.form = BatchNormForm::kJoinRelu,
                       .inputs = {InputOf(x_a, weight_a, bias_a, statistics_a),
                                  InputOf(x_b, weight_b, bias_b, statistics_b)},
                       .residual = nullptr,
                       .y = y.mutable_data_ptr(),
                       .mask = mask.mutable_data_ptr<uint8_t>()},
                      TypeOf(x_a), shape, stream);
    });
    context->save_for_backward(
        {x_a, weight_a, bias_a, statistics_a, x_b, weight_b, bias_b, statistics_b, mask});
    context->saved_data["counters"] = norm_a.counters;
    KeepGradients(context, "gradients_a", weight_a, bias_a);
    KeepGradients(context, "gradients_b", weight_b, bias_b);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x_a = saved[0];
    const at::Tensor& x_b = saved[4];
    const c10::DeviceGuard guard(x_a.device());
    const BatchNormShape shape = ShapeOf(x_a);
    const auto [dy, dx_a] = TakeOver(gradients[0], x_a);
    const at::Tensor partials = EmptyPartials(x_a, shape, 3);
    const at::Tensor counters = CountersOf(context->saved_data["counters"].toTensor(), x_a);
    const at::Tensor d_weights = at::empty({2, 2, shape.channels}, partials.options());
    const at::Tensor dx_b = at::empty_like(x_b);
    const NormGradients own_a = NewNormGradients(context, "gradients_a", 1, x_a);
    const NormGradients own_b = NewNormGradients(context, "gradients_b", 4, x_b);
    const BatchNormBackward tensors{.form = BatchNormForm::kJoinRelu,
                                    .inputs = {InputOf(x_a, saved[1], saved[2], saved[3]),
                                               InputOf(x_b, saved[5], saved[6], saved[7])},
                                    .dy = dy.const_data_ptr(),
                                    .mask = saved[8].const_data_ptr<uint8_t>(),
                                    .partials = partials.mutable_data_ptr<float>(),
                                    .counters = counters.mutable_data_ptr<int>(),
                                    .d_weights = d_weights.mutable_data_ptr<float>(),
                                    .d_weight = {own_a.weight.to, own_b.weight.to},
                                    .d_bias = {own_a.bias.to, own_b.bias.to},
                                    .dx = {dx_a.mutable_data_ptr(), dx_b.mutable_data_ptr()},
                                    .d_residual = nullptr};
    Launch(x_a,
           [&](cudaStream_t stream) { LaunchBatchNormSums(tensors, TypeOf(x_a), shape, stream); });
    Launch(x_a, [&](cudaStream_t stream) {
      LaunchBatchNormBackward(tensors, TypeOf(x_a), shape, stream);
    });
    return {dx_a,
            own_a.weight.result,
            own_a.bias.result,
            dx_b,
            own_b.weight.result,
            own_b.bias.result,
            {},
            {}};
  }
};

}  // namespace

bool HasBatchNormKernels(const at::Tensor& x, const ChannelNorm& norm) {
  const auto is_of_channels = [&](const at::Tensor& tensor) {
    return IsFloatVector(tensor, x.size(1), x) && tensor.is_contiguous() && IsAligned(tensor);
  };
  return IsOnGpu(x) && IsFloatType(x.scalar_type()) && (x.dim() == 2 || x.dim() == 4) &&
         x.numel() > 0 && x.size(1) % ChannelsOfPack(TypeOf(x)) == 0 &&
         x.is_contiguous(FormatOf(x)) && is_of_channels(norm.weight) && is_of_channels(norm.bias) &&
         norm.running_mean.defined() == norm.running_var.defined() &&
         (!norm.running_mean.defined() ||
          (is_of_channels(norm.running_mean) && is_of_channels(norm.running_var)));
}

at::Tensor NewNormCounters(int64_t channels, at::Device device) {
  return at::zeros({BatchNormCounters(channels)}, at::TensorOptions(device).dtype(at::kInt));
}

at::Tensor BatchStatistics(const at::Tensor& x, const ChannelNorm& norm) {
  const BatchNormShape shape = ShapeOf(x);
  const at::Tensor statistics = at::empty({2 * shape.channels + 1}, x.options().dtype(at::kFloat));
  const at::Tensor partials = EmptyPartials(x, shape, 2);
  const at::Tensor counters = CountersOf(norm.counters, x);
  const bool follows = norm.running_mean.defined();
  const BatchNormResults results{
      .epsilon = static_cast<float>(norm.epsilon),
      .momentum = static_cast<float>(norm.momentum),
      .statistics = statistics.mutable_data_ptr<float>(),
      .running_mean = follows ? norm.running_mean.mutable_data_ptr<float>() : nullptr,
      .running_var = follows ? norm.running_var.mutable_data_ptr<float>() : nullptr,
      .num_batches_tracked = norm.num_batches_tracked.defined()
                                 ? norm.num_batches_tracked.mutable_data_ptr<int64_t>()
                                 : nullptr};
  if (norm.ranks == nullptr) {
    Launch(x, [&](cudaStream_t stream) {
      LaunchBatchNormStatistics({.x = x.const_data_ptr(),
                                 .partials = partials.mutable_data_ptr<float>(),
                                 .counters = counters.mutable_data_ptr<int>(),
                                 .results = results},
                                TypeOf(x), shape, stream);
    });
  } else {
    const at::Tensor own = at::empty_like(statistics);
    Launch(x, [&](cudaStream_t stream) {
      LaunchBatchNormMoments({.x = x.const_data_ptr(),
                              .partials = partials.mutable_data_ptr<float>(),
                              .counters = counters.mutable_data_ptr<int>(),
                              .moments = own.mutable_data_ptr<float>()},
                             TypeOf(x), shape, stream);
    });
    const at::Tensor all = norm.ranks->Gather(own);
    Launch(x, [&](cudaStream_t stream) {
      LaunchBatchNormRanks(
          {.moments = all.const_data_ptr<float>(), .ranks = all.size(0), .results = results},
          shape.channels, stream);
    });
  }
  return statistics;
}

at::Tensor BatchNorm(const at::Tensor& x, const ChannelNorm& norm, Activation activation,
                     const at::Tensor& residual) {
  CheckNormActivation(activation);
  const bool adds = residual.defined();
  if (!HasBatchNormKernels(x, norm) ||
      (adds && !(activation == Activation::kRelu && IsLike(residual, x)))) {
    return BatchNormTwin(Aligned(x), norm, activation, residual);
  }
  return FusedBatchNorm::apply(Aligned(x), norm.weight, norm.bias,
                               adds ? std::optional(Aligned(residual)) : std::nullopt, norm,
                               activation);
}

at::Tensor JoinBatchNorms(const at::Tensor& x_a, const ChannelNorm& norm_a, const at::Tensor& x_b,
                          const ChannelNorm& norm_b) {
  // If ranks share a batch, the norms are two separate operations. A joined operation would exchange the sums of both
  // norms in one backward. Other ranks may run the twin (JoinBatchNormsTwin()), in which the gradients of norm_a are
  // complete between the two exchanges, and may start a collective operation. The order of the collective operations
  // would then differ between ranks.
  if (norm_a.ranks != nullptr || norm_b.ranks != nullptr) {
    return BatchNorm(x_a, norm_a, Activation::kRelu, BatchNorm(x_b, norm_b, Activation::kNone));
  }
  if (!HasBatchNormKernels(x_a, norm_a) || !HasBatchNormKernels(x_b, norm_b) || !IsLike(x_b, x_a)) {
    return JoinBatchNormsTwin(Aligned(x_a), norm_a, Aligned(x_b), norm_b);
  }
  return FusedJoin::apply(Aligned(x_a), norm_a.weight, norm_a.bias, Aligned(x_b), norm_b.weight,
                          norm_b.bias, norm_a, norm_b);
}

}  // namespace lockstep::ops
