// Makes at::conv2d and at::linear the operations of ops, whoever calls them.
//
// A model that others wrote (a torch::nn module, a TorchScript file, an exported graph) calls LibTorch's operations.
// Under autocast on a GPU, LibTorch rounds the weights each time an operation uses them, autograd converts their
// gradients back in kernels of its own, and cuDNN's heuristics choose how a convolution runs. After UseOwnOperations(),
// Convolution(), StemConvolution(), DepthwiseConvolution() and Linear() run instead. They give the same results within
// rounding, and can be differentiated twice like LibTorch's.
//
// LibTorch computes the rest as before: convolutions with dilation, with other strides or padding along height than
// along width, of channels that are no multiples of 8 (but for a stem of 7x7), or in groups that cuDNN computes well
// (convolution.h); images where neither x nor the weight has the channels last; weights that are not float32;
// everything without autocast, in float32, or on the CPU. As each gradient is added to the weight's .grad,
// torch::autograd::grad() does not return that of a weight, unless it creates a graph, and a hook of a weight gets an
// undefined tensor (weight_gradient.h).
//
// Convolutions give images channels last if x or the weight is, like LibTorch's. Under autocast at::view of such images
// is a copy where no view is possible: a model that was written for contiguous images then still runs. A write to such
// a copy does not reach the images.
//
// what can fail -> what the caller sees -> the test that shows it (ops/autocast/own_operations_test.cc)
//   sizes or types that do not fit together -> LibTorch's exception -> OwnOperationsTest.SayWhatDoesNotFit
#pragma once

#include <torch/library.h>

#include <string_view>

namespace lockstep::ops {

// Registers the operations for GPUs. From the first call on they are those of the whole process; later calls do
// nothing.
void UseOwnOperations();

// Registers them in a library of kernels that are called as autocast's are (a foretold GPU's).
void RegisterOwnOperations(torch::Library& library);

// Whether RegisterOwnOperations() registers this operation, such as "conv2d".
bool IsOwnOperation(std::string_view name);

}  // namespace lockstep::ops
