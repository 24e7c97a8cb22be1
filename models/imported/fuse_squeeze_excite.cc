#include "models/imported/fuse_squeeze_excite.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <vector>

#include "ops/norm/squeeze_excite.h"

namespace lockstep::exported {
namespace {

using c10::IValue;

// Returns whether the node is a mean over the pixels.
bool IsPixelMean(const Node& node) {
  const std::vector<Argument>& arguments = node.arguments;
  if (node.results[0].value < 0 || !IsValue(arguments[0])) return false;
  if (NameOf(node) == "aten::adaptive_avg_pool2d") return AreIntegers(arguments[1], {1, 1});
  return node.operation->schema().overload_name() == "dim" &&
         (AreIntegers(arguments[1], {2, 3}) || AreIntegers(arguments[1], {-2, -1}) ||
          AreIntegers(arguments[1], {3, 2}) || AreIntegers(arguments[1], {-1, -2})) &&
         IsConstant(arguments[2]) && IsConstant(arguments[3], IValue());
}

// Returns whether the mean keeps the two dimensions of the pixels, with size 1.
bool KeepsDims(const Node& mean) {
  return NameOf(mean) == "aten::adaptive_avg_pool2d" || IsConstant(mean.arguments[2], true);
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

// The nodes that multiply x by a gate, and the gate's value.
struct Gating {
  int64_t product = -1;  // -1: there is no such node
  int64_t expand = -1;   // the node that expands the gate to x's sizes; -1: there is none
  int64_t gate = -1;
};

// Returns the gating where x is the input of `mean`, the gate is computed from the mean, and x has no other users.
Gating GatingOf(const Rewriter& rewriter, int64_t mean) {
  const int64_t x = rewriter.At(mean).arguments[0].value;
  std::vector<int64_t> users = rewriter.UsersOf(x);
  std::ranges::sort(users);
  const bool expands = users.size() == 3 && NameOf(rewriter.At(users[1])) == "aten::expand_as" &&
                       rewriter.OnlyUser(users[1]) == users[2];
  if (x == rewriter.program().output || (users.size() != 2 && !expands) || users[0] != mean) {
    return {};
  }
  Gating gating{.product = users.back(), .expand = expands ? users[1] : -1};
  const Node& node = rewriter.At(gating.product);
  if (rewriter.IsGone(gating.product) || NameOf(node) != "aten::mul" ||
      node.operation->schema().overload_name() != "Tensor" || !IsValue(node.arguments[0]) ||
      !IsValue(node.arguments[1]) || node.results[0].value < 0) {
    return {};
  }
  gating.gate = node.arguments[node.arguments[0].value == x ? 1 : 0].value;
  if (expands) {
    const Node& expand = rewriter.At(gating.expand);
    if (!IsValue(expand.arguments[0]) || expand.results[0].value != gating.gate) return {};
    gating.gate = expand.arguments[0].value;
  }
  const bool fits =
      Reaches(rewriter, mean, gating.gate, gating.product) && !rewriter.IsWrittenAfter(x, mean);
  return fits ? gating : Gating{};
}

// Returns the operation whose results are the mean of the pixels of its argument, and the argument itself.
FusedOperation Mean(bool keeps_dims) {
  return [keeps_dims](const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
    const at::Tensor x = arguments[0].toTensor();
    const ops::Squeezed squeezed =
        x.dim() == 4 ? ops::Squeeze(x)
                     : ops::Squeezed{.mean = at::adaptive_avg_pool2d(x, {1, 1}), .same_x = x};
    return {keeps_dims ? squeezed.mean : squeezed.mean.flatten(-3), squeezed.same_x};
  };
}

std::vector<at::Tensor> Excited(const std::vector<IValue>& arguments) {
  return {ops::Excite(arguments[0].toTensor(), arguments[1].toTensor())};
}

}  // namespace

void FuseSqueezeExcite(Rewriter& rewriter, int64_t node) {
  const Node& mean = rewriter.At(node);
  if (!IsPixelMean(mean)) return;
  const Gating gating = GatingOf(rewriter, node);
  if (gating.product < 0) return;
  const Argument x = mean.arguments[0];
  const int64_t same_x = rewriter.NewValue(x.value);
  std::vector<int64_t> chain{gating.product};
  if (gating.expand >= 0) chain.insert(chain.begin(), gating.expand);
  rewriter.Replace(x.value, same_x, chain);
  rewriter.Put({node}, Mean(KeepsDims(mean)), {x}, {mean.results[0].value, same_x}, node);
  rewriter.Put(chain, Excited, {ValueArgument(same_x), ValueArgument(gating.gate)},
               {rewriter.At(gating.product).results[0].value}, gating.product);
}

}  // namespace lockstep::exported
