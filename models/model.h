// Model: the base class of the modules that Lockstep trains. Models: a program's registry of model classes by name.
//
// A user's own model is a class that derives from Model and overrides Forward(). main() adds this class to the Models
// object that main() passes to Lockstep (docs/models.md, 'Your own model'). Lockstep finds the model's parameters and
// buffers by their names in torch::nn::Module. It trains the parameters that require a gradient, and saves all
// parameters and buffers under their names.
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

// The arguments of a model's constructor.
struct ModelSpec {
  // The shape of one sample: {features}, {channels, height, width}, {tokens} or {inputs, tokens}.
  std::vector<int64_t> input_shape;
  bool tokens = false;  // whether the samples are token ids, int64
  int64_t classes = 0;  // the number of classes, labels or regression targets
  Task task = Task::kClassification;
  std::vector<FeatureRange> categories{};  // as in SampleSpec: one-hot encoded columns
  config::Model config;
  config::Loss loss;
  // The communicator of the ranks that share the statistics of BatchNorm (models/batch_norm.h); null: each rank has its
  // own statistics.
  Communicator* sync_batch_norm = nullptr;

  // The options that the config sets in model.option.
  Options options = Options("model.option", config.option());

  // Checks that the samples are not tokens, and otherwise throws Error (kUsage). The constructors of models that take
  // no tokens call this function.
  void RequireNumbers() const;

  // Checks that the samples are images [channels, height, width], and otherwise throws Error (kUsage).
  void RequireImages() const;
};

class Model : public torch::nn::Module {
 public:
  // Computes the output of a micro-batch. `input` is [count, input_shape...] with count >= 1. It is float32, or int64
  // if the samples are tokens; pixels on a GPU that trains in BF16 or FP16 already have that 16-bit type. The output
  // holds logits or regression outputs. Its shape is [count, classes]; if the model predicts the next token after each
  // token, the shape is [count, tokens, classes]; if it predicts the class of each pixel, the shape is [count, classes,
  // height, width]. The class dimension of the output may be larger than the number of classes; no target selects the
  // additional classes, which are padding.
  virtual at::Tensor Forward(const at::Tensor& input) = 0;

  // Returns the sum of the losses of all targets, 0-dimensional. By default this is the loss that the config's `loss`
  // selects. If the config selects none, it is a loss of torch.nn.functional with reduction="sum": cross_entropy for
  // classes, tokens and pixels (with the config's label smoothing in training), binary_cross_entropy_with_logits for
  // labels, and mse_loss for regression. `target` is [count, SampleSpec::target_shape()...]. For a mixture of two
  // batches of samples (mixup or CutMix, data.augment) LossSum() is called twice, once with the targets of each batch.
  virtual at::Tensor LossSum(const at::Tensor& output, const at::Tensor& target);

  // Returns the sum of the weights of the targets, 0-dimensional float32; undefined if each target has weight 1. The
  // field loss.class_weight sets a weight for each class. The loss of a global batch is the sum of the losses divided
  // by the sum of the weights.
  at::Tensor WeightSum(const at::Tensor& target) const;
  bool WeighsTargets() const { return loss_ && loss_->WeighsTargets(); }

  // Returns whether the config selects a loss that LossSum() has not used so far. If the loss is still unused after the
  // first call of LossSum(), the model overrides LossSum() and ignores the loss.
  bool IgnoresLoss() const { return loss_ && !used_loss_; }

  // Returns the tensors to save. By default these are the parameters and then the buffers, under their names. A model
  // overrides State() if a tensor has another shape in memory than in the saved file.
  virtual std::vector<NamedTensor> State() const;

  // Returns hashes of what the model computes, by part, such as "training", if a file says it and not the config. A
  // hash depends neither on the weights that State() gives, nor on names and lines of code.
  virtual std::map<std::string, uint64_t> Graph() const { return {}; }

  // Returns the prefixes of the names of the last layer's parameters, which replace_head initialises anew. The result
  // is empty if the model has no layer that could be replaced.
  virtual std::vector<std::string> HeadPrefixes() const { return {}; }

  // Returns the names of the parameters that have more than one dimension, but whose rows are independent vectors, such
  // as biases. If optimizer.no_decay is VECTORS, weight decay and the norms of LAMB and LARS leave them out.
  virtual std::set<std::string> StackedVectors() const { return {}; }

