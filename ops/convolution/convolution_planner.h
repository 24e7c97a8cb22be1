// Computes convolutions of 16-bit images with the fastest of cuDNN's plans. at::conv2d uses the first plan that cuDNN's
// heuristic proposes, which is not always the fastest.
//
// Promise: each function gives the same result as ATen's function within rounding. All sums are float32. A plan gives
// the same bits in each run on GPUs of one model. The search for the fastest plan runs only once for each combination
// of GPU model, cuDNN version, shape, pass and type. The choice is kept in a file (plan_choices.h). Making a plan from
// this file takes less than a millisecond.
//
// A plan is one of cuDNN's engines with a value for each of its knobs (parameters). Some plans are never used. These
// are plans that need more than 32 MiB of workspace (kMostWorkspace_bytes), and plans with one of the following notes:
// the result can differ from run to run (NONDETERMINISTIC), values other than the result are rounded
// (DOWN_CONVERT_INPUTS, REDUCED_PRECISION_REDUCTION), or the plan is compiled when it is made (RUNTIME_COMPILATION),
// which takes about a second. The first plan is the first of the remaining plans that cuDNN's heuristic A proposes. If
// A proposes none, the first plan is the first that heuristic FALLBACK proposes. A search (plan_search.h) uses the
// convolution's own tensors. Its candidates are the plans that A proposes, and the neighbours of the best of these
// plans. A neighbour differs in the value of one knob. FALLBACK's engines are not candidates: they use no tensor cores,
// and timing one of them takes longer than timing all other candidates.
//
// All threads share a plan, and one thread at a time runs it, because not all of cuDNN's engines allow several threads.
// The first call of a thread makes the thread's cuDNN handle, and the first use of a plan makes the plan. A CUDA graph
// can capture all other calls, because they make neither a handle nor a plan.
//
// what can fail -> what the caller sees -> the test that shows it (ops/convolution/convolution_planner_test.cc)
//   a convolution that has no plan (see Forward()) -> ATen's result
//     -> ConvolutionPlannerOpTest.IsTheConvolutionOfEverySize
//   cuDNN has no plan for a convolution -> ATen's result -> (none)
//   sizes or types that do not fit together -> ATen's exception -> ConvolutionPlanner.SaysWhatDoesNotFit
//   cuDNN refuses a plan that it made -> c10::Error with cuDNN's message -> (none)
//   there is no memory for a plan's workspace -> c10::OutOfMemoryError, as for any tensor -> (none)
//   cuDNN refuses a plan that was read from the file -> a new search -> ConvolutionPlannerTest.ReplacesWhatIsOfNoUse
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/plan/convolution_plan.h"
#include "ops/plan/plan_choices.h"

namespace lockstep::ops {

struct ConvolutionOptions {
  int64_t stride = 1;
  int64_t padding = 0;
  // Whether a plan of this convolution may be searched for. Callers set `searches` to false for convolutions that may
  // occur only once, such as those of an evaluation.
  bool searches = true;
  // The number of groups of channels between which the weight is zero. Code that counts floating-point operations
  // leaves out the products with these zeros.
  int64_t groups = 1;
};

// The tensors of a convolution, where y is the convolution of x with weight. Each pass (forward, input gradient or
// weight gradient) computes one of the three tensors, or its gradient, from the other two.
struct ConvolutionTensors {
  at::Tensor x;       // [count, inputs, height, width]
  at::Tensor weight;  // [outputs, inputs, kernel height, kernel width]
  at::Tensor y;
};

class CudnnGraph;  // ops/common/cudnn_graph.h

struct MadeConvolutionPlan : ConvolutionPlan {
  std::shared_ptr<CudnnGraph> made;  // the plan that cuDNN has made; null before it is made
};

using ConvolutionPlanReport = PlanReport<ConvolutionKey, ConvolutionPlan>;

// Chooses plans for convolutions, and computes convolutions with the chosen plans. Any number of threads may use one
// ConvolutionPlanner at the same time.
class ConvolutionPlanner {
 public:
  // Makes a planner whose plan files are in `folder`. If `folder` is empty, no files are kept.
  explicit ConvolutionPlanner(std::string folder);

  // Computes a convolution without a bias. All tensors must have the same type (float32, float16 or bfloat16) and
  // device. The result has the type of the tensors and no gradient function.
  //
  // A convolution has a plan if its operands are float16 or bfloat16, on a GPU, channels last, contiguous and not
  // empty, begin at multiples of 16 bytes, and have multiples of 8 channels. The result of a planned convolution is
  // channels last. ATen computes all other convolutions.
  at::Tensor Forward(const at::Tensor& x, const at::Tensor& weight,
                     const ConvolutionOptions& options = {});

  // Computes the gradient of x from dy, the gradient of y. Only the sizes, the type and the device of x are used.
  at::Tensor InputGradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                           const ConvolutionOptions& options = {});

  // Computes the gradient of weight from dy, the gradient of y. Only the sizes of weight are used.
  at::Tensor WeightGradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                            const ConvolutionOptions& options = {});

  // Returns the plans that were chosen so far.
  std::vector<ConvolutionPlanReport> Plans() const;

 private:
  // Runs a pass. Forward ignores tensors.y, which may be undefined. The passes for gradients use only the sizes, the
  // type and the device of the tensor whose gradient they compute.
  at::Tensor Run(ConvolutionPass pass, const ConvolutionTensors& tensors,
                 const ConvolutionOptions& options);

  PlanChoices<ConvolutionKey, MadeConvolutionPlan> choices_;
};

// The names of the events that planned convolutions and their gradients record with at::RecordFunction. The inputs of a
// convolution's event are the first inputs of at::convolution: x, weight, no bias, strides, paddings, dilations. The
// inputs of a gradient's event are dy, x and weight.
inline constexpr char kConvolutionEvent[] = "lockstep::convolution";
inline constexpr char kConvolutionGradientEvent[] = "lockstep::convolution_backward";

// Returns the inputs of a convolution's event.
std::vector<c10::IValue> ConvolutionEventInputs(const at::Tensor& x, const at::Tensor& weight,
                                                int64_t stride, int64_t padding);

// These functions call Forward(), InputGradient() and WeightGradient() of the planner of this process, whose files are
// in CacheFolder().
at::Tensor PlannedConvolution(const at::Tensor& x, const at::Tensor& weight,
                              const ConvolutionOptions& options = {});
at::Tensor PlannedConvolutionInputGradient(const at::Tensor& dy, const at::Tensor& x,
                                           const at::Tensor& weight,
                                           const ConvolutionOptions& options = {});
at::Tensor PlannedConvolutionWeightGradient(const at::Tensor& dy, const at::Tensor& x,
                                            const at::Tensor& weight,
                                            const ConvolutionOptions& options = {});

// Returns the Plans() of the planner of this process.
std::vector<ConvolutionPlanReport> ConvolutionPlans();

}  // namespace lockstep::ops
