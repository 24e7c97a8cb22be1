// Tests which operations are put into one generated kernel, and that the kernel's expression and derivatives agree with
// LibTorch's.

#include "models/imported/fuse_generated.h"

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
using ops::Primitive;
using ops::Sizes;
using ops::TensorTerms;
using ops::TermId;

// Values 0 to 8 are inputs; the results of the nodes follow.
constexpr int kInputs = 9;
constexpr int kFirstRow = 7;  // inputs 7 and 8 are rows [50], the others [4, 50]

std::string Text(const std::vector<std::string>& nodes, int output) {
  return fmt::format(
      R"({{"values": 30, "batch": [1, 8], "inputs": [0, 1, 2, 3, 4, 5, 6, 7, 8], "parameters": {{}}, "buffers": {{}},
          "constants": {{}}, "nodes": [{}], "output": {}}})",
      fmt::join(nodes, ", "), output);
}

// Returns the text of a call of `op` with the arguments value x and `more`, such as ", 1".
std::string Call(const std::string& op, int x, const std::string& more, int out) {
  const bool has_tensors = op == "add" || op == "sub" || op == "mul" || op == "div";
  const std::map<std::string, std::string> overloads = {{"rsub", "Scalar"},
                                                        {"pow", "Tensor_Scalar"},
                                                        {"sum", "dim_IntList"},
                                                        {"mean", "dim"},
                                                        {"softmax", "int"}};
  const std::string overload = has_tensors              ? "Tensor"
                               : overloads.contains(op) ? overloads.at(op)
                                                        : "";
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
  const auto group = GeneratedGroupOf(rewriter, node, /*is_rounded=*/false);
  return group ? group->nodes.size() : 0;
}

// Computes a term with LibTorch's operations.
at::Tensor ValueOf(const TensorTerms& terms, TermId term, const std::vector<at::Tensor>& inputs) {
  const ops::Term& of = terms.At(term);
  const auto value = [&](size_t i) { return ValueOf(terms, of.operands[i], inputs); };
  const auto reduced = [&] {
    std::vector<int64_t> dims;
    for (size_t i = 0; i < ops::kMostDims; ++i) {
      if ((of.dims & (1U << i)) != 0) dims.push_back(static_cast<int64_t>(i));
    }
    return dims;
  };
  switch (of.primitive) {
    case Primitive::kInput:
      return inputs[static_cast<size_t>(of.number)];
    case Primitive::kConstant:
      return at::full({}, of.number, at::kDouble);
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
    case Primitive::kSqrt:
      return value(0).sqrt();
    case Primitive::kSigmoid:
      return value(0).sigmoid();
    case Primitive::kTanh:
      return value(0).tanh();
    case Primitive::kErf:
      return value(0).erf();
    case Primitive::kIfAtMost:
      return at::where(value(0) <= value(1), value(2), value(3));
    case Primitive::kStop:
      return value(0);
    case Primitive::kSum:
      return value(0).sum(reduced(), /*keepdim=*/true);
    case Primitive::kMax:
      return value(0).amax(reduced(), /*keepdim=*/true);
    case Primitive::kFirst: {
      at::Tensor first = value(0);
      for (const int64_t dim : reduced()) first = first.narrow(dim, 0, 1);
      return first;
    }
    case Primitive::kExpand:
      return value(0).expand(of.sizes);
    case Primitive::kReshape:
      return value(0).reshape(of.sizes);
    case Primitive::kSlice: {
      const int64_t dim = reduced()[0];
      return value(0).narrow(dim, static_cast<int64_t>(of.number), of.sizes[dim]);
    }
    case Primitive::kPad: {
      const int64_t dim = reduced()[0];
      const at::Tensor inner = value(0).expand(terms.SizesOf(of.operands[0]));
      const at::Tensor padded = at::zeros(of.sizes, at::kDouble);
      padded.narrow(dim, static_cast<int64_t>(of.number), inner.size(dim)).copy_(inner);
      return padded;
    }
  }
  return {};
}

struct OperationCase {
  const char* name;
  std::string call;  // the text of a call that takes value 9 and returns value 10
};

class FuseGeneratedTest : public testing::TestWithParam<OperationCase> {};

