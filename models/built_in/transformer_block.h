// The transformer block of GPT-2 and the vision transformer, with LayerNorm before attention and before the MLP:
//   x <- x + branch,  a = out(attention(qkv(LayerNorm(x)))),  x <- x + a,
//   branch = fc_out(gelu(fc(LayerNorm(x))))
// The kernel of the next LayerNorm adds the branch and its bias, and the kernel of GELU adds the bias before it.
//
// All values in the block have x's type. If that type has 16 bits, the block uses copies of the weights in 16 bits
// (ops/common/rounded_weight.h). Statistics and sums are float32 inside the kernels.
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
  std::string name;  // of the module
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

// The stream that one block passes to the next: {x}, {x, branch} or {x, branch, bias}. Its value is the sum of these
// tensors. x and branch are [count, tokens, width] in float32 or 16 bits, and bias is float32 [width].
using Stream = std::vector<at::Tensor>;

// Applies the block to `stream`, and returns {x, branch} or {x, branch, bias}.
Stream RunBlock(const TransformerBlock& block, const TransformerOptions& options,
                const Stream& stream);

// Returns LayerNorm of the sum of the stream's tensors.
at::Tensor NormalOf(const Stream& stream, const Affine& norm, double epsilon);

// Adds an empty submodule `name` to `parent`, so that its parameters are called `name`.something.
std::shared_ptr<torch::nn::Module> AddChild(torch::nn::Module& parent, const std::string& name);

// Adds a norm `name` to `parent`, with its initial values: weight is ones [width], bias is zeros [width].
Affine AddNorm(torch::nn::Module& parent, const std::string& name, int64_t width);

}  // namespace lockstep
