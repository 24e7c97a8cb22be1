#include "trainer/models/transformer_block.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <utility>

#include "trainer/ops/attention.h"
#include "trainer/ops/layer_norm.h"

namespace lockstep {
namespace {

// The sum of the stream, and LayerNorm of it.
std::pair<at::Tensor, at::Tensor> SumAndNormal(const Stream& stream, const Affine& norm,
                                               double epsilon) {
  if (stream.size() == 1) {
    return {stream[0], ops::LayerNorm(stream[0], norm.weight, norm.bias, epsilon)};
  }
  return ops::AddLayerNorm(stream[0], stream[1], norm.weight, norm.bias, epsilon);
}

at::Tensor Dropped(const at::Tensor& x, double share) {
  return share > 0 ? at::dropout(x, share, /*train=*/true) : x;
}

}  // namespace

Stream RunBlock(const TransformerBlock& block, const TransformerOptions& options,
                const Stream& stream) {
  const auto linear = [&](const at::Tensor& x, const Affine& affine) {
    return ops::Linear(x, affine.weight, affine.bias, options.layout);
  };
  const auto attention = options.causal ? ops::CausalSelfAttention : ops::SelfAttention;
  auto [x, normal] = SumAndNormal(stream, block.ln_1, options.epsilon);
  const at::Tensor mixed =
      attention(linear(normal, block.qkv), options.heads, options.attention_dropout);
  const at::Tensor attended = Dropped(linear(mixed, block.out), options.branch_dropout);
  std::tie(x, normal) = SumAndNormal({x, attended}, block.ln_2, options.epsilon);
  const at::Tensor hidden =
      Dropped(at::gelu(linear(normal, block.fc), options.gelu), options.hidden_dropout);
  return {x, Dropped(linear(hidden, block.fc_out), options.branch_dropout)};
}

at::Tensor NormalOf(const Stream& stream, const Affine& norm, double epsilon) {
  return SumAndNormal(stream, norm, epsilon).second;
}

std::shared_ptr<torch::nn::Module> AddChild(torch::nn::Module& parent, const std::string& name) {
  return parent.register_module(name, std::make_shared<torch::nn::Module>());
}

Affine AddNorm(torch::nn::Module& parent, const std::string& name, int64_t width) {
  const auto module = AddChild(parent, name);
  return {module->register_parameter("weight", torch::ones({width})),
          module->register_parameter("bias", torch::zeros({width}))};
}

}  // namespace lockstep
