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
  const std::map<std::string, std::string> overloads = {
      {"rsub", "Scalar"}, {"pow", "Tensor_Scalar"}, {"sum", "dim_IntList"},   {"mean", "dim"},
      {"softmax", "int"}, {"slice", "Tensor"},      {"masked_fill", "Scalar"}};
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

// Returns the text with these parameters, such as "\"weight\": 20".
std::string WithParameters(std::string text, const std::string& parameters) {
  const std::string none = R"("parameters": {})";
  return text.replace(text.find(none), none.size(),
                      fmt::format(R"("parameters": {{{}}})", parameters));
}

Program ProgramOf(const std::string& text) {
  return ReadProgram(Json::parse(text), "net.lsm", kInputs);
}

// Returns the number of nodes in the group that ends with `node`; 0: there is no group.
size_t SizeOf(const std::string& text, int64_t node) {
  Program program = ProgramOf(text);
  const Rewriter rewriter(program);
  const auto group = GeneratedGroupOf(rewriter, node, /*forms=*/{});
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
      const auto begin = static_cast<int64_t>(of.number);
      return value(0).slice(dim, begin, begin + (of.sizes[dim] - 1) * of.step + 1, of.step);
    }
    case Primitive::kPad: {
      const int64_t dim = reduced()[0];
      const at::Tensor inner = value(0).expand(terms.SizesOf(of.operands[0]));
      const at::Tensor padded = at::zeros(of.sizes, at::kDouble);
      const auto begin = static_cast<int64_t>(of.number);
      padded.slice(dim, begin, begin + (inner.size(dim) - 1) * of.step + 1, of.step).copy_(inner);
      return padded;
    }
    case Primitive::kRepeat:
      return value(0).repeat_interleave(of.step, reduced()[0]);
    case Primitive::kKeep:
      break;  // LibTorch draws other numbers
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
  const auto group = GeneratedGroupOf(rewriter, 2, /*forms=*/{});
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
        OperationCase{"Clamp", Call("clamp", 9, R"(, {"f": -2.0}, 1)", 10)},
        OperationCase{"ClampAbove", Call("clamp", 9, ", null, 1", 10)},
        OperationCase{"ClampMin", Call("clamp_min", 9, R"(, {"f": 0.5})", 10)},
        OperationCase{"ClampMax", Call("clamp_max", 9, R"(, {"f": 0.5})", 10)},
        OperationCase{"LayerNorm", Call("layer_norm", 9,
                                        R"(, [50], {"v": 7}, {"v": 8}, {"f": 1e-5}, true)", 10)},
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
        OperationCase{"EverySecondRow", Call("slice", 9, ", 0, 1, 9, 3", 10)},
        OperationCase{"Pad", Call("pad", 9, R"(, [0, 0, 0, 0], "constant", null)", 10)},
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
  EXPECT_EQ(SizeOf(WithParameters(text, fmt::format("{}", fmt::join(parameters, ", "))), 18), 15);
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

// Checks that the only node of the graph is a group by itself, and that its values and derivatives are those of `wanted`.
void ExpectIsGroup(const std::string& text, const Sizes& sizes,
                   at::Tensor (*wanted)(const at::Tensor& x)) {
  Program program = ProgramOf(text);
  const Rewriter rewriter(program);
  const auto group = GeneratedGroupOf(rewriter, 0, /*forms=*/{});
  ASSERT_TRUE(group);
  const at::Tensor x = at::randn(sizes, at::kDouble).requires_grad_();
  const at::Tensor y = wanted(x);
  const at::Tensor dy = at::randn_like(y);
  y.backward(dy);
  TensorTerms terms;
  const TermId of = terms.Input(0, sizes);
  const TermId result = group->build(terms, {of}, {at::kFloat}, at::kFloat).term;
  const TermId gradient = terms.Input(1, y.sizes().vec());
  EXPECT_TRUE(at::allclose(ValueOf(terms, result, {x}), y));
  const std::vector<TermId> found = terms.Gradients(result, gradient, {of});
  EXPECT_TRUE(at::allclose(ValueOf(terms, found[0], {x, dy}), x.grad()));
}

