// Reads mutated .lsm files (python/FORMAT.md), and computes what those that are accepted ask for: a step of training
// without an update, and an evaluation. model_files [OPTIONS of resumable_calls.h]
//
// A file is made of a number, by up to twelve mutations of a small model, mostly one or two. Most of them change the
// description as JSON, so that the code that runs after the JSON parser is reached. A file fails if the process ends, if
// reading or running it throws anything but an Error, or if it takes too long. Tensors end or begin at memory that may
// not be used (guarded_memory.h).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iostream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/imported/imported.h"
#include "models/imported/operations.h"
#include "tests/fuzz/guarded_memory.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/resumable_calls.h"

namespace {

using Json = nlohmann::json;
using Random = std::mt19937;

constexpr size_t kLengthBytes = 8;

// A description of a model with images [3, 8, 8] and 5 classes. GRAPH stands for its graph in training and evaluation.
constexpr char kDescription[] = R"({
  "version": 1, "name": "net", "made_by": "test", "batch": [1, 9], "constants": 2, "head": ["fc."],
  "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 3, 8, 8]}],
  "parameters": [{"name": "conv.weight", "trainable": true}, {"name": "conv.bias", "trainable": true},
                 {"name": "bn.weight", "trainable": true}, {"name": "fc.weight", "trainable": true},
                 {"name": "fc.bias", "trainable": true}, {"name": "tied", "trainable": true, "same_as": "fc.bias"}],
  "buffers": [{"name": "bn.mean", "persistent": true}, {"name": "bn.variance", "persistent": false}]})";
constexpr char kGraph[] = R"({
  "batch": [1, 9], "values": 30, "inputs": [0], "constants": {"0": 8, "1": 9}, "output": 28,
  "parameters": {"conv.weight": 1, "conv.bias": 2, "bn.weight": 3, "fc.weight": 4, "fc.bias": 5},
  "buffers": {"bn.mean": 6, "bn.variance": 7},
  "nodes": [
    {"op": "aten::conv2d", "overload": "", "args": [{"v": 0}, {"v": 1}, {"v": 2}, [1, 1], [0, 0], [1, 1], 1], "out": [10], "module": "conv", "line": "net.py:1"},
    {"op": "aten::batch_norm", "overload": "", "args": [{"v": 10}, {"v": 3}, {"v": 3}, {"v": 6}, {"v": 7}, true, {"f": 0.1}, {"f": 1e-5}, true], "out": [11]},
    {"op": "aten::relu_", "overload": "", "args": [{"v": 11}], "out": [12]},
    {"op": "aten::max_pool2d", "overload": "", "args": [{"v": 12}, [2, 2], [2, 2], [0, 0], [1, 1], false], "out": [13]},
    {"sym": "size", "args": [{"v": 13}, 0], "out": [14]},
    {"sym": "mul", "args": [{"v": 14}, 1], "out": [15]},
    {"op": "aten::view", "overload": "", "args": [{"v": 13}, [{"v": 15}, 36]], "out": [16]},
    {"op": "aten::linear", "overload": "", "args": [{"v": 16}, {"v": 4}, {"v": 5}], "out": [17]},
    {"op": "aten::reshape", "overload": "", "args": [{"v": 13}, [{"v": 14}, 4, 9]], "out": [18]},
    {"op": "aten::scaled_dot_product_attention", "overload": "", "args": [{"v": 18}, {"v": 18}, {"v": 18}, null, {"f": 0.0}, false], "out": [19]},
    {"op": "aten::layer_norm", "overload": "", "args": [{"v": 19}, [9], null, null, {"f": 1e-5}, true], "out": [20]},
    {"op": "aten::index_select", "overload": "", "args": [{"v": 20}, 2, {"v": 9}], "out": [21]},
    {"op": "aten::split", "overload": "Tensor", "args": [{"v": 21}, 1, 2], "out": [[22, null, 23]]},
    {"op": "aten::cat", "overload": "", "args": [[{"v": 22}, {"v": 23}], 2], "out": [24]},
    {"op": "aten::mean", "overload": "dim", "args": [{"v": 24}, [2], false, null], "out": [25]},
    {"op": "aten::mul", "overload": "Tensor", "args": [{"v": 25}, {"v": 8}], "out": [26]},
    {"op": "aten::sum", "overload": "dim_IntList", "args": [{"v": 26}, [1], true, null], "out": [27]},
    {"op": "aten::add", "overload": "Tensor", "args": [{"v": 17}, {"v": 27}, 1], "out": [28]},
    {"op": "aten::add_", "overload": "Tensor", "args": [{"v": 6}, {"f": 0.0}, 1], "out": [29]}]})";

