// GPT-2 (Radford et al. 2019), with the parameter names and shapes of Hugging Face's GPT2LMHeadModel: weights of linear
// layers are [inputs, outputs], and the head shares its weight with the token embedding.
//
// With mixed precision all activations between the layers have 16 bits, and the layers use 16-bit copies of the weights
// (ops/common/rounded_weight.h). The kernels compute statistics and sums in float32.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/built_in/transformer_block.h"
#include "models/model.h"

namespace lockstep {

class Gpt2 : public Model {
 public:
  // Throws Error (kUsage) if the inputs are not tokens, or if the number of heads does not divide the width.
  explicit Gpt2(const ModelSpec& spec);

  // Computes the logits [count, tokens, padded vocabulary] of `input`, int64 [count, tokens].
  at::Tensor Forward(const at::Tensor& input) override;
  at::Tensor LossSum(const at::Tensor& output, const at::Tensor& target) override;
  std::vector<NamedTensor> State() const override;
  // Converts weights that Hugging Face's GPT2LMHeadModel or GPT2Model saved.
  void AdaptWeights(std::map<std::string, at::Tensor>& weights) const override;

 private:
  at::Tensor Embedding(const at::Tensor& input, at::ScalarType dtype, double dropout) const;

  int64_t width_;
  int64_t heads_;
  int64_t vocabulary_;
  double dropout_;
  at::Tensor wte_;  // [padded vocabulary, width]; padding to a multiple of 128 suits tensor cores
  at::Tensor wpe_;  // [tokens, width]
  std::vector<TransformerBlock> blocks_;
  Affine ln_f_;
};

}  // namespace lockstep
