// Pointwise(): what several of LibTorch's operations compute of elements at the same place, in one kernel forward and
// one backward, which are generated for it.
//
// The kernels are LibTorch's jiterator's: it compiles the text of a function (expression.h) with NVRTC when the
// function first runs with these types, in about half a second, broadcasts and promotes types as LibTorch's operations
// do, and keeps what was compiled in kernels/ of the cache folder, by the text, the GPU's compute capability and
// NVRTC's version. Between the operations nothing is rounded to 16 bits. Backward keeps the inputs that the wanted
// gradients depend on and nothing else, and computes what lies between again.
//
// what can fail -> what the caller sees -> the test that shows it
//   the cache folder is not the user's own, or others may write to it -> kernels are compiled anew in each process
//     -> ops/generated/pointwise_test.cc, KernelFolder
//   a compiled kernel in it is damaged -> all are compiled again -> PointwiseCache.CompilesAgainWhatWasCutShort
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

// Jiterator takes eight tensors, and backward has the gradient besides.
inline constexpr int64_t kMostPointwiseInputs = 7;

// Computes the same with LibTorch's operations, for gradients of gradients.
using PointwiseTwin = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

// A function of elements, and its derivatives.
class PointwiseFunction {
 public:
  // `result` is a term of `expressions`, which has `inputs` inputs.
  PointwiseFunction(Expressions expressions, TermId result, int64_t inputs, PointwiseTwin twin);

  at::Tensor Twin(const std::vector<at::Tensor>& inputs) const { return twin_(inputs); }

  const Expressions& expressions() const { return expressions_; }
  TermId result() const { return result_; }
  int64_t inputs() const { return inputs_; }
  // The terms of the inputs' gradients, -1 for none; the result's gradient is input number inputs().
  const std::vector<TermId>& gradients() const { return gradients_; }
  // Whether an input's gradient is that of the result.
  bool PassesGradient(size_t input) const;
  // The text of the kernel that computes these terms, which is made once.
  const std::string& TextOf(const std::vector<TermId>& results) const;

 private:
  Expressions expressions_;
  TermId result_;
  int64_t inputs_;
  std::vector<TermId> gradients_;
  PointwiseTwin twin_;
  // Forward and backward run in two threads.
  mutable std::mutex texts_mutex_;
  mutable std::map<std::vector<TermId>, std::string> texts_;
};

// Returns whether Pointwise() has a kernel for these inputs: float tensors of at least one dimension on one GPU. At
// most one of the inputs that are broadcast may need a gradient that backward has to write whole and then sum, because
// LibTorch's operations might write none where several come together before they are broadcast.
bool HasPointwiseKernel(const PointwiseFunction& function, const std::vector<at::Tensor>& inputs);

// Returns the function of the inputs, which are broadcast, in the type that LibTorch promotes theirs to.
// HasPointwiseKernel() must be true.
at::Tensor Pointwise(const std::shared_ptr<const PointwiseFunction>& function,
                     const std::vector<at::Tensor>& inputs);

// Returns the folder for compiled kernels in `cache`, which it makes; empty if there is none that only this user can
// write to.
std::string KernelFolder(const std::string& cache);

}  // namespace lockstep::ops
