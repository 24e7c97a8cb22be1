#include "ops/generated/expression.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numbers>

namespace lockstep::ops {
namespace {

// Returns the number of operands of a primitive.
size_t OperandsOf(Primitive primitive) {
  switch (primitive) {
    case Primitive::kInput:
    case Primitive::kConstant:
      return 0;
    case Primitive::kExp:
    case Primitive::kSigmoid:
    case Primitive::kTanh:
    case Primitive::kErf:
      return 1;
    case Primitive::kIfAtMost:
      return 4;
    default:
      return 2;
  }
}

}  // namespace

TermId Expressions::Sum(TermId a, TermId b) { return Add({Primitive::kAdd, {a, b}}); }

TermId Expressions::Difference(TermId a, TermId b) { return Add({Primitive::kSubtract, {a, b}}); }

TermId Expressions::Product(TermId a, TermId b) {
  if (IsConstant(a, 1)) return b;
  if (IsConstant(b, 1)) return a;
  return Add({Primitive::kMultiply, {a, b}});
}

TermId Expressions::Quotient(TermId a, TermId b) {
  return IsConstant(b, 1) ? a : Add({Primitive::kDivide, {a, b}});
}

TermId Expressions::IfAtMost(TermId a, TermId b, TermId then, TermId otherwise) {
  return Add({Primitive::kIfAtMost, {a, b, then, otherwise}});
}

std::vector<TermId> Expressions::Gradients(TermId result, TermId gradient, int64_t inputs) {
  std::vector<TermId> of(result + 1, -1);  // for each term, the term of its gradient so far, or -1
  of[result] = gradient;
  const auto give = [&](TermId term, TermId more) {
    of[term] = of[term] < 0 ? more : Sum(of[term], more);
  };
  for (TermId i = result; i >= 0; --i) {
    const TermId g = of[i];
    if (g < 0) continue;
    const Term term = terms_[i];  // a copy, because adding terms invalidates references
    const auto [a, b, c, d] = term.operands;
    switch (term.primitive) {
      case Primitive::kInput:
      case Primitive::kConstant:
        break;
      case Primitive::kAdd:
        give(a, g);
        give(b, g);
        break;
      case Primitive::kSubtract:
        give(a, g);
        give(b, Product(Constant(-1), g));
        break;
      case Primitive::kMultiply:
        give(a, Product(g, b));
        give(b, Product(g, a));
        break;
      case Primitive::kDivide: {
        const TermId d_a = Quotient(g, b);
        give(a, d_a);
        give(b, Product(Constant(-1), Product(d_a, i)));
        break;
      }
      case Primitive::kExp:
        give(a, Product(g, i));
        break;
      case Primitive::kSigmoid:
        give(a, Product(g, Product(i, Difference(Constant(1), i))));
        break;
      case Primitive::kTanh:
        give(a, Product(g, Difference(Constant(1), Product(i, i))));
        break;
      case Primitive::kErf: {
        const TermId square = Product(a, a);
        give(a, Product(g, Product(Constant(2 * std::numbers::inv_sqrtpi),
                                   Exp(Product(Constant(-1), square)))));
        break;
      }
      case Primitive::kIfAtMost: {
        const TermId zero = Constant(0);
        give(c, IfAtMost(a, b, g, zero));
        give(d, IfAtMost(a, b, zero, g));
        break;
      }
    }
  }
  std::vector<TermId> gradients(inputs, -1);
  for (TermId i = 0; i <= result; ++i) {
    if (terms_[i].primitive == Primitive::kInput) {
      gradients[static_cast<size_t>(terms_[i].number)] = of[i];
    }
  }
  return gradients;
}

std::vector<int64_t> Expressions::InputsOf(const std::vector<TermId>& results) const {
  const std::vector<bool> needed = NeededBy(results);
  std::vector<int64_t> inputs;
  for (size_t i = 0; i < terms_.size(); ++i) {
    if (!needed[i] || terms_[i].primitive != Primitive::kInput) continue;
    inputs.push_back(static_cast<int64_t>(terms_[i].number));
  }
  std::ranges::sort(inputs);
  return inputs;
}

std::string Expressions::Text(const std::string& name, const std::vector<TermId>& results) const {
  std::vector<std::string> arguments;
  for (const int64_t input : InputsOf(results)) arguments.push_back(fmt::format("T x{}", input));
  for (size_t i = 0; i < results.size(); ++i) arguments.push_back(fmt::format("T& y{}", i));
  std::string text =
      fmt::format("template <typename T> void {}({}) {{\n", name, fmt::join(arguments, ", "));
  const std::vector<bool> needed = NeededBy(results);
  for (size_t i = 0; i < terms_.size(); ++i) {
    if (!needed[i]) continue;
    const auto [a, b, c, d] = terms_[i].operands;
    const auto value = [&, a = a, b = b, c = c, d = d]() -> std::string {
      switch (terms_[i].primitive) {
        case Primitive::kInput:
          return fmt::format("x{}", static_cast<int64_t>(terms_[i].number));
        case Primitive::kConstant:
          return fmt::format("T({:.17e})", terms_[i].number);
        case Primitive::kAdd:
          return fmt::format("v{} + v{}", a, b);
        case Primitive::kSubtract:
          return fmt::format("v{} - v{}", a, b);
        case Primitive::kMultiply:
          return fmt::format("v{} * v{}", a, b);
        case Primitive::kDivide:
          return fmt::format("v{} / v{}", a, b);
        case Primitive::kExp:
          return fmt::format("exp(v{})", a);
        case Primitive::kSigmoid:
          return fmt::format("T(1) / (T(1) + exp(-v{}))", a);
        case Primitive::kTanh:
          return fmt::format("tanh(v{})", a);
        case Primitive::kErf:
          return fmt::format("erf(v{})", a);
        case Primitive::kIfAtMost:
          return fmt::format("v{} <= v{} ? v{} : v{}", a, b, c, d);
      }
      return {};
    };
    text += fmt::format("  const T v{} = {};\n", i, value());
  }
  for (size_t i = 0; i < results.size(); ++i) text += fmt::format("  y{} = v{};\n", i, results[i]);
  return text + "}\n";
}

TermId Expressions::Add(const Term& term) {
  const auto [known, is_new] = known_.emplace(term.Key(), static_cast<TermId>(terms_.size()));
  if (is_new) terms_.push_back(term);
  return known->second;
}

bool Expressions::IsConstant(TermId term, double number) const {
  return terms_[term].primitive == Primitive::kConstant && terms_[term].number == number;
}

std::vector<bool> Expressions::NeededBy(const std::vector<TermId>& results) const {
  std::vector<bool> needed(terms_.size());
  for (const TermId result : results) needed[result] = true;
  for (size_t i = terms_.size(); i-- > 0;) {
    for (size_t k = 0; needed[i] && k < OperandsOf(terms_[i].primitive); ++k) {
      needed[terms_[i].operands[k]] = true;
    }
  }
  return needed;
}

}  // namespace lockstep::ops
