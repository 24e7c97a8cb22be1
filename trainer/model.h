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

#include "comm/communicator.h"
#include "trainer/config.pb.h"

namespace lockstep {

// What a model is made from.
struct ModelSpec {
  std::vector<int64_t> input_shape;  // of one sample: {features}, or {channels, height, width}
  int64_t classes = 0;
  config::Model config;
  // For BatchNorm (trainer/batch_norm.h): the ranks that share its statistics; null: each has its own.
  Communicator* sync_batch_norm = nullptr;

  // The value of `option { key value }` in the config; `fallback` when it is not there. A key that a
  // model never asks for is taken for a mistake. Throws Error (kUsage) when the value is no integer.
  std::string Option(const std::string& key, const std::string& fallback) const;
  int64_t IntegerOption(const std::string& key, int64_t fallback) const;

  // The keys that were asked for, for Models::Make.
  mutable std::vector<std::string> asked{};
};

class Model : public torch::nn::Module {
 public:
  // input: float32 [count, input_shape...], count >= 1 -> output: float32 [count, classes], the
  // logits.
  virtual at::Tensor Forward(const at::Tensor& input) = 0;

  // The sum over the samples of their losses, 0-dimensional: by default the cross-entropy of
  // torch.nn.functional.cross_entropy(output, target, reduction="sum"). target: int64 [count].
  virtual at::Tensor LossSum(const at::Tensor& output, const at::Tensor& target);
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
