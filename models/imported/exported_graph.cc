#include "models/imported/exported_graph.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/tensor/autocast.h"
#include "models/activation_checkpoint.h"
#include "models/imported/contract.h"
#include "models/imported/foretell_program.h"
#include "models/imported/fuse.h"
#include "models/imported/node_values.h"
#include "models/imported/program.h"
#include "models/imported/segments.h"

namespace lockstep {
namespace {

using c10::IValue;
using exported::Argument;
using exported::Node;
using exported::Values;
using Json = nlohmann::json;

// Removes the running statistics from `stack`, which holds the node's arguments, if the node is a norm in training
// mode. The function is called only when backward computes the node again: the first computation has already updated
// the statistics.
void LeaveStatistics(const Node& node, std::vector<IValue>& stack) {
  const std::string& name = node.operation->schema().name();
  if (name != "aten::batch_norm" && name != "aten::native_batch_norm" &&
      name != "aten::instance_norm") {
    return;
  }
  constexpr size_t kRunningMean = 3, kRunningVariance = 4, kOfThisBatch = 5;
  if (stack[kOfThisBatch].toBool()) stack[kRunningMean] = stack[kRunningVariance] = IValue();
}

void Call(const Node& node, Values& values, at::Device device) {
  std::vector<IValue> stack;
  stack.reserve(node.arguments.size());
  for (const Argument& argument : node.arguments) {
    stack.push_back(exported::Made(argument, values, device));
  }
  if (node.IsNumber()) {
    values[node.results[0].value] = exported::ComputedNumber(node.sym, stack);
    return;
  }
  exported::CheckUnforeseen(*node.operation, stack, node.unforeseen, device, node.autocast);
  std::optional<NoAutocast> exact;
  if (!node.autocast) exact.emplace(device);
  const at::AutoGradMode grad(node.grad && at::GradMode::is_enabled());
  if (node.fused) {
    std::vector<at::Tensor> tensors = node.fused(stack);
    for (size_t i = 0; i < node.results.size(); ++i) {
      if (const int64_t value = node.results[i].value; value >= 0) {
        values[value] = std::move(tensors.at(i));
      }
    }
    return;
  }
  if (IsRecomputing()) LeaveStatistics(node, stack);
  node.call(*node.operation, stack);
  exported::Keep(node, stack, values);
}

}  // namespace

struct ExportedGraph::Parsed {
  exported::Program program;
  exported::Program as_read;  // the program before operations were fused
  // The sizes and dtypes of the inputs, and whether autocast was on, for which the program was foretold.
  std::set<std::vector<int64_t>> foretold;
  exported::SharedStatistics shared;
  int64_t batch_norms = 0;
  Values tensors;       // for each value: the parameter, buffer or constant; None for others
  exported::Cuts cuts;  // empty: there is no activation checkpointing

  // Calls nodes [begin, end). Tensors are released after their last use.
  void Call(size_t begin, size_t end, Values& values, at::Device device) const {
    for (size_t i = begin; i < end; ++i) {
      const Node& node = program.nodes[i];
      try {
        if (IsRecomputing() && cuts.once[i]) {
          // A node with cuts.once changes its first argument in place and returns it. The first computation has already
          // made this change.
          std::vector<IValue> unchanged{exported::Made(node.arguments[0], values, device)};
          exported::Keep(node, unchanged, values);
        } else {
          lockstep::Call(node, values, device);
        }
      } catch (const c10::OutOfMemoryError&) {
        throw;
      } catch (const c10::AcceleratorError&) {
        throw;
      } catch (const c10::Error& error) {
        throw UsageError("{}: {} failed: {}", program.where, node.name,
                         FirstLine(error.what_without_backtrace()));
      } catch (const Error&) {
        throw;
      } catch (const std::exception& error) {  // of a library that LibTorch calls
        throw UsageError("{}: {} failed: {}", program.where, node.name, FirstLine(error.what()));
      }
      for (const int64_t value : node.last_uses) values[value] = IValue();
    }
  }

