#include "models/imported/exported_graph.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/tensor/autocast.h"
#include "models/imported/program.h"
#include "models/imported/segments.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

// Returns the graph of relu(x * weight + batch size). Values: 0 x, 1 weight, 2 product, 3 batch size, 4 sum, 5 result.
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
    // In the second column the sum is -3 + batch: -2 for one sample and 0 for three. relu passes no gradient in either
    // case.
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

// Returns a graph of one input whose only node is a call.
Json OneCall(const char* op, const char* overload, const Json& arguments) {
  Json graph =
      Json::parse(R"({"values": 2, "batch": [1, 9], "inputs": [0], "parameters": {}, "buffers": {},
                               "constants": {}, "output": 1})");
  graph["nodes"] = Json::array(
      {{{"op", op}, {"overload", overload}, {"args", arguments}, {"out", {1}}, {"module", "m"}}});
  return graph;
}

// Returns why a graph is refused for an input of these sizes, without the place; "" if it is not refused.
std::string WhyRefused(const Json& graph, const std::vector<int64_t>& sizes,
                       at::ScalarType dtype = at::kFloat) {
  constexpr int64_t kMostBytes = 1 << 20;
  try {
    const ExportedGraph read(graph, "net.lsm: training", 1, Weight());
    read.Foretell({at::empty(sizes, at::TensorOptions(dtype).device(at::kMeta))}, kMostBytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ExitStatus::kUsage);
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("net.lsm: training: ")) << text;
    return text.substr(text.find(" failed: ") + 9);
  }
  return "";
}

// A call, the sizes of its input V(0), and what the message has; "" if the call is fine.
struct Case {
  const char* op;
  const char* overload;
  Json arguments;
  std::vector<int64_t> sizes;
  std::string why;
};

Json Input() { return Json{{"v", 0}}; }
Json Number(double value) { return Json{{"f", value}}; }

