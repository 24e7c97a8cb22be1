#include "models/built_in/convnet.h"

#include <fmt/format.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

#include "base/error.h"
#include "base/tensor/range.h"

namespace lockstep {
namespace {

// Returns {channels, height, width} of the inputs.
std::vector<int64_t> ImageShape(const std::vector<int64_t>& input_shape) {
  if (input_shape.size() == 3) return input_shape;
  if (input_shape.size() == 1) {
    const auto side =
        static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(input_shape[0]))));
    if (side * side == input_shape[0]) return {1, side, side};
  }
  throw UsageError("model convnet: inputs of shape [{}] are no images",
                   fmt::join(input_shape, ", "));
}

}  // namespace

ConvNet::ConvNet(const ModelSpec& spec) : image_(ImageShape(spec.input_shape)) {
  spec.RequireNumbers();
  std::vector<int64_t> channels(spec.config.convnet().channels().begin(),
                                spec.config.convnet().channels().end());
  if (channels.empty()) channels = {32, 64};

  int64_t inputs = image_[0];
  int64_t height = image_[1];
  int64_t width = image_[2];
  const auto features = register_module("features", std::make_shared<torch::nn::Module>());
  for (size_t i = 0; i < channels.size(); ++i) {
    // In nn.Sequential a convolution, a ReLU and a pooling are three modules, so convolution i has the index 3 i.
    const auto convolution = features->register_module(
        std::to_string(3 * i),
        torch::nn::Conv2d(torch::nn::Conv2dOptions(inputs, channels[i], 3).padding(1)));
    convolutions_.push_back(
        {fmt::format("features.{}", 3 * i), convolution->weight, convolution->bias});
    inputs = channels[i];
    height /= 2;
    width /= 2;
  }
  if (height == 0 || width == 0) {
    throw UsageError(
        "model convnet: images of {}x{} cannot be halved {} times: give fewer channels", image_[1],
        image_[2], channels.size());
  }

  const auto classifier = register_module("classifier", std::make_shared<torch::nn::Module>());
  int64_t units = inputs * height * width;
  std::vector<int64_t> outputs{spec.classes};
  if (spec.config.convnet().hidden() > 0)
    outputs.insert(outputs.begin(), spec.config.convnet().hidden());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto linear =
        classifier->register_module(std::to_string(2 * i), torch::nn::Linear(units, outputs[i]));
    linears_.push_back({fmt::format("classifier.{}", 2 * i), linear->weight, linear->bias});
    units = outputs[i];
  }
}

at::Tensor ConvNet::Forward(const at::Tensor& input) {
  at::Tensor x = input.view({input.size(0), image_[0], image_[1], image_[2]});
  for (const Layer& layer : convolutions_) {
    const Range range(layer.name);
    x = at::max_pool2d(
        at::relu(at::conv2d(x, layer.weight, layer.bias, /*stride=*/1, /*padding=*/1)), 2);
  }
  x = x.flatten(1);
  for (size_t i = 0; i < linears_.size(); ++i) {
    const Range range(linears_[i].name);
    if (i > 0) x = at::relu(x);
    x = at::linear(x, linears_[i].weight, linears_[i].bias);
  }
  return x;
}

}  // namespace lockstep