TEST(GeneratedGroupTest, PoolsTiles) {
  const auto pool = [](const std::string& more) {
    return Text({Call("avg_pool2d", 0, more, 9)}, 9);
  };
  const std::string text = pool(", [2, 2], [2, 2], [0, 0], false, true, null");
  const auto wanted = [](const at::Tensor& x) { return at::avg_pool2d(x, {2, 2}); };
  ExpectIsGroup(text, {2, 3, 6, 9}, wanted);
  ExpectIsGroup(text, {3, 5, 4}, wanted);
  EXPECT_EQ(SizeOf(pool(", [3, 3], [], [0, 0], false, true, null"), 0), 1);
  // With a rest that would be a tile of its own there is no term, which is known when the sizes are.
  const std::string ceils = pool(", [2, 2], [2, 2], [0, 0], true, false, null");
  ExpectIsGroup(ceils, {2, 3, 6, 8}, wanted);
  Program program = ProgramOf(ceils);
  TensorTerms terms;
  const auto group = GeneratedGroupOf(Rewriter(program), 0, /*forms=*/{});
  EXPECT_EQ(group->build(terms, {terms.Input(0, {2, 3, 6, 9})}, {at::kFloat}, at::kFloat).type,
            at::kBool);
  for (const char* const other :
       {", [3, 3], [2, 2], [0, 0], false, true, null",
        ", [2, 2], [2, 2], [1, 1], false, true, null", ", [2, 2], [2, 2], [0, 0], false, true, 3",
        ", [7, 7], [7, 7], [0, 0], false, true, null"}) {
    EXPECT_EQ(SizeOf(pool(other), 0), 0) << other;
  }
}

TEST(GeneratedGroupTest, EnlargesImages) {
  const auto enlarge = [](const std::string& more) {
    return Text(
        {fmt::format(
            R"({{"op": "aten::upsample_nearest2d", "overload": "vec", "args": [{{"v": 0}}, {}], "out": [9]}})",
            more)},
        9);
  };
  ExpectIsGroup(enlarge(R"(null, [{"f": 2.0}, {"f": 2.0}])"), {2, 3, 4, 5},
                [](const at::Tensor& x) {
                  return at::upsample_nearest2d(x, at::OptionalIntArrayRef(),
                                                at::ArrayRef<double>({2.0, 2.0}));
                });
  for (const char* const other : {R"(null, [{"f": 3.0}, {"f": 3.0}])",
                                  R"(null, [{"f": 2.0}, {"f": 4.0}])", "[8, 10], null"}) {
    EXPECT_EQ(SizeOf(enlarge(other), 0), 0) << other;
  }
}

// Returns attention of values 0 to 2 with a mask: the bias, value 3, where value 4 is true.
std::string MaskedText(const std::string& more, int mask) {
  return Text(
      {R"({"op": "aten::where", "overload": "ScalarOther", "args": [{"v": 4}, {"v": 3}, {"f": -3.4e38}],
                   "out": [9]})" +
           more,
       fmt::format(
           R"({{"op": "aten::scaled_dot_product_attention", "overload": "", "args": [{{"v": 0}}, {{"v": 1}},
                   {{"v": 2}}, {{"v": {}}}, {{"f": 0.0}}, false, null, false], "out": [11]}})",
           mask)},
      11);
}