std::vector<Case> Cases() {
  const Json x = Input(), none = nullptr;
  const Json one{1}, zero{0}, ones{1, 1}, zeros{0, 0};
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const auto pool = [&](const Json& kernel, const Json& stride, const Json& padding,
                        const Json& dilation, const std::string& why) {
    return Case{
        "aten::max_pool2d", "", {x, kernel, stride, padding, dilation, false}, {2, 3, 8, 8}, why};
  };
  const auto convolution = [&](std::vector<int64_t> sizes, const Json& stride, const Json& padding,
                               const Json& dilation, int64_t groups, const std::string& why) {
    return Case{
        "aten::conv2d", "", {x, x, none, stride, padding, dilation, groups}, std::move(sizes), why};
  };
  return {
      pool({2, 2}, {2, 2}, {1, 1}, {1, 1}, ""),
      pool({2, 2}, Json::array(), {0, 0}, {1, 1}, ""),
      pool({2, 2}, {0, 2}, {0, 0}, {1, 1}, "stride is 0, and must be positive"),
      pool({2, 2}, {2, kMost}, {0, 0}, {1, 1},
           "stride is 9223372036854775807, and may be at most 2147483647"),
      pool({2, 2}, {2, 2}, {2, 2}, {1, 1}, "padding is 2, and must be at most half of kernel_size"),
      pool({2, 2}, {2, 2}, {-1, 0}, {1, 1}, "padding is -1, and must not be negative"),
      pool({2, 2}, {2, 2}, {0, 0}, {9, 1}, "kernel_size is larger than the padded input"),
      {"aten::max_pool2d", "", {x, {3, 3}, {2, 2}, zeros, ones, true}, {2, 3, 2, 2}, ""},
      {"aten::max_pool2d", "", {x, {3, 3}, Json::array(), zeros, ones, true}, {2, 3, 1, 1}, ""},
      {"aten::max_pool2d",
       "",
       {x, {3, 3}, {2, 2}, zeros, ones, true},
       {2, 3, 1, 1},
       "kernel_size is larger than the padded input"},
      {"aten::max_pool2d",
       "",
       {x, {3, 3}, {2, 2}, zeros, ones, false},
       {2, 3, 2, 2},
       "kernel_size is larger than the padded input"},
      pool({2, 2, 2}, {2, 2}, {0, 0}, {1, 1}, "kernel_size has 3 numbers, and must have 2"),
      convolution({3, 3, 2, 2}, {1, 1}, {0, 0}, {1, 1}, 1, ""),
      convolution({3, 3, 2, 2}, {1, 1}, {0, 0}, {1, 1}, 0, "groups is 0, and must be positive"),
      convolution({3, 3, 2, 2}, {1, 1}, {0, 0}, {1, 1}, 2, "weight has 3 rows for 2 groups"),
      convolution({3, 2, 2, 2}, {1, 1}, {0, 0}, {1, 1}, 1, ""),
      convolution({3, 3, 2}, {1, 1}, {0, 0}, {1, 1}, 1, "weight has 3 dimensions"),
      convolution({3, 3, 2, 2}, {1, 1}, {0, 0}, {3, 1}, 1,
                  "input has 2 + 0 pixels in dimension 0, and the kernel spans 4"),
      {"aten::conv1d", "", {x, x, none, {1 << 20}, {0}, {1}, 1}, {4, 4, 1}, "stride is 1048576"},
      {"aten::conv_transpose1d", "", {x, x, none, {3}, {0}, {0}, 1, {1}}, {2, 2, 2}, ""},
      {"aten::conv_transpose1d",
       "",
       {x, x, none, {3}, {2}, {1}, 1, {1}},
       {2, 2, 2},
       "padding is 2, and must be smaller than the 2 pixels that the kernel spans"},
      {"aten::expand", "", {x, {4, 2, 3}, false}, {2, 3}, ""},
      {"aten::expand",
       "",
       {x, {1 << 21, 1 << 21, 2, 3}, false},
       {2, 3},
       "the result may have at most 1099511627776 elements"},
      {"aten::group_norm", "", {x, 2, none, none, Number(1e-5), true}, {2, 4, 3}, ""},
      {"aten::group_norm",
       "",
       {x, 0, none, none, Number(1e-5), true},
       {2, 4, 3},
       "num_groups is 0"},
      {"aten::group_norm",
       "",
       {x, 3, none, none, Number(1e-5), true},
       {2, 4, 3},
       "input has 4 channels for 3 groups"},
      {"aten::layer_norm", "", {x, {3}, none, none, Number(1e-5), true}, {2, 3}, ""},
      {"aten::layer_norm",
       "",
       {x, {3}, x, none, Number(1e-5), true},
       {2, 3},
       "weight does not have normalized_shape"},
      {"aten::layer_norm",
       "",
       {x, Json::array(), none, none, Number(1e-5), true},
       {2, 3},
       "normalized_shape"},
      {"aten::batch_norm",
       "",
       {x, none, none, none, none, true, Number(0.1), Number(1e-5), false},
       {2, 3},
       ""},
      {"aten::batch_norm",
       "",
       {x, x, none, none, none, true, Number(0.1), Number(1e-5), false},
       {2, 3},
       "weight has the sizes [2, 3], and must have [3]"},
      {"aten::batch_norm",
       "",
       {x, none, none, none, none, false, Number(0.1), Number(1e-5), false},
       {2, 3},
       "running_mean is None in evaluation"},
      {"aten::pixel_shuffle", "", {x, 2}, {1, 4, 2, 2}, ""},
      {"aten::pixel_shuffle", "", {x, 0}, {1, 4, 2, 2}, "upscale_factor is 0"},
      {"aten::channel_shuffle", "", {x, 3}, {1, 4, 2, 2}, "self has 4 channels for 3 groups"},
      {"aten::upsample_nearest2d", "vec", {x, {4, 4}, none}, {1, 2, 3, 3}, ""},
      {"aten::upsample_nearest2d",
       "vec",
       {x, {4}, none},
       {1, 2, 3, 3},
       "output_size must have 2 numbers"},
      {"aten::upsample_nearest2d",
       "vec",
       {x, none, {Number(-1), Number(2)}},
       {1, 2, 3, 3},
       "a scale is -1, and must be positive"},
      {"aten::scaled_dot_product_attention",
       "",
       {x, x, x, none, Number(0), false},
       {2, 2, 4, 8},
       ""},
      {"aten::scaled_dot_product_attention",
       "",
       {x, x, x, none, Number(2), false},
       {2, 2, 4, 8},
       "dropout_p is 2"},
      {"aten::scaled_dot_product_attention",
       "",
       {x, x, x, none, Number(0), false, none, true},
       {2, 0, 4, 8},
       "key or value has no heads"},
      {"aten::arange", "start_step", {0, 4, 0, none, none, none, none}, {1}, "step is 0"},
      {"aten::flatten", "using_ints", {x, 1, 9}, {2, 3}, "Dimension out of range"},
      {"aten::add",
       "Tensor",
       {x, x, 1},
       std::vector<int64_t>(17, 1),
       "self has 17 dimensions, and at most 16 are supported"},
      {"aten::index_select", "", {x, 0, x}, {3}, "index is Float, and must be int64 or int32"},
  };
}

