#include "models/imported/fuse_max_pool.h"

#include <ATen/ATen.h>

#include <vector>

#include "ops/norm/max_pool.h"

namespace lockstep::exported {
void FuseMaxPool(Rewriter& rewriter, int64_t node) {
  enum PoolArgument : size_t { kInput, kWindow, kStride, kPadding, kDilation, kCeils };
  const Node& pool = rewriter.At(node);
  const auto window = SingleOf(pool.arguments[kWindow]);
  // If the operation's list of strides is empty, the stride is the window's size.
  const bool has_stride = !IntegersOf(pool.arguments[kStride]).empty();
  const auto stride = has_stride ? SingleOf(pool.arguments[kStride]) : window;
  const auto padding = SingleOf(pool.arguments[kPadding]);
  if (pool.results[0].value < 0 || !IsValue(pool.arguments[kInput]) || !window || !stride ||
      !padding || SingleOf(pool.arguments[kDilation]) != 1 ||
      !IsConstant(pool.arguments[kCeils], false)) {
    return;
  }
  const auto run = [window = *window, stride = *stride, padding = *padding](
                       const std::vector<c10::IValue>& arguments) -> std::vector<at::Tensor> {
    const auto [pooled, of_later] =
        ops::ForkedMaxPool(arguments[0].toTensor(), window, stride, padding);
    return {pooled, of_later};
  };
  rewriter.Put({node}, run, {pool.arguments[kInput]}, {pool.results[0].value, -1}, node);
  // Operations that read the input later get the input from the pooling, so that the pooling's backward can add their
  // gradients.
  const int64_t input = pool.arguments[kInput].value;
  rewriter.PassOn(input, rewriter.LaterReaders(input, node), node, /*result=*/1);
}

}  // namespace lockstep::exported
