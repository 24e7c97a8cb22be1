#include "models/imported/imported.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/files/open_file.h"
#include "base/files/safetensors.h"
#include "base/files/xxh3.h"
#include "data/dataset/dataset.h"
#include "models/batch_norm.h"
#include "models/imported/foretell_program.h"
#include "models/imported/module_place.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr char kDescription[] = "lockstep.model";
constexpr int64_t kVersion = 1;

// The dtypes that inputs may have. If the first input is float32, the samples must be numbers. Otherwise they must be
// tokens, which are int64 and are converted to the dtype of each input.
const std::map<std::string, at::ScalarType> kTypes{
    {"float32", at::kFloat}, {"int64", at::kLong}, {"int32", at::kInt}, {"bool", at::kBool}};

// Returns whether lists and objects lie in each other more than `most` deep. The values of a graph are copied, hashed
// and shown by recursion, for which the stack must suffice.
bool IsDeeperThan(int64_t most, const Json& json) {
  std::vector<const Json*> level{&json};
  for (int64_t depth = 0; !level.empty(); ++depth) {
    if (depth > most) return true;
    std::vector<const Json*> next;
    for (const Json* outer : level) {
      for (const Json& inner : *outer) {
        if (inner.is_structured()) next.push_back(&inner);
      }
    }
    level = std::move(next);
  }
  return false;
}

// Reads the description of the model from the file's metadata. Throws Error (kUsage).
Json DescriptionOf(const SafetensorsFile& file) {
  const auto text = file.metadata().find(kDescription);
  if (text == file.metadata().end()) {
    throw UsageError("{}: no model that lockstep.export wrote", file.path());
  }
  Json json = Json::parse(text->second, nullptr, /*allow_exceptions=*/false);
  constexpr int64_t kMostDepth = 64;
  if (!json.is_object() || !json.contains("version") || !json["version"].is_number_integer() ||
      IsDeeperThan(kMostDepth, json)) {
    throw UsageError("{}: its description is damaged", file.path());
  }
  const int64_t version = json["version"];
  if (version < 1) throw UsageError("{}: its description is damaged", file.path());
  if (version > kVersion) {
    throw UsageError(
        "{}: it has version {}, and this program reads {}: take a newer Lockstep, or export it "
        "with this "
        "one's package",
        file.path(), version, kVersion);
  }
  return json;
}

// Reads the tensor `name` of the file. `what` needs it, such as "parameter fc.weight". Throws Error (kUsage) if the file
// has no such tensor.
at::Tensor TensorOf(const SafetensorsFile& file, const std::string& name, const std::string& what) {
  if (!file.Has(name)) {
    throw UsageError("{}: its description has {}, and the file has no tensor {}", file.path(), what,
                     name);
  }
  return file.Read(name);
}

// Returns tensors of META like the model's inputs for `batch` samples.
std::vector<at::Tensor> ForetoldInputs(const Json& inputs, int64_t batch,
                                       const std::vector<at::ScalarType>& types) {
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < types.size(); ++i) {
    std::vector<int64_t> sizes;
    for (const Json& size : inputs[i].at("shape")) {
      sizes.push_back(size.is_string() ? batch : size.get<int64_t>());
    }
    tensors.push_back(at::empty(sizes, at::TensorOptions(types[i]).device(at::kMeta)));
  }
  return tensors;
}

std::string Checked(const std::string& path) {
  if (path.empty()) throw UsageError("model.imported.file: name a file that lockstep.export wrote");
  return path;
}

std::string ShapeText(const Json& shape) {
  std::string text;
  for (const Json& size : shape)
    text += (text.empty() ? "" : ", ") + (size.is_string()       ? size.get<std::string>()
                                          : size.is_structured() ? "..."
                                                                 : size.dump());
  return "[" + text + "]";
}

