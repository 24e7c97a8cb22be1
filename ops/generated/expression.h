// Expressions: describes how an element of a result is computed from the elements of several tensors at the same
// position. The class also forms the terms of the derivatives, and generates the source text of a CUDA function that
// computes results or derivatives.
//
// Invariants:
//   1. A term's operands are terms that were added before it. Equal terms are stored once, so nothing is computed
//      twice.
//   2. Derivatives consist of the same primitives as forward. Only the forward of an operation is therefore written by
//      hand.
//   3. The generated text consists of fixed pieces of source code and of numbers. The content of a model's file can
//      therefore enter the text only as a number.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep::ops {

enum class Primitive {
  kInput,
  kConstant,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kExp,
  kSigmoid,
  kTanh,
  kErf,
  kIfAtMost,  // a <= b ? c : d
};

// The index of a term in Expressions.
using TermId = int32_t;

struct Term {
  Primitive primitive;
  std::array<TermId, 4> operands{};
  double number = 0;  // the value of a constant, or the index of an input

  auto Key() const { return std::tuple(primitive, operands, number); }
};

class Expressions {
 public:
  TermId Input(int64_t index) {
    return Add({.primitive = Primitive::kInput, .number = static_cast<double>(index)});
  }
  // Returns the term of the constant `number`, which must be finite.
  TermId Constant(double number) {
    return Add({.primitive = Primitive::kConstant, .number = number});
  }
  TermId Sum(TermId a, TermId b);
  TermId Difference(TermId a, TermId b);
  TermId Product(TermId a, TermId b);
  TermId Quotient(TermId a, TermId b);
  TermId Exp(TermId a) { return Add({Primitive::kExp, {a}}); }
  TermId Sigmoid(TermId a) { return Add({Primitive::kSigmoid, {a}}); }
  TermId Tanh(TermId a) { return Add({Primitive::kTanh, {a}}); }
  TermId Erf(TermId a) { return Add({Primitive::kErf, {a}}); }
  // Returns the term a <= b ? then : otherwise. If a or b is NaN, the term's value is that of `otherwise`.
  TermId IfAtMost(TermId a, TermId b, TermId then, TermId otherwise);

  const Term& At(TermId term) const { return terms_[term]; }

  // Adds, for each of the `inputs` inputs, a term for `gradient` times the derivative of `result` with respect to this
  // input. Returns the added terms, in the order of the inputs. The entry of an input on which `result` does not depend
  // is -1.
  std::vector<TermId> Gradients(TermId result, TermId gradient, int64_t inputs);

  // Returns the indices of the inputs that these results depend on, in ascending order.
  std::vector<int64_t> InputsOf(const std::vector<TermId>& results) const;

  // Returns the source text of `template <typename T> void NAME(T x0, T x1, ..., T& y0, ...)`, which computes the
  // results y0, .... The function's parameters x0, x1, ... are only the inputs that the results depend on (InputsOf()).
  std::string Text(const std::string& name, const std::vector<TermId>& results) const;

 private:
  TermId Add(const Term& term);
  bool IsConstant(TermId term, double number) const;
  std::vector<bool> NeededBy(const std::vector<TermId>& results) const;

  std::vector<Term> terms_;
  std::map<decltype(std::declval<Term>().Key()), TermId> known_;
};

}  // namespace lockstep::ops