TEST(ExportedGraph, RefusesBeforeItRuns) {
  for (const Case& one : Cases()) {
    const std::string why = WhyRefused(OneCall(one.op, one.overload, one.arguments), one.sizes);
    EXPECT_EQ(why.empty(), one.why.empty()) << one.op << one.arguments << ": " << why;
    EXPECT_NE(why.find(one.why), std::string::npos) << one.op << one.arguments << ": " << why;
  }
}

TEST(ExportedGraph, RefusesSizesThatFitNowhere) {
  const auto repeated = [](const Json& times) {
    return WhyRefused(OneCall("aten::repeat", "", {Input(), times}), {2, 3});
  };
  EXPECT_EQ(repeated({5, 7}), "");
  EXPECT_EQ(
      repeated({1 << 10, 1 << 9}),
      "its result of [2048, 1536] would have more than the 1048576 bytes that a tensor may have");
  EXPECT_NE(repeated({(1LL << 31) - 1, (1LL << 31) - 1}), "");
  EXPECT_NE(repeated({1, 1LL << 62}), "");
  const Json most = (1LL << 31) - 1, none = nullptr;
  EXPECT_NE(WhyRefused(OneCall("aten::eye", "m", {most, most, none, none, none, none}), {1}), "");
  const std::vector<int64_t> dimensions(17, 1);
  EXPECT_EQ(WhyRefused(OneCall("aten::ones", "", {dimensions, none, none, none, none}), {1}),
            "its result has 17 dimensions, and at most 16 are supported");
}

TEST(ExportedGraph, KeepsTheSizesOfTheModule) {
  Json graph = OneCall("aten::mul", "Tensor", {Input(), Input()});
  graph["parameters"] = {{"weight", 2}};
  graph["values"] = 4;
  graph["nodes"].push_back(
      {{"op", "aten::unsqueeze_"}, {"overload", ""}, {"args", {{{"v", 2}}, 0}}, {"out", {3}}});
  EXPECT_EQ(WhyRefused(graph, {2}), "it gives weight other sizes");
}

TEST(ExportedGraph, GivesOutNoOldMemory) {
  const ExportedGraph graph =
      Read(OneCall("aten::empty_like", "", {Input(), nullptr, nullptr, nullptr, nullptr, nullptr}));
  { const at::Tensor old = at::full({64}, 7.0F); }
  EXPECT_TRUE(at::equal(graph.Run({at::ones({1, 64})}), at::zeros({1, 64})));
}

// Builds a graph with one input, value 0, by adding calls one after the other.
class Builder {
 public:
  // Returns the number of the value that holds a parameter or a buffer, and adds the value on first use.
  int64_t Parameter(const std::string& name) {
    tensors.parameters.try_emplace(name, at::rand({4}).requires_grad_());
    return OfModule("parameters", name);
  }
  int64_t Buffer(const std::string& name) {
    tensors.buffers.try_emplace(name, at::zeros({4}));
    return OfModule("buffers", name);
  }

  // Adds a call of an operation, and returns the number of the value that holds its result.
  int64_t Call(const std::string& op, const std::string& overload, const Json& arguments) {
    graph["nodes"].push_back(
        {{"op", op}, {"overload", overload}, {"args", arguments}, {"out", {values_}}});
    return values_++;
  }

  void End(int64_t output) {
    graph["output"] = output;
    graph["values"] = values_;
  }

  Json graph = Json::parse(
      R"({"batch": [1, 9], "inputs": [0], "parameters": {}, "buffers": {}, "constants": {},
                               "nodes": []})");
  ExportedGraph::Tensors tensors;

 private:
  int64_t OfModule(const char* kind, const std::string& name) {
    if (!graph[kind].contains(name)) graph[kind][name] = values_++;
    return graph[kind][name].get<int64_t>();
  }

  int64_t values_ = 1;
};

Json V(int64_t value) { return Json{{"v", value}}; }
Json F(double value) { return Json{{"f", value}}; }