  // Calls the nodes of a segment with activation checkpointing, so that backward computes them again.
  void CallTwice(const exported::Segment& segment, Values& values, at::Device device) const {
    std::vector<at::Tensor> inputs;
    for (const int64_t value : segment.inputs) inputs.push_back(values[value].toTensor());
    Values given;
    for (const int64_t value : segment.given) given.push_back(values[value]);
    const auto made = std::make_shared<Values>();
    const auto block = [this, &segment, given, made, device](const std::vector<at::Tensor>& from) {
      Values own = tensors;
      for (size_t i = 0; i < from.size(); ++i) own[segment.inputs[i]] = from[i];
      for (size_t i = 0; i < given.size(); ++i) own[segment.given[i]] = given[i];
      Call(segment.begin, segment.end, own, device);
      if (!IsRecomputing()) {
        for (const int64_t value : segment.made) made->push_back(own[value]);
      }
      std::vector<at::Tensor> outputs;
      for (const int64_t value : segment.outputs) outputs.push_back(own[value].toTensor());
      return outputs;
    };
    const std::vector<at::Tensor> outputs = CheckpointActivations(inputs, block);
    for (size_t i = segment.begin; i < segment.end; ++i) {
      for (const int64_t value : program.nodes[i].last_uses) values[value] = IValue();
    }
    for (size_t i = 0; i < outputs.size(); ++i) values[segment.outputs[i]] = outputs[i];
    for (size_t i = 0; i < made->size(); ++i) values[segment.made[i]] = std::move((*made)[i]);
  }
};

ExportedGraph::ExportedGraph(const Json& graph, const std::string& where, int64_t input_count,
                             const Tensors& tensors, const Options& options) {
  auto parsed = std::make_unique<Parsed>();
  parsed->program = exported::ReadProgram(graph, where, input_count);
  for (const auto& [name, id] : parsed->program.constants) {
    const auto constant = tensors.constants.find(name);
    const bool is_empty =
        constant != tensors.constants.end() && constant->second.sizes() == at::IntArrayRef({0});
    if (is_empty) parsed->program.empty_constants.insert(id);
  }
  parsed->as_read = parsed->program;
  parsed->shared.ranks = options.ranks;
  parsed->batch_norms = exported::Fuse(parsed->program, parsed->shared);
  const exported::Program& program = parsed->program;
  parsed->tensors.resize(program.values);
  const auto find = [&](const char* kind, const std::map<std::string, int64_t>& used,
                        const std::map<std::string, at::Tensor>& known) {
    for (const auto& [name, id] : used) {
      const auto tensor = known.find(name);
      if (tensor == known.end())
        throw UsageError("{}: there is no tensor {} among the {}", where, name, kind);
      parsed->tensors[id] = tensor->second;
    }
  };
  find("parameters", program.parameters, tensors.parameters);
  find("buffers", program.buffers, tensors.buffers);
  find("constants", program.constants, tensors.constants);
  if (options.checkpoints) {
    std::set<int64_t> trainable;
    for (const auto& [name, value] : program.parameters) {
      if (parsed->tensors[value].toTensor().requires_grad()) trainable.insert(value);
    }
    parsed->cuts = exported::CutsOf(program, trainable);
  }
  parsed_ = std::move(parsed);
}

ExportedGraph::~ExportedGraph() = default;
ExportedGraph::ExportedGraph(ExportedGraph&&) noexcept = default;
ExportedGraph& ExportedGraph::operator=(ExportedGraph&&) noexcept = default;

std::vector<at::Tensor> ExportedGraph::ConvolutionWeights() const {
  std::vector<at::Tensor> weights;
  for (const Node& node : parsed_->program.nodes) {
    if (!node.operation || node.operation->schema().name() != "aten::conv2d") continue;
    const Argument& argument = node.arguments[1];
    if (argument.kind != Argument::Kind::kValue) continue;
    const IValue& weight = parsed_->tensors[argument.value];
    if (weight.isTensor() && weight.toTensor().dim() == 4) weights.push_back(weight.toTensor());
  }
  return weights;
}

int64_t ExportedGraph::least_batch() const { return parsed_->program.least_batch; }

int64_t ExportedGraph::batch_norms() const { return parsed_->batch_norms; }

at::Tensor ExportedGraph::Run(const std::vector<at::Tensor>& inputs) const {
  parsed_->shared.has_samples = true;
  return Computed(inputs);
}

at::Tensor ExportedGraph::RunWithoutSamples(const std::vector<at::Tensor>& inputs) const {
  // The flag keeps this value until the next run, because backward may compute norms again.
  parsed_->shared.has_samples = false;
  return Computed(inputs);
}

at::Tensor ExportedGraph::Foretell(const std::vector<at::Tensor>& inputs, int64_t most_bytes,
                                   bool rounds) const {
  const exported::Program& program = parsed_->as_read;
  Values values = parsed_->tensors;
  values.resize(program.values);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (program.inputs[i] >= 0) values[program.inputs[i]] = inputs[i];
  }
  return exported::ForetellProgram(program, std::move(values), most_bytes, rounds);
}

void ExportedGraph::ForetellOnce(const std::vector<at::Tensor>& inputs) const {
  // Tensors of a foretold GPU have no memory, and their allocations are counted.
  if (inputs.at(0).is_meta()) return;
  const at::Device device = inputs[0].device();
  const bool rounds = AutocastState::Now(device.type()).enabled;
  std::vector<int64_t> sizes{rounds};
  for (const at::Tensor& input : inputs) {
    sizes.insert(sizes.end(), input.sizes().begin(), input.sizes().end());
    sizes.push_back(-1 - static_cast<int64_t>(input.scalar_type()));
  }
  if (!parsed_->foretold.insert(sizes).second) return;
  try {
    Foretell(inputs, exported::MostBytes(device), rounds);
  } catch (...) {
    parsed_->foretold.erase(sizes);
    throw;
  }
}

at::Tensor ExportedGraph::Computed(const std::vector<at::Tensor>& inputs) const {
  const exported::Program& program = parsed_->program;
  const int64_t batch = inputs.at(0).size(0);
  if (batch < program.least_batch || batch > program.most_batch) {
    throw UsageError("{}: it takes {} to {} samples at a time, and a micro-batch has {}",
                     program.where, program.least_batch, program.most_batch, batch);
  }
  ForetellOnce(inputs);
  Values values = parsed_->tensors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (program.inputs[i] >= 0) values[program.inputs[i]] = inputs[i];
  }
  const at::Device device = inputs.at(0).device();
  if (!parsed_->cuts.segments.empty() && at::GradMode::is_enabled()) {
    for (const exported::Segment& segment : parsed_->cuts.segments) {
      if (segment.twice && !segment.inputs.empty()) {
        parsed_->CallTwice(segment, values, device);
      } else {
        parsed_->Call(segment.begin, segment.end, values, device);
      }
    }
  } else {
    parsed_->Call(0, program.nodes.size(), values, device);
  }
  if (!values[program.output].isTensor())
    throw UsageError("{}: its output is no tensor", program.where);
  return values[program.output].toTensor();
}

}  // namespace lockstep
