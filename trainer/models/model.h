// Model: the base class of the modules that Lockstep trains. Models: the list of the models that a program knows by
// name.
//
// A user's own model is a torch::nn::Module with Forward. main() adds it to the Models that it passes to Lockstep
// (docs/models.md, 'Your own model'). Lockstep finds the model's parameters and buffers by their names. It trains the
// parameters that require a gradient, and saves all parameters and buffers under these names.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/tensor/named_tensor.h"
#include "comm/communicator.h"
#include "data/dataset/dataset.h"
#include "trainer/config/schema/model.pb.h"
#include "trainer/models/activation_checkpoint.h"

namespace lockstep {

// What a model is made from.
struct ModelSpec {
  std::vector<int64_t> input_shape;  // of one sample: {features}, or {channels, height, width}
  int64_t classes = 0;               // that the model puts out: classes, labels or numbers
  Task task = Task::kClassification;
  config::Model config;
  // For BatchNorm (trainer/models/batch_norm.h): the ranks that share its statistics; null: each has its own.
  Communicator* sync_batch_norm = nullptr;

  // model.option.
  Options options = Options("model.option", config.option());

  // Throws Error (kUsage) where the samples are tokens: for models that compute with numbers.
  void RequireNumbers() const;

  // Throws Error (kUsage) where the samples are no images of [channels, height, width].
  void RequireImages() const;
};

class Model : public torch::nn::Module {
 public:
  // input: [count, input_shape...], count >= 1, float32, or int64 where samples are tokens; on a GPU that
  // trains in BF16 or FP16 pixels are of that type, as autocast hands them to a first layer -> output:
  // [count, classes], logits or numbers; for tokens [count, tokens, classes]. Columns beyond the classes
  // are left out where labels are compared.
  virtual at::Tensor Forward(const at::Tensor& input) = 0;

  // The sum over the targets of their losses, 0-dimensional. By default that of torch.nn.functional with
  // reduction="sum": cross_entropy for classes (in training with the config's label smoothing) and tokens,
  // binary_cross_entropy_with_logits for labels, mse_loss for numbers. target: [count,
  // SampleSpec::target_shape()...]. Of a mixture (data.augment) it is asked for twice, with either sample's
  // targets.
  virtual at::Tensor LossSum(const at::Tensor& output, const at::Tensor& target);

  // Where the state's tensors are kept in another shape than they are saved in: what is saved. By
  // default parameters, then buffers, under their names.
  virtual std::vector<NamedTensor> State() const;

  // What the names of the last layer's parameters begin with, for replace_head; none: it has no layer
  // that could be replaced.
  virtual std::vector<std::string> HeadPrefixes() const { return {}; }

  // Gives the tensors of a file that another program wrote the names and shapes of State(), where
  // they are known to differ.
  virtual void AdaptWeights(std::map<std::string, at::Tensor>& /*weights*/) const {}

  // float32, 0-dimensional: what backward is going to be called with for LossSum()'s result, known before
  // the forward; undefined: unknown. A LossSum() that makes use of it (ops::CrossEntropySum) must return
  // that loss as it is.
  void SetLossGradient(at::Tensor gradient) { loss_gradient_ = std::move(gradient); }

 protected:
  // The config's label smoothing in training, 0 otherwise.
  double label_smoothing() const { return is_training() ? label_smoothing_ : 0; }

  const at::Tensor& loss_gradient() const { return loss_gradient_; }

  // block(inputs). With activation_checkpointing only the inputs are kept of it until backward, which
  // computes the block again (trainer/models/activation_checkpoint.h).
  std::vector<at::Tensor> Checkpointed(const std::vector<at::Tensor>& inputs,
                                       ActivationBlock block) const;

  // The same for a block of one tensor that gives one.
  at::Tensor Checkpointed(const at::Tensor& input,
                          std::function<at::Tensor(const at::Tensor&)> block) const;

 private:
  friend class Models;
  Task task_ = Task::kClassification;
  double label_smoothing_ = 0;
  bool checkpoints_activations_ = false;
  at::Tensor loss_gradient_;
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
