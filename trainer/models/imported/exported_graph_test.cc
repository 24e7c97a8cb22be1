#include "trainer/models/imported/exported_graph.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

// relu(x * weight + batch): values 0 x, 1 weight, 2 the product, 3 the batch's size, 4 the sum, 5 the result.
Json Graph() {
  return Json::parse(R"({
    "values": 6, "batch": [1, 3], "inputs": [0], "parameters": {"weight": 1}, "buffers": {}, "constants": {},
    "nodes": [
      {"op": "aten::mul", "overload": "Tensor", "args": [{"v": 0}, {"v": 1}], "out": [2], "module": "scale", "line": "net.py:3"},
      {"sym": "size", "args": [{"v": 0}, 0], "out": [3]},
      {"op": "aten::add", "overload": "Scalar", "args": [{"v": 2}, {"v": 3}, 1], "out": [4], "module": "", "line": ""},
      {"op": "aten::relu", "overload": "", "args": [{"v": 4}], "out": [5], "module": "", "line": ""}],
    "output": 5})");
}

ExportedGraph::Tensors Weight() {
  ExportedGraph::Tensors tensors;
  tensors.parameters["weight"] = at::tensor({2.0F, -3.0F}).requires_grad_();
  return tensors;
}

ExportedGraph Read(const Json& graph) { return {graph, "net.lsm: training", 1, Weight()}; }

std::string WhyNot(const Json& graph) {
  try {
    Read(graph);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ExportedGraph, ComputesUnderAutograd) {
  const ExportedGraph::Tensors tensors = Weight();
  const ExportedGraph graph(Graph(), "net.lsm", 1, tensors);
  for (const int64_t batch : {1, 3}) {
    const at::Tensor x = at::ones({batch, 2});
    const at::Tensor y = graph.Run({x});
    const at::Tensor& weight = tensors.parameters.at("weight");
    EXPECT_TRUE(at::equal(y, at::relu(x * weight + batch)));
    weight.mutable_grad().reset();
    y.sum().backward();
    // The second column is below zero with one sample, and not above it with three.
    EXPECT_TRUE(at::equal(weight.grad(), at::tensor({static_cast<float>(batch), 0.0F})));
  }
}

TEST(ExportedGraph, KeepsGradientsOffWhereTheModuleDoes) {
  Json graph = Graph();
  graph["nodes"][0]["grad"] = false;
  EXPECT_FALSE(Read(graph).Run({at::ones({1, 2})}).requires_grad());
}

TEST(ExportedGraph, TakesListsAndSeveralResults) {
  const Json graph = Json::parse(R"({
    "values": 6, "batch": [1, 3], "inputs": [0], "parameters": {}, "buffers": {}, "constants": {},
    "nodes": [
      {"op": "aten::split", "overload": "Tensor", "args": [{"v": 0}, 1, 1], "out": [[1, null, 2]]},
      {"sym": "size", "args": [{"v": 0}, -2], "out": [3]},
      {"op": "aten::cat", "overload": "", "args": [[{"v": 2}, {"v": 1}], 1], "out": [4]},
      {"op": "aten::view", "overload": "", "args": [{"v": 4}, [{"v": 3}, 2, 1]], "out": [5]}],
    "output": 5})");
  const at::Tensor x = at::arange(6).view({2, 3}).to(at::kFloat);
  const at::Tensor y = Read(graph).Run({x});
  EXPECT_TRUE(at::equal(y.flatten(), at::tensor({2.0F, 0.0F, 5.0F, 3.0F})));
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{2, 2, 1}));
}

TEST(ExportedGraph, TakesAnyLayout) {
  const Json graph = Json::parse(R"({
    "values": 2, "batch": [1, 9], "inputs": [0], "parameters": {}, "buffers": {}, "constants": {},
    "nodes": [{"op": "aten::view", "overload": "", "args": [{"v": 0}, [6]], "out": [1]}],
    "output": 1})");
  const at::Tensor x = at::arange(6).view({2, 3}).t();
  EXPECT_TRUE(at::equal(Read(graph).Run({x}), x.reshape({6})));
}

