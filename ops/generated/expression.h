// Expressions: how an element of a result follows from the elements of several tensors at the same place, the
// derivatives, and the text of a CUDA function that computes them.
//
// Invariants:
//   1. A term's operands are terms that were added before it. Equal terms are one, so nothing is computed twice.
//   2. A derivative consists of the same few primitives. An operation is therefore written once, as its forward.
//   3. The text holds numbers and the names of primitives, and nothing else. The content of a model's file can reach it
//      only as a number.
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

// A term of Expressions, by its place among them.
using TermId = int32_t;

struct Term {
  Primitive primitive;
  std::array<TermId, 4> operands{};
  double number = 0;  // of a constant; of an input its index

  auto Key() const { return std::tuple(primitive, operands, number); }
};

class Expressions {
 public:
  TermId Input(int64_t index) {
    return Add({.primitive = Primitive::kInput, .number = static_cast<double>(index)});
  }
  // `number` must be finite.
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
  // a <= b ? then : otherwise, which is `otherwise` where a is no number.
  TermId IfAtMost(TermId a, TermId b, TermId then, TermId otherwise);

  const Term& At(TermId term) const { return terms_[term]; }

  // Adds the terms of `gradient` times the derivatives of `result`, by input; -1 where it does not depend on the input.
  std::vector<TermId> Gradients(TermId result, TermId gradient, int64_t inputs);

  // Returns the inputs that these results depend on, in order.
  std::vector<int64_t> InputsOf(const std::vector<TermId>& results) const;

  // Returns the text of `template <typename T> void NAME(T x0, T x1, ..., T& y0, ...)`, which sets the results y. Its
  // inputs x are those that the results depend on.
  std::string Text(const std::string& name, const std::vector<TermId>& results) const;

 private:
  TermId Add(const Term& term);
  bool IsConstant(TermId term, double number) const;
  std::vector<bool> NeededBy(const std::vector<TermId>& results) const;

  std::vector<Term> terms_;
  std::map<decltype(std::declval<Term>().Key()), TermId> known_;
};

}  // namespace lockstep::ops
