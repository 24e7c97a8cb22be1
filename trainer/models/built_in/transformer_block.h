// The transformer block of GPT-2 and the vision transformer, with LayerNorm before attention and before the MLP:
//   x <- x + branch,  a = out(attention(qkv(LayerNorm(x)))),  x <- x + a,
//   branch = fc_out(gelu(fc(LayerNorm(x))))
// The kernel of the next LayerNorm adds the branch and its bias, and the kernel of GELU adds the bias before it.
//
// All values in the block have x's type. If that type has 16 bits, the block uses copies of the weights in 16 bits
// (trainer/ops/common/rounded_weight.h). Statistics and sums are float32 inside the kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "trainer/ops/product/activation.h"
#include "trainer/ops/product/linear.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace lockstep {

// Of a linear layer or a norm, float32.
struct Affine {
  at::Tensor weight;
  at::Tensor bias;
};

struct TransformerBlock {
  Affine ln_1, qkv, out, ln_2, fc, fc_out;
};

struct TransformerOptions {
  int64_t heads = 1;
  ops::WeightLayout layout = ops::WeightLayout::kInputsOutputs;  // of the linear layers
  bool causal = false;
  ops::Activation activation = ops::Activation::kGelu;
  double epsilon = 1e-5;  // of the norms
  // Shares that are dropped; 0 where the model is not training.
  double attention_dropout = 0;
  double hidden_dropout = 0;
  double branch_dropout = 0;
};

// What runs between blocks: {x}, {x, branch} or {x, branch, bias}, whose sum is the stream. x, branch:
// [count, tokens, width] in float32 or 16 bits; bias: float32 [width].
using Stream = std::vector<at::Tensor>;

// -> {x, branch}, or {x, branch, bias}.
Stream RunBlock(const TransformerBlock& block, const TransformerOptions& options,
                const Stream& stream);

// LayerNorm of the stream's sum.
at::Tensor NormalOf(const Stream& stream, const Affine& norm, double epsilon);

// An empty module of `parent`'s, for what is called `name`.something.
std::shared_ptr<torch::nn::Module> AddChild(torch::nn::Module& parent, const std::string& name);

// A norm of `parent`'s as it starts: ones and zeros [width].
Affine AddNorm(torch::nn::Module& parent, const std::string& name, int64_t width);

}  // namespace lockstep
