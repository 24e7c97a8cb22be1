#include "models/imported/rows_norm.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/tensor/autocast.h"
#include "base/tensor/foretold_gpu.h"
#include "ops/norm/layer_norm.h"

namespace lockstep::exported {
namespace {

at::Tensor Normed(const at::Tensor& sum, const RowsNormWeights& weights, bool gives_own) {
  const auto& [weight, bias, epsilon] = weights;
  if (!bias.defined()) return ops::RmsNorm(sum, weight, epsilon);
  if (gives_own && IsOnGpu(sum.device())) return ops::LayerNorm(sum, weight, bias, epsilon);
  return at::layer_norm(sum, {sum.size(-1)}, weight, bias, epsilon);
}

}  // namespace

RowsNormUses UsesOf(const Rewriter& rewriter, int64_t node, const std::vector<int64_t>& rounding) {
  const std::vector<int64_t>& users = rewriter.UsersOf(rewriter.At(node).results[0].value);
  return {.rounded = !rounding.empty(), .wide = rounding.size() != users.size()};
}

RowsNormResult RowsNorm(const at::Tensor& x, const at::Tensor& branch,
                        const RowsNormWeights& weights, const RowsNormUses& uses) {
  const AutocastState autocast = AutocastState::Now(x.device().type());
  const bool rounds = autocast.enabled && uses.rounded &&
                      (autocast.dtype == at::kHalf || autocast.dtype == at::kBFloat16);
  // `sum` becomes the float32 addend if there is one, and `added` the other addend. The norm's kernel adds the two if
  // `rounds` is true and `added` has autocast's 16-bit type; otherwise they are added before the norm.
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
    const ops::WideNorm norm = ops::NormOfWide(sum, {.values = added}, weights.weight, weights.bias,
                                               weights.epsilon, autocast.dtype, uses.wide);
    return {.sum = norm.sum, .wide = norm.wide, .rounded = norm.y};
  }
  const bool gives_own = sum.scalar_type() == at::kFloat || !autocast.enabled ||
                         (rounds && !uses.wide && sum.scalar_type() == autocast.dtype);
  const at::Tensor y = Normed(sum, weights, gives_own);
  return {.sum = sum, .wide = y, .rounded = y};
}

}  // namespace lockstep::exported
