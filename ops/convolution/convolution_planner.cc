#include "ops/convolution/convolution_planner.h"

#include <ATen/ATen.h>
#include <ATen/cudnn/Handle.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>

#include "base/files/cache_folder.h"
#include "ops/common/cudnn_graph.h"
#include "ops/common/launch_arguments.h"
#include "ops/plan/plan_candidates.h"
#include "ops/plan/plan_search.h"

namespace lockstep::ops {
namespace {

namespace graph = cudnn_frontend::graph;
using cudnn_frontend::BehaviorNote_t;
using cudnn_frontend::HeurMode_t;
using cudnn_frontend::Knob;
using cudnn_frontend::KnobType_t;
using cudnn_frontend::NumericalNote_t;

constexpr auto kLast = at::MemoryFormat::ChannelsLast;
// The alignment, in bytes, that a plan may assume for each tensor. KeyOf() accepts only tensors with this alignment, so
// a plan fits all tensors of its key. The number is cudnn_frontend's default.
constexpr int64_t kAlignment_bytes = 16;
constexpr int64_t kChannels = 8;  // a plan needs multiples of 8 channels, which are 16 bytes

// The ids of the tensors in a cuDNN graph.
enum Id : int64_t { kX = 1, kWeight, kY };

using Knobs = std::unordered_map<KnobType_t, int64_t>;

// Returns the member of `tensors` that the pass computes.
at::Tensor& Made(ConvolutionPass pass, ConvolutionTensors& tensors) {
  switch (pass) {
    case ConvolutionPass::kInputGradient:
      return tensors.x;
    case ConvolutionPass::kWeightGradient:
      return tensors.weight;
    case ConvolutionPass::kForward:
      break;
  }
  return tensors.y;
}

std::vector<int64_t> SizesOfX(const ConvolutionKey& key) {
  return {key.count, key.inputs, key.height, key.width};
}
std::vector<int64_t> SizesOfWeight(const ConvolutionKey& key) {
  return {key.outputs, key.inputs, key.kernel_height, key.kernel_width};
}
std::vector<int64_t> SizesOfY(const ConvolutionKey& key) {
  return {key.count, key.outputs, key.OutputHeight(), key.OutputWidth()};
}
std::vector<int64_t> SizesOfMade(const ConvolutionKey& key) {
  switch (key.pass) {
    case ConvolutionPass::kInputGradient:
      return SizesOfX(key);
    case ConvolutionPass::kWeightGradient:
      return SizesOfWeight(key);
    case ConvolutionPass::kForward:
      break;
  }
  return SizesOfY(key);
}

bool IsPlannable(const at::Tensor& operand, const at::Tensor& like) {
  return IsOnGpu(operand) && Is16Bit(operand) && operand.scalar_type() == like.scalar_type() &&
         operand.device() == like.device() && operand.dim() == 4 && operand.numel() > 0 &&
         operand.is_contiguous(kLast) && IsAligned(operand);
}

// Returns the key of the convolution's plan, or nullopt if ATen has to compute the convolution.
std::optional<ConvolutionKey> KeyOf(ConvolutionPass pass, ConvolutionTensors tensors,
                                    const ConvolutionOptions& options) {
  if (tensors.x.dim() != 4 || tensors.weight.dim() != 4 || options.stride < 1 ||
      options.padding < 0) {
    return std::nullopt;
  }
  const ConvolutionKey key{.pass = pass,
                           .count = tensors.x.size(0),
                           .inputs = tensors.x.size(1),
                           .height = tensors.x.size(2),
                           .width = tensors.x.size(3),
                           .outputs = tensors.weight.size(0),
                           .kernel_height = tensors.weight.size(2),
                           .kernel_width = tensors.weight.size(3),
                           .stride = options.stride,
                           .padding = options.padding,
                           .type = TypeOf(tensors.x)};
  if (tensors.weight.size(1) != key.inputs || key.inputs % kChannels != 0 ||
      key.outputs % kChannels != 0 || key.kernel_height > key.height + 2 * key.padding ||
      key.kernel_width > key.width + 2 * key.padding) {
    return std::nullopt;
  }
  if (pass != ConvolutionPass::kForward && tensors.y.sizes() != at::IntArrayRef(SizesOfY(key))) {
    return std::nullopt;
  }
  // The tensor that the pass computes is not checked, because Run() allocates a new tensor in the right layout.
  const at::Tensor x = tensors.x;
  Made(pass, tensors) = at::Tensor();
  for (const at::Tensor& operand : {tensors.x, tensors.weight, tensors.y}) {
    if (operand.defined() && !IsPlannable(operand, x)) return std::nullopt;
  }
  return key;
}

// Computes a convolution that has no plan, with ATen.
at::Tensor AtenConvolution(ConvolutionPass pass, const ConvolutionTensors& tensors,
                           const ConvolutionOptions& options) {
  const c10::NoGradGuard no_gradients;
  const int64_t stride = options.stride;
  const int64_t padding = options.padding;
  if (pass == ConvolutionPass::kForward) {
    return at::conv2d(tensors.x, tensors.weight, /*bias=*/{}, stride, padding);
  }
  const bool is_of_x = pass == ConvolutionPass::kInputGradient;
  const auto [dx, d_weight, d_bias] = at::convolution_backward(
      tensors.y, tensors.x, tensors.weight, /*bias_sizes=*/{}, {stride, stride}, {padding, padding},
      /*dilation=*/{1, 1}, /*transposed=*/false, /*output_padding=*/{0, 0}, /*groups=*/1,
      {is_of_x, !is_of_x, false});
  return is_of_x ? dx : d_weight;
}

// Describes a convolution in `graph`. Returns false if cuDNN does not support this convolution.
bool Describe(const ConvolutionKey& key, graph::Graph& graph) {
  // Returns the strides of a channels-last tensor.
  const auto strides = [](const std::vector<int64_t>& sizes) {
    return std::vector<int64_t>{sizes[1] * sizes[2] * sizes[3], 1, sizes[1] * sizes[3], sizes[1]};
  };
  const auto input = [&](Id id, const std::vector<int64_t>& sizes) {
    return graph.tensor(graph::Tensor_attributes()
                            .set_uid(id)
                            .set_dim(sizes)
                            .set_stride(strides(sizes))
                            .set_alignment(kAlignment_bytes));
  };
  const auto output = [&](const std::shared_ptr<graph::Tensor_attributes>& tensor, Id id) {
    const std::vector<int64_t> sizes = SizesOfMade(key);
    tensor->set_output(true)
        .set_uid(id)
        .set_dim(sizes)
        .set_stride(strides(sizes))
        .set_alignment(kAlignment_bytes);
  };
  const auto as = [&](auto attributes) {
    return attributes.set_padding({key.padding, key.padding})
        .set_stride({key.stride, key.stride})
        .set_dilation({1, 1});
  };
  switch (key.pass) {
    case ConvolutionPass::kForward:
      output(graph.conv_fprop(input(kX, SizesOfX(key)), input(kWeight, SizesOfWeight(key)),
                              as(graph::Conv_fprop_attributes())),
             kY);
      break;
    case ConvolutionPass::kInputGradient:
      output(graph.conv_dgrad(input(kY, SizesOfY(key)), input(kWeight, SizesOfWeight(key)),
                              as(graph::Conv_dgrad_attributes())),
             kX);
      break;
    case ConvolutionPass::kWeightGradient:
      output(graph.conv_wgrad(input(kY, SizesOfY(key)), input(kX, SizesOfX(key)),
                              as(graph::Conv_wgrad_attributes())),
             kWeight);
      break;
  }
  return graph.validate().is_good() &&
         graph.build_operation_graph(at::native::getCudnnHandle()).is_good();
}

// Returns the plans that cuDNN's heuristic `mode` proposes, in the heuristic's order, the best plan first.
std::vector<ConvolutionPlan> Proposals(const ConvolutionKey& key, HeurMode_t mode) {
  std::vector<ConvolutionPlan> plans;
  CudnnGraph made(key.type);
  graph::Graph& graph = made.graph();
  if (!Describe(key, graph) || graph.create_execution_plans({mode}).is_bad()) return plans;
  for (int64_t i = 0; i < graph.get_execution_plan_count(); ++i) {
    ConvolutionPlan plan;
    Knobs knobs;
    if (graph.get_engine_and_knobs_at_index(i, plan.engine, knobs).is_bad()) continue;
    for (const auto& [type, value] : knobs) plan.knobs[static_cast<int64_t>(type)] = value;
    plans.push_back(plan);
  }
  return plans;
}

// Makes the plan. Returns nullopt if cuDNN refuses the plan, or if the plan is one of those that are never used
// (convolution_planner.h).
std::optional<MadeConvolutionPlan> MakePlan(const ConvolutionKey& key, ConvolutionPlan plan) {
  auto made = std::make_shared<CudnnGraph>(key.type);
  Knobs knobs;
  for (const auto& [type, value] : plan.knobs) knobs[static_cast<KnobType_t>(type)] = value;
  graph::Graph& graph = made->graph();
  if (!Describe(key, graph) || graph.create_execution_plan(plan.engine, knobs).is_bad()) {
    return std::nullopt;
  }
  graph.deselect_behavior_notes({BehaviorNote_t::RUNTIME_COMPILATION})
      .deselect_numeric_notes({NumericalNote_t::NONDETERMINISTIC,
                               NumericalNote_t::DOWN_CONVERT_INPUTS,
                               NumericalNote_t::REDUCED_PRECISION_REDUCTION})
      .deselect_workspace_greater_than(kMostWorkspace_bytes);
  if (graph.build_plan_at_index(0).is_bad() || !made->FindWorkspace()) return std::nullopt;
  plan.workspace_bytes = made->workspace_bytes();
  return MadeConvolutionPlan{std::move(plan), std::move(made)};
}

// Returns the engine's knobs, with the range of values of each knob, or an empty vector if cuDNN returns an error.
// `graph` is the graph of a plan of this engine.
std::vector<Knob> KnobsOf(graph::Graph& graph, int64_t engine) {
  std::vector<Knob> knobs;
  if (graph.get_knobs_for_engine(engine, knobs).is_bad()) knobs.clear();
  return knobs;
}

// The candidate plans for one convolution. A plan is made when it first runs.
class ConvolutionCandidates : public PlanCandidates<MadeConvolutionPlan> {
 public:
  ConvolutionCandidates(const ConvolutionKey& key, CudnnPointers& pointers,
                        const at::Tensor& result, const MadeConvolutionPlan& first)
      : PlanCandidates(first), key_(key), pointers_(pointers), result_(result) {}

