// GPT-2 (Radford et al. 2019), with the names and shapes of Hugging Face's GPT2LMHeadModel: weights of
// linear layers are [inputs, outputs], and the head is the token embedding.
//
// With mixed precision all values between the layers have 16 bits, and the layers use copies of the weights in 16 bits
// (ops/common/rounded_weight.h). Statistics and sums are float32 inside the kernels.
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

  // Converts `input`, int64 [count, tokens], to [count, tokens, padded classes].
  at::Tensor Forward(const at::Tensor& input) override;
  at::Tensor LossSum(const at::Tensor& output, const at::Tensor& target) override;
  std::vector<NamedTensor> State() const override;
  // Accepts files of Hugging Face's GPT2LMHeadModel and GPT2Model.
  void AdaptWeights(std::map<std::string, at::Tensor>& weights) const override;

 private:
  at::Tensor Embedding(const at::Tensor& input, at::ScalarType dtype, double dropout) const;

  int64_t width_;
  int64_t heads_;
  int64_t vocabulary_;
  double dropout_;
  at::Tensor wte_;  // [padded vocabulary, width]; the padding makes the size fit the tensor cores
  at::Tensor wpe_;  // [tokens, width]
  std::vector<TransformerBlock> blocks_;
  Affine ln_f_;
};

}  // namespace lockstep