  // Renames and reshapes, in `weights`, the tensors of a file that another known program wrote, such as Hugging Face's
  // transformers or torchvision, to those of State().
  virtual void AdaptWeights(std::map<std::string, at::Tensor>& /*weights*/) const {}

  // Moves the model to the device. On a GPU the weights of ConvolutionWeights() get the channels-last memory format,
  // and convolutions with them return channels-last images; saved files keep PyTorch's default layout. `rounds`:
  // whether the model will be trained in 16 bits.
  void MoveTo(at::Device device, bool rounds);

  // Returns the weights of convolutions, [outputs, inputs, height, width], that may have the channels-last memory
  // format. By default these are the weights of torch::nn::Conv2d if `rounds`, and none otherwise. The reason is
  // view(): where the view of a channels-last image is not possible, view() throws, except under autocast to 16 bits,
  // where it returns a copy (ops/autocast/own_operations.h).
  virtual std::vector<at::Tensor> ConvolutionWeights(bool rounds) const;

  // Returns whether the model contains norms that use ModelSpec::sync_batch_norm. By default the function looks for
  // modules of class lockstep::BatchNorm.
  virtual bool SharesStatistics() const;

  // Returns whether steps on a GPU run kernels that are generated for the sizes of the samples
  // (ops/generated/generated.h).
  virtual bool GeneratesKernels() const { return false; }

  // Sets the gradient, float32 and 0-dimensional, that backward will receive for the result of LossSum(); undefined if
  // it is not known before forward. A LossSum() that passes this gradient to ops::CrossEntropySum() must return the
  // result of that function unchanged.
  void SetLossGradient(at::Tensor gradient) { loss_gradient_ = std::move(gradient); }

 protected:
  // Returns the config's label smoothing in training, and 0 otherwise.
  double label_smoothing() const { return is_training() ? label_smoothing_ : 0; }

  const at::Tensor& loss_gradient() const { return loss_gradient_; }

  // Returns block(inputs). If the config sets activation_checkpointing, only the inputs are kept until backward, which
  // calls the block again (models/activation_checkpoint.h).
  std::vector<at::Tensor> Checkpointed(const std::vector<at::Tensor>& inputs,
                                       ActivationBlock block) const;

  // Returns block(input), as above, for a block that takes one tensor and returns one.
  at::Tensor Checkpointed(const at::Tensor& input,
                          std::function<at::Tensor(const at::Tensor&)> block) const;

 private:
  friend class Models;
  Task task_ = Task::kClassification;
  std::shared_ptr<LossFunction> loss_;  // null: the task's default loss
  bool used_loss_ = false;
  double label_smoothing_ = 0;
  bool checkpoints_activations_ = false;
  at::Tensor loss_gradient_;
};

class Models {
 public:
  using Factory = std::function<std::shared_ptr<Model>(const ModelSpec&)>;

  // Says whether the code of a model reads the values of tensors.
  enum class Reads {
    kValues,  // the model's code may read any value
    // The model only calls operations of LibTorch and of ops/, and its own code never looks at a value. Such a model
    // can run on LibTorch's META device, on which Lockstep finds out how much memory the model needs on a GPU
    // (base/tensor/foretold_gpu.h).
    kNothing,
  };

  // Adds a model under the name that `model { name: ... }` in a config asks for.
  void Add(const std::string& name, Factory factory, Reads reads = Reads::kValues);

  // Adds class M, which is constructed from a ModelSpec.
  template <typename M>
  void Add(const std::string& name, Reads reads = Reads::kValues) {
    Add(name, [](const ModelSpec& spec) { return std::make_shared<M>(spec); }, reads);
  }

  // Returns whether a model with this name was added with Reads::kNothing.
  bool CanForetell(const std::string& name) const { return foretellable_.contains(name); }

  // Makes the model that spec.config names. Throws Error (kUsage) if no model was added under this name, if spec.loss
  // does not suit the task, or if the config sets an option that the model does not read. Passes on any exception of
  // the model's constructor.
  std::shared_ptr<Model> Make(const ModelSpec& spec) const;

 private:
  std::map<std::string, Factory> factories_;
  std::set<std::string> foretellable_;
};

}  // namespace lockstep
