#include "ops/generated/generated.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <optional>

#include "base/tensor/autocast.h"
#include "base/tensor/foretold_gpu.h"
#include "ops/common/launch_arguments.h"
#include "ops/common/second_derivative.h"
#include "ops/generated/kernel_cache.h"

namespace lockstep::ops {

struct GeneratedFunction::Prepared {
  TensorTerms terms;
  std::vector<TensorLayout> inputs;
  std::vector<at::ScalarType> types;  // of the inputs
  std::vector<size_t> order;          // of the dimensions of kernels and results
  int multiprocessors = 132;
  KernelPlan forward;

  // Backward. The result's gradient is input number inputs.size().
  std::vector<TermId> gradients;  // for each input; -1: none is wanted
  std::vector<bool> keeps;        // the inputs that backward reads
  std::vector<bool> keeps_sums;   // the sums of `forward` that backward reads
  // The plans of backward for the layouts of the result's gradient that were met; the first is the usual one.
  mutable std::mutex mutex;
  mutable std::vector<std::pair<TensorLayout, std::shared_ptr<const KernelPlan>>> backward;

  // Returns whether an input's gradient is the result's gradient.
  bool PassesGradient(size_t input) const;
  std::vector<WantedTerm> WantedGradients() const;
  std::shared_ptr<const KernelPlan> BackwardFor(const TensorLayout& gradient) const;
  // Begins to compile the kernels of forward and of the usual backward for the tensor's GPU, or for the GPU that a
  // foretold GPU stands for.
  void CompileKernels(const at::Tensor& on) const;
};

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;
using Prepared = GeneratedFunction::Prepared;

// The most sets of sizes, strides and types for which a function keeps plans.
constexpr size_t kMostPrepared = 16;

TensorLayout LayoutOf(const at::Tensor& tensor) {
  const bool aligned = tensor.is_meta() || IsAligned(tensor);
  return {.type = ElementTypeOf(tensor.scalar_type()),
          .sizes = tensor.sizes().vec(),
          .strides = tensor.strides().vec(),
          .aligned = aligned};
}

at::ScalarType ScalarTypeOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat16:
      return at::kHalf;
    case ElementType::kBFloat16:
      return at::kBFloat16;
    case ElementType::kBool:
      return at::kBool;
    case ElementType::kFloat32:
      break;
  }
  return at::kFloat;
}

// Runs the plan's kernels. `tensors` are the inputs and the given terms, of which those that no kernel reads may be
// undefined. Returns all tensors of the plan.
std::vector<at::Tensor> Run(const KernelPlan& plan, std::vector<at::Tensor> tensors,
                            const at::Tensor& on) {
  for (const TensorLayout& made : plan.made) {
    tensors.push_back(
        at::empty_strided(made.sizes, made.strides, on.options().dtype(ScalarTypeOf(made.type))));
  }
  for (const PlannedKernel& kernel : plan.kernels) {
    std::vector<void*> pointers;
    for (const int tensor : kernel.tensors) {
      TORCH_INTERNAL_ASSERT(tensors.at(tensor).defined(),
                            "a kernel reads a tensor that was not kept");
      pointers.push_back(const_cast<void*>(tensors[tensor].const_data_ptr()));
    }
    std::vector<void*> arguments;
    for (void*& pointer : pointers) arguments.push_back(reinterpret_cast<void*>(&pointer));
    Launch(on, [&](cudaStream_t stream) {
      C10_CUDA_CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(CompiledKernel(kernel.text)),
                                      dim3(kernel.grid_x, kernel.grid_y),
                                      dim3(kernel.block_x, kernel.block_y), arguments.data(), 0,
                                      stream));
    });
  }
  return tensors;
}

// The values that backward needs besides tensors.
struct Kept : torch::CustomClassHolder {
  Kept(std::shared_ptr<const GeneratedFunction> of, std::shared_ptr<const Prepared> made)
      : function(std::move(of)), prepared(std::move(made)) {}

  std::shared_ptr<const GeneratedFunction> function;
  std::shared_ptr<const Prepared> prepared;
};

