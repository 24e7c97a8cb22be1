#include "trainer/models/imported/fuse_layer_norm.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "base/tensor/autocast.h"
#include "base/tensor/foretold_gpu.h"
#include "trainer/ops/norm/layer_norm.h"

namespace lockstep::exported {
namespace {

using c10::IValue;

// The arguments of aten::layer_norm.
enum NormArgument : size_t { kInput, kShape, kWeight, kBias, kEpsilon, kCudnn, kNormArguments };

bool IsRowsNorm(const Node& node) {
  if (node.results[0].value < 0) return false;
  return IntegersOf(node.arguments[kShape]).size() == 1 && IsValue(node.arguments[kInput]) &&
         IsValue(node.arguments[kWeight]) && IsValue(node.arguments[kBias]) &&
         IsConstant(node.arguments[kEpsilon]);
}

// Who uses a norm's result.
struct Uses {
  bool rounded = false;  // somebody who rounds it under autocast
  bool wide = false;     // somebody who does not
};

// What layer_norm gives under autocast, and the same rounded for those who would round it. Without such users, or without
// autocast to 16 bits, the two are one.
struct Normed {
  at::Tensor sum, wide, rounded;
};

// `branch` is undefined if nothing is added.
Normed RowsNorm(const at::Tensor& x, const at::Tensor& branch, const std::vector<IValue>& arguments,
                const Uses& uses) {
  const at::Tensor weight = arguments[kWeight].toTensor();
  const at::Tensor bias = arguments[kBias].toTensor();
  const double epsilon = arguments[kEpsilon].toDouble();
  const AutocastState autocast = AutocastState::Now(x.device().type());
  const bool rounds = autocast.enabled && uses.rounded &&
                      (autocast.dtype == at::kHalf || autocast.dtype == at::kBFloat16);
  // What stays in float32 is the wider of the two. The norm adds the other one if that has 16 bits.
  at::Tensor sum = x;
  at::Tensor added = branch;
  if (added.defined() && added.scalar_type() == at::kFloat) std::swap(sum, added);
  const bool adds = rounds && added.defined() && sum.scalar_type() == at::kFloat &&
                    added.scalar_type() == autocast.dtype && added.sizes() == sum.sizes();
  if (added.defined() && !adds) {
    sum = x + branch;
    added = at::Tensor();
  }
  if (rounds && sum.scalar_type() == at::kFloat) {
    const ops::WideNorm norm = ops::LayerNormOfWide(sum, {.values = added}, weight, bias, epsilon,
                                                    autocast.dtype, uses.wide);
    return {.sum = norm.sum, .wide = norm.wide, .rounded = norm.y};
  }
  const bool gives_own = sum.scalar_type() == at::kFloat || !autocast.enabled ||
                         (rounds && !uses.wide && sum.scalar_type() == autocast.dtype);
  const at::Tensor y =
      IsOnGpu(x.device()) && gives_own
          ? ops::LayerNorm(sum, weight, bias, epsilon)
          : at::layer_norm(sum, arguments[kShape].toIntVector(), weight, bias, epsilon);
  return {.sum = sum, .wide = y, .rounded = y};
}

// Results: the norm's, and the same rounded.
FusedOperation NormOfRows(const Uses& uses) {
  return [uses](const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
    const Normed norm = RowsNorm(arguments[kInput].toTensor(), {}, arguments, uses);
    return {norm.wide, norm.rounded};
  };
}

// After the norm's arguments: the addends, and the shape that their sum gets, or none. Results: the sum in its shape, the
// norm's, and the same rounded.
FusedOperation SumAndNorm(const Uses& uses) {
  return [uses](const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
    at::Tensor x = arguments[kNormArguments].toTensor();
    at::Tensor branch = arguments[kNormArguments + 1].toTensor();
    if (const IValue& shape = arguments[kNormArguments + 2]; !shape.isNone()) {
      if (x.sizes() == branch.sizes()) {
        x = x.reshape(shape.toIntVector());
        branch = branch.reshape(shape.toIntVector());
      } else {
        x = (x + branch).reshape(shape.toIntVector());
        branch = at::Tensor();
      }
    }
    const Normed norm = RowsNorm(x, branch, arguments, uses);
    return {norm.sum, norm.wide, norm.rounded};
  };
}

}  // namespace

void FuseLayerNorm(Rewriter& rewriter, int64_t node) {
  const Node& norm = rewriter.At(node);
  if (!IsRowsNorm(norm)) return;
  const int64_t y = norm.results[0].value;
  const std::vector<int64_t> rounding = rewriter.RoundingUsers(node);
  const Uses uses{.rounded = !rounding.empty(),
                  .wide = rounding.size() != rewriter.UsersOf(y).size()};
  std::vector<Argument> arguments = norm.arguments;

  // The sum, and the shape that it gets.
  std::vector<int64_t> chain{node};
  int64_t input = norm.arguments[kInput].value;
  Argument shape;
  const auto in_front = [&](int64_t maker) {
    return maker >= 0 && rewriter.At(maker).operation && rewriter.At(maker).grad == norm.grad &&
           rewriter.At(maker).autocast == norm.autocast;
  };
  int64_t maker = rewriter.MakerOf(input);
  if (in_front(maker) && NameOf(rewriter.At(maker)) == "aten::reshape") {
    const int64_t sum = rewriter.At(maker).arguments[0].value;
    const int64_t before = rewriter.MakerOf(sum);
    if (in_front(before) && IsSum(rewriter.At(before)) && rewriter.OnlyUserOf(sum, norm) == maker) {
      chain.insert(chain.begin(), maker);
      shape = rewriter.At(maker).arguments[1];
      maker = before;
    }
  }
  const bool adds = in_front(maker) && IsSum(rewriter.At(maker)) && !rewriter.IsWritten(input);
  if (adds) chain.insert(chain.begin(), maker);

  const int64_t rounded = rewriter.NewValue(y);
  rewriter.Replace(y, rounded, rounding);
  if (adds) {
    const Node& sum = rewriter.At(maker);
    std::vector<Argument> all = arguments;
    all.insert(all.end(), {sum.arguments[0], sum.arguments[1], shape});
    if (rewriter.Put(chain, SumAndNorm(uses), all, {input, y, rounded}, node)) return;
  }
  rewriter.Put({node}, NormOfRows(uses), arguments, {y, rounded}, node);
}

}  // namespace lockstep::exported