struct File {
  Json description, header;
  std::string bytes;
};

File Whole() {
  File file{.description = Json::parse(kDescription)};
  file.description["training"] = Json::parse(kGraph);
  file.description["evaluation"] = Json::parse(kGraph);
  const auto add = [&](const char* name, const char* dtype, const std::vector<int64_t>& shape,
                       size_t bytes) {
    for (const int64_t size : shape) bytes *= size;
    file.header[name] = {{"dtype", dtype},
                         {"shape", shape},
                         {"data_offsets", {file.bytes.size(), file.bytes.size() + bytes}}};
    file.bytes.append(bytes, '\0');
  };
  add("state.conv.weight", "F32", {4, 3, 3, 3}, 4);
  add("state.conv.bias", "F32", {4}, 4);
  add("state.bn.weight", "F32", {4}, 4);
  add("state.fc.weight", "F32", {5, 36}, 4);
  add("state.fc.bias", "F32", {5}, 4);
  add("state.bn.mean", "F32", {4}, 4);
  add("state.bn.variance", "F32", {4}, 4);
  add("constant.0", "F32", {4}, 4);
  add("constant.1", "I64", {3}, 8);
  return file;
}

std::string BytesOf(const File& file) {
  Json header = file.header;
  if (!header.is_object()) header = Json::object();
  header["__metadata__"] = {
      {"lockstep.model", file.description.dump(-1, ' ', false, Json::error_handler_t::replace)},
      {"format", "pt"}};
  const std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  uint64_t length = text.size();
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, kLengthBytes);
  return bytes + text + file.bytes;
}

Json AnyValue(Random& random) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  static const std::array<Json, 30> kValues{0,
                                            1,
                                            2,
                                            3,
                                            4,
                                            5,
                                            8,
                                            9,
                                            36,
                                            -1,
                                            -2,
                                            1000,
                                            int64_t{1} << 40,
                                            int64_t{1} << 62,
                                            kMost,
                                            -kMost - 1,
                                            1e300,
                                            "x",
                                            nullptr,
                                            true,
                                            false,
                                            Json::array(),
                                            Json::array({1, 1}),
                                            Json{{"v", 0}},
                                            Json{{"v", 13}},
                                            Json{{"v", 9}},
                                            Json{{"f", 0.5}},
                                            Json{{"f", "nan"}},
                                            Json{{"f", -1.0}},
                                            Json{{"dtype", "int64"}}};
  return kValues[random() % kValues.size()];
}

// Replaces, removes or doubles something below `json`.
void MutateBelow(Json& json, Random& random) {
  Json* at = &json;
  while (at->is_structured() && !at->empty() && (random() % 8 != 0 || at == &json)) {
    auto child = at->begin();
    std::advance(child, random() % at->size());
    if (random() % 24 == 0) {
      if (at->is_array() && random() % 2 == 0) {
        const Json copy = *child;
        at->insert(child, copy);
      } else {
        at->erase(child);
      }
      return;
    }
    at = &*child;
  }
  if (at->is_number_integer() && random() % 3 == 0) {
    const auto number = at->get<uint64_t>();  // unsigned, because the sum may wrap around
    *at = static_cast<int64_t>(random() % 2 == 0 ? number + 1 : number - 1);
  } else {
    *at = AnyValue(random);
  }
}

