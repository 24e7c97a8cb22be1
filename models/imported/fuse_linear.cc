#include "models/imported/fuse_linear.h"

#include <ATen/ATen.h>

#include <vector>

#include "base/tensor/autocast.h"
#include "base/tensor/foretold_gpu.h"
#include "models/imported/activation_of.h"
#include "ops/autocast/own_operations.h"
#include "ops/product/activation_twin.h"
#include "ops/product/bias_activation.h"

namespace lockstep::exported {
namespace {

using c10::IValue;
using ops::Activation;

// The arguments of aten::linear.
enum LinearArgument : size_t { kInput, kWeight, kBias };

// Returns the operation whose results are f(linear layer), where f is `activation`, and the layer's input.
FusedOperation LinearThen(Activation activation) {
  return [activation](const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
    const at::Tensor x = arguments[kInput].toTensor();
    const at::Tensor weight = arguments[kWeight].toTensor();
    const at::Tensor bias =
        arguments[kBias].isTensor() ? arguments[kBias].toTensor() : at::Tensor();
    const AutocastState autocast = AutocastState::Now(x.device().type());
    const bool adds_later = activation != Activation::kNone && IsOnGpu(x.device()) &&
                            autocast.enabled && bias.scalar_type() == at::kFloat && x.dim() > 1;
    const auto [y, same_x] = ops::LinearAndInput(x, weight, adds_later ? at::Tensor() : bias);
    if (adds_later) return {ops::BiasActivation(y, bias, activation), same_x};
    return {ops::ActivationTwin(y, activation), same_x};
  };
}

}  // namespace

bool ReadsColumns(const Rewriter& rewriter, int64_t node) {
  const Node& linear = rewriter.At(node);
  if (NameOf(linear) != "aten::linear" || !IsValue(linear.arguments[kInput])) return false;
  const int64_t maker = rewriter.MakerOf(linear.arguments[kInput].value);
  if (maker < 0) return false;
  const Node& move = rewriter.At(maker);
  return NameOf(move) == "aten::permute" ? AreIntegers(move.arguments[1], {0, 2, 1})
                                         : Exchanges(move, 1, 2) || Exchanges(move, -2, -1);
}

void FuseLinear(Rewriter& rewriter, int64_t node) {
  const Node& linear = rewriter.At(node);
  if (ReadsColumns(rewriter, node)) return;
  if (!IsValue(linear.arguments[kInput]) || !IsValue(linear.arguments[kWeight])) return;
  const int64_t input = linear.arguments[kInput].value;
  std::vector<int64_t> chain{node};
  Activation activation = Activation::kNone;
  if (const int64_t user = rewriter.OnlyUser(node); user >= 0 && IsValue(linear.arguments[kBias])) {
    activation = ActivationOf(rewriter.At(user));
    if (activation != Activation::kNone) chain.push_back(user);
  }
  const std::vector<int64_t> readers =
      linear.grad ? rewriter.LaterReaders(input, chain.back()) : std::vector<int64_t>();
  if (activation == Activation::kNone && readers.empty()) return;
  const int64_t result = rewriter.At(chain.back()).results[0].value;
  const bool is_put =
      rewriter.Put(chain, LinearThen(activation), linear.arguments, {result, -1}, node);
  if (is_put) rewriter.PassOn(input, readers, chain.back(), /*result=*/1);
}

}  // namespace lockstep::exported
