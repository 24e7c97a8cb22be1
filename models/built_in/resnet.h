// ResNet-18, -34, -50 and -101 (He et al. 2016), with torchvision's parameter names, shapes and initial distribution.
// As in torchvision, the stride of a bottleneck block is in its 3x3 convolution. On GPUs images have the channels-last
// memory format.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/batch_norm.h"
#include "models/model.h"
#include "ops/convolution/pointwise_convolution.h"

namespace lockstep {

class ResNet : public Model {
 public:
  // Throws Error (kUsage) if the depth is unknown or the inputs are not images.
  explicit ResNet(const ModelSpec& spec);

  at::Tensor Forward(const at::Tensor& input) override;

  std::vector<at::Tensor> ConvolutionWeights(bool rounds) const override;
  std::vector<std::string> HeadPrefixes() const override { return {"fc."}; }

  // Adds to `weights` the buffers num_batches_tracked, which files of older versions of torchvision lack.
  void AdaptWeights(std::map<std::string, at::Tensor>& weights) const override;

 private:
  // Computes y = activation(norm(convolution(x)) + residual). The convolution has no bias.
  struct Unit {
    at::Tensor weight;
    std::shared_ptr<BatchNorm> norm;
    int64_t stride = 1;

    at::Tensor operator()(const at::Tensor& x, ops::Activation activation,
                          const at::Tensor& residual = {}) const;

    // Returns convolution(x).
    at::Tensor Convolve(const at::Tensor& x) const;

    // Returns relu(norm(convolution(x))) and x itself, which the residual connection around the block reads.
    ops::Fork Fork(const at::Tensor& x) const;
  };

  // Computes y = relu(units(x) + downsample(x)), with ReLU between the units. If `downsample` is empty, x itself is
  // added.
  struct Block {
    std::string name;  // the module's name, such as "layer1.0"
    std::vector<Unit> units;
    std::vector<Unit> downsample;  // at most one unit

    at::Tensor operator()(const at::Tensor& x) const;
  };

  Unit MakeUnit(torch::nn::Module& parent, const std::string& convolution, const std::string& norm,
                int64_t inputs, int64_t outputs, int64_t size, int64_t stride) const;

  Communicator* sync_;
  Unit stem_;
  std::vector<Block> blocks_;
  at::Tensor fc_weight_, fc_bias_;
};

}  // namespace lockstep
