// Model: what is trained; and Models: the models that a program knows by name.
//
// A user's own model is a torch::nn::Module with Forward, added to the Models that main() hands to
// Lockstep (README.md, 'Your own model'). Its parameters and buffers are found by name; those that
// require a gradient are trained, and all are saved, under those names.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/named_tensor.h"
#include "comm/communicator.h"
#include "trainer/config.pb.h"

namespace lockstep {

// What a model is made from.
struct ModelSpec {
  std::vector<int64_t> input_shape;  // of one sample: {features}, or {channels, height, width}
  int64_t classes = 0;
  bool tokens = false;  // inputs and targets are tokens, int64
  config::Model config;
  // For BatchNorm (trainer/batch_norm.h): the ranks that share its statistics; null: each has its own.
  Communicator* sync_batch_norm = nullptr;

  // The value of `option { key value }` in the config; `fallback` when it is not there. A key that a
  // model never asks for is taken for a mistake. Throws Error (kUsage) when the value is no integer.
  std::string Option(const std::string& key, const std::string& fallback) const;
  int64_t IntegerOption(const std::string& key, int64_t fallback) const;

  // Throws Error (kUsage) where the samples are tokens: for models that compute with numbers.
  void RequireNumbers() const;

  // The keys that were asked for, for Models::Make.
  mutable std::vector<std::string> asked{};
};

class Model : public torch::nn::Module {
 public:
  // input: [count, input_shape...], count >= 1, float32, or int64 where samples are tokens -> output:
  // [count, classes], the logits; for tokens [count, tokens, classes]. Columns beyond the classes are
  // left out where labels are compared.
  virtual at::Tensor Forward(const at::Tensor& input) = 0;

  // The sum over the targets of their losses, 0-dimensional: by default the cross-entropy of
  // torch.nn.functional.cross_entropy(output, target, reduction="sum"), in training with the config's
  // label smoothing. target: int64 [count], or [count, tokens].
  virtual at::Tensor LossSum(const at::Tensor& output, const at::Tensor& target);

  // Where the state's tensors are kept in another shape than they are saved in: what is saved. By
  // default parameters, then buffers, under their names.
  virtual std::vector<NamedTensor> State() const;

 protected:
  // The config's label smoothing in training, 0 otherwise.
  double label_smoothing() const { return is_training() ? label_smoothing_ : 0; }

 private:
  friend class Models;
  double label_smoothing_ = 0;
};

class Models {
 public:
  using Factory = std::function<std::shared_ptr<Model>(const ModelSpec&)>;

  // Adds a model under the name that `model { name: ... }` in a config asks for.
  void Add(const std::string& name, Factory factory);

  // Adds class M, which is constructed from a ModelSpec.
  template <typename M>
  void Add(const std::string& name) {
    Add(name, [](const ModelSpec& spec) { return std::make_shared<M>(spec); });
  }

  // Throws Error (kUsage) for a name that nobody added, and whatever the model's constructor
  // throws.
  std::shared_ptr<Model> Make(const ModelSpec& spec) const;

 private:
  std::map<std::string, Factory> factories_;
};

}  // namespace lockstep
