// Computes y = f(x W + b) V + c: the two linear layers (W, b) and (V, c) of a transformer's block, with the activation
// f between the layers. The hidden layer is f(x W + b).
//
// If HasFusedFeedForward() is true, the kernel of the matrix product x W also applies the activation, and the kernel of
// the product that computes the hidden layer's gradient also applies the activation's derivative and sums up b's
// gradient. These kernels compute the activation and its derivative for one tile of the result while the tensor cores
// compute the next tile (feed_forward_product.cuh). A training step then makes four fewer passes over the hidden layer
// in GPU memory. The bias is added in float32. f is applied to the sum x W + b before the sum is rounded. The sum is
// kept for backward, rounded once. All sums are float32, and each run gives the same bits, because there are no
// atomics.
//
// what can fail -> what the caller sees -> the test that shows it (ops/product/feed_forward_test.cc)
//   HasFusedFeedForward() is false -> the result of Linear() and BiasActivation()
//     -> FeedForwardTest.KnowsWhatItHasNoKernelFor
//   sizes do not fit together -> c10::Error from Linear() or BiasActivation() -> FeedForwardTest.SaysWhatDoesNotFit
//   CUTLASS refuses a product or fails -> c10::Error with the sizes and CUTLASS's message -> (none)
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/product/activation.h"
#include "ops/product/weight_layout.h"

namespace lockstep::ops {

// The weights, all float32. A WeightLayout says whether W and V are stored transposed.
struct FeedForwardWeights {
  at::Tensor fc;        // W, inputs to hidden
  at::Tensor fc_bias;   // b [hidden]
  at::Tensor out;       // V, hidden to outputs
  at::Tensor out_bias;  // c [outputs], or undefined
};

// Returns y, [..., outputs] in x's type, with gradients for x and all weights. `x` is [..., inputs] in any float type.
at::Tensor FeedForward(const at::Tensor& x, const FeedForwardWeights& weights, WeightLayout layout,
                       Activation activation);

// Returns whether FeedForward() runs the fused kernels. This is the case if x is float16 or bfloat16 on a GPU of
// compute capability 9.0, layout and activation are GPT-2's (kInputsOutputs, kGeluTanh; separate kernels are faster for
// the GELU with erf), the numbers of inputs, hidden units and outputs are multiples of 8, the weights are contiguous,
// and the hidden layer has at least as many tiles as the GPU has multiprocessors.
bool HasFusedFeedForward(const at::Tensor& x, const FeedForwardWeights& weights,
                         WeightLayout layout, Activation activation);

// Computes the same result as FeedForward() with LinearTwin() and BiasActivationTwin(), on any device.
at::Tensor FeedForwardTwin(const at::Tensor& x, const FeedForwardWeights& weights,
                           WeightLayout layout, Activation activation);

}  // namespace lockstep::ops
