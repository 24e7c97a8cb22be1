// Generated(): computes a group of LibTorch's operations, element-wise ones and reductions, in generated kernels, and
// their gradients in others (kernel_plan.h).
//
// The kernels are made for the sizes, strides and types of the inputs when a function first runs with them. Intermediate
// values are not rounded to 16 bits. Only the inputs and sums that the wanted gradients depend on are kept for backward,
// which computes the other intermediate values again.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ops/generated/kernel_plan.h"
#include "ops/generated/tensor_terms.h"

namespace lockstep::ops {

// A function that computes the same result with LibTorch's operations (the twin). Gradients of gradients are computed
// with the twin.
using GeneratedTwin = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

// The result of a function: a term, the type that LibTorch's operations give it, and whether it must be contiguous.
// Otherwise it lies as the largest input does. If the type is no float type, there are no kernels for the function.
struct GeneratedResult {
  TermId term;
  at::ScalarType type;
  bool is_contiguous = false;
};

// Adds the terms of the function to `terms`. `inputs` are the terms of the inputs, and `types` their types. `autocast` is
// the type to which autocast rounds; float32: autocast is off.
using BuildTerms = std::function<GeneratedResult(
    TensorTerms& terms, const std::vector<TermId>& inputs, const std::vector<at::ScalarType>& types,
    at::ScalarType autocast)>;

class GeneratedFunction {
 public:
  // `build` and `twin` must describe the same function. If `draws`, the function draws random numbers, as dropout does:
  // `build` gets one more input, the key of TensorTerms::Keep(), and its gradients have no gradients.
  GeneratedFunction(BuildTerms build, GeneratedTwin twin, bool draws = false)
      : build_(std::move(build)), twin_(std::move(twin)), draws_(draws) {}

  bool draws() const { return draws_; }

  at::Tensor Twin(const std::vector<at::Tensor>& inputs) const { return twin_(inputs); }

  // The function for inputs of some sizes, strides and types, of which some require gradients.
  struct Prepared;
  // Returns null if there are no kernels for the inputs.
  std::shared_ptr<const Prepared> Prepare(const std::vector<at::Tensor>& inputs) const;

 private:
  struct Key {
    std::vector<TensorLayout> layouts;
    std::vector<bool> wanted;
    at::ScalarType autocast = at::kFloat;

    bool operator==(const Key&) const = default;
  };

  std::shared_ptr<const Prepared> Make(const Key& key, int multiprocessors) const;

  BuildTerms build_;
  GeneratedTwin twin_;
  bool draws_;
  // The mutex is needed because activation checkpointing runs forward in backward's thread.
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<Key, std::shared_ptr<const Prepared>>> prepared_;
};

// Returns the type of elements of this type. Throws c10::Error if kernels do not know it.
ElementType ElementTypeOf(at::ScalarType type);

// Returns the function of the inputs, computed by generated kernels if there are kernels for the inputs: tensors of floats
// and bools of at least one dimension on one GPU. Otherwise returns the twin's result.
at::Tensor Generated(const std::shared_ptr<const GeneratedFunction>& function,
                     const std::vector<at::Tensor>& inputs);

}  // namespace lockstep::ops