class GeneratedOperation : public torch::autograd::Function<GeneratedOperation> {
 public:
  static Variable forward(AutogradContext* context, at::TensorList inputs,
                          const c10::intrusive_ptr<Kept>& kept) {
    const Prepared& prepared = *kept->prepared;
    const std::vector<at::Tensor> tensors = Run(prepared.forward, inputs.vec(), inputs[0]);
    variable_list saved(inputs.size() + prepared.forward.sums.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (prepared.keeps[i]) saved[i] = inputs[i];
    }
    for (size_t i = 0; i < prepared.forward.sums.size(); ++i) {
      if (!prepared.keeps_sums[i]) continue;
      saved[inputs.size() + i] = tensors[prepared.forward.tensors_of_sums[i]];
    }
    context->save_for_backward(std::move(saved));
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return tensors[prepared.forward.results[0]];
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto kept =
        c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
    const Prepared& prepared = *kept->prepared;
    const at::Tensor& dy = gradients[0];
    variable_list saved = context->get_saved_variables();
    const size_t inputs = prepared.inputs.size();
    variable_list results(inputs + 1);
    if (IsDifferentiatedAgain()) {
      TORCH_CHECK(!kept->function->draws(),
                  "a gradient of a gradient passes through dropout, whose random numbers are not "
                  "kept: take a model without dropout");
      variable_list own(saved.begin(), saved.begin() + static_cast<std::ptrdiff_t>(inputs));
      for (size_t i = 0; i < inputs; ++i) {
        if (own[i].defined()) continue;
        own[i] = at::zeros(prepared.inputs[i].sizes, dy.options().dtype(prepared.types[i]));
        own[i].requires_grad_(context->needs_input_grad(i));
      }
      std::ranges::copy(
          GradientsOfTwin(own, dy, [&](const auto& of) { return kept->function->Twin(of); }),
          results.begin());
      return results;
    }
    const std::shared_ptr<const KernelPlan> made_plan = prepared.BackwardFor(LayoutOf(dy));
    const KernelPlan& plan = *made_plan;
    saved.insert(saved.begin() + static_cast<std::ptrdiff_t>(inputs), dy);
    const std::vector<at::Tensor> tensors = Run(plan, std::move(saved), dy);
    size_t next = 0;
    std::vector<int> used;
    for (size_t i = 0; i < inputs; ++i) {
      if (prepared.gradients[i] < 0) continue;
      if (prepared.PassesGradient(i)) {
        results[i] = dy.to(prepared.types[i]);
        continue;
      }
      const int made = plan.results[next++];
      results[i] = tensors[made].view(prepared.inputs[i].sizes);
      // Autograd may keep a gradient in place of a copy, so two inputs must not share one.
      if (std::ranges::find(used, made) != used.end()) results[i] = results[i].clone();
      used.push_back(made);
    }
    return results;
  }
};

// Returns a key of TensorTerms::Keep() for the tensor's GPU. It comes from LibTorch's generator, whose state checkpoints
// keep.
at::Tensor NewKey(const at::Tensor& on) {
  constexpr int64_t kBelow = int64_t{1} << 24;
  return at::randint(kBelow, {2}, on.options().dtype(at::kFloat).requires_grad(false));
}

}  // namespace

bool Prepared::PassesGradient(size_t input) const {
  const Term& gradient = terms.At(gradients[input]);
  return gradient.primitive == Primitive::kInput &&
         gradient.number == static_cast<double>(inputs.size()) &&
         gradient.sizes == inputs[input].sizes;
}

std::vector<WantedTerm> Prepared::WantedGradients() const {
  std::vector<WantedTerm> wanted;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (gradients[i] < 0 || PassesGradient(i)) continue;
    wanted.push_back({.term = gradients[i], .type = inputs[i].type, .sizes = inputs[i].sizes});
  }
  return wanted;
}

std::shared_ptr<const KernelPlan> Prepared::BackwardFor(const TensorLayout& gradient) const {
  const std::scoped_lock lock(mutex);
  for (const auto& [layout, plan] : backward) {
    if (layout == gradient) return plan;
  }
  PlanRequest request{.inputs = inputs,
                      .given = forward.sums,
                      .wanted = WantedGradients(),
                      .order = order,
                      .multiprocessors = multiprocessors};
  request.inputs.push_back(gradient);
  if (backward.size() == kMostPrepared) backward.resize(1);
  backward.emplace_back(gradient, std::make_shared<const KernelPlan>(PlanOf(terms, request)));
  return backward.back().second;
}

void Prepared::CompileKernels(const at::Tensor& on) const {
  const std::optional<c10::Device> gpu = RealGpuOf(on.device());
  if (!gpu) return;
  const c10::cuda::CUDAGuard guard(*gpu);
  for (const PlannedKernel& kernel : forward.kernels) CompileAhead(kernel.text);
  for (const PlannedKernel& kernel : backward[0].second->kernels) CompileAhead(kernel.text);
}