// Switches autocast on for as long as the result exists.
AutocastGuard Rounding(at::ScalarType dtype) {
  return AutocastGuard({.device = at::kCPU, .enabled = true, .dtype = dtype, .caches = false});
}

// A call under autocast of a parameter "weight" of these sizes and, as value 0, an input of 16 bits.
struct RoundedCase {
  const char* op;
  const char* overload;
  std::vector<int64_t> input, weight;
  // Returns the arguments, given the number of the value that holds the weight.
  std::function<Json(int64_t)> arguments;
  at::ScalarType weight_dtype = at::kFloat;
};

std::vector<RoundedCase> RoundedCases() {
  const Json none = nullptr, ones{1, 1}, zeros{0, 0};
  const auto both = [](int64_t w) { return Json::array({V(0), V(w)}); };
  return {
      {"aten::matmul", "", {2, 4}, {4}, both},
      {"aten::matmul", "", {2, 4}, {4}, both, at::kBFloat16},
      {"aten::linear", "", {2, 4}, {3, 4}, [=](int64_t w) { return Json{V(0), V(w), none}; }},
      {"aten::conv2d",
       "",
       {2, 3, 8, 8},
       {4, 3, 3, 3},
       [=](int64_t w) { return Json{V(0), V(w), none, ones, zeros, ones, 1}; }},
      {"aten::layer_norm",
       "",
       {2, 4},
       {4},
       [=](int64_t w) { return Json{V(0), {4}, V(w), V(w), F(1e-5), true}; }},
      {"aten::batch_norm",
       "",
       {3, 4},
       {4},
       [=](int64_t w) { return Json{V(0), V(w), V(w), none, none, true, F(0.1), F(1e-5), false}; }},
      {"aten::cat", "", {2, 4}, {3, 4}, [](int64_t w) { return Json{{V(0), V(w)}, 0}; }},
      {"aten::add", "Tensor", {2, 4}, {4}, [](int64_t w) { return Json{V(0), V(w), 1}; }},
      {"aten::huber_loss", "", {2, 4}, {2, 4}, [](int64_t w) { return Json{V(0), V(w), 1, F(1)}; }},
      {"aten::binary_cross_entropy_with_logits",
       "",
       {2, 4},
       {2, 4},
       [=](int64_t w) { return Json{V(0), V(w), none, none, 1}; }},
      {"aten::grid_sampler",
       "",
       {2, 3, 4, 4},
       {2, 5, 5, 2},
       [](int64_t w) { return Json{V(0), V(w), 0, 0, false}; }},
      {"aten::scaled_dot_product_attention",
       "",
       {2, 2, 4, 8},
       {2, 2, 4, 8},
       [=](int64_t w) { return Json{V(0), V(w), V(w), none, F(0), false}; }},
  };
}

TEST(ExportedGraph, ForetellsUnderAutocast) {
  for (const RoundedCase& one : RoundedCases()) {
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
      Builder builder;
      const at::Tensor weight = at::rand(one.weight).to(one.weight_dtype);
      builder.tensors.parameters["weight"] = weight;
      const int64_t w = builder.Parameter("weight");
      builder.End(builder.Call(one.op, one.overload, one.arguments(w)));
      const ExportedGraph graph(builder.graph, "net.lsm", 1, builder.tensors);
      const AutocastGuard rounds = Rounding(dtype);
      EXPECT_NO_THROW(graph.Run({at::rand(one.input).to(dtype)})) << one.op << " in " << dtype;
    }
  }
}

TEST(ExportedGraph, ForetellsConversionsUnderAutocast) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kDouble}) {
    Builder builder;
    builder.tensors.parameters["weight"] = at::rand({2, 2, 4, 8}).to(dtype);
    const int64_t weight = builder.Parameter("weight");
    const Json name{{"dtype", dtype == at::kDouble ? "float64" : "bfloat16"}};
    const int64_t x = builder.Call("aten::to", "dtype", {V(0), name, false, false, nullptr});
    builder.End(builder.Call("aten::scaled_dot_product_attention", "",
                             {V(x), V(weight), V(weight), nullptr, F(0), false}));
    const ExportedGraph graph(builder.graph, "net.lsm", 1, builder.tensors);
    const at::Tensor input = at::rand({2, 2, 4, 8});
    EXPECT_EQ(graph.Run({input}).scalar_type(), dtype);
    const AutocastGuard rounds = Rounding(at::kBFloat16);
    EXPECT_EQ(graph.Run({input}).scalar_type(), dtype);
  }
}

