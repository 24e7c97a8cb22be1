#include "models/imported/guarded_call.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/tensor/autocast.h"
#include "models/imported/call_arguments.h"

namespace lockstep::exported {
namespace {

using c10::IValue;
using Stack = std::vector<IValue>;

void Call(const c10::OperatorHandle& operation, Stack& stack) { operation.callBoxed(stack); }

void CallAndClear(const c10::OperatorHandle& operation, Stack& stack) {
  operation.callBoxed(stack);
  stack[0].toTensor().zero_();
}

void CallWithStandardLayout(const c10::OperatorHandle& operation, Stack& stack) {
  const at::Tensor& x = stack[0].toTensor();
  if (x.is_cpu()) stack[0] = x.contiguous();
  operation.callBoxed(stack);
}

// Returns whether a convolution is of volumes, or steps across an image and gives few pixels in the last dimension. For
// a transposed convolution, whose gradient is a convolution, the input has these pixels.
bool HasFewPixels(const c10::FunctionSchema& schema, const Stack& stack) {
  constexpr int64_t kFew = 4, kVolume = 5;
  const at::Tensor &x = stack[0].toTensor(), &weight = stack[1].toTensor();
  if (weight.dim() == kVolume) return true;
  const CallArguments call(schema, stack);
  const auto last = [&](const char* name, int64_t otherwise) {
    const auto numbers = call.Integers(name);
    return numbers && !numbers->empty() ? numbers->back() : otherwise;
  };
  const int64_t stride = last("stride", 1);
  if (stride == 1) return false;
  if (call.Is("transposed") || schema.name().find("transpose") != std::string::npos)
    return x.size(-1) <= kFew;
  const int64_t reach = last("dilation", 1) * (weight.size(-1) - 1) + 1;
  return (x.size(-1) + 2 * last("padding", 0) - reach) / stride + 1 <= kFew;
}

void CallConvolution(const c10::OperatorHandle& operation, Stack& stack) {
  const at::Tensor& x = stack[0].toTensor();
  const AutocastState autocast = AutocastState::Now(at::kCPU);
  // Autocast leaves float64 as it is.
  const bool rounds =
      autocast.enabled && operation.hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU);
  const at::ScalarType dtype =
      rounds && x.scalar_type() != at::kDouble ? autocast.dtype : x.scalar_type();
  const bool is_16_bits = dtype == at::kBFloat16 || dtype == at::kHalf;
  if (!x.is_cpu() || !is_16_bits || !HasFewPixels(operation.schema(), stack)) {
    operation.callBoxed(stack);
    return;
  }
  constexpr size_t kTensors = 3;  // input, weight and bias
  for (size_t i = 0; i < kTensors; ++i) {
    if (!stack[i].isTensor()) continue;
    const at::Tensor& tensor = stack[i].toTensor();
    const bool is_rounded = rounds && tensor.scalar_type() != at::kDouble;
    if (is_rounded || tensor.scalar_type() == dtype) stack[i] = tensor.to(dtype).to(at::kFloat);
  }
  const NoAutocast exact(at::kCPU);
  operation.callBoxed(stack);
  stack[0] = stack[0].toTensor().to(dtype);
}

constexpr std::pair<std::string_view, Caller> kGuarded[] = {
    {"aten::empty", CallAndClear},
    {"aten::empty_like", CallAndClear},
    {"aten::new_empty", CallAndClear},
    {"aten::group_norm", CallWithStandardLayout},
    {"aten::native_group_norm", CallWithStandardLayout},
    {"aten::conv1d", CallConvolution},
    {"aten::conv2d", CallConvolution},
    {"aten::conv3d", CallConvolution},
    {"aten::conv_transpose1d", CallConvolution},
    {"aten::conv_transpose2d", CallConvolution},
    {"aten::conv_transpose3d", CallConvolution},
    {"aten::convolution", CallConvolution},
};

}  // namespace

Caller CallerOf(std::string_view operation) {
  const auto* guarded =
      std::ranges::find(kGuarded, operation, &std::pair<std::string_view, Caller>::first);
  return guarded == std::end(kGuarded) ? Call : guarded->second;
}

}  // namespace lockstep::exported
