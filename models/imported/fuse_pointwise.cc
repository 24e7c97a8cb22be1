#include "models/imported/fuse_pointwise.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numbers>
#include <string_view>
#include <utility>

namespace lockstep::exported {
namespace {

using c10::IValue;
using ops::Expressions;
using ops::TermId;

// The largest number of nodes in a group. It is limited because the group's kernel keeps the intermediate values in
// registers, and a GPU thread has few of them.
constexpr size_t kMostNodes = 64;

using Terms = std::vector<TermId>;  // the operands of an operation; numbers are constant terms

struct Operation {
  std::string_view name;
  size_t operands;  // the number of leading arguments that are operands; the others are constants
  std::function<TermId(Expressions& to, const Terms& of, const Node& node)> term;
};

TermId Least(Expressions& to, TermId a, TermId b) { return to.IfAtMost(a, b, a, b); }

// Returns x, limited to the range from `low` to `high`.
TermId Between(Expressions& to, TermId x, double low, double high) {
  const TermId least = to.Constant(low);
  const TermId most = to.Constant(high);
  return to.IfAtMost(x, least, least, to.IfAtMost(most, x, most, x));
}

TermId Times(Expressions& to, TermId x, double number) {
  return to.Product(to.Constant(number), x);
}

// Returns hardsigmoid(x) = min(max(x + 3, 0), 6) / 6.
TermId HardSigmoid(Expressions& to, TermId x) {
  return Times(to, Between(to, to.Sum(x, to.Constant(3)), 0, 6), 1.0 / 6);
}

TermId Gelu(Expressions& to, TermId x, bool tanh) {
  const double root = std::numbers::sqrt2;
  const TermId share =
      tanh ? to.Tanh(Times(to, to.Sum(x, Times(to, to.Product(x, to.Product(x, x)), 0.044715)),
                           root * std::numbers::inv_sqrtpi))
           : to.Erf(Times(to, x, 1 / root));
  return to.Product(Times(to, x, 0.5), to.Sum(to.Constant(1), share));
}

TermId Elu(Expressions& to, TermId x, double alpha, double scale, double input_scale) {
  const TermId zero = to.Constant(0);
  // The argument of exp() is limited to at most 0: for large x exp() would overflow, and the gradient, 0 times
  // infinity, would be NaN.
  const TermId raised = to.Exp(Times(to, Least(to, x, zero), input_scale));
  return to.IfAtMost(x, zero, Times(to, to.Difference(raised, to.Constant(1)), alpha * scale),
                     Times(to, x, scale));
}

// Returns the entry of the table for the node's operation. Returns null if there is no entry, or if an argument does
// not fit the entry: operands are tensors or constant numbers, and all other arguments are constants.
const Operation* OperationOf(const Node& node) {
  static const auto number = [](const Node& of, size_t i) { return *NumberOf(of.arguments[i]); };
  static const std::vector<Operation> operations = {
      {"aten::add", 2,
       [](auto& to, const auto& of, const Node& node) {
         return to.Sum(of[0], Times(to, of[1], number(node, 2)));
       }},
      {"aten::sub", 2,
       [](auto& to, const auto& of, const Node& node) {
         return to.Difference(of[0], Times(to, of[1], number(node, 2)));
       }},
      {"aten::rsub", 2,
       [](auto& to, const auto& of, const Node& node) {
         return to.Difference(of[1], Times(to, of[0], number(node, 2)));
       }},
      {"aten::mul", 2,
       [](auto& to, const auto& of, const Node&) { return to.Product(of[0], of[1]); }},
      {"aten::div", 2,
       [](auto& to, const auto& of, const Node&) { return to.Quotient(of[0], of[1]); }},
      {"aten::neg", 1, [](auto& to, const auto& of, const Node&) { return Times(to, of[0], -1); }},
      {"aten::square", 1,
       [](auto& to, const auto& of, const Node&) { return to.Product(of[0], of[0]); }},
      {"aten::sigmoid", 1, [](auto& to, const auto& of, const Node&) { return to.Sigmoid(of[0]); }},
      {"aten::tanh", 1, [](auto& to, const auto& of, const Node&) { return to.Tanh(of[0]); }},
      {"aten::relu", 1,
       [](auto& to, const auto& of, const Node&) {
         const TermId zero = to.Constant(0);
         return to.IfAtMost(of[0], zero, zero, of[0]);
       }},
      {"aten::silu", 1,
       [](auto& to, const auto& of, const Node&) { return to.Product(of[0], to.Sigmoid(of[0])); }},
      {"aten::gelu", 1,
       [](auto& to, const auto& of, const Node& node) {
         return Gelu(to, of[0], IsConstant(node.arguments[1], "tanh"));
       }},
      {"aten::hardsigmoid", 1,
       [](auto& to, const auto& of, const Node&) { return HardSigmoid(to, of[0]); }},
      {"aten::hardswish", 1,
       [](auto& to, const auto& of, const Node&) {
         return to.Product(of[0], HardSigmoid(to, of[0]));
       }},
      {"aten::hardtanh", 1,
       [](auto& to, const auto& of, const Node& node) {
         return Between(to, of[0], number(node, 1), number(node, 2));
       }},
      {"aten::relu6", 1,
       [](auto& to, const auto& of, const Node&) { return Between(to, of[0], 0, 6); }},
      {"aten::leaky_relu", 1,
       [](auto& to, const auto& of, const Node& node) {
         return to.IfAtMost(of[0], to.Constant(0), Times(to, of[0], number(node, 1)), of[0]);
       }},
      {"aten::elu", 1,
       [](auto& to, const auto& of, const Node& node) {
         return Elu(to, of[0], number(node, 1), number(node, 2), number(node, 3));
       }},
  };
  std::string_view name = NameOf(node);
  if (name.ends_with('_')) name.remove_suffix(1);
  const auto found = std::ranges::find(operations, name, &Operation::name);
  if (found == operations.end() || node.results.size() != 1 || node.results[0].is_list ||
      node.results[0].value < 0 || !IsValue(node.arguments[0])) {
    return nullptr;
  }
  const std::string& overload = node.operation->schema().overload_name();
  if (!overload.empty() && overload != "Tensor" && overload != "Scalar") return nullptr;
  if (overload == "Scalar" && IsValue(node.arguments[1])) return nullptr;
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    const Argument& argument = node.arguments[i];
    const bool is_known = i < found->operands ? IsValue(argument) || NumberOf(argument)
                          : name == "aten::gelu"
                              ? IsConstant(argument, "none") || IsConstant(argument, "tanh")
                              : NumberOf(argument).has_value();
    if (!is_known) return nullptr;
  }
  return &*found;
}

bool IsInPlace(const Node& node) { return NameOf(node).ends_with('_'); }

// Returns whether all values that the operation takes are tensors, as far as is known before the graph runs.
bool TakesTensors(const Rewriter& rewriter, const Node& node) {
  return std::ranges::all_of(ValuesOf(node), [&](int64_t value) {
    const int64_t maker = rewriter.MakerOf(value);
    return maker < 0 || !rewriter.At(maker).IsNumber();
  });
}

bool CanTakePart(const Rewriter& rewriter, int64_t node) {
  return !rewriter.IsGone(node) && OperationOf(rewriter.At(node)) != nullptr &&
         TakesTensors(rewriter, rewriter.At(node));
}

// Returns a function that computes the nodes one after the other with LibTorch's operations.
ops::PointwiseTwin TwinOf(const Rewriter& rewriter, const PointwiseGroup& group) {
  std::vector<Node> nodes;
  for (const int64_t node : group.nodes) nodes.push_back(rewriter.At(node));
  return [nodes = std::move(nodes), inputs = group.inputs](const std::vector<at::Tensor>& tensors) {
    std::map<int64_t, IValue> values;
    for (size_t i = 0; i < inputs.size(); ++i) values[inputs[i]] = tensors[i];
    IValue last;
    for (const Node& node : nodes) {
      std::vector<IValue> stack;
      for (const Argument& argument : node.arguments) {
        stack.push_back(IsValue(argument) ? values.at(argument.value) : argument.constant);
      }
      node.operation->callBoxed(stack);
      last = values[node.results[0].value] = stack.at(0);
    }
    return last.toTensor();
  };
}

}  // namespace