TEST(ExportedGraph, NamesWhatFailed) {
  try {
    Read(Graph()).Run({at::ones({1, 3})});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ExitStatus::kUsage);
    EXPECT_NE(std::string(error.what())
                  .find("net.lsm: training: aten::mul.Tensor of scale (net.py:3) failed: "),
              std::string::npos)
        << error.what();
  }
}

TEST(ExportedGraph, RefusesBatchesThatItDoesNotTake) {
  EXPECT_THROW(Read(Graph()).Run({at::ones({4, 2})}), Error);
  EXPECT_THROW(Read(Graph()).Run({at::ones({0, 2})}), Error);
}

TEST(ExportedGraph, RefusesOperationsThatAreNotListed) {
  Json graph = Graph();
  graph["nodes"][3]["op"] = "aten::from_file";
  EXPECT_EQ(
      WhyNot(graph),
      "net.lsm: training: operation aten::from_file is not one that an exported model may call");
  graph["nodes"][3]["op"] = "prim::Print";
  EXPECT_NE(WhyNot(graph), "");
}

TEST(ExportedGraph, RefusesValuesThatDoNotArise) {
  Json graph = Graph();
  graph["nodes"][3]["args"][0]["v"] = 5;
  EXPECT_EQ(WhyNot(graph), "net.lsm: training: value 5 is used before it arises");
  graph = Graph();
  graph["nodes"][3]["out"][0] = 4;
  EXPECT_EQ(WhyNot(graph), "net.lsm: training: value 4 arises twice");
  graph = Graph();
  graph["output"] = 99;
  EXPECT_EQ(WhyNot(graph), "net.lsm: training: value 99 is used before it arises");
  graph = Graph();
  graph["nodes"][3]["out"][0] = -1;
  EXPECT_EQ(WhyNot(graph), "net.lsm: training: there is no value -1");
}

TEST(ExportedGraph, RefusesWhatIsNotAsDescribed) {
  const auto with = [](const char* pointer, const Json& value) {
    Json graph = Graph();
    graph[Json::json_pointer(pointer)] = value;
    return WhyNot(graph);
  };
  EXPECT_NE(with("/values", 2'000'000), "");
  EXPECT_NE(with("/values", "six"), "");
  EXPECT_NE(with("/batch", 3), "");
  EXPECT_NE(with("/inputs", {0, 1}), "");
  EXPECT_NE(with("/parameters", {{"bias", 1}}), "");
  EXPECT_NE(with("/nodes", 3), "");
  EXPECT_NE(with("/nodes/0", nullptr), "");
  EXPECT_NE(with("/nodes/0/args/1", "text"), "");
  EXPECT_NE(with("/nodes/0/args/2", 3), "");
  EXPECT_NE(with("/nodes/0/out", Json::array()), "");
  EXPECT_NE(with("/nodes/1/sym", "root"), "");
  EXPECT_NE(with("/nodes/2/args", Json::array()), "");
}

TEST(ExportedGraph, RefusesWindowsThatDoNotMove) {
  const auto pooled = [](const Json& stride) {
    Json graph = Json::parse(R"({
      "values": 2, "batch": [1, 9], "inputs": [0], "parameters": {}, "buffers": {}, "constants": {},
      "nodes": [{"op": "aten::max_pool1d", "overload": "", "args": [{"v": 0}, [1]], "out": [1]}],
      "output": 1})");
    graph["nodes"][0]["args"].push_back(stride);
    return WhyNot(graph);
  };
  EXPECT_EQ(pooled(Json::array({1})), "");
  EXPECT_EQ(pooled(Json::array()), "");
  EXPECT_EQ(pooled(Json::array({0})),
            "net.lsm: training: stride of aten::max_pool1d is not positive");
}

TEST(ExportedGraph, RefusesEveryMemberThatIsMissing) {
  const Json whole = Graph();
  for (const auto& [name, value] : whole.items()) {
    Json graph = whole;
    graph.erase(name);
    EXPECT_NE(WhyNot(graph), "") << name;
  }
}

}  // namespace
}  // namespace lockstep
