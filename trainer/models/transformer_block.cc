#include "trainer/models/transformer_block.h"

#include <ATen/ops/dropout.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <utility>

#include "trainer/ops/attention.h"
#include "trainer/ops/bias_activation.h"
#include "trainer/ops/layer_norm.h"

namespace lockstep {
namespace {

// The sum of the stream, and LayerNorm of it.
std::pair<at::Tensor, at::Tensor> SumAndNormal(const Stream& stream, const Affine& norm,
                                               double epsilon) {
  if (stream.size() == 1) {
    return {stream[0], ops::LayerNorm(stream[0], norm.weight, norm.bias, epsilon)};
  }
  const ops::Branch branch{stream[1], stream.size() > 2 ? stream[2] : at::Tensor()};
  return ops::AddLayerNorm(stream[0], branch, norm.weight, norm.bias, epsilon);
}

at::Tensor Dropped(const at::Tensor& x, double share) {
  return share > 0 ? at::dropout(x, share, /*train=*/true) : x;
}

}  // namespace

Stream RunBlock(const TransformerBlock& block, const TransformerOptions& options,
                const Stream& stream) {
  const auto product = [&](const at::Tensor& x, const Affine& affine, const at::Tensor& bias) {
    return ops::Linear(x, affine.weight, bias, options.layout);
  };
  // What is dropped has its bias in it.
  const auto stream_of = [&](const at::Tensor& x, const at::Tensor& inner,
                             const Affine& affine) -> Stream {
    if (options.branch_dropout == 0) return {x, product(inner, affine, {}), affine.bias};
    return {x, Dropped(product(inner, affine, affine.bias), options.branch_dropout)};
  };
  const auto attention = options.causal ? ops::CausalSelfAttention : ops::SelfAttention;
  auto [x, normal] = SumAndNormal(stream, block.ln_1, options.epsilon);
  const at::Tensor mixed = attention(product(normal, block.qkv, block.qkv.bias), options.heads,
                                     options.attention_dropout);
  std::tie(x, normal) = SumAndNormal(stream_of(x, mixed, block.out), block.ln_2, options.epsilon);
  const at::Tensor hidden =
      ops::BiasActivation(product(normal, block.fc, {}), block.fc.bias, options.activation);
  return stream_of(x, Dropped(hidden, options.hidden_dropout), block.fc_out);
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
