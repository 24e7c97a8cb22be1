#include "ops/generated/pointwise.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/cuda/jiterator.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "base/files/cache_folder.h"
#include "ops/common/launch_arguments.h"
#include "ops/common/second_derivative.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr const char* kKernelName = "pointwise";

// Returns the folder in which Lockstep keeps compiled kernels. The result is empty if no kernels are kept, or if the
// user has set PYTORCH_KERNEL_CACHE_PATH. The first call sets the environment variables that LibTorch reads when the
// first kernel runs. setenv() is safe here, because models are made before other threads exist.
const std::string& KeptKernels() {
  static const std::string folder = [] {
    if (std::getenv("PYTORCH_KERNEL_CACHE_PATH") != nullptr) return std::string();
    std::string own = KernelFolder(CacheFolder());
    if (own.empty()) {
      setenv("USE_PYTORCH_KERNEL_CACHE", "0", /*overwrite=*/0);
    } else {
      setenv("PYTORCH_KERNEL_CACHE_PATH", own.c_str(), /*overwrite=*/0);
    }
    return own;
  }();
  return folder;
}

void RemoveKeptKernels() {
  std::error_code error, none;
  const std::filesystem::directory_iterator end;
  // Errors are ignored, because another rank may remove the files at the same time.
  for (std::filesystem::directory_iterator at(KeptKernels(), error); at != end;
       at.increment(error)) {
    if (at->path().filename().string().starts_with(kKernelName)) {
      std::filesystem::remove(at->path(), none);
    }
  }
}

// Returns whether the GPU or a lack of memory caused the error. In this case the compiled kernel may be intact.
bool IsOfTheDevice(const c10::Error& error) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         dynamic_cast<const c10::AcceleratorError*>(&error) != nullptr;
}

// Runs the kernel with this source text. LibTorch does not check the files of compiled kernels, which may be truncated
// if a process was killed while it wrote them. If the kernel fails, Run() therefore removes all of these files and runs
// the kernel again, which compiles it again.
c10::SmallVector<at::Tensor> Run(const std::string& text, size_t results,
                                 const c10::SmallVector<at::Tensor>& inputs) {
  const auto run = [&] {
    return at::cuda::CompileAndLaunchKernel(text, kKernelName, static_cast<int>(results), inputs,
                                            /*extra_args=*/{}, /*return_by_ref=*/true);
  };
  try {
    return run();
  } catch (const c10::Error& first) {
    if (IsOfTheDevice(first) || KeptKernels().empty()) throw;
    RemoveKeptKernels();
    try {
      return run();
    } catch (const c10::Error& second) {
      if (IsOfTheDevice(second)) throw;
    }
    throw;  // the first error, which says what is wrong
  }
}

// Computes the terms `results` of the function from its inputs.
std::vector<at::Tensor> Generated(const PointwiseFunction& function,
                                  const std::vector<TermId>& results,
                                  const std::vector<at::Tensor>& inputs) {
  const Expressions& expressions = function.expressions();
  c10::SmallVector<at::Tensor> read;
  for (const int64_t input : expressions.InputsOf(results)) read.push_back(inputs[input]);
  if (read[0].is_meta()) {
    at::TensorIteratorConfig config;
    config.promote_inputs_to_common_dtype(true).cast_common_dtype_to_outputs(true);
    for (size_t i = 0; i < results.size(); ++i) config.add_owned_output(at::Tensor());
    for (const at::Tensor& input : read) config.add_const_input(input);
    const at::TensorIterator iterator = config.build();
    std::vector<at::Tensor> made;
    for (size_t i = 0; i < results.size(); ++i) {
      made.push_back(iterator.output(static_cast<int>(i)));
    }
    return made;
  }
  const c10::cuda::CUDAGuard guard(read[0].device());
  const c10::SmallVector<at::Tensor> made = Run(function.TextOf(results), results.size(), read);
  return {made.begin(), made.end()};
}

// The values that backward needs besides tensors.
struct Kept : torch::CustomClassHolder {
  explicit Kept(std::shared_ptr<const PointwiseFunction> of) : function(std::move(of)) {}

  std::shared_ptr<const PointwiseFunction> function;
  std::vector<std::vector<int64_t>> sizes;
  std::vector<at::ScalarType> types;
};

