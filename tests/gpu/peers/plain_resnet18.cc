// A program with torchvision's ResNet-18 as a user would write it in C++, with torch::nn modules only. A benchmark of
// this program shows how fast a user's own model trains in comparison with the built-in ResNet-18.
//
//     bazel build //tests/gpu:plain_resnet18
//     plain_resnet18 bench step tests/gpu/peers/resnet18.pbtxt --set model.name=plain_resnet18

#include <torch/nn.h>

#include "launch/main.h"

namespace {

torch::nn::Conv2d Convolution(int64_t inputs, int64_t outputs, int64_t size, int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(inputs, outputs, size).stride(stride).padding(size / 2).bias(false));
}

class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(int64_t inputs, int64_t outputs, int64_t stride)
      : conv1_(register_module("conv1", Convolution(inputs, outputs, 3, stride))),
        bn1_(register_module("bn1", torch::nn::BatchNorm2d(outputs))),
        conv2_(register_module("conv2", Convolution(outputs, outputs, 3, 1))),
        bn2_(register_module("bn2", torch::nn::BatchNorm2d(outputs))) {
    if (stride == 1 && inputs == outputs) return;
    downsample_ =
        register_module("downsample", torch::nn::Sequential(Convolution(inputs, outputs, 1, stride),
                                                            torch::nn::BatchNorm2d(outputs)));
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = bn2_(conv2_(torch::relu(bn1_(conv1_(x)))));
    return torch::relu(y + (downsample_.is_empty() ? x : downsample_->forward(x)));
  }

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d bn2_;
  torch::nn::Sequential downsample_{nullptr};  // empty: the block's shortcut is the identity
};
TORCH_MODULE(Block);

class PlainResNet18 : public lockstep::Model {
 public:
  explicit PlainResNet18(const lockstep::ModelSpec& spec)
      : conv1_(register_module("conv1", Convolution(spec.input_shape[0], 64, 7, 2))),
        bn1_(register_module("bn1", torch::nn::BatchNorm2d(64))),
        fc_(register_module("fc", torch::nn::Linear(512, spec.classes))) {
    int64_t inputs = 64;
    for (const int64_t outputs : {64, 128, 256, 512}) {
      blocks_->push_back(Block(inputs, outputs, outputs == 64 ? 1 : 2));
      blocks_->push_back(Block(outputs, outputs, 1));
      inputs = outputs;
    }
    register_module("blocks", blocks_);
  }

  at::Tensor Forward(const at::Tensor& input) override {
    const at::Tensor x = torch::relu(bn1_(conv1_(input)));
    const at::Tensor y = blocks_->forward(torch::max_pool2d(x, 3, 2, 1));
    const at::Tensor pooled = torch::adaptive_avg_pool2d(y, {1, 1});
    return fc_(pooled.view({pooled.size(0), -1}));
  }

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Sequential blocks_;
  torch::nn::Linear fc_;
};

}  // namespace

int main(int argc, char** argv) {
  lockstep::Models models = lockstep::BuiltInModels();
  models.Add<PlainResNet18>("plain_resnet18", lockstep::Models::Reads::kNothing);
  return lockstep::Main(argc, argv, models);
}
