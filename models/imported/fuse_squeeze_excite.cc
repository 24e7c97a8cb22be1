#include "models/imported/fuse_squeeze_excite.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <vector>

#include "ops/norm/squeeze_excite.h"

namespace lockstep::exported {
namespace {

using c10::IValue;

// Returns whether the node is a mean over the pixels that keeps the two dimensions of the pixels, with size 1.
bool IsPixelMean(const Node& node) {
  const std::vector<Argument>& arguments = node.arguments;
  if (node.results[0].value < 0 || !IsValue(arguments[0])) return false;
  if (NameOf(node) == "aten::adaptive_avg_pool2d") return AreIntegers(arguments[1], {1, 1});
  return node.operation->schema().overload_name() == "dim" &&
         (AreIntegers(arguments[1], {2, 3}) || AreIntegers(arguments[1], {-2, -1}) ||
          AreIntegers(arguments[1], {3, 2}) || AreIntegers(arguments[1], {-1, -2})) &&
         IsConstant(arguments[2], true) && IsConstant(arguments[3], IValue());
}

// Returns whether `value` is computed from the result of node `from` by nodes before node `to`.
bool Reaches(const Rewriter& rewriter, int64_t from, int64_t value, int64_t to) {
  std::set<int64_t> reached{rewriter.At(from).results[0].value};
  for (int64_t i = from + 1; i < to; ++i) {
    const bool is_reached = std::ranges::any_of(
        ValuesOf(rewriter.At(i)), [&](int64_t used) { return reached.contains(used); });
    if (is_reached) {
      for (const int64_t result : ResultsOf(rewriter.At(i))) reached.insert(result);
    }
  }
  return reached.contains(value);
}

// Returns the node that multiplies x by a gate, where x is the input of `mean` and the gate is computed from the mean;
// -1 if there is no such node, or if x has other users.
int64_t ProductOf(const Rewriter& rewriter, int64_t mean) {
  const int64_t x = rewriter.At(mean).arguments[0].value;
  const std::vector<int64_t>& users = rewriter.UsersOf(x);
  if (x == rewriter.program().output || users.size() != 2) return -1;
  const int64_t product = std::max(users[0], users[1]);
  const Node& node = rewriter.At(product);
  if (std::min(users[0], users[1]) != mean || rewriter.IsGone(product) ||
      NameOf(node) != "aten::mul" || node.operation->schema().overload_name() != "Tensor" ||
      !IsValue(node.arguments[0]) || !IsValue(node.arguments[1]) || node.results[0].value < 0) {
    return -1;
  }
  const int64_t gate = node.arguments[node.arguments[0].value == x ? 1 : 0].value;
  const bool fits = Reaches(rewriter, mean, gate, product) && !rewriter.IsWrittenAfter(x, mean);
  return fits ? product : -1;
}

std::vector<at::Tensor> MeanOf(const std::vector<IValue>& arguments) {
  const at::Tensor x = arguments[0].toTensor();
  if (x.dim() != 4) return {at::adaptive_avg_pool2d(x, {1, 1}), x};
  const ops::Squeezed squeezed = ops::Squeeze(x);
  return {squeezed.mean, squeezed.same_x};
}

std::vector<at::Tensor> Excited(const std::vector<IValue>& arguments) {
  return {ops::Excite(arguments[0].toTensor(), arguments[1].toTensor())};
}

}  // namespace

void FuseSqueezeExcite(Rewriter& rewriter, int64_t node) {
  if (!IsPixelMean(rewriter.At(node))) return;
  const int64_t product = ProductOf(rewriter, node);
  if (product < 0) return;
  const Argument x = rewriter.At(node).arguments[0];
  const int64_t same_x = rewriter.NewValue(x.value);
  rewriter.Replace(x.value, same_x, {product});
  const std::vector<Argument>& factors = rewriter.At(product).arguments;
  const bool is_first = factors[0].value == same_x;
  rewriter.Put({node}, MeanOf, {x}, {rewriter.At(node).results[0].value, same_x}, node);
  rewriter.Put({product}, Excited, {factors[is_first ? 0 : 1], factors[is_first ? 1 : 0]},
               {rewriter.At(product).results[0].value}, product);
}

}  // namespace lockstep::exported