TEST(ExportedGraph, ChecksUnderAutocastWhatItDoesNotConvert) {
  Builder builder;
  builder.tensors.parameters["weight"] = at::rand({5, 4});
  builder.tensors.buffers["indices"] = at::arange(3);
  builder.tensors.buffers["offsets"] = at::zeros({1}, at::kLong);
  const int64_t weight = builder.Parameter("weight");
  const int64_t indices = builder.Buffer("indices"), offsets = builder.Buffer("offsets");
  const int64_t bags = builder.Call(
      "aten::embedding_bag", "", {V(weight), V(indices), V(offsets), false, 0, false, V(0), false});
  builder.graph["nodes"][0]["out"] = {bags, nullptr, nullptr, nullptr};
  builder.End(bags);
  const ExportedGraph graph(builder.graph, "net.lsm", 1, builder.tensors);
  const at::Tensor factors = at::rand({3});
  EXPECT_NO_THROW(graph.Run({factors}));
  const AutocastGuard rounds = Rounding(at::kBFloat16);
  EXPECT_NO_THROW(graph.Run({factors}));
  try {
    graph.Run({factors.to(at::kBFloat16)});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("per_sample_weights is BFloat16, and weight is Float"),
              std::string::npos)
        << error.what();
  }
}

TEST(ExportedGraph, RefusesSizesThatFollowFromAutocast) {
  Builder builder;
  builder.End(builder.Call("aten::view", "dtype", {V(0), {{"dtype", "int32"}}}));
  const ExportedGraph graph(builder.graph, "net.lsm", 1, builder.tensors);
  EXPECT_EQ(graph.Run({at::rand({2, 4})}).sizes(), at::IntArrayRef({2, 4}));
  const AutocastGuard rounds = Rounding(at::kBFloat16);
  EXPECT_THROW(graph.Run({at::rand({2, 4})}), Error);
}

TEST(ExportedGraph, ForetellsTheDtypeOfMixedNorms) {
  Builder builder;
  const int64_t weight = builder.Parameter("weight");
  builder.End(builder.Call("aten::group_norm", "", {V(0), 2, V(weight), V(weight), F(1e-5), true}));
  const ExportedGraph graph(builder.graph, "net.lsm", 1, builder.tensors);
  const at::Tensor x = at::empty({2, 4, 3}, at::device(at::kMeta).dtype(at::kBFloat16));
  EXPECT_EQ(graph.Foretell({x}, 1 << 20).scalar_type(), at::kBFloat16);
}

TEST(ExportedGraph, ComputesGroupNormInTheStandardLayout) {
  const ExportedGraph graph =
      Read(OneCall("aten::group_norm", "", {Input(), 2, nullptr, nullptr, Number(1e-5), true}));
  const at::Tensor x = at::rand({2, 4, 3, 3});
  const at::Tensor y = graph.Run({x.contiguous(at::MemoryFormat::ChannelsLast)});
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_TRUE(at::equal(y, at::group_norm(x, 2)));
}

// A convolution whose result is few pixels wide computes in float32, one with more pixels in 16 bits.
TEST(ExportedGraph, ComputesNarrowConvolutionsInFloat32) {
  Builder builder;
  builder.tensors.parameters["weight"] = at::rand({4, 3, 3, 3}).requires_grad_();
  const int64_t weight = builder.Parameter("weight");
  builder.End(
      builder.Call("aten::conv2d", "", {V(0), V(weight), nullptr, {2, 2}, {1, 1}, {1, 1}, 1}));
  const ExportedGraph graph(builder.graph, "net.lsm", 1, builder.tensors);
  const at::Tensor narrow = at::rand({1, 3, 8, 8}), wide = at::rand({1, 3, 16, 16});
  const at::Tensor& w = builder.tensors.parameters["weight"];
  const auto rounded = [](const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kFloat); };
  const at::Tensor expected =
      at::conv2d(rounded(narrow), rounded(w), {}, 2, 1).to(at::kBFloat16).detach();
  const AutocastGuard rounds = Rounding(at::kBFloat16);
  const at::Tensor y = graph.Run({narrow});
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(y, expected));
  EXPECT_EQ(y.grad_fn()->name(), "ToCopyBackward0");
  EXPECT_EQ(graph.Run({wide}).grad_fn()->name(), "ConvolutionBackward0");
  y.sum().backward();
  EXPECT_EQ(w.grad().scalar_type(), at::kFloat);
}