  bool Run(size_t candidate) override {
    MadeConvolutionPlan& plan = (*this)[candidate];
    if (!plan.made) {
      std::optional<MadeConvolutionPlan> made = MakePlan(key_, plan);
      if (!made) return false;
      plan = *std::move(made);
    }
    return plan.made->Run(pointers_, workspace()).is_good();
  }

  // Adds a plan like `candidate`'s, in which one random knob has a random value from the knob's range.
  bool AddNeighbour(size_t candidate, std::minstd_rand& random) override {
    const MadeConvolutionPlan& parent = (*this)[candidate];
    auto known = knobs_.find(parent.engine);
    if (known == knobs_.end()) {
      known = knobs_.emplace(parent.engine, KnobsOf(parent.made->graph(), parent.engine)).first;
    }
    const std::vector<Knob>& knobs = known->second;
    if (knobs.empty()) return false;
    const Knob& knob = knobs[random() % knobs.size()];
    const int64_t step = std::max<int64_t>(1, knob.stride);
    const int64_t values = (knob.maxValue - knob.minValue) / step + 1;
    ConvolutionPlan plan = parent;
    const auto set = plan.knobs.find(static_cast<int64_t>(knob.type));
    if (set == plan.knobs.end() || values < 2) return false;
    set->second = knob.minValue + step * static_cast<int64_t>(random() % values);
    return Add({std::move(plan), nullptr});
  }

