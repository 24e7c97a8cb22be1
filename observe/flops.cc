#include "observe/flops.h"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <string_view>

#include "ops/attention/packed_attention.h"
#include "ops/convolution/convolution_planner.h"
#include "ops/product/matrix_product.h"

namespace lockstep {
namespace {

thread_local int64_t counted = 0;
// The number of attention operations that are running. While this number is positive, no operation is counted.
thread_local int inside_attention = 0;

// Returns the index of the input that says whether an attention operation is causal; 0 if the operation is not
// attention. The first two inputs of attention are query and key, [batch, heads, tokens, width].
size_t CausalInputOf(std::string_view name) {
  if (name == "aten::scaled_dot_product_attention") return 5;
  if (name == "aten::_scaled_dot_product_flash_attention") return 4;
  if (name == "aten::_scaled_dot_product_cudnn_attention") return 6;
  return 0;
}

int64_t AttentionFlops(const at::RecordFunction& call, size_t causal_input) {
  const auto inputs = call.inputs();
  const at::Tensor& query = inputs[0].toTensor();
  const at::Tensor& key = inputs[1].toTensor();
  const bool causal = inputs[causal_input].isBool() && inputs[causal_input].toBool();
  // Attention computes two matrix products, one with the keys and one with the values. Each multiply-add counts as 2
  // FLOPs.
  return 4 * query.numel() * key.size(2) / (causal ? 2 : 1);
}

int64_t PackedAttentionFlops(const at::RecordFunction& call) {
  const auto inputs = call.inputs();
  const at::Tensor& qkv = inputs[0].toTensor();
  return 4 * qkv.numel() / 3 * qkv.size(1) / (inputs[2].toBool() ? 2 : 1);
}

// Returns the FLOPs of aten::_cudnn_rnn(input, weights, ...), which uses each weight matrix at each time step.
int64_t RnnFlops(const at::RecordFunction& call) {
  const at::Tensor& input = call.inputs()[0].toTensor();
  int64_t weights = 0;
  for (const at::Tensor& weight : call.inputs()[1].toTensorVector()) {
    if (weight.dim() == 2) weights += weight.numel();
  }
  return 2 * weights * (input.numel() / input.size(-1));
}

// Returns the FLOPs of a planned convolution or of aten::convolution(input, weight, bias, stride, padding, dilation,
// ...). The convolution must not be a transposed convolution.
int64_t ConvolutionFlops(const at::RecordFunction& call) {
  const auto inputs = call.inputs();
  const at::Tensor& input = inputs[0].toTensor();
  const at::Tensor& weight = inputs[1].toTensor();
  // Returns the number for `dimension` in the call's input with the index `list`, which is a list of strides, paddings
  // or dilations. If the list has only one number, this number is for all dimensions.
  const auto of = [&](size_t list, int64_t dimension) {
    const std::vector<int64_t> numbers = inputs[list].toIntVector();
    return numbers[numbers.size() == 1 ? 0 : dimension];
  };
  int64_t outputs = input.size(0) * weight.size(0);
  for (int64_t i = 0; i + 2 < input.dim(); ++i) {
    const int64_t reach = of(5, i) * (weight.size(i + 2) - 1) + 1;
    outputs *= (input.size(i + 2) + 2 * of(4, i) - reach) / of(3, i) + 1;
  }
  return 2 * outputs * (weight.numel() / weight.size(0));
}

}  // namespace

int64_t FlopsOf(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  if (const size_t causal_input = CausalInputOf(name); causal_input > 0) {
    return AttentionFlops(call, causal_input);
  }
  // Returns input `i`. This function is called only for the operations below, because other operations may have no
  // inputs.
  const auto tensor = [&](size_t i) -> const at::Tensor& { return call.inputs()[i].toTensor(); };
  if (name == ops::kPackedAttentionEvent) return PackedAttentionFlops(call);
  if (name == "aten::mm" || name == "aten::bmm" || name == ops::kMatrixProductEvent) {
    return 2 * tensor(0).numel() * tensor(1).size(-1);
  }
  if (name == "aten::addmm" || name == "aten::baddbmm") {
    return 2 * tensor(1).numel() * tensor(2).size(-1);
  }
  if (name == "aten::_cudnn_rnn") return RnnFlops(call);
  if (name == "aten::convolution" || name == ops::kConvolutionEvent) return ConvolutionFlops(call);
  return 0;
}

int64_t CountFlops(const std::function<void()>& act) {
  counted = 0;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
            if (inside_attention == 0) counted += FlopsOf(call);
            if (CausalInputOf(call.name()) > 0) ++inside_attention;
            return nullptr;
          },
          [](const at::RecordFunction& call, at::ObserverContext*) {
            if (CausalInputOf(call.name()) > 0) --inside_attention;
          })
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION}));
  try {
    act();
  } catch (...) {
    at::removeCallback(handle);
    throw;
  }
  at::removeCallback(handle);
  return counted;
}

}  // namespace lockstep
