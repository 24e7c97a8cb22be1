// Prints what the readers of data make of files, for the tests of names and of binary files: many files in one process.
//
//   data_print    each line of standard input is a JSON object that asks for something, and gets a line in answer
//
//   {"kind": "images", "files": [...], "label_optional": false}  -> samples [[label, path, content]], classes, remarks
//   {"kind": "masks", "images": FOLDER, "masks": FOLDER}         -> masks [path], remarks
//   {"kind": "npy", "files": [INPUTS, TARGETS], "task": "CLASSIFICATION", "dtype": "float"}
//                                                                -> inputs, targets, shape, classes, remarks
//   {"kind": "tokens", "files": [FILE], "length": 4, "classes": 65536}  -> tokens, samples one after the other
//   {"kind": "safetensors", "files": [FILE]}                     -> tensors {name: numbers}, metadata
//
// The answer to what is refused is {"error": LINE, "status": EXIT STATUS}.
#include <ATen/core/Tensor.h>
#include <ATen/ops/flatten.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/open_file.h"
#include "base/files/safetensors.h"
#include "data/arrays/npy.h"
#include "data/images/masks.h"
#include "data/images/open_images.h"
#include "data/tokens/tokens.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

Json Images(const Json& request) {
  const auto source = OpenImageSource(
      {.files = request.at("files"), .label_optional = request.value("label_optional", false)});
  Json samples = Json::array();
  std::vector<std::byte> buffer;
  for (int64_t i = 0; i < source->size(); ++i) {
    const std::span<const std::byte> bytes = source->Load(i, buffer);
    samples.push_back({source->LabelOf(i), source->PathOf(i),
                       std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
  }
  return {{"samples", samples}, {"classes", source->class_names()}, {"remarks", source->Remarks()}};
}

Json MasksOf(const Json& request) {
  const Masks masks(request.at("masks"),
                    OpenImageSource({.files = {request.at("images").get<std::string>()},
                                     .label_optional = true}));
  Json paths = Json::array();
  for (int64_t i = 0; i < masks.size(); ++i) paths.push_back(masks.PathOf(i));
  return {{"masks", paths}, {"remarks", masks.remarks()}};
}

// Appends the `count` elements at `bytes` to `numbers`.
template <typename T>
void Append(const std::vector<std::byte>& bytes, std::vector<double>& numbers) {
  const T* const from = reinterpret_cast<const T*>(bytes.data());
  numbers.insert(numbers.end(), from, from + bytes.size() / sizeof(T));
}

void AppendAs(at::ScalarType dtype, const std::vector<std::byte>& bytes,
              std::vector<double>& numbers) {
  if (dtype == at::kFloat) Append<float>(bytes, numbers);
  if (dtype == at::kLong) Append<int64_t>(bytes, numbers);
  if (dtype == at::kByte) Append<uint8_t>(bytes, numbers);
}

Json Samples(const Dataset& samples) {
  const SampleSpec& spec = samples.spec();
  std::vector<double> inputs, targets;
  for (int64_t i = 0; i < samples.size(); ++i) {
    std::vector<std::byte> input(spec.bytes()), target(spec.target_bytes());
    samples.Read(i, 0, input.data(), target.data());
    AppendAs(spec.dtype, input, inputs);
    AppendAs(spec.target_dtype(), target, targets);
  }
  return {{"inputs", inputs},        {"targets", targets},     {"shape", spec.shape},
          {"classes", spec.classes}, {"size", samples.size()}, {"remarks", samples.Remarks()}};
}

Json NpyOf(const Json& request) {
  const std::string task = request.value("task", "CLASSIFICATION");
  const std::string dtype = request.value("dtype", "float");
  const Json& files = request.at("files");
  return Samples(*MapNpy({.inputs = files.at(0),
                          .targets = files.size() > 1 ? files.at(1).get<std::string>() : "",
                          .task = task == "CLASSIFICATION" ? Task::kClassification
                                  : task == "SEGMENTATION" ? Task::kSegmentation
                                  : task == "MULTI_LABEL"  ? Task::kMultiLabel
                                                           : Task::kRegression,
                          .dtype = dtype == "long"   ? at::kLong
                                   : dtype == "byte" ? at::kByte
                                                     : at::kFloat}));
}

Json Tokens(const Json& request) {
  return {{"tokens", Samples(*MapTokens({.files = request.at("files"),
                                         .length = request.value("length", 4),
                                         .classes = request.value("classes", 65536)}))
                         .at("inputs")}};
}

Json Tensors(const Json& request) {
  const std::string path = request.at("files").at(0);
  Json tensors = Json::object();
  for (const auto& [name, tensor] : ReadSafetensors(path, kGivenByUser)) {
    const at::Tensor numbers = at::flatten(tensor.to(at::kDouble)).contiguous();
    const double* const from = numbers.const_data_ptr<double>();
    tensors[name] = std::vector<double>(from, from + numbers.numel());
  }
  return {{"tensors", tensors}, {"metadata", SafetensorsFile(path, kGivenByUser).metadata()}};
}

Json Answer(const Json& request) {
  const std::string kind = request.at("kind");
  if (kind == "images") return Images(request);
  if (kind == "masks") return MasksOf(request);
  if (kind == "npy") return NpyOf(request);
  if (kind == "tokens") return Tokens(request);
  return Tensors(request);
}

}  // namespace
}  // namespace lockstep

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    lockstep::Json answer;
    try {
      answer = lockstep::Answer(lockstep::Json::parse(line));
    } catch (const lockstep::Error& error) {
      answer = {{"error", error.what()}, {"status", static_cast<int>(error.status())}};
    }
    std::cout << answer.dump(-1, ' ', false, lockstep::Json::error_handler_t::replace) << std::endl;
  }
}
