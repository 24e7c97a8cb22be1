// GPT-2 (Radford et al. 2019), with the names and shapes of Hugging Face's GPT2LMHeadModel: weights of
// linear layers are [inputs, outputs], and the head is the token embedding.
//
// With mixed precision all values between the layers have 16 bits, and the layers use copies of the weights in 16 bits
// (trainer/ops/common/rounded_weight.h). Statistics and sums are float32 inside the kernels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainer/models/built_in/transformer_block.h"
#include "trainer/models/model.h"

namespace lockstep {

class Gpt2 : public Model {
 public:
  // Throws Error (kUsage) for inputs that are no tokens, or a width that the heads do not divide.
  explicit Gpt2(const ModelSpec& spec);

  // input: int64 [count, tokens] -> [count, tokens, padded classes]
  at::Tensor Forward(const at::Tensor& input) override;
  at::Tensor LossSum(const at::Tensor& output, const at::Tensor& target) override;
  std::vector<NamedTensor> State() const override;
  // Takes Hugging Face's files, of GPT2LMHeadModel or of GPT2Model.
  void AdaptWeights(std::map<std::string, at::Tensor>& weights) const override;

 private:
  int64_t width_;
  int64_t heads_;
  int64_t vocabulary_;
  double dropout_;
  at::Tensor wte_;  // [padded vocabulary, width], padded for the matrix units
  at::Tensor wpe_;  // [tokens, width]
  std::vector<TransformerBlock> blocks_;
  Affine ln_f_;
};

}  // namespace lockstep
