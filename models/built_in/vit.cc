#include "models/built_in/vit.h"

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cmath>
#include <numbers>
#include <optional>

#include "base/error.h"
#include "base/tensor/autocast.h"
#include "base/tensor/range.h"

namespace lockstep {
namespace {

constexpr double kNormEpsilon = 1e-6;
constexpr double kPositionStd = 0.02;
constexpr double kMlpBiasStd = 1e-6;

// Fills `tensor` from a normal distribution with mean 0 and standard deviation `std`, cut off at -2 and 2, like
// torch.nn.init.trunc_normal_. Uses the inverse of the distribution function.
void TruncatedNormal(const at::Tensor& tensor, double std) {
  const torch::NoGradGuard no_grad;
  const double share =
      std::erf(2 / std / std::numbers::sqrt2);  // the part of the distribution between the cuts
  tensor.uniform_(-share, share).erfinv_().mul_(std * std::numbers::sqrt2).clamp_(-2, 2);
}

}  // namespace

Vit::Vit(const ModelSpec& spec)
    : patch_(spec.config.vit().patch()),
      width_(spec.config.vit().width()),
      heads_(spec.config.vit().heads()),
      dropout_(spec.config.vit().dropout()) {
  spec.RequireImages();
  const config::Vit& config = spec.config.vit();
  const int64_t channels = spec.input_shape[0];
  const int64_t side = spec.input_shape[1];
  if (spec.input_shape[2] != side) {
    throw UsageError("model vit: images of {}x{} are not square: crop them, or take resnet", side,
                     spec.input_shape[2]);
  }
  if (side % patch_ != 0) {
    throw UsageError(
        "model vit: images of {}x{} are no whole number of patches: set model.vit.patch, now {}, "
        "to a divisor of {}",
        side, side, patch_, side);
  }
  if (width_ % heads_ != 0) {
    throw UsageError("model.vit.width {} is no multiple of model.vit.heads {}", width_, heads_);
  }
  using Module = torch::nn::Module;
  const auto linear = [](Module& parent, const std::string& name, int64_t inputs, int64_t outputs) {
    const auto module = parent.register_module(name, torch::nn::Linear(inputs, outputs));
    return Affine{module->weight, module->bias};
  };

  class_token_ = register_parameter("class_token", torch::zeros({1, 1, width_}));
  const auto conv_proj = register_module(
      "conv_proj",
      torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, width_, patch_).stride(patch_)));
  conv_proj_ = {conv_proj->weight, conv_proj->bias};
  TruncatedNormal(conv_proj_.weight,
                  std::sqrt(1 / static_cast<double>(channels * patch_ * patch_)));
  torch::nn::init::zeros_(conv_proj_.bias);

  const auto encoder = AddChild(*this, "encoder");
  const int64_t patches = (side / patch_) * (side / patch_);
  pos_embedding_ = encoder->register_parameter(
      "pos_embedding", kPositionStd * torch::randn({1, 1 + patches, width_}));
  const auto layers = AddChild(*encoder, "layers");
  const int64_t hidden = config.hidden() > 0 ? config.hidden() : 4 * width_;
  for (int64_t i = 0; i < config.layers(); ++i) {
    const auto module = AddChild(*layers, "encoder_layer_" + std::to_string(i));
    TransformerBlock block;
    block.name = "encoder.layers.encoder_layer_" + std::to_string(i);
    block.ln_1 = AddNorm(*module, "ln_1", width_);
    const auto attention = AddChild(*module, "self_attention");
    block.qkv = {
        attention->register_parameter(
            "in_proj_weight", torch::nn::init::xavier_uniform_(torch::empty({3 * width_, width_}))),
        attention->register_parameter("in_proj_bias", torch::zeros({3 * width_}))};
    block.out = linear(*attention, "out_proj", width_, width_);
    torch::nn::init::zeros_(block.out.bias);
    block.ln_2 = AddNorm(*module, "ln_2", width_);
    const auto mlp = AddChild(*module, "mlp");
    block.fc = linear(*mlp, "0", width_, hidden);
    block.fc_out = linear(*mlp, "3", hidden, width_);
    for (const Affine& affine : {block.fc, block.fc_out}) {
      torch::nn::init::xavier_uniform_(affine.weight);
      torch::nn::init::normal_(affine.bias, 0, kMlpBiasStd);
    }
    blocks_.push_back(std::move(block));
  }
  ln_ = AddNorm(*encoder, "ln", width_);

  head_ = linear(*AddChild(*this, "heads"), "head", width_, spec.classes);
  torch::nn::init::zeros_(head_.weight);
  torch::nn::init::zeros_(head_.bias);
}

at::Tensor Vit::Forward(const at::Tensor& input) {
  const NoAutocast plain(input.device());
  const double dropout = is_training() ? dropout_ : 0;
  const TransformerOptions options{.heads = heads_,
                                   .layout = ops::WeightLayout::kOutputsInputs,
                                   .causal = false,
                                   .activation = ops::Activation::kGelu,
                                   .epsilon = kNormEpsilon,
                                   .hidden_dropout = dropout,
                                   .branch_dropout = dropout};
  const auto rounded = [&](const at::Tensor& tensor) { return tensor.to(plain.dtype()); };
  std::optional<Range> range("conv_proj");
  const at::Tensor patches = at::conv2d(rounded(input), rounded(conv_proj_.weight),
                                        rounded(conv_proj_.bias), /*stride=*/patch_)
                                 .flatten(2)
                                 .transpose(1, 2);
  at::Tensor x = at::cat({rounded(class_token_).expand({input.size(0), -1, -1}), patches}, 1);
  x = x + rounded(pos_embedding_);
  if (dropout > 0) x = at::dropout(x, dropout, /*train=*/true);
  range.reset();
  Stream stream{x};
  for (const TransformerBlock& block : blocks_) {
    stream = Checkpointed(
        stream, [&block, options](const Stream& s) { return RunBlock(block, options, s); });
  }
  range.emplace("heads");
  // The head reads only the class token.
  for (at::Tensor& part : stream) {
    if (part.dim() == 3) part = part.select(1, 0);
  }
  return ops::Linear(NormalOf(stream, ln_, kNormEpsilon), head_.weight, head_.bias, options.layout);
}

void Vit::AdaptWeights(std::map<std::string, at::Tensor>& weights) const {
  std::map<std::string, at::Tensor> adapted;
  for (const auto& [name, tensor] : weights) {
    std::string adapted_name = name;
    for (const auto& [old, now] :
         {std::pair{".mlp.linear_1.", ".mlp.0."}, std::pair{".mlp.linear_2.", ".mlp.3."}}) {
      const size_t at = name.find(old);
      if (at != std::string::npos) adapted_name.replace(at, std::string(old).size(), now);
    }
    adapted.emplace(adapted_name, tensor);
  }
  weights = std::move(adapted);
}

}  // namespace lockstep
