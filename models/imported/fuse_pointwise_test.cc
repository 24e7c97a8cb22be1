// Tests which operations are put into one generated kernel, and that the kernel's expression and derivatives agree with
// LibTorch's.

#include "models/imported/fuse_pointwise.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/imported/exported_graph.h"

namespace lockstep::exported {
namespace {

using Json = nlohmann::json;
using ops::Expressions;
using ops::Primitive;
using ops::TermId;

// Values 0 to 8 are inputs; the results of the nodes follow.
constexpr int kInputs = 9;

std::string Text(const std::vector<std::string>& nodes, int output) {
  return fmt::format(
      R"({{"values": 30, "batch": [1, 8], "inputs": [0, 1, 2, 3, 4, 5, 6, 7, 8], "parameters": {{}}, "buffers": {{}},
          "constants": {{}}, "nodes": [{}], "output": {}}})",
      fmt::join(nodes, ", "), output);
}

// Returns the text of a call of `op` with the arguments value x and `more`, such as ", 1".
std::string Call(const std::string& op, int x, const std::string& more, int out) {
  const bool has_tensors = op == "add" || op == "sub" || op == "mul" || op == "div";
  const char* overload = has_tensors ? "Tensor" : op == "rsub" ? "Scalar" : "";
  return fmt::format(
      R"({{"op": "aten::{}", "overload": "{}", "args": [{{"v": {}}}{}], "out": [{}]}})", op,
      overload, x, more, out);
}

std::string Of(const std::string& op, int x, int y, int out) {
  return Call(op, x, fmt::format(R"(, {{"v": {}}})", y), out);
}

Program ProgramOf(const std::string& text) {
  return ReadProgram(Json::parse(text), "net.lsm", kInputs);
}

// Returns the number of nodes in the group that ends with `node`; 0: there is no group.
size_t SizeOf(const std::string& text, int64_t node) {
  Program program = ProgramOf(text);
  const Rewriter rewriter(program);
  const auto group = PointwiseGroupOf(rewriter, node);
  return group ? group->nodes.size() : 0;
}

at::Tensor ValueOf(const Expressions& expressions, TermId term,
                   const std::vector<at::Tensor>& inputs) {
  const auto [primitive, operands, number] = expressions.At(term);
  const auto value = [&, &of = operands](size_t i) { return ValueOf(expressions, of[i], inputs); };
  switch (primitive) {
    case Primitive::kInput:
      return inputs[static_cast<size_t>(number)];
    case Primitive::kConstant:
      return at::full({}, number, at::kDouble);
    case Primitive::kAdd:
      return value(0) + value(1);
    case Primitive::kSubtract:
      return value(0) - value(1);
    case Primitive::kMultiply:
      return value(0) * value(1);
    case Primitive::kDivide:
      return value(0) / value(1);
    case Primitive::kExp:
      return value(0).exp();
    case Primitive::kSigmoid:
      return value(0).sigmoid();
    case Primitive::kTanh:
      return value(0).tanh();
    case Primitive::kErf:
      return value(0).erf();
    case Primitive::kIfAtMost:
      return at::where(value(0) <= value(1), value(2), value(3));
  }
  return {};
}

struct OperationCase {
  const char* name;
  std::string call;  // the text of a call that takes value 9 and returns value 10
};

class FusePointwiseTest : public testing::TestWithParam<OperationCase> {};

