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
#include <set>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/tensor/named_tensor.h"
#include "comm/communicator.h"
#include "config/schema/loss.pb.h"
#include "config/schema/model.pb.h"
#include "data/dataset/dataset.h"
#include "models/activation_checkpoint.h"
#include "models/losses/loss_function.h"

namespace lockstep {

// The arguments with which a model is made.
struct ModelSpec {
  // The shape of one sample: {features}, {channels, height, width}, {tokens} or {inputs, tokens}.
  std::vector<int64_t> input_shape;
  bool tokens = false;  // whether the samples are token numbers, int64
  int64_t classes = 0;  // the number of classes, labels or numbers of the model's output
  Task task = Task::kClassification;
  std::vector<FeatureRange> categories{};  // as SampleSpec has them
  config::Model config;
  config::Loss loss;
  // For BatchNorm (models/batch_norm.h): connects the ranks that share its statistics; null: each rank has its
  // own statistics.
  Communicator* sync_batch_norm = nullptr;

  // The options of model.option.
  Options options = Options("model.option", config.option());

  // Throws Error (kUsage) if the samples are tokens. Models that compute with numbers call it.
  void RequireNumbers() const;

  // Throws Error (kUsage) if the samples are not images [channels, height, width].
  void RequireImages() const;
};

class Model : public torch::nn::Module {
 public:
  // Computes the output of a micro-batch. `input` is [count, input_shape...] with count >= 1. It is float32, or int64
  // if the samples are tokens. On a GPU that trains in BF16 or FP16, pixels have that type, to which autocast would
  // round the input of a first layer. The output holds logits or numbers, [count, classes], or [count, tokens, classes]
  // for the next token of each, or [count, classes, height, width] for a class of each pixel. If the output has more
  // columns than there are classes, the further columns are ignored.
  virtual at::Tensor Forward(const at::Tensor& input) = 0;

  // Returns the sum of the losses of all targets, 0-dimensional. By default it is the loss that the config asks for, or
  // else a loss of torch.nn.functional with reduction="sum": cross_entropy for classes (in training with the config's
  // label smoothing), tokens and pixels, binary_cross_entropy_with_logits for labels, and mse_loss for numbers.
  // `target` is [count, SampleSpec::target_shape()...]. For a mixture of samples (data.augment) it is called twice,
  // with the targets of either sample.
  virtual at::Tensor LossSum(const at::Tensor& output, const at::Tensor& target);

  // Returns the sum of the weights that loss.class_weight gives the targets, 0-dimensional float32. The loss of a
  // global batch is the sum of the losses divided by the sum of the weights. It is undefined if each target weighs 1.
  at::Tensor WeightSum(const at::Tensor& target) const;
  bool WeighsTargets() const { return loss_ && loss_->WeighsTargets(); }

  // Whether the config asks for a loss that no LossSum() has used so far, because the model overrides LossSum().
  bool IgnoresLoss() const { return loss_ && !used_loss_; }

  // Returns the tensors to save. By default they are the parameters and then the buffers, under their names. A model
  // that keeps a tensor in another shape than that of the saved file overrides it.
  virtual std::vector<NamedTensor> State() const;

  // Returns the prefixes of the names of the last layer's parameters, for replace_head. It is empty if the model has no
  // layer that could be replaced.
  virtual std::vector<std::string> HeadPrefixes() const { return {}; }

  // Returns the names of the parameters that are vectors although they have more dimensions, because each row is a
  // vector of its own. Weight decay and LAMB's and LARS's norms leave them alone where optimizer.no_decay is VECTORS.
  virtual std::set<std::string> StackedVectors() const { return {}; }

  // Converts the tensors of a file that another program wrote to the names and shapes of State(), where a known program
  // has other ones.
  virtual void AdaptWeights(std::map<std::string, at::Tensor>& /*weights*/) const {}

  // Moves the model to the device. On a GPU the channels of ConvolutionWeights() then lie last, and with them those of
  // the images; files have PyTorch's layout all the same. `rounds`: whether the model will be trained in 16 bits.
  void MoveTo(at::Device device, bool rounds);

  // Returns the weights of convolutions, [outputs, inputs, height, width], that may lie so. By default they are those
  // of torch::nn::Conv2d if convolutions round to 16 bits, because a view of such images is then a copy where it must
  // be (ops/autocast/own_operations.h); and none if they do not.
  virtual std::vector<at::Tensor> ConvolutionWeights(bool rounds) const;

  // Returns whether norms of the model use ModelSpec::sync_batch_norm. By default they do if a module is a
  // lockstep::BatchNorm.
  virtual bool SharesStatistics() const;

  // Sets the gradient, float32 and 0-dimensional, with which backward will be called for the result of LossSum(), if it
  // is known before forward; undefined: unknown. A LossSum() that uses it (ops::CrossEntropySum) must return that loss
  // unchanged.
  void SetLossGradient(at::Tensor gradient) { loss_gradient_ = std::move(gradient); }

 protected:
  // The config's label smoothing in training, and 0 otherwise.
  double label_smoothing() const { return is_training() ? label_smoothing_ : 0; }

  const at::Tensor& loss_gradient() const { return loss_gradient_; }

  // Returns block(inputs). With activation_checkpointing only the inputs are kept until backward, which computes the
  // block again (models/activation_checkpoint.h).
  std::vector<at::Tensor> Checkpointed(const std::vector<at::Tensor>& inputs,
                                       ActivationBlock block) const;

  // Does the same for a block that takes one tensor and returns one.
  at::Tensor Checkpointed(const at::Tensor& input,
                          std::function<at::Tensor(const at::Tensor&)> block) const;

 private:
  friend class Models;
  Task task_ = Task::kClassification;
  std::shared_ptr<LossFunction> loss_;  // null: the task's own
  bool used_loss_ = false;
  double label_smoothing_ = 0;
  bool checkpoints_activations_ = false;
  at::Tensor loss_gradient_;
};

class Models {
 public:
  using Factory = std::function<std::shared_ptr<Model>(const ModelSpec&)>;

  // Whether a model reads the values of its tensors.
  enum class Reads {
    kValues,  // whatever it likes
    // It calls LibTorch's and ops's operations and reads no value of a tensor itself. Such a model can run on a
    // foretold GPU (base/tensor/foretold_gpu.h), so its memory is known without a GPU.
    kNothing,
  };

  // Adds a model under the name that `model { name: ... }` in a config asks for.
  void Add(const std::string& name, Factory factory, Reads reads = Reads::kValues);

  // Adds class M, which is constructed from a ModelSpec.
  template <typename M>
  void Add(const std::string& name, Reads reads = Reads::kValues) {
    Add(name, [](const ModelSpec& spec) { return std::make_shared<M>(spec); }, reads);
  }

  // Whether there is such a model, and it reads nothing.
  bool CanForetell(const std::string& name) const { return foretellable_.contains(name); }

  // Makes the model that the config names. Throws Error (kUsage) if nobody added a model with this name, and any
  // exception of the model's constructor.
  std::shared_ptr<Model> Make(const ModelSpec& spec) const;

 private:
  std::map<std::string, Factory> factories_;
  std::set<std::string> foretellable_;
};

}  // namespace lockstep