  // Returns values of the result at equal distances: about kValues values, or all values of a smaller result.
  at::Tensor Sample(size_t candidate) override {
    if (!Run(candidate)) return {};
    constexpr int64_t kValues = 1 << 20;
    // The distance is odd. An even distance would miss all odd channels, because the number of channels is a multiple
    // of 8.
    const int64_t step = result_.numel() / kValues | 1;
    return result_.permute({0, 2, 3, 1})
        .view({-1})
        .slice(/*dim=*/0, std::nullopt, std::nullopt, step)
        .to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  }

 private:
  const ConvolutionKey& key_;
  CudnnPointers& pointers_;
  at::Tensor result_;
  std::map<int64_t, std::vector<Knob>> knobs_;  // the key is the engine
};

class PlannedConvolutionOperation : public PlannedOperation<MadeConvolutionPlan> {
 public:
  PlannedConvolutionOperation(const ConvolutionKey& key, CudnnPointers& pointers,
                              const at::Tensor& result)
      : key_(key), pointers_(pointers), result_(result) {}

  std::optional<MadeConvolutionPlan> First() override {
    for (const HeurMode_t mode : {HeurMode_t::A, HeurMode_t::FALLBACK}) {
      for (const ConvolutionPlan& plan : Proposals(key_, mode)) {
        if (std::optional<MadeConvolutionPlan> made = MakePlan(key_, plan)) return made;
      }
    }
    return std::nullopt;
  }