std::optional<PointwiseGroup> PointwiseGroupOf(const Rewriter& rewriter, int64_t node) {
  if (!CanTakePart(rewriter, node)) return std::nullopt;
  PointwiseGroup group{.nodes = {node}, .inputs = {}, .function = nullptr};
  const auto add_input = [](std::vector<int64_t>& inputs, int64_t value) {
    if (std::ranges::find(inputs, value) == inputs.end()) inputs.push_back(value);
  };
  for (const int64_t value : ValuesOf(rewriter.At(node))) add_input(group.inputs, value);
  // Adds to the group any node whose result only the group uses, as long as the number of inputs stays within the
  // limit.
  for (size_t i = 0; i < group.inputs.size();) {
    const int64_t value = group.inputs[i];
    const int64_t maker = rewriter.MakerOf(value);
    std::vector<int64_t> inputs = group.inputs;
    inputs.erase(inputs.begin() + static_cast<std::ptrdiff_t>(i));
    const bool is_own =
        maker >= 0 && CanTakePart(rewriter, maker) &&
        std::ranges::find(group.nodes, rewriter.OnlyUser(maker)) != group.nodes.end();
    if (is_own) {
      for (const int64_t more : ValuesOf(rewriter.At(maker))) add_input(inputs, more);
    }
    if (!is_own || group.nodes.size() == kMostNodes ||
        static_cast<int64_t>(inputs.size()) > ops::kMostPointwiseInputs) {
      ++i;
      continue;
    }
    group.inputs = std::move(inputs);
    group.nodes.push_back(maker);
    i = 0;
  }
  std::ranges::sort(group.nodes);
  const bool writes_within = std::ranges::all_of(group.nodes, [&](int64_t member) {
    const Node& of = rewriter.At(member);
    return !IsInPlace(of) ||
           std::ranges::find(group.inputs, of.arguments[0].value) == group.inputs.end();
  });
  // Backward reads the group's inputs again, so no operation may write to an input after the group's first node.
  const bool inputs_stay = std::ranges::none_of(group.inputs, [&](int64_t value) {
    return rewriter.IsWrittenAfter(value, group.nodes.front());
  });
  if (group.nodes.size() < 2 ||
      static_cast<int64_t>(group.inputs.size()) > ops::kMostPointwiseInputs || !writes_within ||
      !inputs_stay) {
    return std::nullopt;
  }

  Expressions expressions;
  std::map<int64_t, TermId> terms;  // the term of each value, by the value's number
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    terms[group.inputs[i]] = expressions.Input(static_cast<int64_t>(i));
  }
  TermId last = 0;
  for (const int64_t member : group.nodes) {
    const Node& of = rewriter.At(member);
    const Operation& operation = *OperationOf(of);
    Terms operands;
    for (size_t i = 0; i < operation.operands; ++i) {
      const Argument& argument = of.arguments[i];
      operands.push_back(IsValue(argument) ? terms.at(argument.value)
                                           : expressions.Constant(*NumberOf(argument)));
    }
    last = terms[of.results[0].value] = operation.term(expressions, operands, of);
  }
  group.function = std::make_shared<ops::PointwiseFunction>(
      std::move(expressions), last, static_cast<int64_t>(group.inputs.size()),
      TwinOf(rewriter, group));
  return group;
}

