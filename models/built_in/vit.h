// Vision transformer (Dosovitskiy et al. 2021), with the parameter names, shapes and initial distribution of
// torchvision's VisionTransformer: a class token before the patches, LayerNorm before attention and before the MLP, and
// a head whose initial weights are zero. With mixed precision all activations between the layers have 16 bits.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/built_in/transformer_block.h"
#include "models/model.h"

namespace lockstep {

class Vit : public Model {
 public:
  // Throws Error (kUsage) if the inputs are not square images that consist of whole patches, or if the number of heads
  // does not divide the width.
  explicit Vit(const ModelSpec& spec);

  at::Tensor Forward(const at::Tensor& input) override;
  std::vector<std::string> HeadPrefixes() const override { return {"heads."}; }
  // Returns no weights, so the only convolution, the patch embedding, keeps PyTorch's default layout. Another layout
  // would gain little, because the windows of this convolution do not overlap: it reads each pixel only once in any
  // layout.
  std::vector<at::Tensor> ConvolutionWeights(bool /*rounds*/) const override { return {}; }

  // Converts weights that older versions of torchvision saved, in which the layers of an MLP are called linear_1 and
  // linear_2.
  void AdaptWeights(std::map<std::string, at::Tensor>& weights) const override;

 private:
  int64_t patch_;
  int64_t width_;
  int64_t heads_;
  double dropout_;
  at::Tensor class_token_;    // [1, 1, width]
  Affine conv_proj_;          // weight: [width, channels, patch, patch]
  at::Tensor pos_embedding_;  // [1, 1 + patches, width]
  std::vector<TransformerBlock> blocks_;
  Affine ln_;
  Affine head_;
};

}  // namespace lockstep
