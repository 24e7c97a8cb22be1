// GPT-2 (Radford et al. 2019), with the names and shapes of Hugging Face's GPT2LMHeadModel: weights of
// linear layers are [inputs, outputs], and the head is the token embedding.
//
// In 16 bits the whole stream between the layers is: weights are rounded once a micro-batch, statistics
// and sums are float32 inside the kernels.
#pragma once

#include <string>
#include <vector>

#include "trainer/model.h"

namespace lockstep {

class Gpt2 : public Model {
 public:
  // Throws Error (kUsage) for inputs that are no tokens, or a width that the heads do not divide.
  explicit Gpt2(const ModelSpec& spec);

  // input: int64 [count, tokens] -> [count, tokens, padded classes]
  at::Tensor Forward(const at::Tensor& input) override;
  at::Tensor LossSum(const at::Tensor& output, const at::Tensor& target) override;
  std::vector<NamedTensor> State() const override;

 private:
  struct Affine {
    at::Tensor weight;
    at::Tensor bias;
  };
  struct Block {
    Affine ln_1, attention, attention_out, ln_2, fc, fc_out;
  };

  at::Tensor Dropped(const at::Tensor& x) const;
  at::Tensor Normal(const at::Tensor& x, const Affine& norm) const;
  at::Tensor Attention(const at::Tensor& x, const Block& block) const;

  int64_t width_;
  int64_t heads_;
  int64_t vocabulary_;
  double dropout_;
  at::Tensor wte_;  // [vocabulary, padded for the matrix units, width]
  at::Tensor wpe_;  // [tokens, width]
  std::vector<Block> blocks_;
  Affine ln_f_;
};

}  // namespace lockstep