TEST(ExportedGraph, ChecksAgainWhatFollowsFromStrides) {
  const Json graph = Json::parse(R"({
    "values": 3, "batch": [1, 9], "inputs": [0], "parameters": {}, "buffers": {}, "constants": {},
    "nodes": [{"sym": "stride", "args": [{"v": 0}, 1], "out": [1]},
              {"op": "aten::max_pool2d", "overload": "",
               "args": [{"v": 0}, [1, 1], [{"v": 1}, 1], [0, 0], [1, 1], false], "out": [2]}],
    "output": 2})");
  const ExportedGraph read = Read(graph);
  EXPECT_NO_THROW(read.Run({at::ones({1, 2, 3, 1})}));
  try {
    read.Run({at::ones({1, 1, 3, 1}).expand({1, 2, 3, 1})});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("stride is 0, and must be positive"),
              std::string::npos)
        << error.what();
  }
}

// Builds 12 blocks tanh_(batch_norm(x * weight) + count), in which x is the result of the block before, and the buffer
// `count` counts the block's calls. If `tied`, all blocks have the same weight; otherwise each has its own.
Builder Deep(bool tied) {
  Builder builder;
  int64_t x = 0;
  for (int i = 0; i < 12; ++i) {
    const std::string n = std::to_string(i);
    const int64_t weight = builder.Parameter(tied ? "weight" : "weight" + n);
    const int64_t mean = builder.Buffer("mean" + n), variance = builder.Buffer("variance" + n);
    const int64_t count = builder.Buffer("count" + n);
    x = builder.Call("aten::mul", "Tensor", {V(x), V(weight)});
    x = builder.Call("aten::batch_norm", "",
                     {V(x), nullptr, nullptr, V(mean), V(variance), true, F(0.1), F(1e-5), false});
    const int64_t counted = builder.Call("aten::add_", "Tensor", {V(count), F(1), 1});
    x = builder.Call("aten::add", "Tensor", {V(x), V(counted), 1});
    x = builder.Call("aten::tanh_", "", Json::array({V(x)}));
  }
  builder.End(builder.Call("aten::sum", "", Json::array({V(x)})));
  return builder;
}

// Builds 12 blocks with in-place changes: additions of a parameter and of the block's input, a copy into a slice of a
// tensor that needs no gradient, and, in every fourth block, an addition to a buffer that the block has read before.
Builder InPlace() {
  Builder builder;
  int64_t x = 0;
  for (int i = 0; i < 12; ++i) {
    const std::string n = std::to_string(i);
    const int64_t weight = builder.Parameter("weight" + n), mean = builder.Buffer("mean" + n);
    int64_t y = builder.Call("aten::mul", "Tensor", {V(x), V(weight)});
    y = builder.Call("aten::add_", "Tensor", {V(y), V(weight), 1});
    y = builder.Call("aten::mul", "Tensor", {V(y), F(0.5)});
    y = builder.Call("aten::add_", "Tensor", {V(y), V(x), 1});
    const int64_t whole = builder.Call("aten::zeros_like", "", Json::array({V(y)}));
    const int64_t part = builder.Call("aten::slice", "Tensor", {V(whole), 1, 0, 3, 1});
    const int64_t from = builder.Call("aten::slice", "Tensor", {V(y), 1, 1, 4, 1});
    builder.Call("aten::copy_", "", {V(part), V(from), false});
    x = builder.Call("aten::add", "Tensor", {V(y), V(whole), 1});
    if (i % 4 == 0) {
      x = builder.Call("aten::sub", "Tensor", {V(x), V(mean), 1});
      builder.Call("aten::add_", "Tensor", {V(mean), F(1), 1});
    }
  }
  builder.End(builder.Call("aten::sum", "", Json::array({V(x)})));
  return builder;
}

