// Tests which operations are fused, and that a fused graph computes the same as LibTorch's operations one after the
// other.

#include "models/imported/fuse.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/tensor/autocast.h"
#include "models/imported/exported_graph.h"
#include "models/imported/program.h"
#include "models/imported/rewriter.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr int64_t kChannels = 8;

// Returns the text of a graph. Its values are: 0 x; 1 to 4 weight, bias and running statistics of norm a, 5 to 8 those
// of norm b; then the nodes' results.
std::string Text(const std::string& nodes, int output) {
  return fmt::format(
      R"({{"values": 20, "batch": [1, 8], "inputs": [0], "parameters": {{"a.weight": 1, "a.bias": 2, "b.weight": 5,
          "b.bias": 6}}, "buffers": {{"a.mean": 3, "a.var": 4, "b.mean": 7, "b.var": 8}}, "constants": {{}},
          "nodes": [{}], "output": {}}})",
      nodes, output);
}

std::string Norm(int x, int weight, int out, bool training = true) {
  return fmt::format(
      R"({{"op": "aten::batch_norm", "overload": "", "args": [{{"v": {}}}, {{"v": {}}}, {{"v": {}}}, {{"v": {}}},
          {{"v": {}}}, {}, {{"f": 0.1}}, {{"f": 1e-5}}, true], "out": [{}]}})",
      x, weight, weight + 1, weight + 2, weight + 3, training, out);
}

// Returns the text of a call of `op` with the arguments value x and `more`, such as ", 1".
std::string Call(const std::string& op, const std::string& overload, int x, const std::string& more,
                 int out) {
  return fmt::format(
      R"({{"op": "aten::{}", "overload": "{}", "args": [{{"v": {}}}{}], "out": [{}]}})", op,
      overload, x, more, out);
}

std::string Of(const std::string& op, int x, int out) { return Call(op, "", x, "", out); }

std::string Sum(const std::string& op, int x, int y, int out) {
  return Call(op, "Tensor", x, fmt::format(R"(, {{"v": {}}})", y), out);
}

std::string Pool(int x, int out) {
  return Call("max_pool2d", "", x, ", [3, 3], [2, 2], [1, 1]", out);
}

std::string Chain(const std::vector<std::string>& nodes) {
  return fmt::format("{}", fmt::join(nodes, ", "));
}

ExportedGraph::Tensors Tensors() {
  at::manual_seed(1);
  ExportedGraph::Tensors tensors;
  for (const std::string norm : {"a", "b"}) {
    tensors.parameters[norm + ".weight"] = (at::rand({kChannels}) + 0.5).requires_grad_();
    tensors.parameters[norm + ".bias"] = at::randn({kChannels}).requires_grad_();
    tensors.buffers[norm + ".mean"] = at::randn({kChannels});
    tensors.buffers[norm + ".var"] = at::rand({kChannels}) + 0.5;
  }
  return tensors;
}

using Tensor = at::Tensor;
using Expected =
    std::function<Tensor(const Tensor& x, const std::function<Tensor(const Tensor&)>& a,
                         const std::function<Tensor(const Tensor&)>& b)>;

exported::Program Fused(const std::string& text) {
  const exported::SharedStatistics shared;
  exported::Program program = exported::ReadProgram(Json::parse(text), "net.lsm", 1);
  exported::Fuse(program, shared);
  return program;
}

// Returns the number of nodes after fusion.
size_t NodesOf(const std::string& text) { return Fused(text).nodes.size(); }

using ExpectedOf = std::function<Tensor(const Tensor& x, const ExportedGraph::Tensors& tensors)>;

// Checks that the graph gives the output, the gradients and the buffers of `expected`. `make` is called once for the
// graph and once for `expected`, and makes the same tensors both times.
void ExpectAlike(const std::string& text, const Tensor& x, double tolerance,
                 ExportedGraph::Tensors (*make)(), const ExpectedOf& expected) {
  const ExportedGraph::Tensors tensors = make();
  const ExportedGraph::Tensors own = make();
  const ExportedGraph graph(Json::parse(text), "net.lsm", 1, tensors);
  const Tensor own_x = x.detach().clone().requires_grad_(x.requires_grad());
  const Tensor wanted = expected(own_x, own);
  const Tensor y = graph.Run({x});
  const auto is_near = [](const Tensor& found, const Tensor& exact, double by) {
    return found.scalar_type() == exact.scalar_type() && at::allclose(found, exact, by, by);
  };
  EXPECT_TRUE(is_near(y, wanted, tolerance));
  const Tensor dy = at::randn_like(wanted);
  wanted.backward(dy);
  y.backward(dy);
  if (x.requires_grad()) {
    EXPECT_TRUE(is_near(x.grad(), own_x.grad(), 10 * tolerance));
  }
  for (const auto& [name, parameter] : tensors.parameters) {
    const Tensor& gradient = own.parameters.at(name).grad();
    ASSERT_EQ(parameter.grad().defined(), gradient.defined()) << name;
    if (!gradient.defined()) continue;
    EXPECT_TRUE(is_near(parameter.grad(), gradient, 10 * tolerance)) << name;
  }
  for (const auto& [name, buffer] : tensors.buffers) {
    EXPECT_TRUE(at::allclose(buffer, own.buffers.at(name))) << name;
  }
}

void ExpectComputes(const std::string& text, const Expected& expected) {
  const auto with_norms = [&](const Tensor& x, const ExportedGraph::Tensors& own) {
    const auto norm = [&](const std::string& name) {
      return [&own, name](const Tensor& input) {
        return at::batch_norm(input, own.parameters.at(name + ".weight"),
                              own.parameters.at(name + ".bias"), own.buffers.at(name + ".mean"),
                              own.buffers.at(name + ".var"), true, 0.1, 1e-5, true);
      };
    };
    return expected(x, norm("a"), norm("b"));
  };
  ExpectAlike(text, at::randn({4, kChannels, 6, 6}), 1e-5, Tensors, with_norms);
}

TEST(Fuse, TakesTheActivationToTheNorm) {
  const std::map<std::string, std::function<Tensor(const Tensor&)>> activations = {
      {"relu", [](const Tensor& x) { return at::relu(x); }},
      {"silu", [](const Tensor& x) { return at::silu(x); }},
      {"hardswish", [](const Tensor& x) { return at::hardswish(x); }}};
  for (const auto& [name, activation] : activations) {
    for (const std::string in_place : {"", "_"}) {
      const std::string text = Text(Chain({Norm(0, 1, 9), Of(name + in_place, 9, 10)}), 10);
      EXPECT_EQ(NodesOf(text), 1) << name;
      ExpectComputes(
          text, [&activation = activation](auto& x, auto& a, auto&) { return activation(a(x)); });
    }
  }
}

TEST(Fuse, TakesTheOtherBranchToTheNorm) {
  for (const std::string add : {"add", "add_"}) {
    const std::string text = Text(
        Chain({Norm(0, 1, 9), Of("sigmoid", 0, 10), Sum(add, 9, 10, 11), Of("relu", 11, 12)}), 12);
    EXPECT_EQ(NodesOf(text), 2);
    ExpectComputes(text, [](auto& x, auto& a, auto&) { return at::relu(a(x) + at::sigmoid(x)); });
  }
  // The branch that is added has another shape than the norm's result.
  ExpectComputes(
      Text(Chain({Norm(0, 1, 9), Of("mean", 0, 10), Sum("add", 10, 9, 11), Of("relu", 11, 12)}),
           12),
      [](auto& x, auto& a, auto&) { return at::relu(a(x) + x.mean()); });
}

TEST(Fuse, JoinsTwoNorms) {
  const std::string text = Text(Chain({Norm(0, 1, 9), Of("sigmoid", 0, 10), Norm(10, 5, 11),
                                       Sum("add", 9, 11, 12), Of("relu", 12, 13)}),
                                13);
  EXPECT_EQ(NodesOf(text), 2);
  ExpectComputes(text,
                 [](auto& x, auto& a, auto& b) { return at::relu(a(x) + b(at::sigmoid(x))); });
}

TEST(Fuse, TakesThePoolToTheNorm) {
  const std::string text = Text(Chain({Norm(0, 1, 9), Of("relu_", 9, 10), Pool(10, 11)}), 11);
  EXPECT_EQ(NodesOf(text), 1);
  ExpectComputes(text, [](auto& x, auto& a, auto&) {
    return at::max_pool2d(at::relu(a(x)), {3, 3}, {2, 2}, {1, 1});
  });
}

