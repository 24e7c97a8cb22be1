#include "models/imported/fuse_fork.h"

#include <ATen/ATen.h>

#include <vector>

#include "base/tensor/autocast.h"
#include "base/tensor/foretold_gpu.h"
#include "ops/convolution/pointwise_convolution.h"

namespace lockstep::exported {
namespace {

using c10::IValue;

// The arguments of aten::conv2d.
enum ConvolutionArgument : size_t { kInput, kWeight, kBias, kStride, kPadding, kDilation, kGroups };

// Returns the convolution of the input, and the input itself.
std::vector<at::Tensor> Fork(const std::vector<IValue>& arguments) {
  const at::Tensor x = arguments[kInput].toTensor();
  const at::Tensor weight = arguments[kWeight].toTensor();
  const AutocastState autocast = AutocastState::Now(x.device().type());
  const bool is_own = IsOnGpu(x.device()) && autocast.enabled &&
                      x.scalar_type() == autocast.dtype && x.dim() == 4 && weight.dim() == 4 &&
                      weight.size(1) == x.size(1) && weight.size(2) == 1 && weight.size(3) == 1 &&
                      weight.scalar_type() == at::kFloat && weight.size(0) % 8 == 0 &&
                      weight.size(1) % 8 == 0;
  if (!is_own) return {at::conv2d(x, weight), x};
  const auto [convolved, shortcut] =
      ops::PointwiseConvolution(x.contiguous(at::MemoryFormat::ChannelsLast), weight);
  return {convolved, shortcut};
}

}  // namespace

void FuseFork(Rewriter& rewriter, int64_t node) {
  const Node& convolution = rewriter.At(node);
  const std::vector<Argument>& own = convolution.arguments;
  const bool may_be_pointwise = convolution.operation->schema().overload_name().empty() &&
                                IsValue(own[kInput]) && IsValue(own[kWeight]) &&
                                IsConstant(own[kBias], IValue()) && SingleOf(own[kStride]) == 1 &&
                                SingleOf(own[kPadding]) == 0 && SingleOf(own[kDilation]) == 1 &&
                                IsConstant(own[kGroups], 1) && convolution.grad;
  if (!may_be_pointwise) return;
  const std::vector<int64_t> readers = rewriter.LaterReaders(own[kInput].value, node);
  if (readers.empty()) return;
  rewriter.Put({node}, Fork, own, {convolution.results[0].value, -1}, node);
  rewriter.PassOn(own[kInput].value, readers, node, /*result=*/1);
}

}  // namespace lockstep::exported
