#include "models/built_in/resnet.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/tensor/range.h"
#include "ops/convolution/convolution.h"
#include "ops/convolution/stem_convolution.h"
#include "ops/pixels/pixel_mean.h"
#include "ops/product/linear.h"

namespace lockstep {
namespace {

using ops::Activation;

struct Design {
  std::vector<int> blocks;  // the number of blocks in each of the four stages
  bool bottleneck = true;   // true: a block has 1x1, 3x3, 1x1 convolutions; false: two 3x3
};

const Design& DesignOf(int depth) {
  static const std::map<int, Design> kDesigns{{18, {{2, 2, 2, 2}, false}},
                                              {34, {{3, 4, 6, 3}, false}},
                                              {50, {{3, 4, 6, 3}, true}},
                                              {101, {{3, 4, 23, 3}, true}}};
  const auto design = kDesigns.find(depth);
  if (design == kDesigns.end()) {
    throw UsageError("model.resnet.depth {}: there are 18, 34, 50 and 101", depth);
  }
  return design->second;
}

}  // namespace

ResNet::ResNet(const ModelSpec& spec) : sync_(spec.sync_batch_norm) {
  spec.RequireImages();
  const Design& design = DesignOf(spec.config.resnet().depth());
  const int64_t expansion = design.bottleneck ? 4 : 1;
  stem_ = MakeUnit(*this, "conv1", "bn1", spec.input_shape[0], 64, 7, 2);
  int64_t inputs = 64;
  for (size_t stage = 0; stage < design.blocks.size(); ++stage) {
    const auto layer =
        register_module("layer" + std::to_string(stage + 1), std::make_shared<torch::nn::Module>());
    const int64_t width = int64_t{64} << stage;
    for (int i = 0; i < design.blocks[stage]; ++i) {
      const auto module =
          layer->register_module(std::to_string(i), std::make_shared<torch::nn::Module>());
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      Block block;
      block.name = fmt::format("layer{}.{}", stage + 1, i);
      if (design.bottleneck) {
        block.units = {MakeUnit(*module, "conv1", "bn1", inputs, width, 1, 1),
                       MakeUnit(*module, "conv2", "bn2", width, width, 3, stride),
                       MakeUnit(*module, "conv3", "bn3", width, width * expansion, 1, 1)};
      } else {
        block.units = {MakeUnit(*module, "conv1", "bn1", inputs, width, 3, stride),
                       MakeUnit(*module, "conv2", "bn2", width, width, 3, 1)};
      }
      if (stride != 1 || inputs != width * expansion) {
        const auto downsample =
            module->register_module("downsample", std::make_shared<torch::nn::Module>());
        block.downsample = {MakeUnit(*downsample, "0", "1", inputs, width * expansion, 1, stride)};
      }
      inputs = width * expansion;
      blocks_.push_back(std::move(block));
    }
  }
  const auto fc = register_module("fc", torch::nn::Linear(inputs, spec.classes));
  fc_weight_ = fc->weight;
  fc_bias_ = fc->bias;
}

ResNet::Unit ResNet::MakeUnit(torch::nn::Module& parent, const std::string& convolution,
                              const std::string& norm, int64_t inputs, int64_t outputs,
                              int64_t size, int64_t stride) const {
  const auto module = parent.register_module(
      convolution, torch::nn::Conv2d(torch::nn::Conv2dOptions(inputs, outputs, size).bias(false)));
  torch::nn::init::kaiming_normal_(module->weight, 0, torch::kFanOut, torch::kReLU);
  return {module->weight, parent.register_module(norm, std::make_shared<BatchNorm>(outputs, sync_)),
          stride};
}

at::Tensor ResNet::Unit::operator()(const at::Tensor& x, Activation activation,
                                    const at::Tensor& residual) const {
  return norm->forward(Convolve(x), activation, residual);
}

at::Tensor ResNet::Unit::Convolve(const at::Tensor& x) const {
  return ops::Convolution(x, weight, stride, /*padding=*/weight.size(2) / 2);
}

ops::Fork ResNet::Unit::Fork(const at::Tensor& x) const {
  if (weight.size(2) != 1 || stride != 1) return {(*this)(x, Activation::kRelu), x};
  const auto [convolved, shortcut] = ops::PointwiseConvolution(x, weight);
  return {norm->forward(convolved, Activation::kRelu), shortcut};
}

at::Tensor ResNet::Block::operator()(const at::Tensor& x) const {
  const Range range(name);
  auto [y, shortcut] = units.front().Fork(x);
  if (!downsample.empty()) shortcut = downsample[0].Convolve(shortcut);
  for (size_t i = 1; i + 1 < units.size(); ++i) y = units[i](y, Activation::kRelu);
  const Unit& last = units.back();
  if (downsample.empty()) return last(y, Activation::kRelu, shortcut);
  return last.norm->Join(last.Convolve(y), *downsample[0].norm, shortcut);
}

std::vector<at::Tensor> ResNet::ConvolutionWeights(bool /*rounds*/) const {
  return Model::ConvolutionWeights(/*rounds=*/true);
}

at::Tensor ResNet::Forward(const at::Tensor& input) {
  std::optional<Range> range("conv1");
  at::Tensor x = stem_.norm->Pool(ops::StemConvolution(input, stem_.weight));
  range.reset();
  for (const Block& block : blocks_) x = Checkpointed(x, block);
  range.emplace("fc");
  return ops::Linear(ops::PixelMean(x), fc_weight_, fc_bias_, ops::WeightLayout::kOutputsInputs);
}

void ResNet::AdaptWeights(std::map<std::string, at::Tensor>& weights) const {
  for (const auto& buffer : named_buffers()) {
    if (!buffer.key().ends_with(".num_batches_tracked")) continue;
    weights.try_emplace(buffer.key(), at::zeros({}, at::kLong));
  }
}

}  // namespace lockstep