std::shared_ptr<const Prepared> GeneratedFunction::Prepare(
    const std::vector<at::Tensor>& inputs) const {
  const bool are_alike = std::ranges::all_of(inputs, [&](const at::Tensor& input) {
    const bool is_known = IsFloatType(input.scalar_type()) || input.scalar_type() == at::kBool;
    return IsOnGpu(input) && is_known && input.dim() > 0 &&
           input.dim() <= static_cast<int64_t>(kMostDims) && input.numel() > 0 &&
           input.device() == inputs[0].device();
  });
  if (!are_alike) return nullptr;
  Key key;
  for (const at::Tensor& input : inputs) {
    key.layouts.push_back(LayoutOf(input));
    key.wanted.push_back(at::GradMode::is_enabled() && input.requires_grad());
  }
  const AutocastState autocast = AutocastState::Now(inputs[0].device().type());
  if (autocast.enabled) key.autocast = autocast.dtype;
  const std::scoped_lock lock(mutex_);
  for (const auto& [known, prepared] : prepared_) {
    if (known == key) return prepared;
  }
  if (prepared_.size() == kMostPrepared) prepared_.clear();
  prepared_.emplace_back(key, Make(key, TraitsOf(inputs[0].device()).multiprocessors));
  if (const auto& made = prepared_.back().second) made->CompileKernels(inputs[0]);
  return prepared_.back().second;
}

std::shared_ptr<const Prepared> GeneratedFunction::Make(const Key& key, int multiprocessors) const {
  auto prepared = std::make_shared<Prepared>();
  TensorTerms& terms = prepared->terms;
  prepared->inputs = key.layouts;
  prepared->multiprocessors = multiprocessors;
  std::vector<TermId> inputs;
  for (size_t i = 0; i < key.layouts.size(); ++i) {
    prepared->types.push_back(ScalarTypeOf(key.layouts[i].type));
    inputs.push_back(terms.Input(static_cast<int64_t>(i), key.layouts[i].sizes));
  }
  const GeneratedResult result = build_(terms, inputs, prepared->types, key.autocast);
  if (!IsFloatType(result.type)) return nullptr;
  if (!result.is_contiguous) prepared->order = OrderOf(key.layouts);
  const std::vector<size_t>& order = prepared->order;
  const Sizes& sizes = terms.SizesOf(result.term);
  const PlanRequest forward{
      .inputs = key.layouts,
      .given = {},
      .wanted = {{.term = result.term, .type = ElementTypeOf(result.type), .sizes = sizes}},
      .order = order,
      .multiprocessors = multiprocessors};
  if (sizes.empty() || !CanPlan(terms, forward)) return nullptr;
  prepared->forward = PlanOf(terms, forward);

  const TermId dy = terms.Input(static_cast<int64_t>(inputs.size()), sizes);
  prepared->gradients = terms.Gradients(result.term, dy, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!key.wanted[i]) prepared->gradients[i] = -1;
  }
  const std::vector<bool> reads =
      prepared->BackwardFor(DenseLayout(ElementTypeOf(result.type), sizes, order))->reads;
  const auto after = reads.begin() + static_cast<std::ptrdiff_t>(inputs.size());
  prepared->keeps.assign(reads.begin(), after);
  prepared->keeps_sums.assign(after + 1, reads.end());
  return prepared;
}

ElementType ElementTypeOf(at::ScalarType type) {
  if (type == at::kBool) return ElementType::kBool;
  switch (TypeOf(type)) {
    case FloatType::kFloat16:
      return ElementType::kFloat16;
    case FloatType::kBFloat16:
      return ElementType::kBFloat16;
    case FloatType::kFloat32:
      break;
  }
  return ElementType::kFloat32;
}

at::Tensor Generated(const std::shared_ptr<const GeneratedFunction>& function,
                     const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> all = inputs;
  if (function->draws() && IsOnGpu(inputs[0])) all.push_back(NewKey(inputs[0]));
  const std::shared_ptr<const Prepared> prepared = function->Prepare(all);
  if (!prepared) return function->Twin(inputs);
  return GeneratedOperation::apply(at::TensorList(all),
                                   c10::make_intrusive<Kept>(function, prepared));
}

}  // namespace lockstep::ops