// Returns the gradients and the buffers after one training step.
std::vector<at::Tensor> Step(const Builder& builder, bool checkpoints) {
  at::manual_seed(1);
  for (auto& [name, tensor] : builder.tensors.parameters) {
    tensor.mutable_grad().reset();
    tensor.detach().uniform_(0.5, 1.5);
  }
  for (auto& [name, tensor] : builder.tensors.buffers) {
    tensor.fill_(name.starts_with("variance") ? 1 : 0);
  }
  const at::Tensor x = at::rand({6, 4});
  const ExportedGraph graph(builder.graph, "net.lsm", 1, builder.tensors,
                            {.checkpoints = checkpoints});
  graph.Run({x}).backward();
  std::vector<at::Tensor> found;
  for (auto& [name, tensor] : builder.tensors.parameters) found.push_back(tensor.grad().clone());
  for (auto& [name, tensor] : builder.tensors.buffers) found.push_back(tensor.clone());
  return found;
}

TEST(ExportedGraph, ComputesTheSameTwice) {
  for (const Builder& builder : {Deep(/*tied=*/false), Deep(/*tied=*/true), InPlace()}) {
    const std::vector<at::Tensor> once = Step(builder, false), twice = Step(builder, true);
    ASSERT_EQ(once.size(), twice.size());
    for (size_t i = 0; i < once.size(); ++i) EXPECT_TRUE(at::equal(once[i], twice[i])) << i;
  }
}

TEST(CutsOf, CutsWhereLittleIsAliveAndNothingChanges) {
  const auto cuts_of = [](const Builder& builder) {
    const auto program = exported::ReadProgram(builder.graph, "net.lsm", 1);
    std::set<int64_t> trainable;
    for (const auto& [name, value] : program.parameters) trainable.insert(value);
    return exported::CutsOf(program, trainable);
  };
  const exported::Cuts cuts = cuts_of(Deep(/*tied=*/false));
  size_t end = 0;
  for (size_t s = 0; s < cuts.segments.size(); ++s) {
    const exported::Segment& segment = cuts.segments[s];
    EXPECT_EQ(segment.begin, end);
    end = segment.end;
    const bool is_last = s + 1 == cuts.segments.size();
    EXPECT_EQ(segment.twice, !is_last);
    // Node 5 i + 4 is tanh_, which changes the result of node 5 i + 3 in place, so no cut may lie between the two
    // nodes.
    EXPECT_TRUE(is_last || segment.end % 5 != 4) << segment.end;
    EXPECT_LE(segment.inputs.size(), 1);
  }
  EXPECT_EQ(end, 61);
  EXPECT_GE(cuts.segments.size(), 6);
  EXPECT_EQ(std::ranges::count(cuts.once, true), 12);
  for (const auto& segment : cuts_of(Deep(/*tied=*/true)).segments) EXPECT_FALSE(segment.twice);

  const exported::Cuts in_place = cuts_of(InPlace());
  EXPECT_EQ(std::ranges::count(in_place.once, true), 3);
  // In-place additions to tensors of the block do not prevent cuts between blocks.
  EXPECT_GE(in_place.segments.size(), 6);
  EXPECT_GE(std::ranges::count(in_place.segments, true, &exported::Segment::twice), 3);
  for (const auto& segment : in_place.segments) EXPECT_LE(segment.inputs.size(), 1);
}

TEST(ExportedGraph, RefusesNumbersThatAreTooLarge) {
  const auto computed = [](const char* sym, int64_t a, int64_t b) {
    Json graph = Graph();
    graph["nodes"][1] = {{"sym", sym}, {"args", {a, b}}, {"out", {3}}};
    try {
      Read(graph).Run({at::ones({1, 2})});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(computed("floordiv", 7, -2), "");
  EXPECT_EQ(computed("size", 7, 0), "net.lsm: training: size failed: Expected Tensor but got Int");
  for (const char* sym : {"floordiv", "mod", "add", "mul"}) {
    EXPECT_EQ(computed(sym, kLeast, -1),
              fmt::format("net.lsm: training: {} failed: a number is too large", sym));
  }
}

TEST(ExportedGraph, RefusesSizesThatFollowFromNumbers) {
  const Json graph = Json::parse(R"({
    "values": 3, "batch": [1, 9], "inputs": [0], "parameters": {}, "buffers": {}, "constants": {},
    "nodes": [{"sym": "sub", "args": [1, 1], "out": [1]},
              {"op": "aten::max_pool1d", "overload": "", "args": [{"v": 0}, [1], [{"v": 1}]], "out": [2]}],
    "output": 2})");
  EXPECT_EQ(WhyRefused(graph, {1, 2, 3}), "stride is 0, and must be positive");
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