TEST(Fuse, LeavesWhatOthersUse) {
  // The norm's result, value 9, has two users, so it is not fused with the relu. In the second graph the relu's result,
  // value 10, has two users, so it is not fused with the pooling.
  const std::string twice =
      Text(Chain({Norm(0, 1, 9), Of("relu", 9, 10), Sum("add", 9, 10, 11)}), 11);
  EXPECT_EQ(NodesOf(twice), 2) << "the norm, and relu with the sum";
  ExpectComputes(twice, [](auto& x, auto& a, auto&) {
    const Tensor y = a(x);
    return y + at::relu(y);
  });
  EXPECT_EQ(NodesOf(Text(Chain({Norm(0, 1, 9), Of("relu", 9, 10), Pool(10, 11), Of("mean", 10, 12),
                                Sum("add", 11, 12, 13)}),
                         13)),
            4);
  // The norm's result is the graph's output, so the relu is not fused with it.
  EXPECT_EQ(NodesOf(Text(Chain({Norm(0, 1, 9), Of("relu", 9, 10)}), 9)), 2);
  // Nothing is fused, because between the norm and the sum neg_ changes the norm's input, value 14, in place.
  const std::string changed = Text(Chain({Of("sigmoid", 0, 14), Norm(14, 1, 9), Of("neg_", 14, 10),
                                          Sum("add", 9, 10, 11), Of("relu", 11, 12)}),
                                   12);
  EXPECT_EQ(NodesOf(changed), 5);
}

// Checks that nothing is fused if the sum is written to the branch, value 10, in place, and another operation reads the
// branch afterwards.
TEST(Fuse, LeavesASumThatIsWrittenToTheBranch) {
  const std::string text = Text(Chain({Norm(0, 1, 9), Of("sigmoid", 0, 10), Sum("add_", 10, 9, 11),
                                       Of("relu", 11, 12), Sum("add", 12, 10, 13)}),
                                13);
  EXPECT_EQ(NodesOf(text), 5);
  ExpectComputes(text, [](auto& x, auto& a, auto&) {
    const Tensor sum = a(x) + at::sigmoid(x);
    return at::relu(sum) + sum;
  });
}

TEST(Fuse, LeavesANormOfRunningStatistics) {
  const std::string text = Text(Chain({Norm(0, 1, 9, /*training=*/false), Of("relu", 9, 10)}), 10);
  const exported::Program program = Fused(text);
  ASSERT_EQ(program.nodes.size(), 2);
  EXPECT_FALSE(program.nodes[0].fused);
}

// Checks that a 1x1 convolution returns its input for the operations that read the input later, so that the
// convolution's backward adds the gradients from these operations. In the graphs value 0 is x, and value 1 is the
// convolution's weight [8, 8, 1, 1].
TEST(Fuse, AddsGradientsWhereAConvolutionForks) {
  const auto text = [](const std::string& nodes, int output) {
    return fmt::format(
        R"({{"values": 20, "batch": [1, 8], "inputs": [0], "parameters": {{"weight": 1}}, "buffers": {{}},
            "constants": {{}}, "nodes": [{}], "output": {}}})",
        nodes, output);
  };
  const auto convolution = [](int x, int out) {
    return fmt::format(
        R"({{"op": "aten::conv2d", "overload": "", "args": [{{"v": {}}}, {{"v": 1}}], "out": [{}]}})",
        x, out);
  };
  const auto make = [] {
    at::manual_seed(1);
    ExportedGraph::Tensors tensors;
    tensors.parameters["weight"] = at::randn({kChannels, kChannels, 1, 1}).requires_grad_();
    return tensors;
  };
  const Tensor x = at::randn({4, kChannels, 6, 6}).requires_grad_();
  // The convolution becomes one node with two results: its output and its input.
  const std::string fork =
      text(Chain({Of("sigmoid", 0, 2), convolution(2, 3), Sum("add", 3, 2, 4)}), 4);
  const exported::Program program = Fused(fork);
  ASSERT_EQ(program.nodes.size(), 3);
  EXPECT_EQ(program.nodes[1].results.size(), 2);
  ExpectAlike(fork, x, 1e-5, make, [](auto& of, auto& tensors) {
    const Tensor inner = at::sigmoid(of);
    return at::conv2d(inner, tensors.parameters.at("weight")) + inner;
  });
  // An in-place operation before the convolution does not prevent the fusion.
  const std::string before =
      text(Chain({Of("cos", 0, 5), Of("relu_", 5, 2), convolution(2, 3), Sum("add", 3, 2, 4)}), 4);
  EXPECT_TRUE(Fused(before).nodes[2].fused);
  // The convolution is not fused if the other operation that reads the convolution's input comes before the
  // convolution, or if that operation writes to the input in place.
  for (const std::string& other :
       {Chain({Of("sigmoid", 0, 2), Of("cos", 2, 5), convolution(2, 3), Sum("add", 3, 5, 4)}),
        Chain({Of("sigmoid", 0, 2), convolution(2, 3), Of("cos_", 2, 5), Sum("add", 3, 5, 4)})}) {
    for (const exported::Node& node : Fused(text(other, 4)).nodes) EXPECT_FALSE(node.fused);
  }
}

// ---- Norms of rows and attention -----------------------------------------------------------------

std::string RowsNorm(int x, int out) {
  return Call("layer_norm", "", x, R"(, [8], {"v": 1}, {"v": 2}, {"f": 1e-5}, false)", out);
}

std::string Linear(int x, int weight, int out) {
  return Call("linear", "", x, fmt::format(R"(, {{"v": {}}}, null)", weight), out);
}

// Returns the text of a call of an operation that takes a value and a list, such as a shape.
std::string View(const std::string& op, int x, const std::string& shape, int out) {
  return Call(op, "", x, ", " + shape, out);
}

std::string Reshape(int x, const std::string& shape, int out) {
  return View("reshape", x, shape, out);
}

// Returns the text of a graph. Its values are: 0 x; 1, 2 the norm's weight and bias; 3 a weight [8, 8]; 4 a weight [24,
// 8].
std::string RowsText(const std::string& nodes, int output) {
  return fmt::format(
      R"({{"values": 40, "batch": [1, 8], "inputs": [0], "parameters": {{"weight": 1, "bias": 2, "square": 3, "qkv": 4}},
          "buffers": {{}}, "constants": {{}}, "nodes": [{}], "output": {}}})",
      nodes, output);
}

ExportedGraph::Tensors RowsTensors() {
  at::manual_seed(1);
  ExportedGraph::Tensors tensors;
  tensors.parameters["weight"] = (at::rand({kChannels}) + 0.5).requires_grad_();
  tensors.parameters["bias"] = at::randn({kChannels}).requires_grad_();
  tensors.parameters["square"] = at::randn({kChannels, kChannels}).requires_grad_();
  tensors.parameters["qkv"] = at::randn({3 * kChannels, kChannels}).requires_grad_();
  return tensors;
}

// Checks the graph against `expected` in float32, and under autocast to bfloat16. `sizes` are the sizes of x.
void ExpectAlikeAndRounded(const std::string& text, at::IntArrayRef sizes,
                           ExportedGraph::Tensors (*make)(), const ExpectedOf& expected) {
  const auto x = [&] { return at::randn(sizes).requires_grad_(); };
  ExpectAlike(text, x(), 1e-5, make, expected);
  const AutocastGuard rounds(
      {.device = at::kCPU, .enabled = true, .dtype = at::kBFloat16, .caches = false});
  ExpectAlike(text, x(), 1e-2, make, expected);
}

void ExpectComputesRows(const std::string& text, const ExpectedOf& expected) {
  ExpectAlikeAndRounded(text, {4, 6, kChannels}, RowsTensors, expected);
}

// Checks that a linear layer returns its input for other layers and for the sum after it, also with an activation, but
// not for operations that do not need the layer.
TEST(Fuse, AddsGradientsWhereALinearLayerForks) {
  const auto text = [](const std::string& nodes, int output) {
    return fmt::format(
        R"({{"values": 20, "batch": [1, 8], "inputs": [0], "parameters": {{"square": 3, "bias": 2}}, "buffers": {{}},
            "constants": {{}}, "nodes": [{}], "output": {}}})",
        nodes, output);
  };
  const auto make = [] {
    at::manual_seed(1);
    ExportedGraph::Tensors tensors;
    tensors.parameters["square"] = at::randn({kChannels, kChannels}).requires_grad_();
    tensors.parameters["bias"] = at::randn({kChannels}).requires_grad_();
    return tensors;
  };
  const std::string biased = Call("linear", "", 4, R"(, {"v": 3}, {"v": 2})", 5);
  const std::string both = text(Chain({Of("sigmoid", 0, 4), biased, Of("relu", 5, 6),
                                       Linear(4, 3, 7), Sum("add", 6, 7, 8), Sum("add", 8, 4, 9)}),
                                9);
  const exported::Program program = Fused(both);
  ASSERT_EQ(program.nodes.size(), 4) << "a sigmoid, two layers, and the sums";
  for (const int layer : {1, 2}) EXPECT_GE(program.nodes[layer].results[1].value, 0);
  ExpectAlikeAndRounded(both, {4, 6, kChannels}, make, [](auto& of, auto& tensors) {
    const Tensor x = at::sigmoid(of), square = tensors.parameters.at("square");
    return at::relu(at::linear(x, square, tensors.parameters.at("bias"))) + at::linear(x, square) +
           x;
  });
  // Here the cosine could be in one kernel with the sigmoid.
  const std::string apart =
      text(Chain({Of("sigmoid", 0, 4), Linear(4, 3, 5), Of("cos", 4, 6), Sum("add", 5, 6, 7)}), 7);
  EXPECT_TRUE(Fused(apart).nodes[1].operation);
}

