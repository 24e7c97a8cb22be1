// Pointwise(): computes several consecutive elementwise operations of LibTorch in one generated kernel, and their
// gradients in another.
//
// The kernels are made by LibTorch's jiterator. When a function first runs with given types, the jiterator compiles the
// function's source text (expression.h) with NVRTC in about half a second. The jiterator broadcasts and promotes types
// as LibTorch's operations do, and keeps the compiled kernels in the folder kernels/ of the cache folder. The source
// text, the GPU's compute capability and NVRTC's version identify a kernel in this folder. Intermediate values are not
// rounded to 16 bits. Only the inputs that the wanted gradients depend on are kept for backward, which computes the
// intermediate values again.
//
// what can fail -> what the caller sees -> the test that shows it
//   the cache folder is not the user's own, or others may write to it -> each process compiles the kernels itself
//     -> ops/generated/pointwise_test.cc, KernelFolder
//   a compiled kernel in the folder is damaged -> all kernels are compiled again
//     -> PointwiseCache.CompilesAgainWhatWasCutShort
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ops/generated/expression.h"

namespace lockstep::ops {

// The jiterator supports at most eight input tensors, and one of backward's inputs is the result's gradient.
inline constexpr int64_t kMostPointwiseInputs = 7;

// A function that computes the same result with LibTorch's operations (the twin). Gradients of gradients are computed
// with the twin.
using PointwiseTwin = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

// An elementwise function and its derivatives.
class PointwiseFunction {
 public:
  // Makes the function whose value is `result`, a term of `expressions`, which has `inputs` inputs. `twin` must compute
  // the same function.
  PointwiseFunction(Expressions expressions, TermId result, int64_t inputs, PointwiseTwin twin);

  at::Tensor Twin(const std::vector<at::Tensor>& inputs) const { return twin_(inputs); }

  const Expressions& expressions() const { return expressions_; }
  TermId result() const { return result_; }
  int64_t inputs() const { return inputs_; }
  // Returns the terms of the inputs' gradients, with -1 for an input on which the result does not depend. These terms
  // have one more input than the result: input number inputs() is the result's gradient.
  const std::vector<TermId>& gradients() const { return gradients_; }
  // Returns whether an input's gradient is equal to the result's gradient.
  bool PassesGradient(size_t input) const;
  // Returns the source text of the kernel that computes these terms. The text is generated once and then kept.
  const std::string& TextOf(const std::vector<TermId>& results) const;

 private:
  Expressions expressions_;
  TermId result_;
  int64_t inputs_;
  std::vector<TermId> gradients_;
  PointwiseTwin twin_;
  // The mutex is needed because forward and backward run in different threads.
  mutable std::mutex texts_mutex_;
  mutable std::map<std::vector<TermId>, std::string> texts_;
};

// Returns whether Pointwise() has a kernel for these inputs: float tensors of at least one dimension on one GPU. If a
// broadcast input requires a gradient and PassesGradient() is false for this input, backward first writes the gradient
// in the result's full shape and then sums it to the input's shape. At most one of `inputs` may be of this kind. With
// several inputs of this kind, LibTorch's separate operations could need less memory: if LibTorch combines these inputs
// before it broadcasts the combination, it writes only one gradient of the full shape.
bool HasPointwiseKernel(const PointwiseFunction& function, const std::vector<at::Tensor>& inputs);

// Computes `function` of the broadcast inputs. The result has the type to which LibTorch promotes the inputs' types.
// HasPointwiseKernel() must be true for the arguments.
at::Tensor Pointwise(const std::shared_ptr<const PointwiseFunction>& function,
                     const std::vector<at::Tensor>& inputs);

// Creates the folder for compiled kernels in the folder `cache`, and returns the path of the created folder. Returns an
// empty string if the folder cannot be created, belongs to another user, or can be written by other users.
std::string KernelFolder(const std::string& cache);

}  // namespace lockstep::ops
