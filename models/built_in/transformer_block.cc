#include "models/built_in/transformer_block.h"

#include <ATen/ops/dropout.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <optional>
#include <utility>

#include "base/tensor/range.h"
#include "ops/attention/attention.h"
#include "ops/norm/layer_norm.h"
#include "ops/product/bias_activation.h"
#include "ops/product/feed_forward.h"

namespace lockstep {
namespace {

// Returns the sum of the stream's tensors, and LayerNorm of the sum.
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

// Returns fc_out(activation(fc(x))). `out_bias` is the bias of fc_out, or undefined to leave it out.
at::Tensor Mlp(const at::Tensor& x, const TransformerBlock& block, const at::Tensor& out_bias,
               const TransformerOptions& options) {
  const auto& [fc, fc_bias] = block.fc;
  const at::Tensor& fc_out = block.fc_out.weight;
  if (options.hidden_dropout == 0) {
    return ops::FeedForward(x, {fc, fc_bias, fc_out, out_bias}, options.layout, options.activation);
  }
  const at::Tensor hidden = ops::BiasActivation(ops::Linear(x, fc, /*bias=*/{}, options.layout),
                                                fc_bias, options.activation);
  return ops::Linear(Dropped(hidden, options.hidden_dropout), fc_out, out_bias, options.layout);
}

}  // namespace

Stream RunBlock(const TransformerBlock& block, const TransformerOptions& options,
                const Stream& stream) {
  const Range range(block.name);
  const auto product = [&](const at::Tensor& x, const Affine& affine, const at::Tensor& bias) {
    return ops::Linear(x, affine.weight, bias, options.layout);
  };
  // Dropout acts on the sum of a branch and its last layer's bias. With dropout that layer therefore adds the bias
  // itself; otherwise the kernel of the next LayerNorm adds it.
  const bool drops = options.branch_dropout > 0;
  const auto bias_within = [&](const Affine& last) { return drops ? last.bias : at::Tensor(); };
  const auto stream_of = [&](const at::Tensor& x, const at::Tensor& branch,
                             const Affine& last) -> Stream {
    if (drops) return {x, Dropped(branch, options.branch_dropout)};
    return {x, branch, last.bias};
  };
  std::optional<Range> part("attention");
  auto [x, normal] = SumAndNormal(stream, block.ln_1, options.epsilon);
  const at::Tensor mixed =
      ops::SelfAttention(product(normal, block.qkv, block.qkv.bias), options.heads,
                         {.dropout = options.attention_dropout, .causal = options.causal});
  const at::Tensor attended = product(mixed, block.out, bias_within(block.out));
  part.reset();
  part.emplace("mlp");
  std::tie(x, normal) =
      SumAndNormal(stream_of(x, attended, block.out), block.ln_2, options.epsilon);
  return stream_of(x, Mlp(normal, block, bias_within(block.fc_out), options), block.fc_out);
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