Tensor RowsNormed(const Tensor& x, const ExportedGraph::Tensors& tensors) {
  return at::layer_norm(x, {kChannels}, tensors.parameters.at("weight"),
                        tensors.parameters.at("bias"), 1e-5);
}

// Returns the nodes of Llama's RMSNorm of value x with value 1 as the weight. Value `out` is the result, and the values
// after it are the intermediate results.
std::string RmsNormed(int x, int out) {
  const std::string to_float = R"(, {"dtype": "float32"}, false, false, null)";
  return Chain({Call("pow", "Tensor_Scalar", x, ", 2", out + 1),
                Call("mean", "dim", out + 1, ", [-1], true, null", out + 2),
                Call("add", "Tensor", out + 2, R"(, {"f": 1e-6}, 1)", out + 3),
                Of("rsqrt", out + 3, out + 4), Sum("mul", x, out + 4, out + 5),
                Call("to", "dtype", out + 5, to_float, out + 6), Sum("mul", 1, out + 6, out)});
}

Tensor RmsNormedBy(const Tensor& x, const ExportedGraph::Tensors& tensors) {
  const Tensor wide = x.to(at::kFloat);
  return tensors.parameters.at("weight") *
         (wide * at::rsqrt(wide.pow(2).mean(-1, /*keepdim=*/true) + 1e-6));
}

// Checks that the sum before the norm is fused with the norm although a second sum also reads the result of the first
// sum, in float32.
TEST(Fuse, TakesTheSumToLlamasNorm) {
  const std::string text =
      RowsText(Chain({Linear(0, 3, 5), Sum("add", 0, 5, 6),
                      Call("to", "dtype", 6, R"(, {"dtype": "float32"}, false, false, null)", 7),
                      RmsNormed(7, 10), Linear(10, 3, 20), Sum("add", 7, 20, 21)}),
               21);
  EXPECT_EQ(NodesOf(text), 4);
  ExpectComputesRows(text, [](auto& x, auto& tensors) {
    const Tensor& square = tensors.parameters.at("square");
    const Tensor sum = x + at::linear(x, square);
    return sum + at::linear(RmsNormedBy(sum, tensors), square);
  });
}

// Checks norms without a sum before them. The norm's result has two users: a linear layer, which rounds the result
// under autocast, and a sum, which does not round it.
TEST(Fuse, ComputesNormsOfRoots) {
  const std::string written = RowsText(
      Chain({Linear(0, 3, 5), RmsNormed(5, 10), Linear(10, 3, 20), Sum("add", 10, 20, 21)}), 21);
  const std::string called = RowsText(
      Chain({Linear(0, 3, 5), Call("rms_norm", "", 5, R"(, [8], {"v": 1}, {"f": 1e-6})", 10),
             Linear(10, 3, 20), Sum("add", 10, 20, 21)}),
      21);
  const auto expect = [](const std::string& text, const ExpectedOf& normed) {
    EXPECT_EQ(NodesOf(text), 4);
    ExpectComputesRows(text, [&](auto& x, auto& tensors) {
      const Tensor& square = tensors.parameters.at("square");
      const Tensor y = normed(at::linear(x, square), tensors);
      return y + at::linear(y, square);
    });
  };
  expect(written, RmsNormedBy);
  // The result of rms_norm has the type of its input, also under autocast.
  expect(called, [](auto& x, auto& tensors) {
    return at::rms_norm(x, {kChannels}, tensors.parameters.at("weight"), 1e-6).to(x.scalar_type());
  });
}

// Checks that a residual sum is fused with the norm that follows although a second sum also reads the result of the
// residual sum, as in a transformer block.
TEST(Fuse, TakesTheSumToTheNormOfRows) {
  const std::string text = RowsText(Chain({Linear(0, 3, 5), Sum("add", 0, 5, 6), RowsNorm(6, 7),
                                           Linear(7, 3, 8), Sum("add", 6, 8, 9)}),
                                    9);
  EXPECT_EQ(NodesOf(text), 4);
  ExpectComputesRows(text, [](auto& x, auto& tensors) {
    const Tensor& square = tensors.parameters.at("square");
    const Tensor sum = x + at::linear(x, square);
    return sum + at::linear(RowsNormed(sum, tensors), square);
  });
  // Here the sum is reshaped before the norm. The norm's result has two users: a linear layer, which rounds it under
  // autocast, and a second sum, which does not.
  const std::string reshaped = RowsText(
      Chain({Linear(0, 3, 5), Sum("add", 5, 0, 6), Reshape(6, "[-1, 8]", 7), RowsNorm(7, 8),
             Linear(8, 3, 9), Sum("add", 9, 8, 10), Sum("add", 10, 7, 11)}),
      11);
  EXPECT_EQ(NodesOf(reshaped), 4) << "the last two sums are one";
  ExpectComputesRows(reshaped, [](auto& x, auto& tensors) {
    const Tensor& square = tensors.parameters.at("square");
    const Tensor sum = (at::linear(x, square) + x).reshape({-1, kChannels});
    const Tensor y = RowsNormed(sum, tensors);
    return at::linear(y, square) + y + sum;
  });
}

TEST(Fuse, LeavesASumThatIsWrittenTo) {
  const std::string text = RowsText(Chain({Linear(0, 3, 5), Sum("add", 0, 5, 6), RowsNorm(6, 7),
                                           Linear(7, 3, 8), Sum("add_", 6, 8, 9)}),
                                    9);
  EXPECT_EQ(NodesOf(text), 5);
}

TEST(Fuse, LeavesASumThatIsUsedBeforeItsNorm) {
  const std::string text = RowsText(Chain({Linear(0, 3, 5), Sum("add", 0, 5, 6), Of("relu", 6, 7),
                                           RowsNorm(6, 8), Sum("add", 7, 8, 9)}),
                                    9);
  EXPECT_EQ(NodesOf(text), 4) << "relu and the last sum are one";
  ExpectComputesRows(text, [](auto& x, auto& tensors) {
    const Tensor sum = x + at::linear(x, tensors.parameters.at("square"));
    return at::relu(sum) + RowsNormed(sum, tensors);
  });
}

// ---- Embeddings -----------------------------------------------------------------------------------

// Returns the text of an embedding of `indices` with the weight `weight`.
std::string Embedded(int weight, int indices, int out, const std::string& padding = "-1") {
  return Call("embedding", "", weight,
              fmt::format(R"(, {{"v": {}}}, {}, false, false)", indices, padding), out);
}

TEST(Fuse, SumsEmbeddings) {
  const std::string positions = Call("select", "int", 0, ", 0, 0", 5);
  const auto graph = [&](const std::vector<std::string>& sums, int output) {
    std::vector<std::string> nodes = {positions, Embedded(3, 0, 6, "1"), Embedded(4, 5, 7),
                                      Embedded(3, 5, 8)};
    nodes.insert(nodes.end(), sums.begin(), sums.end());
    return RowsText(Chain(nodes), output);
  };
  const auto rows = [](auto& x, auto& tensors) {
    const Tensor& square = tensors.parameters.at("square");
    const Tensor place = x.select(0, 0);
    return std::array{at::embedding(square, x, 1),
                      at::embedding(tensors.parameters.at("qkv"), place),
                      at::embedding(square, place)};
  };
  const auto expect = [](const std::string& text, size_t nodes, const ExpectedOf& expected) {
    EXPECT_EQ(NodesOf(text), nodes);
    ExpectAlike(text, at::randint(kChannels, {4, 6}), 1e-5, RowsTensors, expected);
  };
  expect(graph({Sum("add", 6, 7, 9), Sum("add", 8, 9, 10), RowsNorm(10, 11)}, 11), 3,
         [&](auto& x, auto& tensors) {
           const auto [a, b, c] = rows(x, tensors);
           return RowsNormed(a + b + c, tensors);
         });
  // An embedding stays a node of its own if another operation also reads its result.
  expect(graph({Sum("add", 6, 7, 9), Sum("add", 9, 8, 10), Sum("mul", 10, 8, 11)}, 11), 4,
         [&](auto& x, auto& tensors) {
           const auto [a, b, c] = rows(x, tensors);
           return (a + b + c) * c;
         });
}