void MutateNode(Json& description, Random& random) {
  Json& graph = description[random() % 4 == 0 ? "evaluation" : "training"];
  if (!graph.is_object() || !graph.contains("nodes") || !graph["nodes"].is_array() ||
      graph["nodes"].empty())
    return;
  Json& node = graph["nodes"][random() % graph["nodes"].size()];
  if (!node.is_object() || !node.contains("args")) return;
  if (random() % 3 == 0) {  // another operation, which gets the same arguments
    const std::string name = lockstep::kOperations[random() % std::size(lockstep::kOperations)];
    const size_t dot = name.find('.');
    node["op"] = name.substr(0, dot);
    node["overload"] = dot == std::string::npos ? "" : name.substr(dot + 1);
    node.erase("sym");
    Json& arguments = node["args"];
    while (arguments.is_array() && random() % 2 == 0) {
      if (random() % 2 == 0 && !arguments.empty()) {
        arguments.erase(arguments.size() - 1);
      } else {
        arguments.push_back(AnyValue(random));
      }
    }
    return;
  }
  MutateBelow(node["args"], random);
}

// Returns the file of a number. Number 0 is the file without mutations.
std::string FileOf(int64_t number) {
  Random random(static_cast<unsigned>(number));
  File file = Whole();
  if (number == 0) return BytesOf(file);
  const unsigned most = random() % 8 == 0 ? 12 : 2;
  for (unsigned mutations = 1 + random() % most; mutations > 0; --mutations) {
    switch (random() % 16) {
      case 0:
        MutateBelow(file.header, random);
        break;
      case 1:
        MutateBelow(file.description, random);
        break;
      case 2:
        if (random() % 4 == 0) file.bytes.resize(random() % (file.bytes.size() + 9));
        break;
      default:
        MutateNode(file.description, random);
    }
  }
  std::string bytes = BytesOf(file);
  if (random() % 16 == 0) bytes[random() % bytes.size()] = static_cast<char>(random());
  if (random() % 64 == 0) bytes.resize(random() % bytes.size());
  return bytes;
}

lockstep::CallOutcome Try(const std::string& bytes) {
  lockstep::CallOutcome outcome;
  const lockstep::MemoryFile file(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  lockstep::ModelSpec spec{.input_shape = {3, 8, 8}, .classes = 5};
  spec.config.mutable_imported()->set_file(file.path());
  try {
    lockstep::Imported model(spec);
    model.train();
    const at::Tensor output = model.Forward(at::ones({2, 3, 8, 8}));
    outcome.ran = true;
    try {
      if (output.requires_grad()) output.sum().backward();
    } catch (const c10::Error&) {  // an operation without a derivative
    }
    const at::NoGradGuard no_grad;
    model.eval();
    model.Forward(at::ones({2, 3, 8, 8}));
  } catch (const lockstep::Error& error) {
    if (error.status() == lockstep::ExitStatus::kBug) outcome.wrong = error.what();
  } catch (const std::exception& error) {
    outcome.wrong = std::string("it threw ") + error.what();
    outcome.wrong = outcome.wrong.substr(0, outcome.wrong.find('\n'));
  }
  return outcome;
}

}  // namespace

int main(int count, char** words) {
  const lockstep::CallOptions options(count, words);
  auto& memory = lockstep::GuardedMemory::Use();
  at::set_num_threads(1);
  const auto call = [&](int64_t /*group*/, int64_t number) {
    memory.Begin(0x7D, number);
    lockstep::CallOutcome outcome = Try(FileOf(number));
    if (number == 0 && !outcome.ran) outcome.wrong = "the file without mutations was refused";
    return outcome;
  };
  if (options.number >= 0) {
    const lockstep::CallOutcome outcome = call(0, options.number);
    std::cout << (outcome.ran ? "it ran; " : "") << outcome.wrong << std::endl;
    return 0;
  }
  return lockstep::RunCalls({.each = options.calls > 0 ? options.calls : int64_t{1} << 40,
                             .name = [](int64_t) { return "file"; },
                             .call = call},
                            options);
}
