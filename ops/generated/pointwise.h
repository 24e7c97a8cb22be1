// Pointwise(): computes several consecutive elementwise operations of LibTorch in one generated kernel, and their
// gradients in another.
//
// The kernels are made by LibTorch's jiterator. When a function first runs with given types, the jiterator compiles its
// text (expression.h) with NVRTC in about half a second. It broadcasts and promotes types as LibTorch's operations do.
// It keeps the compiled kernels in the folder kernels/ of the cache folder, where the text, the GPU's compute
// capability and NVRTC's version identify a kernel. Intermediate values are not rounded to 16 bits. Only the inputs
// that the wanted gradients depend on are kept for backward, which computes the intermediate values again.
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

// Computes the function with LibTorch's operations. Gradients of gradients are computed this way.
using PointwiseTwin = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

// An elementwise function and its derivatives.
class PointwiseFunction {
 public:
  // `result` is a term of `expressions`, which has `inputs` inputs.
  PointwiseFunction(Expressions expressions, TermId result, int64_t inputs, PointwiseTwin twin);

  at::Tensor Twin(const std::vector<at::Tensor>& inputs) const { return twin_(inputs); }

  const Expressions& expressions() const { return expressions_; }
  TermId result() const { return result_; }
  int64_t inputs() const { return inputs_; }
  // The terms of the inputs' gradients; -1 for an input on which the result does not depend. In these terms the
  // result's gradient is input number inputs().
  const std::vector<TermId>& gradients() const { return gradients_; }
  // Returns whether an input's gradient is equal to the result's gradient.
  bool PassesGradient(size_t input) const;
  // Returns the text of the kernel that computes these terms. It is generated once and then kept.
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

// Returns whether Pointwise() has a kernel for these inputs: float tensors of at least one dimension on one GPU. At
// most one broadcast input may need a gradient that backward first writes in the result's full shape and then sums to
// the input's shape. With several such inputs, LibTorch's separate operations could need less memory: they may combine
// the inputs before they are broadcast, and then write no gradient of the full shape for them.
bool HasPointwiseKernel(const PointwiseFunction& function, const std::vector<at::Tensor>& inputs);

// Computes the function of the broadcast inputs. The result has the type to which LibTorch promotes the inputs' types.
// HasPointwiseKernel() must be true.
at::Tensor Pointwise(const std::shared_ptr<const PointwiseFunction>& function,
                     const std::vector<at::Tensor>& inputs);

// Creates the folder for compiled kernels in the folder `cache`, and returns its path. The result is empty if there is
// no such folder to which only this user can write.
std::string KernelFolder(const std::string& cache);

}  // namespace lockstep::ops
