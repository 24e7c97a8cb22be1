#include "models/imported/node_values.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "base/error.h"

namespace lockstep::exported {
namespace {

using c10::IValue;

int64_t FloorDivide(int64_t a, int64_t b) {
  TORCH_CHECK(b != 0, "division by zero");
  TORCH_CHECK(b != -1 || a != std::numeric_limits<int64_t>::min(), "a number is too large");
  const int64_t quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

double NumberOf(const IValue& value) {
  if (value.isInt()) return static_cast<double>(value.toInt());
  if (value.isBool()) return value.toBool() ? 1 : 0;
  TORCH_CHECK(value.isDouble(), "an argument is no number");
  return value.toDouble();
}

int64_t DimensionOf(const IValue& value) {
  TORCH_CHECK(value.isInt(), "a dimension is no integer");
  return value.toInt();
}

int64_t Sum(int64_t a, int64_t b) {
  TORCH_CHECK(!__builtin_add_overflow(a, b, &a), "a number is too large");
  return a;
}

int64_t Difference(int64_t a, int64_t b) {
  TORCH_CHECK(!__builtin_sub_overflow(a, b, &a), "a number is too large");
  return a;
}

int64_t Product(int64_t a, int64_t b) {
  TORCH_CHECK(!__builtin_mul_overflow(a, b, &a), "a number is too large");
  return a;
}

IValue Power(const IValue& base, const IValue& exponent) {
  if (!base.isInt() || !exponent.isInt() || exponent.toInt() < 0) {
    return std::pow(NumberOf(base), NumberOf(exponent));
  }
  int64_t power = 1;
  for (int64_t i = 0; i < exponent.toInt() && i < 64; ++i) power = Product(power, base.toInt());
  return power;
}

int64_t WholeNumber(double number) {
  TORCH_CHECK(std::abs(number) < 0x1p63, "a number is too large");
  return static_cast<int64_t>(number);
}

}  // namespace

IValue Made(const Argument& argument, const Values& values, at::Device device) {
  switch (argument.kind) {
    case Argument::Kind::kConstant:
      return argument.constant;
    case Argument::Kind::kValue:
      if (argument.to_float && values[argument.value].isInt()) {
        return static_cast<double>(values[argument.value].toInt());
      }
      return values[argument.value];
    case Argument::Kind::kDevice:
      return device;
    case Argument::Kind::kList: {
      std::vector<IValue> elements;
      elements.reserve(argument.elements.size());
      for (const Argument& element : argument.elements)
        elements.push_back(Made(element, values, device));
      return ListOf(argument.element_type, std::move(elements));
    }
  }
  throw BugError("an argument of kind {}", static_cast<int>(argument.kind));
}

IValue ComputedNumber(Sym sym, const std::vector<IValue>& a) {
  const auto arithmetic = [&](auto of_integers, auto of_floats) -> IValue {
    if (a[0].isInt() && a[1].isInt()) return of_integers(a[0].toInt(), a[1].toInt());
    return static_cast<double>(of_floats(NumberOf(a[0]), NumberOf(a[1])));
  };
  const auto compares = [&](auto compare) -> IValue {
    return static_cast<bool>(compare(NumberOf(a[0]), NumberOf(a[1])));
  };
  switch (sym) {
    case Sym::kSize:
      return a[0].toTensor().size(DimensionOf(a[1]));
    case Sym::kStride:
      return a[0].toTensor().stride(DimensionOf(a[1]));
    case Sym::kNumel:
      return a[0].toTensor().numel();
    case Sym::kAdd:
      return arithmetic(Sum, std::plus<>());
    case Sym::kSub:
      return arithmetic(Difference, std::minus<>());
    case Sym::kMul:
      return arithmetic(Product, std::multiplies<>());
    case Sym::kFloorDiv:
      if (a[0].isInt() && a[1].isInt()) return FloorDivide(a[0].toInt(), a[1].toInt());
      return std::floor(NumberOf(a[0]) / NumberOf(a[1]));
    case Sym::kMod:
      if (a[0].isInt() && a[1].isInt())
        return a[0].toInt() - Product(a[1].toInt(), FloorDivide(a[0].toInt(), a[1].toInt()));
      return NumberOf(a[0]) - NumberOf(a[1]) * std::floor(NumberOf(a[0]) / NumberOf(a[1]));
    case Sym::kTrueDiv:
      return NumberOf(a[0]) / NumberOf(a[1]);
    case Sym::kPow:
      return Power(a[0], a[1]);
    case Sym::kNeg:
      if (a[0].isInt()) return Difference(0, a[0].toInt());
      return -NumberOf(a[0]);
    case Sym::kMin:
      return NumberOf(a[1]) < NumberOf(a[0]) ? a[1] : a[0];
    case Sym::kMax:
      return NumberOf(a[0]) < NumberOf(a[1]) ? a[1] : a[0];
    case Sym::kCeil:
      return WholeNumber(std::ceil(NumberOf(a[0])));
    case Sym::kFloor:
      return WholeNumber(std::floor(NumberOf(a[0])));
    case Sym::kTrunc:
      return WholeNumber(NumberOf(a[0]));
    case Sym::kFloat:
      return NumberOf(a[0]);
    case Sym::kSqrt:
      return std::sqrt(NumberOf(a[0]));
    case Sym::kEq:
      return compares([](double x, double y) { return x == y; });
    case Sym::kNe:
      return compares([](double x, double y) { return x != y; });
    case Sym::kLt:
      return compares([](double x, double y) { return x < y; });
    case Sym::kLe:
      return compares([](double x, double y) { return x <= y; });
    case Sym::kGt:
      return compares([](double x, double y) { return x > y; });
    case Sym::kGe:
      return compares([](double x, double y) { return x >= y; });
    case Sym::kNot:
      return NumberOf(a[0]) == 0;
    case Sym::kIte:
      return NumberOf(a[0]) != 0 ? a[1] : a[2];
  }
  throw BugError("a number of kind {}", static_cast<int>(sym));
}

void Keep(const Node& node, std::vector<IValue>& stack, Values& values) {
  for (size_t i = 0; i < node.results.size(); ++i) {
    const Result& result = node.results[i];
    if (!result.is_list) {
      if (result.value >= 0) values[result.value] = std::move(stack[i]);
      continue;
    }
    const std::vector<at::Tensor> tensors = stack[i].toTensorVector();
    TORCH_CHECK(tensors.size() == result.elements.size(), "it returned ", tensors.size(),
                " tensors where the file has ", result.elements.size());
    for (size_t k = 0; k < tensors.size(); ++k) {
      if (result.elements[k] >= 0) values[result.elements[k]] = tensors[k];
    }
  }
}

}  // namespace lockstep::exported
