#include "trainer/models/gpt2.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cmath>

#include "base/error.h"
#include "trainer/ops/cross_entropy.h"

namespace lockstep {
namespace {

constexpr double kInitialStd = 0.02;
constexpr int64_t kVocabularyMultiple = 128;

// Until it ends operations take their inputs as they are.
class NoAutocast {
 public:
  explicit NoAutocast(at::DeviceType device)
      : device_(device), was_enabled_(at::autocast::is_autocast_enabled(device)) {
    at::autocast::set_autocast_enabled(device_, false);
  }
  ~NoAutocast() { at::autocast::set_autocast_enabled(device_, was_enabled_); }
  NoAutocast(const NoAutocast&) = delete;
  NoAutocast& operator=(const NoAutocast&) = delete;

 private:
  at::DeviceType device_;
  bool was_enabled_;
};

// x of [..., inputs] @ weight + bias, the bias added by the matrix product's own kernel.
at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(1);
  return at::addmm(bias.to(x.scalar_type()), x.flatten(0, -2), weight.to(x.scalar_type()))
      .view(shape);
}

}  // namespace

Gpt2::Gpt2(const ModelSpec& spec)
    : width_(spec.config.gpt2().width()),
      heads_(spec.config.gpt2().heads()),
      vocabulary_(spec.classes),
      dropout_(spec.config.gpt2().dropout()) {
  if (!spec.tokens) throw UsageError("model gpt2: the samples are no tokens: see data.format");
  if (width_ % heads_ != 0) {
    throw UsageError("model.gpt2.width {} is no multiple of model.gpt2.heads {}", width_, heads_);
  }
  const config::Gpt2& config = spec.config.gpt2();
  using Module = torch::nn::Module;
  const auto child = [](Module& parent, const std::string& name) {
    return parent.register_module(name, std::make_shared<Module>());
  };
  const auto linear = [&](Module& parent, const std::string& name, int64_t inputs, int64_t outputs,
                          double std) {
    const auto module = child(parent, name);
    return Affine{module->register_parameter("weight", std * torch::randn({inputs, outputs})),
                  module->register_parameter("bias", torch::zeros({outputs}))};
  };
  const auto norm = [&](Module& parent, const std::string& name) {
    const auto module = child(parent, name);
    return Affine{module->register_parameter("weight", torch::ones({width_})),
                  module->register_parameter("bias", torch::zeros({width_}))};
  };
  // Residual branches start so that their sum has a std of its own, whatever their number.
  const double residual_std = kInitialStd / std::sqrt(2.0 * static_cast<double>(config.layers()));

  const auto transformer = child(*this, "transformer");
  const int64_t padded =
      (vocabulary_ + kVocabularyMultiple - 1) / kVocabularyMultiple * kVocabularyMultiple;
  at::Tensor embedding = kInitialStd * torch::randn({padded, width_});
  embedding.narrow(0, vocabulary_, padded - vocabulary_).zero_();
  wte_ = child(*transformer, "wte")->register_parameter("weight", embedding);
  wpe_ =
      child(*transformer, "wpe")
          ->register_parameter("weight", kInitialStd * torch::randn({spec.input_shape[0], width_}));
  const auto layers = child(*transformer, "h");
  for (int64_t i = 0; i < config.layers(); ++i) {
    const auto layer = child(*layers, std::to_string(i));
    Block block;
    block.ln_1 = norm(*layer, "ln_1");
    const auto attention = child(*layer, "attn");
    block.attention = linear(*attention, "c_attn", width_, 3 * width_, kInitialStd);
    block.attention_out = linear(*attention, "c_proj", width_, width_, residual_std);
    block.ln_2 = norm(*layer, "ln_2");
    const auto mlp = child(*layer, "mlp");
    block.fc = linear(*mlp, "c_fc", width_, 4 * width_, kInitialStd);
    block.fc_out = linear(*mlp, "c_proj", 4 * width_, width_, residual_std);
    blocks_.push_back(std::move(block));
  }
  ln_f_ = norm(*transformer, "ln_f");
}

at::Tensor Gpt2::Dropped(const at::Tensor& x) const {
  return dropout_ > 0 ? at::dropout(x, dropout_, is_training()) : x;
}

at::Tensor Gpt2::Normal(const at::Tensor& x, const Affine& norm) const {
  return at::layer_norm(x, {width_}, norm.weight.to(x.scalar_type()),
                        norm.bias.to(x.scalar_type()));
}

at::Tensor Gpt2::Attention(const at::Tensor& x, const Block& block) const {
  const int64_t count = x.size(0);
  const int64_t tokens = x.size(1);
  const std::vector<at::Tensor> qkv = Linear(x, block.attention.weight, block.attention.bias)
                                          .view({count, tokens, 3, heads_, width_ / heads_})
                                          .permute({2, 0, 3, 1, 4})
                                          .unbind(0);
  const at::Tensor mixed =
      at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], /*attn_mask=*/{},
                                       is_training() ? dropout_ : 0.0, /*is_causal=*/true)
          .transpose(1, 2)
          .reshape({count, tokens, width_});
  return Dropped(Linear(mixed, block.attention_out.weight, block.attention_out.bias));
}

at::Tensor Gpt2::Forward(const at::Tensor& input) {
  const at::DeviceType device = wte_.device().type();
  const bool rounds = at::autocast::is_autocast_enabled(device);
  const at::ScalarType dtype = rounds ? at::autocast::get_autocast_dtype(device) : at::kFloat;
  const NoAutocast plain(device);
  const at::Tensor embedding = wte_.to(dtype);
  at::Tensor x = at::embedding(embedding, input) + wpe_.narrow(0, 0, input.size(1)).to(dtype);
  x = Dropped(x);
  for (const Block& block : blocks_) {
    x = x + Attention(Normal(x, block.ln_1), block);
    const at::Tensor hidden = Linear(Normal(x, block.ln_2), block.fc.weight, block.fc.bias);
    x = x + Dropped(Linear(at::gelu(hidden, "tanh"), block.fc_out.weight, block.fc_out.bias));
  }
  return at::linear(Normal(x, ln_f_), embedding);
}

at::Tensor Gpt2::LossSum(const at::Tensor& output, const at::Tensor& target) {
  return ops::CrossEntropySum(output.flatten(0, -2), target.flatten(), vocabulary_,
                              label_smoothing());
}

std::vector<NamedTensor> Gpt2::State() const {
  std::vector<NamedTensor> state = Model::State();
  state.front().tensor = wte_.detach().narrow(0, 0, vocabulary_);
  return state;
}

}  // namespace lockstep
