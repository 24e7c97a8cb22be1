// PlanOf(): decides which kernels compute some terms (tensor_terms.h), and writes their text in CUDA C++.
//
// Every sum and maximum becomes a small tensor in memory; all other terms are computed where they are needed, in
// registers. A term that is small beside the tensors that are computed from it is kept in memory, too, if it would take
// several operations for each element. So the terms have levels, and the terms of one level that go over the same elements
// are one kernel. A norm with its activation is two kernels: one reads the values and sums them, and one reads them again
// and writes the result.
//
// A kernel goes over its elements in the order in which the largest input lies in memory, so images with channels last
// are rows of channels. Each thread takes up to eight neighbours, which it loads at once. A sum over the innermost
// dimension is made by one to 32 threads or by a block of threads for each result; any other sum by columns, each thread for its
// neighbours. If there are few results, several blocks share each, and a further kernel adds their parts. The order of
// additions depends on sizes alone, so the results are the same bits each time.
//
// The text consists of fixed pieces of source code and of numbers. The content of a model's file can therefore enter the
// text only as a number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/common/float_type.h"
#include "ops/generated/tensor_layout.h"
#include "ops/generated/tensor_terms.h"

namespace lockstep::ops {

// A kernel that computes some tensors. `tensors` are the numbers of its arguments in KernelPlan.
struct PlannedKernel {
  std::string text;  // the source text of the function `kKernelName`
  std::vector<int> tensors;
  unsigned grid_x = 1, grid_y = 1, block_x = 1, block_y = 1;
};

// A term that is to be computed: broadcast to `sizes`, in a type.
struct WantedTerm {
  TermId term;
  ElementType type;
  Sizes sizes;
};

struct KernelPlan {
  // Numbers of tensors: first the inputs, then the given terms, then those that the plan makes (`made`).
  std::vector<TensorLayout> made;
  std::vector<PlannedKernel> kernels;  // in the order in which they run
  std::vector<int> results;            // for each wanted term, the tensor's number
  std::vector<TermId> sums;            // the sums and maxima that the plan makes
  std::vector<int> tensors_of_sums;    // and their tensors
  std::vector<bool> reads;             // for each input and given term, whether a kernel reads it
};

struct PlanRequest {
  std::vector<TensorLayout> inputs;  // by the inputs' indices
  std::vector<TermId> given;  // sums that are in memory, as another plan with this order made them
  std::vector<WantedTerm> wanted;
  std::vector<size_t> order;  // of the dimensions, as OrderOf() returns it
  int multiprocessors = 132;
};

// Returns whether PlanOf() knows all terms: dimensions and elements are few enough.
bool CanPlan(const TensorTerms& terms, const PlanRequest& request);

KernelPlan PlanOf(const TensorTerms& terms, const PlanRequest& request);

}  // namespace lockstep::ops