// Returns the dtypes of the model's inputs. Throws Error (kUsage) if the model does not take the samples that `spec`
// describes.
std::vector<at::ScalarType> TypesOfInputs(const std::string& path, const Json& inputs,
                                          const ModelSpec& spec) {
  std::vector<at::ScalarType> types;
  std::vector<std::string> names;
  for (const Json& input : inputs) {
    const std::string type = input.at("dtype");
    const auto known = kTypes.find(type);
    if (known == kTypes.end()) {
      throw UsageError("{}: input {} is {}, and samples are float32 numbers or int64 tokens", path,
                       input.at("name").get<std::string>(), type);
    }
    types.push_back(known->second);
    names.push_back(input.at("name"));
  }
  std::vector<int64_t> shape = spec.input_shape;
  const auto given = static_cast<size_t>(spec.tokens && shape.size() == 2 ? shape[0] : 1);
  if (types.size() != given) {
    throw UsageError("{}: the model takes {} input{} ({}), and the samples have {}{}", path,
                     types.size(), types.size() == 1 ? "" : "s", fmt::join(names, ", "), given,
                     spec.tokens ? ": NPY's TEXTS of [samples, inputs, tokens] have several" : "");
  }
  if (spec.tokens && shape.size() == 2) shape.erase(shape.begin());
  Json expected{"batch"};
  for (const int64_t size : shape) expected.push_back(size);
  const bool takes_tokens = types[0] != at::kFloat;
  if (takes_tokens != spec.tokens) {
    throw UsageError("{}: the model takes {}, and the samples are {}", path,
                     takes_tokens ? "tokens" : "numbers", takes_tokens ? "numbers" : "tokens");
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (inputs[i].at("shape") != expected) {
      throw UsageError(
          "{}: the model takes {} of {}, and the samples give {}: export it for their shape", path,
          types.size() == 1 ? "inputs" : names[i], ShapeText(inputs[i].at("shape")),
          ShapeText(expected));
    }
  }
  return types;
}

// Adds `json` to `hash`, with the type of each value, so that values do not run into each other.
void AddJson(const Json& json, Xxh3& hash) {
  const auto add = [&](const auto& value) { hash.Add(std::as_bytes(std::span(&value, 1))); };
  const auto add_text = [&](const std::string& text) {
    add(text.size());
    hash.Add(std::as_bytes(std::span(text)));
  };
  add(json.type());
  switch (json.type()) {
    case Json::value_t::object:
    case Json::value_t::array:
      add(json.size());
      for (const auto& [key, value] : json.items()) {
        if (json.is_object()) add_text(key);
        AddJson(value, hash);
      }
      break;
    case Json::value_t::string:
      add_text(json.get_ref<const std::string&>());
      break;
    case Json::value_t::boolean:
      add(json.get<bool>());
      break;
    case Json::value_t::number_float:
      add(json.get<double>());
      break;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      add(json.get<int64_t>());
      break;
    default:
      break;
  }
}

// Returns the hash of what a graph computes: all of it but the names of modules and the lines of the user's code.
uint64_t HashOfGraph(const Json& graph) {
  Xxh3 hash;
  for (const auto& [key, value] : graph.items()) {
    AddJson(key, hash);
    if (key != "nodes") {
      AddJson(value, hash);
      continue;
    }
    for (const Json& node : value) {
      for (const auto& [field, content] : node.items()) {
        if (field == "module" || field == "line") continue;
        AddJson(field, hash);
        AddJson(content, hash);
      }
    }
  }
  return hash.value();
}