// Checks that op(x * y) - z becomes one group, and that the group's values and derivatives are those of LibTorch.
TEST_P(FuseGeneratedTest, TermsAndDerivativesAreLibTorchs) {
  const std::string text = Text({Of("mul", 0, 1, 9), GetParam().call, Of("sub", 10, 2, 11)}, 11);
  Program program = ProgramOf(text);
  const Rewriter rewriter(program);
  const auto group = GeneratedGroupOf(rewriter, 2, /*is_rounded=*/false);
  ASSERT_TRUE(group);
  EXPECT_EQ(group->nodes.size(), 3);

  at::manual_seed(3);
  std::vector<at::Tensor> inputs;
  for (int i = 0; i < kInputs; ++i) {
    const Sizes sizes = i < kFirstRow ? Sizes{4, 50} : Sizes{50};
    inputs.push_back((3 * at::randn(sizes, at::kDouble)).requires_grad_());
  }
  const ExportedGraph graph(Json::parse(text), "net.lsm", kInputs, {});
  const at::Tensor wanted = graph.Run(inputs);
  std::vector<at::Tensor> own;
  for (const int64_t value : group->inputs) own.push_back(inputs[value]);
  const at::Tensor gradient = at::randn_like(wanted);
  const auto gradients = torch::autograd::grad({wanted}, own, {gradient});

  TensorTerms terms;
  std::vector<TermId> of;
  for (const at::Tensor& input : own) {
    of.push_back(terms.Input(static_cast<int64_t>(of.size()), input.sizes().vec()));
  }
  const std::vector<at::ScalarType> types(own.size(), at::kFloat);
  const TermId result = group->build(terms, of, types, at::kFloat).term;
  const TermId dy = terms.Input(static_cast<int64_t>(of.size()), wanted.sizes().vec());
  const std::vector<TermId> found = terms.Gradients(result, dy, of);
  own.push_back(gradient);
  EXPECT_EQ(terms.SizesOf(result), wanted.sizes().vec());
  EXPECT_TRUE(at::allclose(ValueOf(terms, result, own), wanted, 1e-10, 1e-10));
  for (size_t i = 0; i < gradients.size(); ++i) {
    ASSERT_GE(found[i], 0);
    const at::Tensor value = ValueOf(terms, found[i], own).expand(own[i].sizes());
    EXPECT_TRUE(at::allclose(value, gradients[i], 1e-7, 1e-7)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Operations, FuseGeneratedTest,
    testing::Values(
        OperationCase{"Sum", Call("add", 9, R"(, {"v": 3}, 2)", 10)},
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
        OperationCase{"Elu", Call("elu", 9, R"(, {"f": 1.5}, 1, 1)", 10)},
        OperationCase{"Exp", Call("exp", 9, "", 10)},
        OperationCase{"Power", Call("pow", 9, ", 3", 10)},
        OperationCase{"Addcmul", Call("addcmul", 9, R"(, {"v": 3}, {"v": 7}, 2)", 10)},
        OperationCase{"NoDropout", Call("dropout", 9, R"(, {"f": 0.0}, true)", 10)},
        OperationCase{"SumOverSamples", Call("sum", 9, ", [0], true, null", 10)},
        OperationCase{"SumOverAll", Call("sum", 9, ", [0, 1], false, null", 10)},
        OperationCase{"MeanOverRows", Call("mean", 9, ", [-1], true, null", 10)},
        OperationCase{"MeanWithoutDims", Call("mean", 9, ", [0], false, null", 10)},
        OperationCase{"Norm", Call("linalg_vector_norm", 9, ", 2, [1], true, null", 10)},
        OperationCase{"Softmax", Call("softmax", 9, ", -1, null", 10)},
        OperationCase{"GroupNorm",
                      Call("group_norm", 9, R"(, 5, {"v": 7}, {"v": 8}, {"f": 1e-5}, true)", 10)}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(GeneratedGroupTest, TakesWhatItAloneUses) {
  const std::vector<std::string> nodes = {Of("mul", 0, 1, 9), Call("silu", 9, "", 10),
                                          Of("mul", 10, 2, 11)};
  EXPECT_EQ(SizeOf(Text(nodes, 11), 2), 3);
  EXPECT_EQ(SizeOf(Text(nodes, 11), 0), 0);  // one operation is no group
  // An operation that is in no group uses value 9, too, so the node that computes it does not join the group.
  auto more = nodes;
  more.push_back(Call("sin", 9, "", 12));
  more.push_back(Of("div", 11, 12, 13));
  EXPECT_EQ(SizeOf(Text(more, 13), 4), 3);
}

TEST(GeneratedGroupTest, HasAtMostSixteenInputs) {
  // A chain of 19 products, each with a weight of its own.
  std::vector<std::string> nodes, parameters;
  for (int i = 0; i < 19; ++i) {
    parameters.push_back(fmt::format(R"("w{}": {})", i, 40 + i));
    nodes.push_back(Of("mul", i == 0 ? 0 : 8 + i, 40 + i, 9 + i));
  }
  std::string text = Text(nodes, 27);
  text.replace(text.find(R"("values": 30)"), 12, R"("values": 60)");
  text.replace(text.find(R"("parameters": {})"), 16,
               fmt::format(R"("parameters": {{{}}})", fmt::join(parameters, ", ")));
  EXPECT_EQ(SizeOf(text, 18), 15);
}

TEST(GeneratedGroupTest, TakesWhatSeveralOfItsNodesUse) {
  const std::vector<std::string> nodes = {Of("mul", 0, 1, 9), Call("silu", 9, "", 10),
                                          Of("mul", 10, 9, 11)};
  EXPECT_EQ(SizeOf(Text(nodes, 11), 2), 3);
}

// Rotary positions: x cos + (-second half of x, first half of x) sin, in one group.
std::vector<std::string> RotaryNodes() {
  const auto half = [](int begin, int end, int out) {
    return fmt::format(
        R"({{"op": "aten::slice", "overload": "Tensor", "args": [{{"v": 0}}, 1, {}, {}, 1], "out": [{}]}})",
        begin, end, out);
  };
  return {
      half(25, 50, 9),
      Call("neg", 9, "", 10),
      half(0, 25, 11),
      R"({"op": "aten::cat", "overload": "", "args": [[{"v": 10}, {"v": 11}], -1], "out": [12]})",
      Of("mul", 12, 7, 13),
      Of("mul", 0, 8, 14),
      Call("add", 14, R"(, {"v": 13}, 1)", 15)};
}

TEST(GeneratedGroupTest, TakesHalvesThatChangePlaces) {
  const auto nodes = RotaryNodes();
  EXPECT_EQ(SizeOf(Text(nodes, 15), 6), 7);
  EXPECT_EQ(SizeOf(Text(nodes, 15), 3), 0);
}

TEST(GeneratedGroupTest, OneOperationIsAGroupOnlyIfItIsAGroupNorm) {
  EXPECT_EQ(SizeOf(Text({Call("softmax", 0, ", -1, null", 9)}, 9), 0), 0);
  EXPECT_EQ(
      SizeOf(Text({Call("group_norm", 0, R"(, 5, {"v": 7}, {"v": 8}, {"f": 1e-5}, true)", 9)}, 9),
             0),
      1);
}

TEST(GeneratedGroupTest, AddsTheBiasOfAConvolution) {
  const auto convolution = [](const std::string& groups) {
    return R"({"op": "aten::conv2d", "overload": "", "args": [{"v": 0}, {"v": 20}, {"v": 21}, [1, 1], [0, 0], [1, 1], )" +
           groups + R"(], "out": [9]})";
  };
  const auto biases_of = [](const std::vector<std::string>& nodes, int output) {
    std::string text = Text(nodes, output);
    text.replace(text.find(R"("parameters": {})"), 16,
                 R"("parameters": {"weight": 20, "bias": 21})");
    Program program = ProgramOf(text);
    const Rewriter rewriter(program);
    const auto group = GeneratedGroupOf(rewriter, 1, /*is_rounded=*/false);
    return group ? group->biases.size() : 0;
  };
  EXPECT_EQ(biases_of({convolution("1"), Call("silu", 9, "", 10)}, 10), 1);
  EXPECT_EQ(biases_of({convolution("4"), Call("silu", 9, "", 10)}, 10), 0);
  // The output is the convolution's result.
  EXPECT_EQ(biases_of({convolution("1"), Call("silu", 9, "", 10)}, 9), 0);
}

TEST(GeneratedGroupTest, LeavesWritesToWhatOthersSee) {
  // The last operation reads what the second has written.
  EXPECT_EQ(
      SizeOf(Text({Of("mul", 0, 1, 9), Call("relu_", 9, "", 10), Of("mul", 10, 9, 11)}, 11), 2), 0);
  EXPECT_EQ(SizeOf(Text({Of("mul", 0, 1, 9), Call("dropout", 9, R"(, {"f": 0.0}, true)", 10),
                         Call("relu_", 10, "", 11), Of("mul", 11, 9, 12)},
                        12),
                   3),
            0);
  EXPECT_EQ(SizeOf(Text({Call("relu_", 0, "", 9), Of("mul", 9, 1, 10)}, 10), 1), 0);
  // No group is formed if an operation between the nodes writes to one of their inputs, here value 0.
  EXPECT_EQ(
      SizeOf(Text({Of("mul", 0, 1, 9), Call("relu_", 0, "", 10), Of("mul", 9, 2, 11)}, 11), 2), 0);
}

}  // namespace
}  // namespace lockstep::exported
