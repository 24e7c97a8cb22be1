#include "models/imported/fuse_layer_norm.h"

#include <ATen/ATen.h>

#include <vector>

#include "models/imported/rows_norm.h"

namespace lockstep::exported {
namespace {

using c10::IValue;

// The arguments of aten::layer_norm.
enum NormArgument : size_t { kInput, kShape, kWeight, kBias, kEpsilon, kCudnn, kNormArguments };

bool IsRowsNorm(const Node& node) {
  if (node.results[0].value < 0) return false;
  return IntegersOf(node.arguments[kShape]).size() == 1 && IsValue(node.arguments[kInput]) &&
         IsValue(node.arguments[kWeight]) &&
         (IsValue(node.arguments[kBias]) || IsConstant(node.arguments[kBias], IValue())) &&
         IsConstant(node.arguments[kEpsilon]);
}

RowsNormWeights WeightsOf(const std::vector<IValue>& arguments) {
  const at::Tensor weight = arguments[kWeight].toTensor();
  const IValue& bias = arguments[kBias];
  return {.weight = weight,
          .bias = bias.isNone() ? at::zeros_like(weight.detach()) : bias.toTensor(),
          .epsilon = arguments[kEpsilon].toDouble()};
}

// Returns the operation whose results are the norm, and the norm rounded to 16 bits.
FusedOperation NormOfRows(const RowsNormUses& uses) {
  return [uses](const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
    const RowsNormResult norm =
        RowsNorm(arguments[kInput].toTensor(), {}, WeightsOf(arguments), uses);
    return {norm.wide, norm.rounded};
  };
}

// Returns the operation whose arguments are the norm's, the two addends, and the shape to which their sum is reshaped,
// or None if it is not reshaped. Its results are the reshaped sum, the norm, and the norm rounded to 16 bits.
FusedOperation SumAndNorm(const RowsNormUses& uses) {
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
    const RowsNormResult norm = RowsNorm(x, branch, WeightsOf(arguments), uses);
    return {norm.sum, norm.wide, norm.rounded};
  };
}

}  // namespace

void FuseLayerNorm(Rewriter& rewriter, int64_t node) {
  const Node& norm = rewriter.At(node);
  if (!IsRowsNorm(norm)) return;
  const int64_t y = norm.results[0].value;
  const std::vector<int64_t> rounding = rewriter.RoundingUsers(node);
  const RowsNormUses uses = UsesOf(rewriter, node, rounding);
  std::vector<Argument> arguments = norm.arguments;

  // Finds the sum before the norm, and the reshape between them.
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
  // Under autocast the norm of a product is float32. The kernels of RowsNorm() would first need the product in float32,
  // and what comes after the norm, such as a residual sum, can be in one kernel with it: this is left to
  // fuse_generated.h.
  if (!adds && uses.wide && rewriter.IsOfProduct(input) && IsValue(norm.arguments[kBias])) return;

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
