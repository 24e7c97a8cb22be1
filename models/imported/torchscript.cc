#include "models/imported/torchscript.h"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <span>
#include <sstream>

#include "base/error.h"
#include "base/files/xxh3.h"
#include "comm/together.h"
#include "models/imported/module_place.h"

namespace lockstep {
namespace {

// Returns the line of an exception's text that says what went wrong: the first line, or, in a traceback of TorchScript,
// the first line without indentation after the last "<--- HERE" mark.
std::string ReasonOf(const std::exception& exception) {
  const std::string text = WhatOf(exception);
  const size_t mark = text.rfind("<--- HERE");
  std::istringstream lines(mark == std::string::npos ? text : text.substr(mark));
  std::string line;
  if (mark != std::string::npos) std::getline(lines, line);
  while (std::getline(lines, line)) {
    if (!line.empty() && line[0] != ' ') return line;
  }
  return FirstLine(text);
}

torch::jit::Module Load(const std::string& path) {
  if (path.empty()) {
    throw UsageError("model.torchscript.file: name a file that torch.jit.save wrote");
  }
  try {
    return torch::jit::load(path, at::Device(at::kCPU));
  } catch (const std::exception& exception) {
    throw UsageError("{}: not a module that torch.jit.save wrote: {}", path, ReasonOf(exception));
  }
}

// Returns hashes of the code in the file `path`, and of its attributes and constants, among which are no weights.
std::map<std::string, uint64_t> GraphOf(const std::string& path) {
  caffe2::serialize::PyTorchStreamReader reader(path);
  std::vector<std::string> records = reader.getAllRecords();
  std::ranges::sort(records);
  Xxh3 code, constants;
  for (const std::string& record : records) {
    const bool is_code = record.starts_with("code/") && record.ends_with(".py");
    const bool is_constant = record.starts_with("constants") || record == "data.pkl";
    if (!is_code && !is_constant) continue;
    const auto [content, bytes] = reader.getRecord(record);
    Xxh3& hash = is_code ? code : constants;
    hash.Add(std::as_bytes(std::span(record)));
    hash.Add({static_cast<const std::byte*>(content.get()), bytes});
  }
  return {{"code", code.value()}, {"constants", constants.value()}};
}

std::string Describe(const c10::IValue& value) {
  if (!value.isTensor()) return "a " + value.type()->repr_str();
  return fmt::format("{} [{}]", c10::toString(value.toTensor().scalar_type()),
                     fmt::join(value.toTensor().sizes(), ", "));
}

}  // namespace

TorchScript::TorchScript(const ModelSpec& spec)
    : path_(spec.config.torchscript().file()),
      tokens_(spec.task == Task::kLanguage),
      classes_(spec.classes),
      script_(Load(path_)),
      graph_(GraphOf(path_)) {
  if (spec.task == Task::kSegmentation) {
    throw UsageError(
        "{}: a TorchScript model puts out a vector for each sample: for masks write it with "
        "lockstep.export",
        path_);
  }
  bool learns = false;
  for (const auto& parameter : script_.named_parameters()) {
    learns |= parameter.value.requires_grad();
    const auto [module, name] = PlaceOf(*this, parameter.name);
    module->register_parameter(name, parameter.value, parameter.value.requires_grad());
  }
  for (const auto& buffer : script_.named_buffers()) {
    const auto [module, name] = PlaceOf(*this, buffer.name);
    module->register_buffer(name, buffer.value);
  }
  if (!learns) {
    throw UsageError(
        "{}: no parameter of it requires a gradient: save the module as it is before "
        "torch.jit.freeze",
        path_);
  }
  train(is_training());
}

void TorchScript::train(bool on) {
  Model::train(on);
  script_.train(on);
}

std::vector<at::Tensor> TorchScript::ConvolutionWeights(bool rounds) const {
  std::vector<at::Tensor> weights;
  if (!rounds) return weights;
  for (const torch::jit::Module& module : script_.modules()) {
    const auto name = module.type()->name();
    if (!name || name->name().find("Conv2d") == std::string::npos || !module.hasattr("weight")) {
      continue;
    }
    const c10::IValue weight = module.attr("weight");
    if (weight.isTensor() && weight.toTensor().dim() == 4) weights.push_back(weight.toTensor());
  }
  return weights;
}

at::Tensor TorchScript::Forward(const at::Tensor& input) {
  // With its graph optimizer on, LibTorch would profile the first calls and then run kernels that it fused for the
  // shapes seen. These kernels give other results, and LibTorch compiles them later, perhaps while a CUDA graph is
  // captured. The setting applies to this thread.
  const torch::jit::GraphOptimizerEnabledGuard as_written(false);
  c10::IValue output;
  try {
    output = script_.forward({input});
  } catch (const std::exception& exception) {
    throw UsageError("{}: its forward failed: {}", path_, ReasonOf(exception));
  }
  std::vector<int64_t> expected{input.size(0)};
  if (tokens_) expected.push_back(input.size(1));
  expected.push_back(classes_);
  if (!output.isTensor() || !output.toTensor().is_floating_point() ||
      output.toTensor().sizes() != expected) {
    throw UsageError(
        "{}: its forward returned {} where one floating-point tensor of [{}] is expected", path_,
        Describe(output), fmt::join(expected, ", "));
  }
  if (at::GradMode::is_enabled() && !output.toTensor().requires_grad()) {
    throw UsageError(
        "{}: no gradient reaches its parameters: its forward detaches what it returns, or computes "
        "it without them",
        path_);
  }
  return output.toTensor();
}

}  // namespace lockstep