// Checks that an embedding whose gradients are divided by the frequency of the index (scale_grad_by_freq) is not fused.
TEST(Fuse, LeavesAnEmbeddingThatIsScaledByFrequency) {
  const std::string text =
      RowsText(Call("embedding", "", 3, R"(, {"v": 0}, -1, true, false)", 5), 5);
  ASSERT_EQ(Fused(text).nodes.size(), 1);
  EXPECT_FALSE(Fused(text).nodes[0].fused);
}

// ---- Layer scale and activations ------------------------------------------------------------------

TEST(Fuse, TakesTheScaleToTheSum) {
  const auto nodes = [](const std::string& add) {
    return Chain({Linear(0, 3, 5), Sum("mul", 5, 1, 6), Sum(add, 6, 0, 7), Linear(7, 3, 8),
                  Sum("add", 7, 8, 9)});
  };
  const ExpectedOf expected = [](auto& x, auto& tensors) {
    const Tensor& square = tensors.parameters.at("square");
    const Tensor sum = at::linear(x, square) * tensors.parameters.at("weight") + x;
    return sum + at::linear(sum, square);
  };
  EXPECT_EQ(NodesOf(RowsText(nodes("add"), 9)), 4);
  ExpectComputesRows(RowsText(nodes("add"), 9), expected);
  // An in-place addition is also fused.
  EXPECT_EQ(NodesOf(RowsText(nodes("add_"), 9)), 4);
  ExpectComputesRows(RowsText(nodes("add_"), 9), expected);
  // Between the product and the sum, exp_ changes a tensor in place that the product has not read.
  const std::string changed =
      RowsText(Chain({Linear(0, 3, 5), Sum("mul", 5, 1, 6), Of("cos", 0, 10), Of("exp_", 10, 11),
                      Sum("add", 6, 11, 7), Linear(7, 3, 8), Sum("add", 7, 8, 9)}),
               9);
  EXPECT_EQ(NodesOf(changed), 6);
  ExpectComputesRows(changed, [](auto& x, auto& tensors) {
    const Tensor& square = tensors.parameters.at("square");
    const Tensor sum = at::linear(x, square) * tensors.parameters.at("weight") + at::cos(x).exp();
    return sum + at::linear(sum, square);
  });
  // Nothing is fused if the product has read that tensor, because the fused operation would read it too late.
  const std::string too_late =
      RowsText(Chain({Linear(0, 3, 5), Sum("mul", 5, 1, 6), Of("exp_", 5, 11), Sum("add", 6, 0, 7),
                      Linear(7, 3, 8), Sum("add", 8, 11, 9)}),
               9);
  EXPECT_EQ(NodesOf(too_late), 6);
}

TEST(Fuse, TakesTheActivationToTheLinear) {
  const std::map<std::string, std::function<Tensor(const Tensor&)>> activations = {
      {"relu_", [](const Tensor& x) { return at::relu(x); }},
      {"silu", [](const Tensor& x) { return at::silu(x); }},
      {"gelu", [](const Tensor& x) { return at::gelu(x); }}};
  for (const auto& [name, activation] : activations) {
    const std::string with_bias = fmt::format(
        R"({{"op": "aten::linear", "overload": "", "args": [{{"v": 0}}, {{"v": 3}}, {{"v": 2}}], "out": [5]}})");
    const std::string text = RowsText(Chain({with_bias, Of(name, 5, 6)}), 6);
    EXPECT_EQ(NodesOf(text), 1) << name;
    ExpectComputesRows(text, [&activation = activation](auto& x, auto& tensors) {
      return activation(
          at::linear(x, tensors.parameters.at("square"), tensors.parameters.at("bias")));
    });
    // A linear layer without a bias is not fused.
    EXPECT_EQ(NodesOf(RowsText(Chain({Linear(0, 3, 5), Of(name, 5, 6)}), 6)), 2);
  }
}

// Returns queries, keys and values of two heads.
std::vector<Tensor> PartsOf(const Tensor& x, const ExportedGraph::Tensors& tensors) {
  return at::linear(x, tensors.parameters.at("qkv"))
      .view({4, 6, 3, 2, 4})
      .permute({2, 0, 3, 1, 4})
      .unbind(0);
}

std::vector<std::string> AttentionNodes(const std::string& order) {
  return {
      Linear(0, 4, 5),
      Reshape(5, "[-1, 6, 3, 2, 4]", 6),
      fmt::format(
          R"({{"op": "aten::permute", "overload": "", "args": [{{"v": 6}}, {}], "out": [7]}})",
          order),
      R"({"op": "aten::unbind", "overload": "int", "args": [{"v": 7}, 0], "out": [[8, 9, 10]]})",
      R"({"op": "aten::scaled_dot_product_attention", "overload": "", "args": [{"v": 8}, {"v": 9}, {"v": 10}, null,
              {"f": 0.0}, false, null, false], "out": [11]})",
      R"({"op": "aten::transpose", "overload": "int", "args": [{"v": 11}, 1, 2], "out": [12]})",
      Reshape(12, "[-1, 6, 8]", 13)};
}

TEST(Fuse, ReadsQueriesKeysAndValuesWhereTheyLie) {
  const std::string text = RowsText(Chain(AttentionNodes("[2, 0, 3, 1, 4]")), 13);
  EXPECT_EQ(NodesOf(text), 2);
  ExpectComputesRows(text, [](auto& x, auto& tensors) {
    const auto parts = PartsOf(x, tensors);
    return at::scaled_dot_product_attention(parts[0], parts[1], parts[2])
        .transpose(1, 2)
        .reshape({4, 6, kChannels});
  });
  // Nothing is fused if the permute has another order of dimensions.
  EXPECT_EQ(NodesOf(RowsText(Chain(AttentionNodes("[2, 0, 1, 3, 4]")), 13)), 7);
}

// Returns the text of a graph. Its values are: 0 x; 1 a weight [24, 8]; 2 a bias [heads, 6, 6] for the scores; 3 a mask
// [2, 6, 6] that hides tokens.
// With `has_scale`, 4 is a scale for each head.
std::string WindowsText(const std::vector<std::string>& nodes, bool has_scale = false) {
  return fmt::format(
      R"({{"values": 60, "batch": [1, 8], "inputs": [0], "parameters": {{"qkv": 1, "bias": 2{}}}, "buffers": {{"hiding": 3}},
          "constants": {{}}, "nodes": [{}], "output": 30}})",
      has_scale ? R"(, "scale": 4)" : "", Chain(nodes));
}

ExportedGraph::Tensors WindowsTensors() {
  at::manual_seed(1);
  ExportedGraph::Tensors tensors;
  tensors.parameters["qkv"] = (0.3 * at::randn({3 * kChannels, kChannels})).requires_grad_();
  tensors.parameters["bias"] = at::randn({2, 6, 6}).requires_grad_();
  tensors.buffers["hiding"] = at::zeros({2, 6, 6});
  tensors.buffers["hiding"][1].narrow(0, 0, 3).narrow(1, 3, 3).fill_(-100);
  return tensors;
}

// Returns WindowsTensors() with a bias [1, 6, 6] that all heads share.
ExportedGraph::Tensors OneHeadsTensors() {
  ExportedGraph::Tensors tensors = WindowsTensors();
  tensors.parameters["bias"] = at::randn({1, 6, 6}).requires_grad_();
  return tensors;
}

