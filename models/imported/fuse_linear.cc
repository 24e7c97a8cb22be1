#include "models/imported/fuse_linear.h"

#include <ATen/ATen.h>

#include <vector>

#include "base/tensor/autocast.h"
#include "base/tensor/foretold_gpu.h"
#include "models/imported/activation_of.h"
#include "ops/product/activation_twin.h"
#include "ops/product/bias_activation.h"

namespace lockstep::exported {
namespace {

using c10::IValue;
using ops::Activation;

// The arguments of aten::linear.
enum LinearArgument : size_t { kInput, kWeight, kBias };

FusedOperation LinearThen(Activation activation) {
  return [activation](const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
    const at::Tensor x = arguments[kInput].toTensor();
    const at::Tensor weight = arguments[kWeight].toTensor();
    const at::Tensor bias = arguments[kBias].toTensor();
    const AutocastState autocast = AutocastState::Now(x.device().type());
    const bool adds_later =
        IsOnGpu(x.device()) && autocast.enabled && bias.scalar_type() == at::kFloat && x.dim() > 1;
    if (adds_later) return {ops::BiasActivation(at::linear(x, weight), bias, activation)};
    return {ops::ActivationTwin(at::linear(x, weight, bias), activation)};
  };
}

}  // namespace

bool ReadsColumns(const Rewriter& rewriter, int64_t node) {
  const Node& linear = rewriter.At(node);
  if (NameOf(linear) != "aten::linear" || !IsValue(linear.arguments[kInput])) return false;
  const int64_t maker = rewriter.MakerOf(linear.arguments[kInput].value);
  if (maker < 0) return false;
  const std::vector<Argument>& arguments = rewriter.At(maker).arguments;
  const auto swaps = [&](int64_t first, int64_t second) {
    return (IsConstant(arguments[1], first) && IsConstant(arguments[2], second)) ||
           (IsConstant(arguments[1], second) && IsConstant(arguments[2], first));
  };
  return NameOf(rewriter.At(maker)) == "aten::permute"
             ? AreIntegers(arguments[1], {0, 2, 1})
             : NameOf(rewriter.At(maker)) == "aten::transpose" && (swaps(1, 2) || swaps(-2, -1));
}

void FuseLinear(Rewriter& rewriter, int64_t node) {
  const Node& linear = rewriter.At(node);
  if (ReadsColumns(rewriter, node)) return;
  if (!IsValue(linear.arguments[kWeight]) || !IsValue(linear.arguments[kBias])) return;
  const int64_t user = rewriter.OnlyUser(node);
  if (user < 0) return;
  const Activation activation = ActivationOf(rewriter.At(user));
  if (activation == Activation::kNone) return;
  rewriter.Put({node, user}, LinearThen(activation), linear.arguments,
               {rewriter.At(user).results[0].value}, node);
}

}  // namespace lockstep::exported