// As in T5, whose masks are rounded and made contiguous.
TEST(GeneratedGroupTest, MakesAMaskAsAttentionWantsIt) {
  const std::string copied =
      R"(, {"op": "aten::contiguous", "overload": "", "args": [{"v": 9}, 0], "out": [10]})";
  for (const std::string& text : {MaskedText("", 9), MaskedText(copied, 10)}) {
    Program program = ProgramOf(text);
    const Rewriter rewriter(program);
    const WantedForms forms = WantedFormsOf(rewriter);
    EXPECT_TRUE(forms.contiguous.contains(9));
    EXPECT_TRUE(forms.rounded.contains(9));
    const auto group = GeneratedGroupOf(rewriter, 0, forms);
    ASSERT_TRUE(group);
    TensorTerms terms;
    const TermId seen = terms.Input(0, {3, 1, 5, 5});
    const TermId bias = terms.Input(1, {1, 2, 5, 5});
    const auto result = group->build(terms, {seen, bias}, {at::kBool, at::kFloat}, at::kBFloat16);
    EXPECT_EQ(result.type, at::kBFloat16);
    EXPECT_TRUE(result.is_contiguous);
    EXPECT_EQ(terms.SizesOf(result.term), (Sizes{3, 2, 5, 5}));
    const at::Tensor is_seen = at::rand({3, 1, 5, 5}) < 0.5;
    const at::Tensor value = at::randn({1, 2, 5, 5}, at::kDouble);
    const at::Tensor found = ValueOf(terms, result.term, {is_seen.to(at::kDouble), value});
    EXPECT_TRUE(at::equal(found, at::where(is_seen, value, -3.4e38)));
  }
  // Another operation reads the mask, too.
  Program program = ProgramOf(MaskedText(", " + Call("sin", 9, "", 10), 9));
  const WantedForms forms = WantedFormsOf(Rewriter(program));
  EXPECT_FALSE(forms.contiguous.contains(9));
  EXPECT_FALSE(forms.rounded.contains(9));
}

// The type of an expanded tensor is its own, not that of the tensor whose sizes it gets.
TEST(GeneratedGroupTest, ExpandsInItsOwnType) {
  Program program = ProgramOf(Text({Of("mul", 0, 1, 9), Of("expand_as", 9, 2, 10)}, 10));
  const auto group = GeneratedGroupOf(Rewriter(program), 1, /*forms=*/{});
  TensorTerms terms;
  std::vector<TermId> inputs;
  std::vector<at::ScalarType> types;
  for (const int64_t value : group->inputs) {
    const bool is_other = value == 2;
    inputs.push_back(terms.Input(value, is_other ? Sizes{3, 4, 50} : Sizes{4, 1}));
    types.push_back(is_other ? at::kFloat : at::kHalf);
  }
  const auto result = group->build(terms, inputs, types, at::kHalf);
  EXPECT_EQ(result.type, at::kHalf);
  EXPECT_EQ(terms.SizesOf(result.term), (Sizes{3, 4, 50}));
}

TEST(GeneratedGroupTest, PadsWithZeros) {
  const auto text = [](const std::string& more) {
    return Text({Of("mul", 0, 1, 9), Call("pad", 9, more, 10), Of("mul", 10, 2, 11)}, 11);
  };
  Program program = ProgramOf(text(R"(, [3, 0, 1, 2], "constant", {"f": 0.0})"));
  const auto group = GeneratedGroupOf(Rewriter(program), 2, /*forms=*/{});
  ASSERT_TRUE(group);
  EXPECT_EQ(group->nodes.size(), 3);
  TensorTerms terms;
  std::vector<at::Tensor> inputs;
  std::vector<TermId> of;
  for (const int64_t value : group->inputs) {
    const Sizes sizes = value == 2 ? Sizes{7, 8} : Sizes{4, 5};
    of.push_back(terms.Input(static_cast<int64_t>(of.size()), sizes));
    inputs.push_back(at::randn(sizes, at::kDouble));
  }
  const std::vector<at::ScalarType> types(3, at::kFloat);
  const TermId result = group->build(terms, of, types, at::kFloat).term;
  const auto at_value = [&](int64_t value) {
    return inputs[std::ranges::find(group->inputs, value) - group->inputs.begin()];
  };
  const at::Tensor wanted =
      at::constant_pad_nd(at_value(0) * at_value(1), {3, 0, 1, 2}) * at_value(2);
  EXPECT_TRUE(at::allclose(ValueOf(terms, result, inputs), wanted));
  for (const char* const other :
       {R"(, [3, 0], "constant", {"f": 1.0})", R"(, [3, 0], "reflect", null)",
        R"(, [-3, 0], "constant", null)"}) {
    EXPECT_EQ(SizeOf(text(other), 2), 0) << other;
  }
}