// Returns the nodes of the attention of 2 heads in timm's Swin transformers, with explicit scores or with
// scaled_dot_product_attention.
std::vector<std::string> WindowNodes(bool is_explicit, bool hides, double scale = 0.5,
                                     double dropout = 0) {
  std::vector<std::string> nodes = {
      Linear(0, 1, 5), Reshape(5, "[-1, 6, 3, 2, 4]", 6), View("permute", 6, "[2, 0, 3, 1, 4]", 7),
      R"({"op": "aten::unbind", "overload": "int", "args": [{"v": 7}, 0], "out": [[8, 9, 10]]})"};
  const auto add = [&](const std::string& node) { nodes.push_back(node); };
  if (is_explicit) {
    add(fmt::format(
        R"({{"op": "aten::mul", "overload": "Tensor", "args": [{{"v": 8}}, {{"f": {}}}], "out": [11]}})",
        scale));
    add(R"({"op": "aten::transpose", "overload": "int", "args": [{"v": 9}, -2, -1], "out": [12]})");
    add(R"({"op": "aten::matmul", "overload": "", "args": [{"v": 11}, {"v": 12}], "out": [13]})");
    add(View("unsqueeze", 2, "0", 14));
    add(Sum("add", 13, 14, 15));
    if (hides) {
      add(View("view", 15, "[-1, 2, 2, 6, 6]", 16));
      add(View("unsqueeze", 3, "1", 17));
      add(View("unsqueeze", 17, "0", 18));
      add(Sum("add", 16, 18, 19));
      add(View("view", 19, "[-1, 2, 6, 6]", 20));
    }
    add(fmt::format(
        R"({{"op": "aten::softmax", "overload": "int", "args": [{{"v": {}}}, -1, null], "out": [21]}})",
        hides ? 20 : 15));
    add(fmt::format(
        R"({{"op": "aten::dropout", "overload": "", "args": [{{"v": 21}}, {{"f": {}}}, true], "out": [22]}})",
        dropout));
    add(R"({"op": "aten::matmul", "overload": "", "args": [{"v": 22}, {"v": 10}], "out": [23]})");
  } else {
    add(View("unsqueeze", 2, "0", 14));
    if (hides) {
      add(View("view", 3, "[1, 2, 1, 6, 6]", 16));
      add(R"({"op": "aten::expand", "overload": "", "args": [{"v": 16}, [2, -1, 2, -1, -1], false], "out": [17]})");
      add(Reshape(17, "[-1, 2, 6, 6]", 18));
      add(Sum("add", 14, 18, 19));
    }
    add(fmt::format(
        R"({{"op": "aten::scaled_dot_product_attention", "overload": "", "args": [{{"v": 8}}, {{"v": 9}}, {{"v": 10}},
            {{"v": {}}}, {{"f": {}}}, false, null, false], "out": [23]}})",
        hides ? 19 : 14, dropout));
  }
  add(R"({"op": "aten::transpose", "overload": "int", "args": [{"v": 23}, 1, 2], "out": [24]})");
  add(Reshape(24, "[-1, 6, 8]", 30));
  return nodes;
}

// Checks the attention on an input of 4 windows, in float32 and under autocast to bfloat16.
void ExpectComputesWindows(bool is_explicit, bool hides, double scale,
                           ExportedGraph::Tensors (*make)()) {
  const std::string text = WindowsText(WindowNodes(is_explicit, hides, scale));
  const ExpectedOf expected = [&](const Tensor& x, const ExportedGraph::Tensors& tensors) {
    const auto parts = PartsOf(x, tensors);
    Tensor mask = tensors.parameters.at("bias").unsqueeze(0);
    if (hides) {
      mask = mask + tensors.buffers.at("hiding")
                        .view({1, 2, 1, 6, 6})
                        .expand({2, 2, 2, 6, 6})
                        .reshape({4, 2, 6, 6});
    }
    const Tensor y =
        is_explicit
            ? at::matmul(
                  at::softmax(at::matmul(parts[0] * scale, parts[1].transpose(2, 3)) + mask, -1),
                  parts[2])
            : at::scaled_dot_product_attention(parts[0], parts[1], parts[2], mask);
    return y.transpose(1, 2).reshape({4, 6, kChannels});
  };
  ExpectAlikeAndRounded(text, {4, 6, kChannels}, make, expected);
}

TEST(Fuse, AddsABiasToScoresOfWindows) {
  for (const bool is_explicit : {true, false}) {
    for (const bool hides : {false, true}) {
      SCOPED_TRACE(testing::Message() << (is_explicit ? "explicit" : "sdpa") << hides);
      // These nodes remain besides the fused operation: the linear layer, an unsqueeze of the bias, and with a mask the
      // two unsqueezes or the one view of the mask.
      const size_t left = 2 + (hides ? (is_explicit ? 2 : 1) : 0);
      EXPECT_EQ(NodesOf(WindowsText(WindowNodes(is_explicit, hides))), left + 1);
      ExpectComputesWindows(is_explicit, hides, 0.5, WindowsTensors);
      // WindowAttention() does not support a bias that all heads share, so LibTorch's operations are called.
      ExpectComputesWindows(is_explicit, hides, 0.5, OneHeadsTensors);
      // With dropout, scaled_dot_product_attention is still fused. Of explicit scores only the bias, the softmax and the
      // dropout are one operation; with a mask views lie between the bias and the softmax.
      const auto dropping = WindowNodes(is_explicit, hides, 0.5, /*dropout=*/0.1);
      const size_t apart = dropping.size() - (hides ? 1 : 2);
      EXPECT_EQ(NodesOf(WindowsText(dropping)), is_explicit ? apart : left + 1);
    }
  }
  // LibTorch's operations are also called for a scale of 0.3, because WindowAttention() supports only 1 / sqrt(size),
  // which is 0.5 for these heads of size 4.
  ExpectComputesWindows(/*is_explicit=*/true, /*hides=*/true, 0.3, WindowsTensors);
}

// Returns the nodes of the attention by cosines of 2 heads in timm's and torchvision's Swin transformers V2. `least` is
// the length below which vectors are not scaled to length 1.
std::vector<std::string> CosineNodes(bool hides, const std::string& least = "1e-12") {
  std::vector<std::string> nodes;
  for (const std::string& node : WindowNodes(/*is_explicit=*/true, hides)) {
    if (node.find("aten::mul\"") != std::string::npos) {
      for (const int vectors : {8, 9}) {
        const int norm = 10 * vectors - 40;  // 40 or 50
        nodes.push_back(
            Call("linalg_vector_norm", "", vectors, R"(, {"f": 2.0}, [-1], true, null)", norm));
        nodes.push_back(
            Call("clamp_min", "", norm, fmt::format(R"(, {{"f": {}}})", least), norm + 1));
        nodes.push_back(
            Call("expand_as", "", norm + 1, fmt::format(R"(, {{"v": {}}})", vectors), norm + 2));
        nodes.push_back(
            Call("div", "Tensor", vectors, fmt::format(R"(, {{"v": {}}})", norm + 2), norm + 3));
      }
    } else if (node.find("aten::transpose\"") != std::string::npos && nodes.size() == 12) {
      nodes.push_back(Call("transpose", "int", 53, ", -2, -1", 12));
    } else if (node.find("aten::matmul\"") != std::string::npos && nodes.size() == 13) {
      nodes.push_back(
          R"({"op": "aten::matmul", "overload": "", "args": [{"v": 43}, {"v": 12}], "out": [54]})");
      nodes.push_back(Call("mul", "Tensor", 54, R"(, {"v": 4})", 13));
    } else {
      nodes.push_back(node);
    }
  }
  return nodes;
}

ExportedGraph::Tensors CosineTensors() {
  ExportedGraph::Tensors tensors = WindowsTensors();
  tensors.parameters["scale"] =
      at::tensor({1.5, 0.7}).to(at::kFloat).view({2, 1, 1}).requires_grad_();
  return tensors;
}

// Returns CosineTensors() with one scale for all heads, which UnitQueries() does not take.
ExportedGraph::Tensors OneScaleTensors() {
  ExportedGraph::Tensors tensors = WindowsTensors();
  tensors.parameters["scale"] = at::full({1}, 1.5).requires_grad_();
  return tensors;
}

TEST(Fuse, ComputesAttentionByCosines) {
  for (const bool hides : {false, true}) {
    const std::string text = WindowsText(CosineNodes(hides), /*has_scale=*/true);
    // The linear layer, the fused attention, and the unsqueezes of the bias and of the mask remain.
    EXPECT_EQ(NodesOf(text), 3 + (hides ? 2 : 0));
    const ExpectedOf expected = [&](const Tensor& x, const ExportedGraph::Tensors& tensors) {
      const auto parts = PartsOf(x, tensors);
      const auto unit = [](const Tensor& y) {
        return y / at::linalg_vector_norm(y, 2, {-1}, /*keepdim=*/true).clamp_min(1e-12);
      };
      Tensor scores = at::matmul(unit(parts[0]), unit(parts[1]).transpose(2, 3)) *
                          tensors.parameters.at("scale") +
                      tensors.parameters.at("bias").unsqueeze(0);
      if (hides) {
        scores = (scores.view({-1, 2, 2, 6, 6}) + tensors.buffers.at("hiding").unsqueeze(1))
                     .view({-1, 2, 6, 6});
      }
      return at::matmul(scores.softmax(-1), parts[2]).transpose(1, 2).reshape({4, 6, kChannels});
    };
    for (const auto make : {CosineTensors, OneScaleTensors}) {
      ExpectAlikeAndRounded(text, {4, 6, kChannels}, make, expected);
    }
  }
  // torchvision selects the three parts, and other operations may change their own tensors in place meanwhile.
  std::vector<std::string> selecting = CosineNodes(/*hides=*/false);
  selecting[3] =
      Chain({Call("select", "int", 7, ", 0, 0", 8), Call("select", "int", 7, ", 0, 1", 9),
             Call("select", "int", 7, ", 0, 2", 10)});
  selecting.insert(selecting.begin() + 5,
                   Chain({Call("clone", "", 2, ", null", 56), Of("relu_", 56, 57)}));
  EXPECT_EQ(NodesOf(WindowsText(selecting, /*has_scale=*/true)), 3 + 2);
  // Vectors may not be divided by 0.
  EXPECT_GT(NodesOf(WindowsText(CosineNodes(false, "0.0"), /*has_scale=*/true)), 10);
}

