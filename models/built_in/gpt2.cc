#include "models/built_in/gpt2.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cmath>

#include "base/ceil_divide.h"
#include "base/error.h"
#include "base/tensor/autocast.h"
#include "base/tensor/range.h"
#include "ops/token/cross_entropy.h"
#include "ops/token/embedding.h"

namespace lockstep {
namespace {

constexpr double kInitialStd = 0.02;
constexpr int64_t kVocabularyMultiple = 128;
constexpr double kNormEpsilon = 1e-5;

}  // namespace

Gpt2::Gpt2(const ModelSpec& spec)
    : width_(spec.config.gpt2().width()),
      heads_(spec.config.gpt2().heads()),
      vocabulary_(spec.classes),
      dropout_(spec.config.gpt2().dropout()) {
  if (spec.task != Task::kLanguage)
    throw UsageError("model gpt2: the samples are no tokens: see data.format");
  if (width_ % heads_ != 0) {
    throw UsageError("model.gpt2.width {} is no multiple of model.gpt2.heads {}", width_, heads_);
  }
  const config::Gpt2& config = spec.config.gpt2();
  using Module = torch::nn::Module;
  const auto linear = [&](Module& parent, const std::string& name, int64_t inputs, int64_t outputs,
                          double std) {
    const auto module = AddChild(parent, name);
    return Affine{module->register_parameter("weight", std * torch::randn({inputs, outputs})),
                  module->register_parameter("bias", torch::zeros({outputs}))};
  };
  // The smaller initial weights of residual branches make the variance of the residual sum independent of the number of
  // layers.
  const double residual_std = kInitialStd / std::sqrt(2.0 * static_cast<double>(config.layers()));

  const auto transformer = AddChild(*this, "transformer");
  const int64_t padded = RoundUp(vocabulary_, kVocabularyMultiple);
  at::Tensor embedding = kInitialStd * torch::randn({padded, width_});
  embedding.narrow(0, vocabulary_, padded - vocabulary_).zero_();
  wte_ = AddChild(*transformer, "wte")->register_parameter("weight", embedding);
  wpe_ =
      AddChild(*transformer, "wpe")
          ->register_parameter("weight", kInitialStd * torch::randn({spec.input_shape[0], width_}));
  const auto layers = AddChild(*transformer, "h");
  for (int64_t i = 0; i < config.layers(); ++i) {
    const auto layer = AddChild(*layers, std::to_string(i));
    TransformerBlock block;
    block.name = fmt::format("transformer.h.{}", i);
    block.ln_1 = AddNorm(*layer, "ln_1", width_);
    const auto attention = AddChild(*layer, "attn");
    block.qkv = linear(*attention, "c_attn", width_, 3 * width_, kInitialStd);
    block.out = linear(*attention, "c_proj", width_, width_, residual_std);
    block.ln_2 = AddNorm(*layer, "ln_2", width_);
    const auto mlp = AddChild(*layer, "mlp");
    block.fc = linear(*mlp, "c_fc", width_, 4 * width_, kInitialStd);
    block.fc_out = linear(*mlp, "c_proj", 4 * width_, width_, residual_std);
    blocks_.push_back(std::move(block));
  }
  ln_f_ = AddNorm(*transformer, "ln_f", width_);
}

at::Tensor Gpt2::Forward(const at::Tensor& input) {
  const NoAutocast plain(wte_.device());
  const double dropout = is_training() ? dropout_ : 0;
  const TransformerOptions options{.heads = heads_,
                                   .layout = ops::WeightLayout::kInputsOutputs,
                                   .causal = true,
                                   .activation = ops::Activation::kGeluTanh,
                                   .epsilon = kNormEpsilon,
                                   .attention_dropout = dropout,
                                   .branch_dropout = dropout};
  Stream stream{Embedding(input, plain.dtype(), dropout)};
  for (const TransformerBlock& block : blocks_) {
    stream = Checkpointed(
        stream, [&block, options](const Stream& s) { return RunBlock(block, options, s); });
  }
  const Range range("lm_head");
  return ops::Linear(NormalOf(stream, ln_f_, kNormEpsilon), wte_, /*bias=*/{},
                     ops::WeightLayout::kOutputsInputs);
}

at::Tensor Gpt2::Embedding(const at::Tensor& input, at::ScalarType dtype, double dropout) const {
  const Range range("transformer.wte");
  const at::Tensor positions = at::arange(input.size(1), input.options());
  const at::Tensor x = ops::EmbeddingSum(
      {{.indices = input, .weight = wte_}, {.indices = positions, .weight = wpe_}}, dtype);
  return dropout > 0 ? at::dropout(x, dropout, /*train=*/true) : x;
}

at::Tensor Gpt2::LossSum(const at::Tensor& output, const at::Tensor& target) {
  return ops::CrossEntropySum(output.flatten(0, -2), target.flatten(), vocabulary_,
                              label_smoothing(), loss_gradient());
}

std::vector<NamedTensor> Gpt2::State() const {
  std::vector<NamedTensor> state = Model::State();
  state.front().tensor = wte_.detach().narrow(0, 0, vocabulary_);
  return state;
}

void Gpt2::AdaptWeights(std::map<std::string, at::Tensor>& weights) const {
  std::map<std::string, at::Tensor> adapted;
  for (const auto& [name, tensor] : weights) {
    // Files that older versions of Hugging Face's library saved hold the causal mask of each layer as tensors.
    if (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")) continue;
    // In files of a GPT2Model, the names of the tensors lack the prefix "transformer.".
    const bool bare = name.starts_with("h.") || name.starts_with("wte.") ||
                      name.starts_with("wpe.") || name.starts_with("ln_f.");
    adapted.emplace(bare ? "transformer." + name : name, tensor);
  }
  const auto wte = adapted.find("transformer.wte.weight");
  const auto head = adapted.find("lm_head.weight");
  // lm_head.weight is dropped if it equals the token embedding. If the two differ, lm_head.weight stays, and loading
  // the weights then reports it as unknown.
  if (wte != adapted.end() && head != adapted.end() &&
      head->second.scalar_type() == wte->second.scalar_type() &&
      at::equal(head->second, wte->second)) {
    adapted.erase(head);
  }
  // The file may have embeddings for more positions than the model has; the additional ones are dropped.
  const auto wpe = adapted.find("transformer.wpe.weight");
  if (wpe != adapted.end() && wpe->second.dim() == 2 && wpe->second.size(0) > wpe_.size(0)) {
    wpe->second = wpe->second.narrow(0, 0, wpe_.size(0));
  }
  weights = std::move(adapted);
}

}  // namespace lockstep