// Checks that op(x * y) - z becomes one group, and that the group's values and derivatives are those of LibTorch.
TEST_P(FusePointwiseTest, TermsAndDerivativesAreLibTorchs) {
  const std::string text = Text({Of("mul", 0, 1, 9), GetParam().call, Of("sub", 10, 2, 11)}, 11);
  Program program = ProgramOf(text);
  const Rewriter rewriter(program);
  const auto group = PointwiseGroupOf(rewriter, 2);
  ASSERT_TRUE(group);
  EXPECT_EQ(group->nodes.size(), 3);
  ASSERT_EQ(group->function->inputs(), static_cast<int64_t>(group->inputs.size()));

  at::manual_seed(3);
  std::vector<at::Tensor> inputs;
  for (int i = 0; i < kInputs; ++i) {
    inputs.push_back((3 * at::randn({4, 50}, at::kDouble)).requires_grad_());
  }
  const ExportedGraph graph(Json::parse(text), "net.lsm", kInputs, {});
  const at::Tensor wanted = graph.Run(inputs);
  std::vector<at::Tensor> own;
  for (const int64_t value : group->inputs) own.push_back(inputs[value]);
  const at::Tensor gradient = at::randn_like(wanted);
  const auto gradients = torch::autograd::grad({wanted}, own, {gradient});

  const Expressions& expressions = group->function->expressions();
  own.push_back(gradient);
  EXPECT_TRUE(
      at::allclose(ValueOf(expressions, group->function->result(), own), wanted, 1e-10, 1e-10));
  for (size_t i = 0; i < gradients.size(); ++i) {
    const TermId term = group->function->gradients()[i];
    ASSERT_GE(term, 0);
    EXPECT_TRUE(at::allclose(ValueOf(expressions, term, own), gradients[i], 1e-7, 1e-7)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Operations, FusePointwiseTest,
    testing::Values(OperationCase{"Sum", Call("add", 9, R"(, {"v": 3}, 2)", 10)},
                    OperationCase{"Difference", Call("sub", 9, R"(, {"v": 3}, 1)", 10)},
                    OperationCase{"Reverse", Call("rsub", 9, R"(, {"f": 2.5}, 1)", 10)},
                    OperationCase{"Square", Call("square", 9, "", 10)},
                    OperationCase{"Relu6", Call("relu6", 9, "", 10)},
                    OperationCase{"Product", Of("mul", 9, 3, 10)},
                    OperationCase{"Quotient", Of("div", 9, 3, 10)},
                    OperationCase{"Times", Call("mul", 9, R"(, {"f": 0.3})", 10)},
                    OperationCase{"Negative", Call("neg", 9, "", 10)},
                    OperationCase{"Sigmoid", Call("sigmoid", 9, "", 10)},
                    OperationCase{"Tanh", Call("tanh", 9, "", 10)},
                    OperationCase{"Relu", Call("relu", 9, "", 10)},
                    OperationCase{"ReluInPlace", Call("relu_", 9, "", 10)},
                    OperationCase{"Silu", Call("silu", 9, "", 10)},
                    OperationCase{"Gelu", Call("gelu", 9, R"(, "none")", 10)},
                    OperationCase{"GeluTanh", Call("gelu", 9, R"(, "tanh")", 10)},
                    OperationCase{"Hardsigmoid", Call("hardsigmoid", 9, "", 10)},
                    OperationCase{"Hardswish", Call("hardswish", 9, "", 10)},
                    OperationCase{"Hardtanh", Call("hardtanh", 9, ", 0, 6", 10)},
                    OperationCase{"LeakyRelu", Call("leaky_relu", 9, R"(, {"f": 0.1})", 10)},
                    OperationCase{"Elu", Call("elu", 9, R"(, {"f": 1.5}, 1, 1)", 10)}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(PointwiseGroupTest, TakesWhatItAloneUses) {
  const std::vector<std::string> nodes = {Of("mul", 0, 1, 9), Call("silu", 9, "", 10),
                                          Of("mul", 10, 2, 11)};
  EXPECT_EQ(SizeOf(Text(nodes, 11), 2), 3);
  EXPECT_EQ(SizeOf(Text(nodes, 11), 0), 0);  // one operation is no group
  // Value 9 has two users, so the node that computes it does not join the group.
  auto more = nodes;
  more.push_back(Of("div", 11, 9, 12));
  EXPECT_EQ(SizeOf(Text(more, 12), 3), 3);
}

TEST(PointwiseGroupTest, HasAtMostSevenInputs) {
  std::vector<std::string> nodes = {Of("mul", 0, 1, 9)};
  for (int i = 2; i < kInputs; ++i) nodes.push_back(Of("mul", 7 + i, i, 8 + i));
  EXPECT_EQ(SizeOf(Text(nodes, 16), 7), 6);
}

TEST(PointwiseGroupTest, LeavesWritesToWhatOthersSee) {
  EXPECT_EQ(SizeOf(Text({Call("relu_", 0, "", 9), Of("mul", 9, 1, 10)}, 10), 1), 0);
  // No group is formed if an operation between the nodes writes to one of their inputs, here value 0.
  EXPECT_EQ(
      SizeOf(Text({Of("mul", 0, 1, 9), Call("relu_", 0, "", 10), Of("mul", 9, 2, 11)}, 11), 2), 0);
}

}  // namespace
}  // namespace lockstep::exported