// ---- Heads that share keys and values -------------------------------------------------------------

// Returns the nodes of the attention of 4 heads of size 2, of which each two share a head of keys and values.
std::vector<std::string> SharingNodes(const std::string& expanded, const std::string& reshaped) {
  std::vector<std::string> nodes = {Linear(0, 3, 5), Reshape(5, "[-1, 6, 4, 2]", 6),
                                    Call("transpose", "int", 6, ", 1, 2", 7),
                                    Call("slice", "Tensor", 7, ", 1, 0, 2, 1", 8)};
  for (const int repeated : {10, 20}) {
    nodes.push_back(View("unsqueeze", 8, "2", repeated));
    nodes.push_back(Call("expand", "", repeated, ", " + expanded + ", false", repeated + 1));
    nodes.push_back(Reshape(repeated + 1, reshaped, repeated + 2));
  }
  nodes.push_back(
      R"({"op": "aten::scaled_dot_product_attention", "overload": "", "args": [{"v": 7}, {"v": 12}, {"v": 22}, null,
          {"f": 0.0}, true, {"f": 0.7}, false], "out": [23]})");
  return nodes;
}

TEST(Fuse, SharesKeysAndValues) {
  const std::string text = RowsText(Chain(SharingNodes("[-1, 2, 2, 6, 2]", "[-1, 4, 6, 2]")), 23);
  EXPECT_EQ(NodesOf(text), 5);
  ExpectComputesRows(text, [](auto& x, auto& tensors) {
    const Tensor q =
        at::linear(x, tensors.parameters.at("square")).view({4, 6, 4, 2}).transpose(1, 2);
    const Tensor k = q.narrow(1, 0, 2).repeat_interleave(2, 1);
    return at::scaled_dot_product_attention(q, k, k, {}, 0, /*is_causal=*/true, 0.7);
  });
}

// ---- torch.nn.MultiheadAttention ------------------------------------------------------------------

TEST(Fuse, TransposesNothingInMultiheadAttention) {
  const auto text = [](int width) {
    std::vector<std::string> nodes{
        Call("transpose", "int", 0, ", 1, 0", 5),
        Linear(5, 4, 6),
        Call("unflatten", "int", 6, fmt::format(", -1, [3, {}]", width), 7),
        Call("unsqueeze", "", 7, ", 0", 8),
        Call("transpose", "int", 8, ", 0, -2", 9),
        Call("squeeze", "dim", 9, ", -2", 10),
        Call("contiguous", "", 10, "", 11)};
    int value = 12;
    for (int part = 0; part < 3; ++part, value += 4) {
      nodes.push_back(Call("select", "int", 11, fmt::format(", 0, {}", part), value));
      nodes.push_back(Reshape(value, "[6, 8, 4]", value + 1));
      nodes.push_back(Call("transpose", "int", value + 1, ", 0, 1", value + 2));
      nodes.push_back(Reshape(value + 2, "[4, 2, 6, 4]", value + 3));
    }
    nodes.push_back(
        R"({"op": "aten::scaled_dot_product_attention", "overload": "", "args": [{"v": 15}, {"v": 19}, {"v": 23}, null,
            {"f": 0.0}, false, null, false], "out": [24]})");
    nodes.push_back(Call("permute", "", 24, ", [2, 0, 1, 3]", 25));
    nodes.push_back(Reshape(25, "[24, 8]", 26));
    nodes.push_back(Linear(26, 3, 27));
    nodes.push_back(Reshape(27, "[6, 4, 8]", 28));
    nodes.push_back(Call("transpose", "int", 28, ", 1, 0", 29));
    return RowsText(Chain(nodes), 29);
  };
  EXPECT_EQ(NodesOf(text(8)), 1);
  // Nothing is fused if the width of the unflattened parts, 4, is not the number of heads times their size, 2 * 4.
  EXPECT_EQ(NodesOf(text(4)), 25);
  ExpectComputesRows(text(8), [](auto& x, auto& tensors) {
    const auto parts = PartsOf(x, tensors);
    const Tensor y = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    return at::linear(y.transpose(1, 2).reshape({4, 6, kChannels}),
                      tensors.parameters.at("square"));
  });
}

// ---- Windows of images ---------------------------------------------------------------------------

// Checks the graph on an input of 2 images of 4 x 6 pixels.
void ExpectComputesImages(const std::string& text, const ExpectedOf& expected) {
  ExpectAlikeAndRounded(text, {2, 4, 6, kChannels}, RowsTensors, expected);
}

std::string Roll(int x, const std::string& shifts, int out, const std::string& dims = "[1, 2]") {
  return Call("roll", "", x, ", " + shifts + ", " + dims, out);
}

std::string Slice(int x, const std::string& range, int out) {
  return Call("slice", "Tensor", x, ", " + range + ", 1", out);
}

std::string SwapSizes(int x, int out) { return View("permute", x, "[0, 1, 3, 2, 4, 5]", out); }

Tensor Swapped(const Tensor& x, at::IntArrayRef parts, at::IntArrayRef result) {
  return x.reshape(parts).permute({0, 1, 3, 2, 4, 5}).reshape(result);
}

// Returns the nodes of a block of timm's Swin transformers with windows of 2 x 3 pixels and a linear layer in the place
// of attention.
std::vector<std::string> SwinNodes(bool rolls) {
  std::vector<std::string> nodes = {RowsNorm(0, 5)};
  if (rolls) nodes.push_back(Roll(5, "[-1, -2]", 6));
  nodes.insert(nodes.end(),
               {R"({"sym": "size", "args": [{"v": 0}, 0], "out": [7]})",
                View("view", rolls ? 6 : 5, R"([{"v": 7}, 2, 2, 2, 3, 8])", 8), SwapSizes(8, 9),
                View("contiguous", 9, "0", 10), View("view", 10, "[-1, 2, 3, 8]", 11),
                View("view", 11, "[-1, 6, 8]", 12), Linear(12, 3, 13),
                View("view", 13, "[-1, 2, 3, 8]", 14), View("view", 14, "[-1, 2, 2, 2, 3, 8]", 15),
                SwapSizes(15, 16), View("contiguous", 16, "0", 17),
                View("view", 17, "[-1, 4, 6, 8]", 18), Of("alias", 18, 19)});
  if (rolls) nodes.push_back(Roll(19, "[1, 2]", 20));
  nodes.push_back(Sum("add", 0, rolls ? 20 : 19, 21));
  return nodes;
}

TEST(Fuse, CutsImagesIntoWindows) {
  for (const bool rolls : {false, true}) {
    SCOPED_TRACE(rolls);
    const std::string text = RowsText(Chain(SwinNodes(rolls)), 21);
    // These nodes remain: norm, size, ToWindows(), linear layer, FromWindows(), sum.
    const exported::Program program = Fused(text);
    ASSERT_EQ(program.nodes.size(), 6);
    // All users of the norm round its result, so it has no float32 result.
    EXPECT_EQ(program.nodes[0].results[0].value, -1);
    EXPECT_GE(program.nodes[0].results[1].value, 0);
    ExpectComputesImages(text, [&](auto& x, auto& tensors) {
      Tensor y = RowsNormed(x, tensors);
      if (rolls) y = at::roll(y, {-1, -2}, {1, 2});
      y = at::linear(Swapped(y, {2, 2, 2, 2, 3, 8}, {8, 6, 8}), tensors.parameters.at("square"));
      y = Swapped(y, {2, 2, 2, 2, 3, 8}, {2, 4, 6, 8});
      return x + (rolls ? at::roll(y, {1, 2}, {1, 2}) : y);
    });
  }
}

// Checks torchvision's chain for images whose sides are not multiples of the window's sides: after it has joined the
// windows, the chain cuts off the padding and then rolls the image.
TEST(Fuse, CutsPaddedImagesIntoWindows) {
  const std::string text = RowsText(
      Chain({Linear(0, 3, 5), View("view", 5, "[2, 2, 2, 2, 3, 8]", 6), SwapSizes(6, 7),
             Reshape(7, "[8, 6, 8]", 8), Linear(8, 3, 9), View("view", 9, "[2, 2, 2, 2, 3, 8]", 10),
             SwapSizes(10, 11), Reshape(11, "[2, 4, 6, 8]", 12), Slice(12, "1, 0, 3", 13),
             Roll(13, "[1, 2]", 14)}),
      14);
  EXPECT_EQ(NodesOf(text), 6);
  ExpectComputesImages(text, [](auto& x, auto& tensors) {
    const Tensor& square = tensors.parameters.at("square");
    const Tensor y =
        at::linear(Swapped(at::linear(x, square), {2, 2, 2, 2, 3, 8}, {8, 6, 8}), square);
    return at::roll(Swapped(y, {2, 2, 2, 2, 3, 8}, {2, 4, 6, 8}).slice(1, 0, 3), {1, 2}, {1, 2});
  });
}