// Batched products copy what does not lie contiguously; the last two dimensions may be exchanged.
TEST(GeneratedGroupTest, IsContiguousForBatchedProducts) {
  const auto wants = [](const std::vector<std::string>& users) {
    std::vector<std::string> nodes = {Of("mul", 0, 1, 9)};
    nodes.insert(nodes.end(), users.begin(), users.end());
    Program program = ProgramOf(Text(nodes, 20));
    return WantedFormsOf(Rewriter(program)).contiguous.contains(9);
  };
  const auto transposed = [](int first, int second) {
    return fmt::format(
        R"({{"op": "aten::transpose", "overload": "int", "args": [{{"v": 9}}, {}, {}], "out": [10]}})",
        first, second);
  };
  const auto product = [](int x, int y) {
    return fmt::format(
        R"({{"op": "aten::matmul", "overload": "", "args": [{{"v": {}}}, {{"v": {}}}], "out": [20]}})",
        x, y);
  };
  EXPECT_TRUE(wants({product(9, 2)}));
  EXPECT_TRUE(wants({transposed(-1, -2), product(2, 10)}));
  EXPECT_FALSE(wants({transposed(-1, -3), product(2, 10)}));
  EXPECT_FALSE(wants({transposed(-1, -2), Of("mul", 10, 2, 20)}));
}

// LibTorch computes otherwise with bools than with 0 and 1: the sum of two is true, and that of many an integer.
TEST(GeneratedGroupTest, TakesBoolsAsConditionsAlone) {
  const auto type_of = [](const std::vector<std::string>& nodes, int output,
                          const std::vector<at::ScalarType>& types) {
    Program program = ProgramOf(Text(nodes, output));
    const Rewriter rewriter(program);
    const auto group =
        GeneratedGroupOf(rewriter, static_cast<int64_t>(nodes.size()) - 1, /*forms=*/{});
    TensorTerms terms;
    std::vector<TermId> inputs;
    for (size_t i = 0; i < types.size(); ++i) {
      inputs.push_back(terms.Input(static_cast<int64_t>(i), {4, 50}));
    }
    return group ? group->build(terms, inputs, types, at::kBFloat16).type : at::kByte;
  };
  const std::vector<std::string> filled = {
      Of("mul", 0, 1, 9), Call("masked_fill", 9, R"(, {"v": 2}, {"f": -2.0})", 10)};
  EXPECT_EQ(type_of(filled, 10, {at::kBool, at::kFloat, at::kHalf}), at::kFloat);
  EXPECT_EQ(type_of(filled, 10, {at::kFloat, at::kFloat, at::kHalf}), at::kBool);
  const std::vector<std::string> summed = {Call("sum", 0, ", [1], true, null", 9),
                                           Of("mul", 9, 1, 10)};
  EXPECT_EQ(type_of(summed, 10, {at::kBool, at::kFloat}), at::kBool);
  EXPECT_EQ(type_of(summed, 10, {at::kFloat, at::kBool}), at::kBool);
  EXPECT_EQ(type_of(summed, 10, {at::kFloat, at::kFloat}), at::kFloat);
}

// A dropout belongs to a group; alone it is LibTorch's. What it draws depends on the key, which is the last input.
TEST(GeneratedGroupTest, DrawsForDropout) {
  const auto group_of = [](const std::string& arguments) {
    Program program = ProgramOf(Text({Of("mul", 0, 1, 9), Call("dropout", 9, arguments, 10)}, 10));
    return GeneratedGroupOf(Rewriter(program), 1, /*forms=*/{});
  };
  EXPECT_FALSE(group_of(R"(, {"f": 0.0}, true)")->draws);
  EXPECT_FALSE(group_of(R"(, {"f": 0.3}, false)")->draws);
  EXPECT_FALSE(group_of(R"(, {"f": 1.0}, true)"));
  EXPECT_EQ(SizeOf(Text({Call("dropout", 0, R"(, {"f": 0.3}, true)", 9)}, 9), 0), 0);
  const auto group = group_of(R"(, {"f": 0.3}, true)");
  ASSERT_TRUE(group && group->draws);
  TensorTerms terms;
  const std::vector<TermId> inputs = {terms.Input(0, {4, 50}), terms.Input(1, {4, 50}),
                                      terms.Input(2, {2})};
  const auto result = group->build(terms, inputs, {at::kHalf, at::kHalf, at::kFloat}, at::kHalf);
  EXPECT_EQ(result.type, at::kHalf);
  const ops::Term& product = terms.At(result.term);
  EXPECT_EQ(product.primitive, Primitive::kMultiply);
  EXPECT_EQ(product.operands[0], terms.Product(inputs[0], inputs[1]));
  EXPECT_EQ(product.operands[1], terms.Keep(inputs[2], 0.3, 10, {4, 50}));
}

