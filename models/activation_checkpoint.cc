#include "models/activation_checkpoint.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <utility>

#include "base/tensor/autocast.h"
#include "base/tensor/libtorch_versions.h"
#include "ops/common/rounded_weight.h"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

thread_local bool recomputing = false;

// The state of a device's random number generator. While a Guard exists, the generator continues from this state; the
// Guard's destructor restores the generator's earlier state.
class RandomState {
 public:
  explicit RandomState(at::Device device) : device_(device) {
    if (device.is_cuda()) {
      at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(device.index());
      const std::scoped_lock lock(generator.mutex());
      // While a CUDA graph is captured, only this call can read the state. An increment of 0 does not advance the
      // generator.
      cuda_ = at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_cuda_state(0);
    } else {
      cpu_ = at::detail::getDefaultCPUGenerator().get_state();
    }
  }

  class Guard {
   public:
    explicit Guard(const RandomState& state) : state_(state) {
      if (!state.device_.is_cuda()) {
        at::Generator generator = at::detail::getDefaultCPUGenerator();
        before_cpu_ = generator.get_state();
        generator.set_state(state.cpu_);
        return;
      }
      auto* generator = CudaGenerator();
      before_cuda_ = generator->graphsafe_get_state();
      generator->graphsafe_set_state(state.CudaGeneratorThere());
    }
    ~Guard() {
      if (state_.device_.is_cuda()) {
        CudaGenerator()->graphsafe_set_state(before_cuda_);
      } else {
        at::Generator generator = at::detail::getDefaultCPUGenerator();
        generator.set_state(before_cpu_);
      }
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    at::CUDAGeneratorImpl* CudaGenerator() const {
      return at::check_generator<at::CUDAGeneratorImpl>(
          at::cuda::detail::getDefaultCUDAGenerator(state_.device_.index()));
    }

    const RandomState& state_;
    at::Tensor before_cpu_;
    c10::intrusive_ptr<c10::GeneratorImpl> before_cuda_;
  };

 private:
  // Returns a generator that starts at the saved state.
  c10::intrusive_ptr<at::CUDAGeneratorImpl> CudaGeneratorThere() const {
    return c10::make_intrusive<at::CUDAGeneratorImpl>(device_.index(),
                                                      StateThatDraws(cuda_, device_));
  }

  at::Device device_;
  at::Tensor cpu_;
  at::PhiloxCudaState cuda_;
};

// Returns the current autocast state with its cache of rounded weights turned off. The first computation runs without
// autograd. If this first computation put a rounded weight into the cache, the rounded weight would have no autograd
// history. The weight would then get no gradient from later operations that take the tensor from the cache.
AutocastState WithoutCache(at::DeviceType device) {
  AutocastState state = AutocastState::Now(device);
  state.caches = false;
  return state;
}

class RecomputingGuard {
 public:
  RecomputingGuard() : before_(std::exchange(recomputing, true)) {}
  ~RecomputingGuard() { recomputing = before_; }
  RecomputingGuard(const RecomputingGuard&) = delete;
  RecomputingGuard& operator=(const RecomputingGuard&) = delete;

 private:
  bool before_;
};

// The state that the second computation needs besides the block's inputs.
struct Recipe : torch::CustomClassHolder {
  Recipe(ActivationBlock block, at::Device device)
      : block(std::move(block)),
        random(device),
        rounding(WithoutCache(device.type())),
        copies(ops::WeightCopies::InUse()) {}

  ActivationBlock block;
  RandomState random;
  AutocastState rounding;
  // The 16-bit copies of weights that forward uses. On a GPU backward runs in another thread, in which
  // WeightCopies::InUse() does not return these copies.
  ops::WeightCopies* copies;
};

class Checkpoint : public torch::autograd::Function<Checkpoint> {
 public:
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const c10::intrusive_ptr<Recipe>& recipe) {
    const AutocastGuard rounding(recipe->rounding);
    context->save_for_backward(inputs.vec());
    context->set_materialize_grads(false);
    context->saved_data["recipe"] = c10::IValue::make_capsule(recipe);
    variable_list outputs = recipe->block(inputs.vec());
    // Autograd is off here, so an output that needs a gradient is a tensor that existed before this forward, such as a
    // bias that a later operation adds. The output is detached: if the tensor itself became an output of this node, the
    // backward of the second computation would reach this node again.
    for (Variable& output : outputs) {
      if (output.defined() && output.requires_grad()) output = output.detach();
    }
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data["recipe"].toCapsule();
    const auto& recipe = static_cast<const Recipe&>(*capsule);
    variable_list inputs;
    for (const Variable& saved : context->get_saved_variables()) {
      inputs.push_back(saved.detach().requires_grad_(saved.requires_grad()));
    }
    variable_list outputs;
    {
      const at::AutoGradMode with_history(true);
      const RecomputingGuard recomputing_now;
      const RandomState::Guard random(recipe.random);
      const AutocastGuard rounding(recipe.rounding);
      const ops::WeightCopies::Use copies(recipe.copies);
      outputs = recipe.block(inputs);
    }
    TORCH_CHECK(outputs.size() == gradients.size(), "a checkpointed block gave ", gradients.size(),
                " tensors in the forward and ", outputs.size(), " in the backward");
    variable_list used, used_gradients;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
      TORCH_CHECK(outputs[i].sizes() == gradients[i].sizes(),
                  "a checkpointed block gave a tensor of ", gradients[i].sizes(),
                  " in the forward and of ", outputs[i].sizes(), " in the backward");
      used.push_back(outputs[i]);
      used_gradients.push_back(gradients[i]);
    }
    if (!used.empty()) torch::autograd::backward(used, used_gradients);
    variable_list input_gradients;
    for (const Variable& input : inputs) input_gradients.push_back(input.grad());
    input_gradients.emplace_back();  // no gradient for `recipe`
    return input_gradients;
  }
};

}  // namespace

std::vector<at::Tensor> CheckpointActivations(const std::vector<at::Tensor>& inputs,
                                              ActivationBlock block) {
  const bool needs_gradient =
      at::GradMode::is_enabled() &&
      std::any_of(inputs.begin(), inputs.end(),
                  [](const at::Tensor& input) { return input.requires_grad(); });
  if (!needs_gradient) return block(inputs);
  return Checkpoint::apply(at::TensorList(inputs),
                           c10::make_intrusive<Recipe>(std::move(block), inputs[0].device()));
}

bool IsRecomputing() { return recomputing; }

}  // namespace lockstep