// Checks three rolls that are not fused with the cut into windows: the windows do not fit the image, the rolled image
// comes from a reshape to a shape with a -1, and the pixels are not contiguous.
TEST(Fuse, RollsWhatIsNoWindow) {
  // The first view has 2 x 2 windows of 3 x 2 pixels, which do not fit the rolled images of 4 x 6 pixels.
  const std::string before = RowsText(
      Chain({Of("relu", 0, 5), Roll(5, "[-1, -2]", 6), View("view", 6, "[2, 2, 3, 2, 2, 8]", 7),
             SwapSizes(7, 8), Reshape(8, "[-1, 6, 8]", 9)}),
      9);
  EXPECT_EQ(NodesOf(before), 2);
  ExpectComputesImages(before, [](auto& x, auto&) {
    return Swapped(at::roll(at::relu(x), {-1, -2}, {1, 2}), {2, 2, 3, 2, 2, 8}, {8, 6, 8});
  });
  const std::string after =
      RowsText(Chain({Of("relu", 0, 5), View("view", 5, "[2, 2, 3, 2, 2, 8]", 6), SwapSizes(6, 7),
                      Reshape(7, "[2, -1, 6, 8]", 8), Roll(8, "[1, 2]", 9)}),
               9);
  EXPECT_EQ(NodesOf(after), 2);
  ExpectComputesImages(after, [](auto& x, auto&) {
    return at::roll(Swapped(at::relu(x), {2, 2, 3, 2, 2, 8}, {2, 4, 6, 8}), {1, 2}, {1, 2});
  });
  // The pixels of the transposed images are not contiguous in memory.
  const std::string strided = RowsText(
      Chain({Call("transpose", "int", 0, ", 1, 2", 5), Roll(5, "[-1, -2]", 6),
             Reshape(6, "[2, 3, 2, 2, 2, 8]", 7), SwapSizes(7, 8), Reshape(8, "[-1, 4, 8]", 9)}),
      9);
  EXPECT_EQ(NodesOf(strided), 2);
  ExpectComputesImages(strided, [](auto& x, auto&) {
    return Swapped(at::roll(x.transpose(1, 2), {-1, -2}, {1, 2}), {2, 3, 2, 2, 2, 8}, {12, 4, 8});
  });
}

TEST(Fuse, LeavesWindowsThatOthersUse) {
  const auto nodes = [](const std::string& dims) {
    return std::vector<std::string>{Of("relu", 0, 5), Roll(5, "[-1, -2]", 6, dims),
                                    View("view", 6, "[2, 2, 2, 2, 3, 8]", 7), SwapSizes(7, 8),
                                    Reshape(8, "[2, 4, 6, 8]", 9)};
  };
  EXPECT_EQ(NodesOf(RowsText(Chain(nodes("[1, 2]")), 9)), 2);
  // A roll that names the dimensions in another order is not fused.
  EXPECT_EQ(NodesOf(RowsText(Chain(nodes("[2, 1]")), 9)), 3);
  // The roll is not fused if the rolled image has another user.
  std::vector<std::string> used = nodes("[1, 2]");
  used.push_back(Sum("add", 6, 9, 10));
  EXPECT_EQ(NodesOf(RowsText(Chain(used), 10)), 4);
  ExpectComputesImages(RowsText(Chain(used), 10), [](auto& x, auto&) {
    const Tensor rolled = at::roll(at::relu(x), {-1, -2}, {1, 2});
    return rolled + Swapped(rolled, {2, 2, 2, 2, 3, 8}, {2, 4, 6, 8});
  });
  // Nothing is fused if an intermediate result has another user, or if the windows are changed in place.
  used.back() = Of("mean", 7, 10);
  used.push_back(Sum("add", 9, 10, 11));
  EXPECT_EQ(NodesOf(RowsText(Chain(used), 11)), 7);
  std::vector<std::string> written = nodes("[1, 2]");
  written.push_back(Of("neg_", 9, 10));
  EXPECT_EQ(NodesOf(RowsText(Chain(written), 10)), 6);
}

// ---- Squeeze-and-excitation ----------------------------------------------------------------------

// Returns the text of a graph. Its values are: 0 x; 1 to 4 a norm's weight, bias and running statistics; 5, 6 weights
// [8, 8, 1, 1]; 7 a bias [8].
std::string ExciteText(const std::vector<std::string>& nodes, int output) {
  return fmt::format(
      R"({{"values": 40, "batch": [1, 8], "inputs": [0], "parameters": {{"weight": 1, "bias": 2, "reduce": 5, "expand": 6,
          "expand_bias": 7}}, "buffers": {{"mean": 3, "var": 4}}, "constants": {{}}, "nodes": [{}], "output": {}}})",
      Chain(nodes), output);
}

ExportedGraph::Tensors ExciteTensors() {
  at::manual_seed(1);
  ExportedGraph::Tensors tensors;
  tensors.parameters["weight"] = (at::rand({kChannels}) + 0.5).requires_grad_();
  for (const std::string name : {"bias", "expand_bias"}) {
    tensors.parameters[name] = at::randn({kChannels}).requires_grad_();
  }
  for (const std::string name : {"reduce", "expand"}) {
    tensors.parameters[name] = at::randn({kChannels, kChannels, 1, 1}).requires_grad_();
  }
  tensors.buffers["mean"] = at::randn({kChannels});
  tensors.buffers["var"] = at::rand({kChannels}) + 0.5;
  return tensors;
}

std::string PixelMean(int x, int out, const std::string& keeps = "true") {
  return Call("mean", "dim", x, ", [2, 3], " + keeps + ", null", out);
}

// Returns the nodes of a squeeze-and-excitation of value 9, the activated norm of x. The product is value 15.
std::vector<std::string> ExciteNodes(const std::string& mean, bool gate_first) {
  return {
      Norm(0, 1, 8),
      Of("silu_", 8, 9),
      mean,
      R"({"op": "aten::conv2d", "overload": "", "args": [{"v": 10}, {"v": 5}], "out": [11]})",
      Of("silu_", 11, 12),
      R"({"op": "aten::conv2d", "overload": "", "args": [{"v": 12}, {"v": 6}, {"v": 7}], "out": [13]})",
      Of("sigmoid", 13, 14),
      Sum("mul", gate_first ? 14 : 9, gate_first ? 9 : 14, 15)};
}

// Returns the number of nodes that are fused operations.
int64_t FusedNodesOf(const std::string& text) {
  const exported::Program program = Fused(text);
  return std::ranges::count_if(
      program.nodes, [](const exported::Node& node) { return static_cast<bool>(node.fused); });
}

TEST(Fuse, SqueezesAndExcites) {
  const ExpectedOf expected = [](auto& x, auto& tensors) {
    const auto& parameters = tensors.parameters;
    const Tensor normed = at::silu(at::batch_norm(
        x, parameters.at("weight"), parameters.at("bias"), tensors.buffers.at("mean"),
        tensors.buffers.at("var"), true, 0.1, 1e-5, true));
    const Tensor reduced =
        at::silu(at::conv2d(normed.mean({2, 3}, /*keepdim=*/true), parameters.at("reduce")));
    return normed *
           at::sigmoid(at::conv2d(reduced, parameters.at("expand"), parameters.at("expand_bias")));
  };
  for (const std::string& mean : {PixelMean(9, 10), View("adaptive_avg_pool2d", 9, "[1, 1]", 10)}) {
    for (const bool gate_first : {false, true}) {
      const std::string text = ExciteText(ExciteNodes(mean, gate_first), 15);
      EXPECT_EQ(NodesOf(text), 7);
      EXPECT_EQ(FusedNodesOf(text), 5)
          << "norm, mean, product, and a convolution whose bias is added with the activation";
      ExpectAlikeAndRounded(text, {4, kChannels, 6, 5}, ExciteTensors, expected);
    }
  }
}