// A dropout is not moved behind another operation that draws numbers.
TEST(GeneratedGroupTest, KeepsTheOrderOfDraws) {
  const auto size_of = [](const std::string& between) {
    return SizeOf(
        Text({Call("dropout", 0, R"(, {"f": 0.3}, true)", 9), between, Of("mul", 9, 1, 11)}, 11),
        2);
  };
  EXPECT_EQ(size_of(Call("sin", 2, "", 10)), 2);
  EXPECT_EQ(size_of(Call("dropout", 2, R"(, {"f": 0.3}, false)", 10)), 2);
  EXPECT_EQ(size_of(Call("dropout", 2, R"(, {"f": 0.3}, true)", 10)), 0);
}

TEST(GeneratedGroupTest, OneOperationIsAGroupOnlyIfItPays) {
  EXPECT_EQ(SizeOf(Text({Call("silu", 0, "", 9)}, 9), 0), 0);
  EXPECT_EQ(SizeOf(Text({Call("softmax", 0, ", -1, null", 9)}, 9), 0), 0);
  EXPECT_EQ(SizeOf(Text({Call("softmax", 0, ", 0, null", 9)}, 9), 0), 1);
  EXPECT_EQ(
      SizeOf(Text({Call("group_norm", 0, R"(, 5, {"v": 7}, {"v": 8}, {"f": 1e-5}, true)", 9)}, 9),
             0),
      1);
}

// Returns how many biases of layers the group adds that ends with `node`. Values 20 and 21 are a layer's weight and bias.
size_t BiasesOf(const std::string& text, int64_t node) {
  Program program = ProgramOf(WithParameters(text, R"("weight": 20, "bias": 21)"));
  const Rewriter rewriter(program);
  const auto group = GeneratedGroupOf(rewriter, node, /*forms=*/{});
  return group ? group->biases.size() : 0;
}

TEST(GeneratedGroupTest, AddsTheBiasOfAConvolution) {
  const auto convolution = [](const std::string& groups) {
    return R"({"op": "aten::conv2d", "overload": "", "args": [{"v": 0}, {"v": 20}, {"v": 21}, [1, 1], [0, 0], [1, 1], )" +
           groups + R"(], "out": [9]})";
  };
  EXPECT_EQ(BiasesOf(Text({convolution("1"), Call("silu", 9, "", 10)}, 10), 1), 1);
  EXPECT_EQ(BiasesOf(Text({convolution("4"), Call("silu", 9, "", 10)}, 10), 1), 0);
  // The output is the convolution's result.
  EXPECT_EQ(BiasesOf(Text({convolution("1"), Call("silu", 9, "", 10)}, 9), 1), 0);
}

// Linear layers that read transposed matrices leave their biases to what follows.
TEST(GeneratedGroupTest, AddsTheBiasOfALinearLayerOfColumns) {
  const auto biases_of = [](const std::string& transpose) {
    const std::string linear =
        R"({"op": "aten::linear", "overload": "", "args": [{"v": 9}, {"v": 20}, {"v": 21}], "out": [10]})";
    return BiasesOf(Text({transpose, linear, Call("gelu", 10, R"(, "none")", 11)}, 11), 2);
  };
  const auto transposed = [](int first, int second) {
    return fmt::format(
        R"({{"op": "aten::transpose", "overload": "int", "args": [{{"v": 0}}, {}, {}], "out": [9]}})",
        first, second);
  };
  EXPECT_EQ(biases_of(transposed(1, 2)), 1);
  EXPECT_EQ(biases_of(transposed(-1, -2)), 1);
  EXPECT_EQ(biases_of(Call("permute", 0, ", [0, 2, 1]", 9)), 1);
  EXPECT_EQ(biases_of(transposed(0, 1)), 0);
  EXPECT_EQ(biases_of(Call("permute", 0, ", [1, 0, 2]", 9)), 0);
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
