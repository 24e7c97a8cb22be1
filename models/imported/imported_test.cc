#include "models/imported/imported.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/files/safetensors.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A model with a file: relu(x * weight + 2 * constant + shift).
struct Lsm {
  Json description;
  std::map<std::string, at::Tensor> tensors;
};

Lsm Model() {
  const Json graph = Json::parse(R"({
    "values": 8, "batch": [1, 3], "inputs": [0], "parameters": {"weight": 1}, "buffers": {"shift": 2},
    "constants": {"0": 3},
    "nodes": [
      {"op": "aten::mul", "overload": "Tensor", "args": [{"v": 0}, {"v": 1}], "out": [4], "module": "scale", "line": "net.py:3"},
      {"op": "aten::add", "overload": "Tensor", "args": [{"v": 4}, {"v": 3}, 2], "out": [5], "module": "", "line": ""},
      {"op": "aten::add", "overload": "Tensor", "args": [{"v": 5}, {"v": 2}, 1], "out": [6], "module": "", "line": ""},
      {"op": "aten::relu", "overload": "", "args": [{"v": 6}], "out": [7], "module": "", "line": ""}],
    "output": 7})");
  Json description = Json::parse(R"({
    "version": 1, "inputs": [{"name": "x", "shape": ["batch", 2], "dtype": "float32"}], "head": [],
    "parameters": [{"name": "weight", "trainable": true}],
    "buffers": [{"name": "shift", "persistent": false}], "constants": 1})");
  description["training"] = description["evaluation"] = graph;
  return {description,
          {{"state.weight", at::tensor({2.0F, -3.0F})},
           {"state.shift", at::tensor({1.0F, 1.0F})},
           {"constant.0", at::tensor({0.5F, 0.5F})}}};
}

// Returns the names of the graph's parts that differ if `change` has changed the file.
std::vector<std::string> PartsChangedBy(const std::function<void(Lsm&)>& change) {
  const auto graph_of = [](const Lsm& lsm) {
    const std::string path = NewPath();
    std::vector<NamedTensor> tensors;
    for (const auto& [name, tensor] : lsm.tensors) tensors.push_back({name, tensor});
    WriteSafetensors(path, tensors, {{"lockstep.model", lsm.description.dump()}});
    ModelSpec spec{.input_shape = {2}, .classes = 2};
    spec.config.mutable_imported()->set_file(path);
    return Imported(spec).Graph();
  };
  Lsm changed = Model();
  change(changed);
  std::vector<std::string> parts;
  const auto is = graph_of(changed);
  for (const auto& [part, hash] : graph_of(Model())) {
    if (is.at(part) != hash) parts.push_back(part);
  }
  return parts;
}

TEST(Imported, TellsGraphsApart) {
  const auto node = [](Lsm& lsm, int i) -> Json& {
    return lsm.description["training"]["nodes"][i];
  };
  EXPECT_THAT(PartsChangedBy([&](Lsm& lsm) { node(lsm, 1)["args"][2] = 3; }),
              ElementsAre("training"));
  EXPECT_THAT(PartsChangedBy([&](Lsm& lsm) { node(lsm, 3)["op"] = "aten::tanh"; }),
              ElementsAre("training"));
  EXPECT_THAT(PartsChangedBy([&](Lsm& lsm) {
                std::swap(node(lsm, 1), node(lsm, 2));
                node(lsm, 1)["args"][0]["v"] = 4;
                node(lsm, 2)["args"][0]["v"] = 6;
                node(lsm, 3)["args"][0]["v"] = 5;
              }),
              ElementsAre("training"));
  EXPECT_THAT(PartsChangedBy(
                  [](Lsm& lsm) { lsm.description["evaluation"]["nodes"][3]["op"] = "aten::tanh"; }),
              ElementsAre("evaluation"));
  EXPECT_THAT(PartsChangedBy([](Lsm& lsm) { lsm.tensors["constant.0"][1] = 0.25; }),
              ElementsAre("constants"));
  EXPECT_THAT(PartsChangedBy([](Lsm& lsm) {
                lsm.tensors["constant.0"] = at::full({1, 2}, 0.5);  // the same bytes
              }),
              ElementsAre("constants"));
  EXPECT_THAT(PartsChangedBy([](Lsm& lsm) { lsm.tensors["state.shift"][0] = 2; }),
              ElementsAre("constants"));
}

TEST(Imported, HasTheSameGraphWithOtherWeightsAndNames) {
  EXPECT_THAT(PartsChangedBy([](Lsm& lsm) { lsm.tensors["state.weight"][0] = 7; }), IsEmpty());
  EXPECT_THAT(PartsChangedBy([](Lsm& lsm) {
                lsm.description["training"]["nodes"][0]["module"] = "another";
                lsm.description["training"]["nodes"][0]["line"] = "moved.py:9";
              }),
              IsEmpty());
}

}  // namespace
}  // namespace lockstep