// ECA-Net's gates: a mean without the dimensions of the pixels, and a gate that is expanded.
TEST(Fuse, ExcitesByAnExpandedGate) {
  const std::string text =
      ExciteText({Of("sin", 0, 9), PixelMean(9, 10, "false"), Of("sigmoid", 10, 11),
                  View("view", 11, "[4, 8, 1, 1]", 12),
                  Call("expand_as", "", 12, R"(, {"v": 9})", 13), Sum("mul", 9, 13, 15)},
                 15);
  EXPECT_EQ(NodesOf(text), 5);
  EXPECT_EQ(FusedNodesOf(text), 2);
  ExpectAlikeAndRounded(text, {4, kChannels, 6, 5}, ExciteTensors, [](auto& x, auto&) {
    const Tensor y = at::sin(x);
    return y * at::sigmoid(y.mean({2, 3}, /*keepdim=*/true));
  });
}

TEST(Fuse, LeavesAProductThatIsNoExcitation) {
  const std::vector<std::string> nodes = ExciteNodes(PixelMean(9, 10), /*gate_first=*/false);
  // The mean and the product are not fused, because value 9 has another user or is the output. Three fused nodes remain:
  // the norm with its activation, the gate's activation with the product and a convolution's bias, and that convolution.
  std::vector<std::string> used = nodes;
  used.push_back(Sum("mul", 15, 9, 16));
  EXPECT_EQ(FusedNodesOf(ExciteText(used, 16)), 3);
  EXPECT_EQ(FusedNodesOf(ExciteText(nodes, 9)), 3);
  // The product is not fused if the second factor, here value 7, is not computed from the mean.
  std::vector<std::string> other = nodes;
  other.back() = Sum("mul", 9, 7, 15);
  EXPECT_EQ(FusedNodesOf(ExciteText(other, 15)), 3);
  // The mean and the product are not fused if the mean is not over all pixels.
  EXPECT_EQ(FusedNodesOf(
                ExciteText(ExciteNodes(View("adaptive_avg_pool2d", 9, "[1, 2]", 10), false), 15)),
            3);
  // The same holds if value 9 is changed in place, through a view, between the mean and the product.
  std::vector<std::string> written = nodes;
  written.insert(written.begin() + 1, View("view", 8, "[-1]", 20));
  written.insert(written.end() - 1, Of("neg_", 20, 21));
  EXPECT_EQ(FusedNodesOf(ExciteText(written, 15)), 3);
}

// ---- Pads ----------------------------------------------------------------------------------------

std::string Pad(int x, int out) {
  return Call("pad", "", x, R"(, [0, 0, 0, 0], "constant", null)", out);
}

TEST(Fuse, LeavesOutADropoutOfNothing) {
  const auto nodes_of = [](const std::string& arguments) {
    return NodesOf(RowsText(Chain({Linear(0, 3, 5), Call("dropout", "", 5, arguments, 6),
                                   Of("relu_", 6, 7), Sum("add", 7, 5, 8)}),
                            8));
  };
  EXPECT_EQ(nodes_of(R"(, {"f": 0.0}, true)"), 3);
  EXPECT_EQ(nodes_of(R"(, {"f": 0.5}, false)"), 3);
  EXPECT_EQ(nodes_of(R"(, {"f": 0.5}, true)"), 4);
  // The sum reads what relu_ has written.
  ExpectComputesRows(
      RowsText(Chain({Linear(0, 3, 5), Call("dropout", "", 5, R"(, {"f": 0.0}, true)", 6),
                      Of("relu_", 6, 7), Sum("add", 7, 5, 8)}),
               8),
      [](auto& x, auto& tensors) {
        return 2 * at::relu(at::linear(x, tensors.parameters.at("square")));
      });
}

TEST(Fuse, LeavesOutAPadOfNothing) {
  // Without the pad, all users of the norm round its result, so the norm has no float32 result.
  const std::string normed = RowsText(Chain({RowsNorm(0, 6), Pad(6, 5), Linear(5, 3, 7)}), 7);
  const exported::Program program = Fused(normed);
  ASSERT_EQ(program.nodes.size(), 2);
  EXPECT_EQ(program.nodes[0].results[0].value, -1);
  ExpectComputesRows(normed, [](auto& x, auto& tensors) {
    return at::linear(RowsNormed(x, tensors), tensors.parameters.at("square"));
  });
  const std::string pad = Pad(0, 5);
  EXPECT_EQ(NodesOf(RowsText(Chain({pad, Of("relu", 5, 6)}), 6)), 1);
  EXPECT_FALSE(Fused(RowsText(Chain({pad, Of("relu", 5, 6)}), 6)).nodes[0].fused);
  // The pad, whose copy relu_ changes, stays, as a part of a group.
  const exported::Program written = Fused(RowsText(Chain({pad, Of("relu_", 5, 6)}), 6));
  ASSERT_EQ(written.nodes.size(), 1);
  EXPECT_TRUE(written.nodes[0].fused);
}

// ---- Concatenations ------------------------------------------------------------------------------

std::string Cat(const std::vector<int>& of, int out) {
  std::vector<std::string> values;
  for (const int value : of) values.push_back(fmt::format(R"({{"v": {}}})", value));
  return fmt::format(R"({{"op": "aten::cat", "overload": "", "args": [[{}], 1], "out": [{}]}})",
                     fmt::join(values, ", "), out);
}

// Returns a graph that puts x behind an empty cache, value 20, and then calls `user`, which takes value 7 and returns
// value 8.
std::string CacheText(const std::string& user) {
  std::string text =
      RowsText(Chain({Of("lift_fresh_copy", 20, 5), Of("detach_", 5, 6), Cat({6, 0}, 7), user}), 8);
  const std::string none = R"("constants": {})";
  return text.replace(text.find(none), none.size(), R"("constants": {"0": 20})");
}

ExportedGraph::Tensors WithCache() {
  ExportedGraph::Tensors tensors = RowsTensors();
  tensors.constants["0"] = at::empty({0});
  return tensors;
}

size_t NodesWithCache(const std::string& text) {
  const exported::SharedStatistics shared;
  exported::Program program = exported::ReadProgram(Json::parse(text), "net.lsm", 1);
  program.empty_constants.insert(20);
  exported::Fuse(program, shared);
  return program.nodes.size();
}

TEST(Fuse, LeavesOutACacheThatIsEmpty) {
  const std::string rounds = CacheText(Linear(7, 3, 8));
  EXPECT_EQ(NodesWithCache(rounds), 3);
  const ExpectedOf expected = [](const Tensor& x, const ExportedGraph::Tensors& tensors) {
    return at::linear(x, tensors.parameters.at("square"));
  };
  ExpectAlikeAndRounded(rounds, {4, 6, kChannels}, WithCache, expected);
  // Without the cache, the result of bfloat16 x would not be float32.
  EXPECT_EQ(NodesWithCache(CacheText(Of("sin", 7, 8))), 4);
  EXPECT_EQ(NodesWithCache(CacheText(Of("sin_", 7, 8))), 4);
}

// The argument of the copy is no value of the graph.
TEST(Fuse, LeavesAConcatenationWithTheCopyOfANumber) {
  const std::string number =
      R"({"op": "aten::clone", "overload": "", "args": [{"f": 2.5}, null], "out": [5]})";
  const std::string text = RowsText(Chain({number, Cat({5, 0}, 7), Linear(7, 3, 8)}), 8);
  EXPECT_EQ(NodesOf(text), 3);
  exported::Program program = exported::ReadProgram(Json::parse(text), "net.lsm", 1);
  EXPECT_EQ(exported::Rewriter(program).MakerOf(program.nodes[0].arguments[0].value), -1);
}

TEST(Fuse, ReadsWhatIsConcatenatedAlready) {
  // As in a DenseNet: each layer reads the results of all layers before it.
  const std::vector<std::string> nodes = {Of("sin", 0, 5),   Cat({0, 5}, 6),       Of("sin", 6, 7),
                                          Cat({0, 5, 7}, 8), Cat({0, 5, 7, 5}, 9), Of("sin", 8, 10),
                                          Cat({9, 10}, 11)};
  const std::string text = RowsText(Chain(nodes), 11);
  const exported::Program program = Fused(text);
  const auto read = [&](size_t node) {
    return exported::ValuesOf(program.nodes[node].arguments[0]);
  };
  EXPECT_EQ(read(1), (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(read(3), (std::vector<int64_t>{6, 7}));
  EXPECT_EQ(read(4), (std::vector<int64_t>{8, 5}));
  ExpectComputesRows(text, [](auto& x, auto&) {
    const Tensor a = x.sin(), b = at::cat({x, a}, 1).sin(), all = at::cat({x, a, b}, 1);
    return at::cat({all, a, all.sin()}, 1);
  });
  // A concatenation that is changed in place is not what the later one would concatenate.
  std::vector<std::string> written = nodes;
  written[2] = Of("sin_", 6, 7);
  EXPECT_EQ(exported::ValuesOf(Fused(RowsText(Chain(written), 11)).nodes[3].arguments[0]),
            (std::vector<int64_t>{0, 5, 7}));
}

}  // namespace
}  // namespace lockstep
