// The transformer block of GPT-2 and the vision transformer, with LayerNorm before attention and before the MLP. A
// block takes x and the `branch` of the block before, and passes on x and its own `branch`:
//   x <- x + branch,  a = out(attention(qkv(LayerNorm(x)))),  x <- x + a,
//   branch = fc_out(gelu(fc(LayerNorm(x))))
// The kernel of the next LayerNorm computes the sum x + branch, together with the bias of fc_out. The kernel of GELU
// adds the bias of fc.
//
// All activations in the block have x's type. If that type has 16 bits, the block uses 16-bit copies of the weights
// (ops/common/rounded_weight.h). The kernels compute statistics and sums in float32.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "ops/product/activation.h"
#include "ops/product/linear.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace lockstep {

// The float32 parameters of a linear layer or a norm.
struct Affine {
  at::Tensor weight;
  at::Tensor bias;
};

struct TransformerBlock {
  std::string name;  // the module's name, which profiles show
  Affine ln_1, qkv, out, ln_2, fc, fc_out;
};

struct TransformerOptions {
  int64_t heads = 1;
  // The layout of the linear layers' weights.
  ops::WeightLayout layout = ops::WeightLayout::kInputsOutputs;
  bool causal = false;
  ops::Activation activation = ops::Activation::kGelu;
  double epsilon = 1e-5;  // the epsilon of the norms
  // The probabilities of dropout; 0 if the model is not training.
  double attention_dropout = 0;
  double hidden_dropout = 0;
  double branch_dropout = 0;
};

// The tensors that one block passes to the next: {x}, {x, branch} or {x, branch, bias}. The tensors stand for their
// sum, which the next LayerNorm computes. x and branch are [count, tokens, width] in float32 or 16 bits, and bias is
// float32 [width].
using Stream = std::vector<at::Tensor>;

// Applies the block to `stream`, and returns {x, branch} or {x, branch, bias}.
Stream RunBlock(const TransformerBlock& block, const TransformerOptions& options,
                const Stream& stream);

// Returns LayerNorm of the sum of the stream's tensors, with the weight and the bias of `norm`.
at::Tensor NormalOf(const Stream& stream, const Affine& norm, double epsilon);

// Adds an empty submodule `name` to `parent`, so that its parameters are called `name`.something.
std::shared_ptr<torch::nn::Module> AddChild(torch::nn::Module& parent, const std::string& name);

// Adds a norm `name` to `parent`, with its initial values: weight is ones [width], bias is zeros [width].
Affine AddNorm(torch::nn::Module& parent, const std::string& name, int64_t width);

}  // namespace lockstep