void AddTensor(const std::string& name, const at::Tensor& tensor, Xxh3& hash) {
  const std::string title = fmt::format("{} {} [{}]\n", name, c10::toString(tensor.scalar_type()),
                                        fmt::join(tensor.sizes(), ", "));
  hash.Add(std::as_bytes(std::span(title)));
  hash.Add({static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
}

// Checks that the loss in the file takes the targets of the samples that `spec` describes. Throws Error (kUsage) if it
// does not.
void CheckTarget(const std::string& path, const Json& target, const ModelSpec& spec) {
  const SampleSpec samples{.shape = spec.input_shape, .classes = spec.classes, .task = spec.task};
  Json expected{"batch"};
  for (const int64_t size : samples.target_shape()) expected.push_back(size);
  // The targets of segmentation are bytes, and are converted to int64, because PyTorch's losses take int64.
  const std::string dtype = samples.target_dtype() == at::kFloat ? "float32" : "int64";
  if (target.at("shape") == expected && target.at("dtype") == dtype) return;
  throw UsageError("{}: its loss takes targets of {} {}, and the samples have {} {}", path,
                   target.at("dtype").get<std::string>(), ShapeText(target.at("shape")), dtype,
                   ShapeText(expected));
}

}  // namespace

Imported::Imported(const ModelSpec& spec)
    : path_(Checked(spec.config.imported().file())),
      task_(spec.task),
      tokens_(spec.tokens),
      classes_(spec.classes) {
  const SafetensorsFile file(path_, kGivenByUser);
  const Json json = DescriptionOf(file);
  ExportedGraph::Tensors tensors;
  try {
    inputs_ = TypesOfInputs(path_, json.at("inputs"), spec);
    head_ = json.at("head").get<std::vector<std::string>>();
    bool learns = false;
    std::set<std::string> names;
    const auto name_of = [&](const Json& tensor) {
      const std::string name = tensor.at("name");
      if (!names.insert(name).second) {
        throw UsageError("{}: its description is damaged: two tensors have the name {}", path_,
                         name);
      }
      return name;
    };
    for (const Json& parameter : json.at("parameters")) {
      if (parameter.contains("same_as")) continue;
      const std::string name = name_of(parameter);
      const bool trainable = parameter.at("trainable");
      learns |= trainable;
      const auto [module, last] = PlaceOf(*this, name);
      tensors.parameters[name] = module->register_parameter(
          last, TensorOf(file, "state." + name, "parameter " + name), trainable);
    }
    for (const Json& buffer : json.at("buffers")) {
      if (buffer.contains("same_as")) continue;
      const std::string name = name_of(buffer);
      const auto [module, last] = PlaceOf(*this, name);
      tensors.buffers[name] =
          module->register_buffer(last, TensorOf(file, "state." + name, "buffer " + name));
      if (!buffer.at("persistent").get<bool>()) unsaved_.insert(name);
    }
    if (!learns) throw UsageError("{}: no parameter of it requires a gradient", path_);
    if (!json.at("constants").is_number_unsigned()) {
      throw UsageError("{}: its description is damaged: it has no number of constants", path_);
    }
    for (int64_t i = 0; i < json["constants"].get<int64_t>(); ++i) {
      const std::string name = fmt::format("constant {}", i);  // no tensor's name has a space
      tensors.constants[std::to_string(i)] =
          register_buffer(name, TensorOf(file, fmt::format("constant.{}", i), name));
      unsaved_.insert(name);
    }
    Xxh3 constants;
    for (const auto& [name, tensor] : tensors.constants) AddTensor(name, tensor, constants);
    for (const auto& [name, tensor] : tensors.buffers) {
      if (unsaved_.contains(name)) AddTensor(name, tensor, constants);
    }
    graph_ = {{"training", HashOfGraph(json.at("training"))},
              {"evaluation", HashOfGraph(json.at("evaluation"))},
              {"constants", constants.value()}};
    if (json.contains("loss")) graph_["loss"] = HashOfGraph(json.at("loss"));
    const auto count = static_cast<int64_t>(inputs_.size());
    ranks_ = NormRanksOf(spec.sync_batch_norm);
    training_.emplace(json.at("training"), path_ + ": training", count, tensors,
                      ExportedGraph::Options{.checkpoints = spec.config.activation_checkpointing(),
                                             .ranks = ranks_.get()});
    evaluation_.emplace(json.at("evaluation"), path_ + ": evaluation", count, tensors);
    const auto foretell = [&](const ExportedGraph& graph) {
      return graph.Foretell(ForetoldInputs(json["inputs"], graph.least_batch(), inputs_),
                            exported::MostBytes(at::kMeta));
    };
    const at::Tensor output = foretell(*training_);
    foretell(*evaluation_);
    if (json.contains("loss")) {
      CheckTarget(path_, json.at("target"), spec);
      if (spec.config.label_smoothing() > 0) {
        throw UsageError("model.label_smoothing: {} has a loss of its own: leave it out", path_);
      }
      loss_.emplace(json.at("loss"), path_ + ": loss", 2, tensors);
      std::vector<int64_t> sizes =
          SampleSpec{.shape = spec.input_shape, .classes = spec.classes, .task = spec.task}
              .target_shape();
      sizes.insert(sizes.begin(), training_->least_batch());
      const at::ScalarType dtype = json["target"].at("dtype") == "float32" ? at::kFloat : at::kLong;
      loss_->Foretell({output, at::empty(sizes, at::TensorOptions(dtype).device(at::kMeta))},
                      exported::MostBytes(at::kMeta));
    }
  } catch (const Json::exception& error) {
    throw UsageError("{}: its description is damaged: {}", path_, FirstLine(error.what()));
  } catch (const c10::Error& error) {  // a tensor name that no module can have
    throw UsageError("{}: its description is damaged: {}", path_,
                     FirstLine(error.what_without_backtrace()));
  }
}

Imported::~Imported() = default;

std::vector<at::Tensor> Imported::ConvolutionWeights(bool /*rounds*/) const {
  return training_->ConvolutionWeights();
}

at::Tensor Imported::Forward(const at::Tensor& input) {
  if (input.size(0) == 0) {
    std::vector<int64_t> sizes = input.sizes().vec();
    sizes[0] = training_->least_batch();
    return OutputOf(at::ones(sizes, input.options()), /*has_samples=*/false).narrow(0, 0, 0);
  }
  return OutputOf(input, /*has_samples=*/true);
}

at::Tensor Imported::OutputOf(const at::Tensor& input, bool has_samples) const {
  std::vector<at::Tensor> inputs{input};
  if (tokens_) {
    if (input.dim() == 3) inputs = input.unbind(1);
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = inputs[i].to(inputs_[i]);
  }
  const ExportedGraph& graph = is_training() ? *training_ : *evaluation_;
  const at::Tensor output = has_samples ? graph.Run(inputs) : graph.RunWithoutSamples(inputs);
  // The shape that the output must have, except that its class dimension `classes` may be greater than classes_.
  std::vector<int64_t> expected{input.size(0), classes_};
  if (task_ == Task::kLanguage) expected.insert(expected.begin() + 1, input.size(1));
  if (task_ == Task::kSegmentation) {
    expected.insert(expected.end(), {input.size(2), input.size(3)});
  }
  const size_t classes = task_ == Task::kSegmentation ? 1 : expected.size() - 1;
  std::vector<int64_t> sizes = output.sizes().vec();
  if (sizes.size() == expected.size() && sizes[classes] >= classes_) sizes[classes] = classes_;
  if (!output.is_floating_point() || sizes != expected) {
    throw UsageError(
        "{}: the model's output is {} [{}], where one floating-point tensor of [{}] is expected",
        path_, c10::toString(output.scalar_type()), fmt::join(output.sizes(), ", "),
        fmt::join(expected, ", "));
  }
  return output;
}

at::Tensor Imported::LossSum(const at::Tensor& output, const at::Tensor& target) {
  if (!loss_) return Model::LossSum(output, target);
  // The loss's graph takes at least one sample, so it is not run for an empty batch.
  if (target.size(0) == 0) return output.to(at::kFloat).sum();
  const at::Tensor loss =
      loss_->Run({output, target.scalar_type() == at::kByte ? target.to(at::kLong) : target});
  const int64_t count = target.size(0);
  if (!loss.is_floating_point() || loss.dim() > 1 || (loss.dim() == 1 && loss.size(0) != count)) {
    throw UsageError("{}: its loss is {} [{}], where [{}] or [] is expected", path_,
                     c10::toString(loss.scalar_type()), fmt::join(loss.sizes(), ", "), count);
  }
  // The mean of the losses over all targets, times the number of targets, is the sum of the losses.
  return loss.to(at::kFloat).mean() * static_cast<double>(target.numel());
}

std::vector<NamedTensor> Imported::State() const {
  std::vector<NamedTensor> state = Model::State();
  std::erase_if(state, [&](const NamedTensor& tensor) { return unsaved_.contains(tensor.name); });
  return state;
}

}  // namespace lockstep