class FusedPointwise : public torch::autograd::Function<FusedPointwise> {
 public:
  static Variable forward(AutogradContext* context, at::TensorList inputs,
                          const c10::intrusive_ptr<Kept>& kept) {
    const PointwiseFunction& function = *kept->function;
    std::vector<TermId> wanted;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TermId gradient = function.gradients()[i];
      if (inputs[i].requires_grad() && gradient >= 0) wanted.push_back(gradient);
    }
    variable_list saved(inputs.size());
    for (const int64_t input : function.expressions().InputsOf(wanted)) {
      if (input < function.inputs()) saved[input] = inputs[input];
    }
    for (const at::Tensor& input : inputs) {
      kept->sizes.push_back(input.sizes().vec());
      kept->types.push_back(input.scalar_type());
    }
    context->save_for_backward(std::move(saved));
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return Generated(function, {function.result()}, inputs.vec())[0];
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto kept =
        c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
    const PointwiseFunction& function = *kept->function;
    at::Tensor dy = gradients[0];
    variable_list inputs = context->get_saved_variables();
    variable_list results(inputs.size() + 1);
    if (IsDifferentiatedAgain()) {
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i].defined()) continue;
        inputs[i] = at::zeros(kept->sizes[i], dy.options().dtype(kept->types[i]));
        inputs[i].requires_grad_(context->needs_input_grad(i));
      }
      std::ranges::copy(
          GradientsOfTwin(inputs, dy, [&](const auto& of) { return function.Twin(of); }),
          results.begin());
      return results;
    }
    const auto as_input = [&](const at::Tensor& gradient, size_t i) {
      return at::sum_to(gradient, kept->sizes[i]).to(kept->types[i]);
    };
    std::vector<size_t> wanted;
    std::vector<TermId> terms;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TermId term = function.gradients()[i];
      if (!context->needs_input_grad(i) || term < 0) continue;
      if (function.PassesGradient(i)) {
        results[i] = as_input(dy, i);
        continue;
      }
      wanted.push_back(i);
      if (std::ranges::find(terms, term) == terms.end()) terms.push_back(term);
    }
    if (wanted.empty()) return results;
    // As in LibTorch, the gradients of 16-bit inputs have 16 bits, even if the result is float32.
    const at::ScalarType type = kept->types[wanted[0]];
    const bool is_narrow =
        std::ranges::all_of(wanted, [&](size_t i) { return kept->types[i] == type; });
    const auto has_type = [&](const at::Tensor& input) {
      return !input.defined() || input.scalar_type() == type;
    };
    if (is_narrow && std::ranges::all_of(inputs, has_type)) dy = dy.to(type);
    inputs.push_back(dy);
    const std::vector<at::Tensor> made = Generated(function, terms, inputs);
    for (const size_t i : wanted) {
      const auto place = std::ranges::find(terms, function.gradients()[i]) - terms.begin();
      results[i] = as_input(made[place], i);
    }
    return results;
  }
};

}  // namespace

PointwiseFunction::PointwiseFunction(Expressions expressions, TermId result, int64_t inputs,
                                     PointwiseTwin twin)
    : expressions_(std::move(expressions)),
      result_(result),
      inputs_(inputs),
      twin_(std::move(twin)) {
  KeptKernels();
  gradients_ = expressions_.Gradients(result_, expressions_.Input(inputs_), inputs_);
}

const std::string& PointwiseFunction::TextOf(const std::vector<TermId>& results) const {
  const std::scoped_lock lock(texts_mutex_);
  const auto [text, is_new] = texts_.try_emplace(results);
  if (is_new) text->second = expressions_.Text(kKernelName, results);
  return text->second;
}

bool PointwiseFunction::PassesGradient(size_t input) const {
  const TermId term = gradients_[input];
  if (term < 0) return false;
  const Term& gradient = expressions_.At(term);
  return gradient.primitive == Primitive::kInput && gradient.number == static_cast<double>(inputs_);
}

bool HasPointwiseKernel(const PointwiseFunction& function, const std::vector<at::Tensor>& inputs) {
  const bool are_alike = std::ranges::all_of(inputs, [&](const at::Tensor& input) {
    return IsOnGpu(input) && IsFloatType(input.scalar_type()) && input.dim() > 0 &&
           input.numel() > 0 && input.device() == inputs[0].device();
  });
  if (!are_alike) return false;
  std::vector<int64_t> sizes;
  for (const at::Tensor& input : inputs) sizes = at::infer_size(sizes, input.sizes());
  int64_t summed = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_summed = inputs[i].requires_grad() && inputs[i].sizes() != sizes;
    if (is_summed && !function.PassesGradient(i)) ++summed;
  }
  return summed <= 1;
}

at::Tensor Pointwise(const std::shared_ptr<const PointwiseFunction>& function,
                     const std::vector<at::Tensor>& inputs) {
  return FusedPointwise::apply(at::TensorList(inputs), c10::make_intrusive<Kept>(function));
}

std::string KernelFolder(const std::string& cache) { return OwnCacheFolder(cache, "kernels"); }

}  // namespace lockstep::ops
