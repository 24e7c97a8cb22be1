#include "trainer/models/imported/imported.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/open_file.h"
#include "base/files/safetensors.h"
#include "base/tensor/foretold_gpu.h"
#include "trainer/models/imported/module_place.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr char kDescription[] = "lockstep.model";
constexpr int64_t kVersion = 1;

// Reads a file's description. Throws Error (kUsage).
Json DescriptionOf(const SafetensorsFile& file) {
  const auto text = file.metadata().find(kDescription);
  if (text == file.metadata().end()) {
    throw UsageError("{}: no model that lockstep.export wrote", file.path());
  }
  Json json = Json::parse(text->second, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.value("version", Json()).is_number_integer()) {
    throw UsageError("{}: its description is damaged", file.path());
  }
  if (const int64_t version = json["version"]; version > kVersion) {
    throw UsageError(
        "{}: it has version {}, and this program reads {}: take a newer Lockstep, or export it "
        "with this "
        "one's package",
        file.path(), version, kVersion);
  }
  return json;
}

std::string Checked(const std::string& path) {
  if (path.empty()) throw UsageError("model.imported.file: name a file that lockstep.export wrote");
  return path;
}

std::string ShapeText(const Json& shape) {
  std::string text;
  for (const Json& size : shape)
    text += (text.empty() ? "" : ", ") + (size.is_string() ? size.get<std::string>() : size.dump());
  return "[" + text + "]";
}

// Throws Error (kUsage) if the model does not take such samples.
void CheckInput(const std::string& path, const Json& inputs, const ModelSpec& spec) {
  if (inputs.size() != 1) {
    std::vector<std::string> names;
    for (const Json& input : inputs) names.push_back(input.at("name"));
    throw UsageError("{}: the model takes {} inputs ({}), and samples have one", path,
                     inputs.size(), fmt::join(names, ", "));
  }
  const Json& input = inputs[0];
  const bool takes_tokens = input.at("dtype") == "int64";
  if (takes_tokens != (spec.task == Task::kLanguage)) {
    throw UsageError("{}: the model takes {}, and the samples are {}", path,
                     takes_tokens ? "tokens" : "numbers", takes_tokens ? "numbers" : "tokens");
  }
  Json expected{"batch"};
  for (const int64_t size : spec.input_shape) expected.push_back(size);
  if (input.at("shape") != expected) {
    throw UsageError(
        "{}: the model takes inputs of {}, and the samples give {}: export it for their shape",
        path, ShapeText(input.at("shape")), ShapeText(expected));
  }
}

}  // namespace

Imported::Imported(const ModelSpec& spec)
    : path_(Checked(spec.config.imported().file())),
      tokens_(spec.task == Task::kLanguage),
      classes_(spec.classes) {
  const SafetensorsFile file(path_, kGivenByUser);
  const Json json = DescriptionOf(file);
  ExportedGraph::Tensors tensors;
  try {
    CheckInput(path_, json.at("inputs"), spec);
    head_ = json.at("head").get<std::vector<std::string>>();
    bool learns = false;
    for (const Json& parameter : json.at("parameters")) {
      if (parameter.contains("same_as")) continue;
      const std::string name = parameter.at("name");
      const bool trainable = parameter.at("trainable");
      learns |= trainable;
      const auto [module, last] = PlaceOf(*this, name);
      tensors.parameters[name] =
          module->register_parameter(last, file.Read("state." + name), trainable);
    }
    for (const Json& buffer : json.at("buffers")) {
      if (buffer.contains("same_as")) continue;
      const std::string name = buffer.at("name");
      const auto [module, last] = PlaceOf(*this, name);
      tensors.buffers[name] = module->register_buffer(last, file.Read("state." + name));
      if (!buffer.at("persistent").get<bool>()) unsaved_.insert(name);
    }
    if (!learns) throw UsageError("{}: no parameter of it requires a gradient", path_);
    for (int64_t i = 0; i < json.at("constants").get<int64_t>(); ++i) {
      constants_.push_back(file.Read(fmt::format("constant.{}", i)));
      tensors.constants[std::to_string(i)] = constants_.back();
    }
    training_.emplace(json.at("training"), path_ + ": training", 1, tensors);
    evaluation_.emplace(json.at("evaluation"), path_ + ": evaluation", 1, tensors);
  } catch (const Json::exception& error) {
    throw UsageError("{}: its description is damaged: {}", path_, FirstLine(error.what()));
  } catch (const c10::Error& error) {  // of names that no module can have
    throw UsageError("{}: its description is damaged: {}", path_,
                     FirstLine(error.what_without_backtrace()));
  }
}

void Imported::to(at::Device device, bool non_blocking) {
  Model::to(device, non_blocking);
  for (const at::Tensor& constant : constants_)
    constant.set_data(constant.to(device, non_blocking));
  if (!IsOnGpu(device)) return;
  // As cuDNN computes convolutions of 16 bits. Files have PyTorch's layout all the same.
  for (const at::Tensor& weight : training_->ConvolutionWeights()) {
    weight.set_data(weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
  }
}

at::Tensor Imported::Forward(const at::Tensor& input) {
  const at::Tensor output = (is_training() ? training_ : evaluation_)->Run({input});
  std::vector<int64_t> expected{input.size(0)};
  if (tokens_) expected.push_back(input.size(1));
  expected.push_back(classes_);
  const bool fits = output.is_floating_point() &&
                    output.dim() == static_cast<int64_t>(expected.size()) &&
                    output.sizes().slice(0, expected.size() - 1) ==
                        at::IntArrayRef(expected).slice(0, expected.size() - 1) &&
                    output.size(-1) >= classes_;
  if (!fits) {
    throw UsageError(
        "{}: the model's output is {} [{}], where one floating-point tensor of [{}] is expected",
        path_, c10::toString(output.scalar_type()), fmt::join(output.sizes(), ", "),
        fmt::join(expected, ", "));
  }
  return output;
}

std::vector<NamedTensor> Imported::State() const {
  std::vector<NamedTensor> state = Model::State();
  std::erase_if(state, [&](const NamedTensor& tensor) { return unsaved_.contains(tensor.name); });
  return state;
}

}  // namespace lockstep