void FusePointwise(Rewriter& rewriter) {
  // The loop goes backwards, so that a group contains all operations that lead to its last one.
  for (int64_t i = rewriter.size() - 1; i >= 0; --i) {
    const std::optional<PointwiseGroup> group = PointwiseGroupOf(rewriter, i);
    if (!group) continue;
    // If an operation in the group works in place, the result has the type of the tensor that this operation writes to.
    const bool has_one_type = std::ranges::any_of(
        group->nodes, [&](int64_t node) { return IsInPlace(rewriter.At(node)); });
    const auto operation = [function = group->function, has_one_type](
                               const std::vector<IValue>& arguments) -> std::vector<at::Tensor> {
      std::vector<at::Tensor> inputs;
      for (const IValue& argument : arguments) inputs.push_back(argument.toTensor());
      const bool are_alike = std::ranges::all_of(inputs, [&](const at::Tensor& input) {
        return input.scalar_type() == inputs[0].scalar_type();
      });
      if ((has_one_type && !are_alike) || !ops::HasPointwiseKernel(*function, inputs)) {
        return {function->Twin(inputs)};
      }
      return {ops::Pointwise(function, inputs)};
    };
    std::vector<Argument> arguments;
    for (const int64_t input : group->inputs) arguments.push_back(ValueArgument(input));
    rewriter.Put(group->nodes, operation, arguments, {rewriter.At(i).results[0].value}, i);
  }
}

}  // namespace lockstep::exported
