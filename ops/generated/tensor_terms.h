// TensorTerms: describes how tensors are computed from other tensors, element by element and by reductions, and forms the
// terms of the derivatives. kernel_plan.h decides which terms a kernel computes, and kernel_text.h writes the kernels.
//
// Invariants:
//   1. A term's operands are terms that were added before it. Equal terms are stored once, so nothing is computed
//      twice.
//   2. Derivatives consist of the same operations as forward. Only the forward of an operation is therefore written by
//      hand.
//   3. All sizes are known. The operands of an element-wise operation are broadcast as LibTorch broadcasts them.
//   4. A reduction keeps the reduced dimensions with size 1. A factor that is constant along reduced dimensions is
//      taken out of a sum, so sums of the same values become one term: in a norm with weights, the sum for the weight
//      and the sum for the statistics' gradient are both made of one sum of the values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
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
  kSqrt,
  kSigmoid,
  kTanh,
  kErf,
  kIfAtMost,  // a <= b ? c : d
  kStop,      // a, without a gradient
  kSum,       // over `dims`
  kMax,       // over `dims`, without a gradient
  kFirst,     // the elements with index 0 in `dims`, without a gradient
  kExpand,    // a, broadcast to other sizes
  kReshape,   // the same elements in order, with another shape
  kSlice,     // elements `number`, `number` + `step`, ... along the dimension of `dims`
  kPad,       // the elements of a, put there by kSlice's rule, and zeros elsewhere
  kRepeat,    // each element of a, `step` times one after the other along the dimension of `dims`
  kKeep,  // 0 with the probability `number`, otherwise 1 / (1 - number): drawn from the keys a and b and `step`
};

// The index of a term in TensorTerms.
using TermId = int32_t;
using Sizes = std::vector<int64_t>;

// A set of dimensions: bit i stands for dimension i.
using Dims = uint32_t;
inline constexpr size_t kMostDims = 8;

struct Term {
  Primitive primitive;
  std::array<TermId, 4> operands{};
  double number =
      0;  // the value of a constant, the index of an input, or where a slice or what is padded begins
  Dims dims = 0;  // of reductions, kFirst, kSlice, kPad and kRepeat
  Sizes sizes;
  int64_t step = 1;  // of kSlice, kPad and kRepeat; the number of a kKeep

  auto Key() const { return std::tuple(primitive, operands, number, dims, sizes, step); }
};

// Returns the number of operands of a primitive.
size_t OperandsOf(Primitive primitive);
bool IsReduction(Primitive primitive);
int64_t ElementsOf(const Sizes& sizes);

class TensorTerms {
 public:
  // Returns the term of the input with this index, a tensor of these sizes.
  TermId Input(int64_t index, Sizes sizes);
  // Returns the term of the number, which must be finite.
  TermId Constant(double number);
  TermId Sum(TermId a, TermId b);
  TermId Difference(TermId a, TermId b);
  TermId Product(TermId a, TermId b);
  TermId Quotient(TermId a, TermId b);
  TermId Exp(TermId a) { return Pointwise(Primitive::kExp, {a}); }
  TermId Sqrt(TermId a) { return Pointwise(Primitive::kSqrt, {a}); }
  TermId Sigmoid(TermId a) { return Pointwise(Primitive::kSigmoid, {a}); }
  TermId Tanh(TermId a) { return Pointwise(Primitive::kTanh, {a}); }
  TermId Erf(TermId a) { return Pointwise(Primitive::kErf, {a}); }
  // Returns the term a <= b ? then : otherwise. If a or b is NaN, the term's value is that of `otherwise`.
  TermId IfAtMost(TermId a, TermId b, TermId then, TermId otherwise) {
    return Pointwise(Primitive::kIfAtMost, {a, b, then, otherwise});
  }
  // Returns a term with the values of `a` whose derivative is taken for 0.
  TermId Stop(TermId a) { return Pointwise(Primitive::kStop, {a}); }

  // The reductions of `a` over `dims`. MaxOver() and FirstOver() have no derivative.
  TermId SumOver(TermId a, Dims dims);
  TermId MeanOver(TermId a, Dims dims);
  TermId MaxOver(TermId a, Dims dims) { return Reduction(Primitive::kMax, a, dims); }
  TermId FirstOver(TermId a, Dims dims) { return Reduction(Primitive::kFirst, a, dims); }
  // Returns the term that is broadcast to `sizes`.
  TermId Expand(TermId a, Sizes sizes);
  // Returns the term with the same elements in the same order and another shape of as many elements.
  TermId Reshape(TermId a, Sizes sizes);

  // Returns `size` elements of `a` along dimension `dim`: `begin`, `begin` + `step`, ...
  TermId Slice(TermId a, size_t dim, int64_t begin, int64_t size, int64_t step = 1);
  // Returns `size` elements along dimension `dim`: those of `a` at `begin`, `begin` + `step`, ..., and zeros elsewhere.
  TermId Pad(TermId a, size_t dim, int64_t begin, int64_t size, int64_t step = 1);

  // Returns the sums of each `count` successive elements of `a` along dimension `dim`. A rest of fewer is left out.
  TermId SumOfGroups(TermId a, size_t dim, int64_t count);
  // Returns each element of `a`, `times` times one after the other along dimension `dim`.
  TermId Repeat(TermId a, size_t dim, int64_t times);

  // Returns what dropout multiplies elements of `sizes` by: 0 with the probability `drops`, which is at least 0 and below
  // 1, and otherwise 1 / (1 - drops). `key` is a vector of two whole numbers from 0 to 2^24 - 1 that were drawn at
  // random. The values depend on the key, on `number` and on an element's place, so they are the same wherever they are
  // computed. The term has no derivative.
  TermId Keep(TermId key, double drops, int64_t number, Sizes sizes);

  const Term& At(TermId term) const { return terms_[term]; }
  const Sizes& SizesOf(TermId term) const { return terms_[term].sizes; }

  // Returns, for each of `inputs`, the term of the gradient: `gradient` times the derivative of `result` with respect
  // to this input. A gradient may have size 1 in dimensions in which all its values are equal. The gradient of an input
  // on which `result` does not depend is -1.
  std::vector<TermId> Gradients(TermId result, TermId gradient, const std::vector<TermId>& inputs);

  // Returns, for each term, whether `results` need it.
  std::vector<bool> NeededBy(const std::vector<TermId>& results) const;

 private:
  TermId Add(const Term& term);
  TermId Pointwise(Primitive primitive, std::array<TermId, 4> operands);
  TermId Reduction(Primitive primitive, TermId a, Dims dims);
  TermId Along(Primitive primitive, TermId a, size_t dim, int64_t begin, int64_t size,
               int64_t step);
  TermId SumTo(TermId a, const Sizes& from, const Sizes& to);
  bool IsConstant(TermId term, double number) const;
  Dims VariesIn(TermId term, size_t rank) const;
  void AddFactors(TermId term, bool inverse, std::vector<std::pair<TermId, bool>>& to) const;

  std::deque<Term> terms_;  // references to terms stay valid when terms are added
  std::map<decltype(std::declval<Term>().Key()), TermId> known_;
};

}  // namespace lockstep::ops
