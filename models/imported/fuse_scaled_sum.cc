#include "models/imported/fuse_scaled_sum.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>
#include <vector>

#include "base/tensor/autocast.h"
#include "ops/norm/scaled_sum.h"

namespace lockstep::exported {
namespace {

using c10::IValue;

// Returns the dimension of `of` along which `scale` has one number for each index; nothing if `scale` varies along more
// than one dimension or along none.
std::optional<int64_t> ScaledDimension(const at::Tensor& scale, const at::Tensor& of) {
  for (int64_t i = 1; i <= scale.dim() && scale.dim() <= of.dim(); ++i) {
    if (scale.size(-i) == 1) continue;
    const bool is_scale = scale.size(-i) == scale.numel() && scale.numel() == of.size(-i);
    return is_scale ? std::optional(of.dim() - i) : std::nullopt;
  }
  return std::nullopt;
}

// Returns x + branch * scale, computed by the kernels of ops; undefined tensors if the kernels do not support the
// arguments.
ops::ScaledSumResult Fused(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& scale,
                           bool rounds) {
  const std::optional<int64_t> dimension = ScaledDimension(scale, branch);
  if (!dimension) return {};
  const at::Tensor rows = branch.movedim(*dimension, -1);
  const at::Tensor own = scale.reshape(-1);
  if (!rows.is_contiguous() || x.dim() != branch.dim()) return {};
  const at::Tensor x_rows = x.movedim(*dimension, -1);
  if (!ops::HasScaledSumKernels(x_rows, rows, own)) return {};
  const auto [sum, rounded] = ops::ScaledSum(x_rows, rows, own, rounds);
  return {.sum = sum.movedim(-1, *dimension),
          .rounded = rounds ? rounded.movedim(-1, *dimension) : at::Tensor()};
}

// Returns the operation whose arguments are the two factors and the other addend. Its results are the sum, and, if
// `rounds` is true and a kernel can round, the sum rounded to 16 bits. If nothing is rounded, both results are the sum.
FusedOperation SumOfProduct(bool rounds) {
  return [rounds](const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
    at::Tensor branch = arguments[0].toTensor();
    at::Tensor scale = arguments[1].toTensor();
    const at::Tensor x = arguments[2].toTensor();
    if (branch.numel() < scale.numel()) std::swap(branch, scale);
    const AutocastState autocast = AutocastState::Now(branch.device().type());
    const bool gives_rounded = rounds && autocast.enabled && autocast.dtype == branch.scalar_type();
    const ops::ScaledSumResult fused = Fused(x, branch, scale, gives_rounded);
    const at::Tensor sum = fused.sum.defined() ? fused.sum : branch * scale + x;
    return {sum, fused.rounded.defined() ? fused.rounded : sum};
  };
}

}  // namespace

void FuseScaledSum(Rewriter& rewriter, int64_t node) {
  const Node& product = rewriter.At(node);
  const bool is_product = product.operation->schema().overload_name() == "Tensor" &&
                          IsValue(product.arguments[0]) && IsValue(product.arguments[1]) &&
                          (rewriter.IsParameter(product.arguments[0].value) ||
                           rewriter.IsParameter(product.arguments[1].value)) &&
                          product.results[0].value >= 0;
  const int64_t sum = is_product ? rewriter.OnlyUser(node) : -1;
  if (sum < 0 || !IsSum(rewriter.At(sum))) return;
  const std::vector<Argument>& addends = rewriter.At(sum).arguments;
  const bool is_first = addends[0].value == product.results[0].value;
  const int64_t result = rewriter.At(sum).results[0].value;
  if (rewriter.IsWritten(result)) return;
  const std::vector<int64_t> rounding = rewriter.RoundingUsers(sum);
  const int64_t rounded = rewriter.NewValue(result);
  rewriter.Replace(result, rounded, rounding);
  const bool is_put =
      rewriter.Put({node, sum}, SumOfProduct(!rounding.empty()),
                   {product.arguments[0], product.arguments[1], addends[is_first ? 1 : 0]},
                   {result, rounded}, node);
  if (!is_put) rewriter.Replace(rounded, result, rounding);
}

}  // namespace lockstep::exported
