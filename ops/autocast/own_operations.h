// Replaces at::conv2d and at::linear under autocast by Lockstep's own operations, for all code of the process.
//
// A model that others wrote (a torch::nn module, a TorchScript file, an exported graph) calls LibTorch's operations.
// Under autocast on a GPU, LibTorch rounds the weights each time an operation uses them, autograd converts the weights'
// gradients to float32 in separate kernels, and cuDNN's heuristics choose how a convolution runs. Once
// UseOwnOperations() has been called, the functions Convolution(), StemConvolution(), DepthwiseConvolution(), Linear() and
// ColumnsLinear() run instead of LibTorch's operations. The results of these functions are the same as those of LibTorch's
// operations within rounding, and can be differentiated twice.
//
// LibTorch still computes: convolutions with dilation; convolutions whose stride or padding differs between height and
// width; convolutions whose numbers of channels are not multiples of 8 (except a 7x7 stem); grouped convolutions that
// cuDNN computes well (convolution.h); convolutions where neither x nor the weight is channels last; operations whose
// weight is not float32; and everything without autocast, in float32, or on the CPU. Backward adds each weight's
// gradient directly to the weight's .grad (weight_gradient.h). Therefore torch::autograd::grad() does not return the
// gradient of a weight, unless `create_graph` is true, and a hook on a weight gets an undefined tensor.
//
// Copies and sums of 16-bit tensors that do not lie densely in memory on a GPU are StridedSum()'s (strided_sum.h), also
// without autocast: aten::clone, which at::contiguous and at::reshape call, aten::cat, and aten::add, with which autograd
// adds up gradients. They give the same bits as LibTorch's.
//
// The result of a convolution is channels last if x or the weight is, as with LibTorch. The result of a linear layer on
// matrices that lie by columns may lie by columns, too. Under autocast, at::view of such a tensor returns a copy if no view
// is possible, so that models that were written for contiguous results still run. If such a copy is changed in place, the
// tensor does not change.
//
// what can fail -> what the caller sees -> the test that shows it (ops/autocast/own_operations_test.cc)
//   sizes or types that do not fit together -> LibTorch's exception -> OwnOperationsTest.SayWhatDoesNotFit
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <string_view>

#include "ops/product/linear.h"

namespace lockstep::ops {

// Registers the operations for autocast on GPUs, until the process ends. Only the first call has an effect.
void UseOwnOperations();

// Registers the same operations in `library`, whose dispatch key replaces autocast's key. The simulated ("foretold")
// GPU, on which Lockstep predicts the memory of a run (base/tensor/foretold_gpu.h), uses this function.
void RegisterOwnOperations(torch::Library& library);

// Returns what at::linear(x, weight, bias) returns in the autocast mode that is on, and x itself, as ForkedLinear() does
// (linear.h). Where LibTorch computes the linear layer, x is the tensor that was given.
LinearFork LinearAndInput(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// Returns whether RegisterOwnOperations() registers the operation `name`, for example "conv2d".
bool IsOwnOperation(std::string_view name);

}  // namespace lockstep::ops