  MadeConvolutionPlan Search(const MadeConvolutionPlan& first) override {
    const c10::NoGradGuard no_gradients;
    std::vector<MadeConvolutionPlan> proposals;
    for (ConvolutionPlan& plan : Proposals(key_, HeurMode_t::A)) {
      proposals.push_back({std::move(plan), nullptr});
    }
    return ConvolutionCandidates(key_, pointers_, result_, first).Fastest(proposals);
  }

  std::string Text(const MadeConvolutionPlan& plan) const override { return TextOf(plan); }

  std::optional<MadeConvolutionPlan> Parsed(const std::string& text) override {
    const std::optional<ConvolutionPlan> plan = ParseConvolutionPlan(text);
    return plan ? MakePlan(key_, *plan) : std::nullopt;
  }

 private:
  const ConvolutionKey& key_;
  CudnnPointers& pointers_;
  const at::Tensor& result_;
};

// Returns the planner of this process. The planner is never destroyed, because cuDNN may be unloaded before static
// objects are destroyed.
ConvolutionPlanner& ProcessPlanner() {
  static auto& planner = *new ConvolutionPlanner(CacheFolder());
  return planner;
}

}  // namespace

ConvolutionPlanner::ConvolutionPlanner(std::string folder)
    : choices_(std::move(folder), "convolutions", [](c10::DeviceIndex device) {
        return DeviceText(device, fmt::format("cuDNN {}", cudnnGetVersion()));
      }) {}

at::Tensor ConvolutionPlanner::Forward(const at::Tensor& x, const at::Tensor& weight,
                                       const ConvolutionOptions& options) {
  return Run(ConvolutionPass::kForward, {x, weight, {}}, options);
}

at::Tensor ConvolutionPlanner::InputGradient(const at::Tensor& dy, const at::Tensor& x,
                                             const at::Tensor& weight,
                                             const ConvolutionOptions& options) {
  return Run(ConvolutionPass::kInputGradient, {x, weight, dy}, options);
}

at::Tensor ConvolutionPlanner::WeightGradient(const at::Tensor& dy, const at::Tensor& x,
                                              const at::Tensor& weight,
                                              const ConvolutionOptions& options) {
  return Run(ConvolutionPass::kWeightGradient, {x, weight, dy}, options);
}

at::Tensor ConvolutionPlanner::Run(ConvolutionPass pass, const ConvolutionTensors& tensors,
                                   const ConvolutionOptions& options) {
  const std::optional<ConvolutionKey> key = KeyOf(pass, tensors, options);
  if (!key) return AtenConvolution(pass, tensors, options);
  const c10::DeviceGuard on_device(tensors.x.device());

  ConvolutionTensors of = tensors;
  at::Tensor& result = Made(pass, of);
  result = at::empty(SizesOfMade(*key), tensors.x.options(), kLast);
  if (result.is_meta()) return result;
  // This call makes a CUDA context current, which a thread of autograd may not have before its first convolution.
  c10::cuda::set_device(tensors.x.device().index(), /*force=*/true);
  const auto pointer = [](const at::Tensor& operand) {
    return const_cast<void*>(operand.const_data_ptr());
  };
  CudnnPointers pointers = {
      {kX, pointer(of.x)}, {kWeight, pointer(of.weight)}, {kY, pointer(of.y)}};
  PlannedConvolutionOperation operation(*key, pointers, result);
  const MadeConvolutionPlan* plan =
      choices_.Choose(of.x.device().index(), *key, operation, options.searches);
  if (plan == nullptr) return AtenConvolution(pass, tensors, options);

  // The event makes the convolution visible to profilers and to code that counts floating-point operations, like ATen's
  // convolutions.
  const bool is_forward = pass == ConvolutionPass::kForward;
  const auto inputs = [&]() -> std::vector<c10::IValue> {
    const at::Tensor of_group = of.weight.narrow(1, 0, of.weight.size(1) / options.groups);
    if (!is_forward) return {of.y, of.x, of_group};
    return ConvolutionEventInputs(of.x, of_group, options.stride, options.padding);
  };
  RECORD_FUNCTION(is_forward ? kConvolutionEvent : kConvolutionGradientEvent, inputs());
  auto status = plan->made->Run(pointers);
  TORCH_CHECK(status.is_good(), "cuDNN's plan for ", Description(*key), ": ", status.get_message());
  return result;
}

std::vector<ConvolutionPlanReport> ConvolutionPlanner::Plans() const {
  std::vector<ConvolutionPlanReport> reports;
  for (const auto& [key, plan, source] : choices_.Reports()) {
    reports.push_back({key, plan, source});
  }
  return reports;
}

std::vector<c10::IValue> ConvolutionEventInputs(const at::Tensor& x, const at::Tensor& weight,
                                                int64_t stride, int64_t padding) {
  const auto both = [](int64_t number) { return std::vector<int64_t>(2, number); };
  return {x, weight, /*bias=*/c10::IValue(), both(stride), both(padding), /*dilation=*/both(1)};
}

at::Tensor PlannedConvolution(const at::Tensor& x, const at::Tensor& weight,
                              const ConvolutionOptions& options) {
  return ProcessPlanner().Forward(x, weight, options);
}

at::Tensor PlannedConvolutionInputGradient(const at::Tensor& dy, const at::Tensor& x,
                                           const at::Tensor& weight,
                                           const ConvolutionOptions& options) {
  return ProcessPlanner().InputGradient(dy, x, weight, options);
}

at::Tensor PlannedConvolutionWeightGradient(const at::Tensor& dy, const at::Tensor& x,
                                            const at::Tensor& weight,
                                            const ConvolutionOptions& options) {
  return ProcessPlanner().WeightGradient(dy, x, weight, options);
}

std::vector<ConvolutionPlanReport> ConvolutionPlans() { return ProcessPlanner().Plans(); }

}  // namespace lockstep::ops
