#include "ops/generated/tensor_terms.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numbers>
#include <numeric>

namespace lockstep::ops {
namespace {

// Returns the sizes of the broadcast operands.
Sizes Broadcast(const Sizes& a, const Sizes& b) {
  const Sizes& longer = a.size() >= b.size() ? a : b;
  const Sizes& shorter = a.size() >= b.size() ? b : a;
  Sizes sizes = longer;
  const size_t shift = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    if (sizes[i + shift] == 1) sizes[i + shift] = shorter[i];
  }
  return sizes;
}

}  // namespace

size_t OperandsOf(Primitive primitive) {
  switch (primitive) {
    case Primitive::kInput:
    case Primitive::kConstant:
      return 0;
    case Primitive::kAdd:
    case Primitive::kSubtract:
    case Primitive::kMultiply:
    case Primitive::kDivide:
    case Primitive::kKeep:
      return 2;
    case Primitive::kIfAtMost:
      return 4;
    default:
      return 1;
  }
}

bool IsReduction(Primitive primitive) {
  return primitive == Primitive::kSum || primitive == Primitive::kMax;
}

int64_t ElementsOf(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies());
}

TermId TensorTerms::Input(int64_t index, Sizes sizes) {
  return Add({.primitive = Primitive::kInput,
              .number = static_cast<double>(index),
              .sizes = std::move(sizes)});
}

TermId TensorTerms::Constant(double number) {
  return Add({.primitive = Primitive::kConstant, .number = number, .sizes = {}});
}

TermId TensorTerms::Sum(TermId a, TermId b) { return Pointwise(Primitive::kAdd, {a, b}); }

TermId TensorTerms::Difference(TermId a, TermId b) {
  return Pointwise(Primitive::kSubtract, {a, b});
}

TermId TensorTerms::Product(TermId a, TermId b) {
  if (IsConstant(a, 1)) return b;
  if (IsConstant(b, 1)) return a;
  return Pointwise(Primitive::kMultiply, {a, b});
}

TermId TensorTerms::Quotient(TermId a, TermId b) {
  return IsConstant(b, 1) ? a : Pointwise(Primitive::kDivide, {a, b});
}

TermId TensorTerms::SumOver(TermId a, Dims dims) {
  const size_t rank = SizesOf(a).size();
  // Dimensions of size 1 need no sum.
  for (size_t i = 0; i < rank; ++i) {
    if (SizesOf(a)[i] == 1) dims &= ~(1U << i);
  }
  if (dims == 0) return a;
  // Takes out of the sum the factors that are constant along some of the dimensions: the sum over those dimensions, in
  // which they are all constant, comes first, and its product with them is summed over the other dimensions.
  std::vector<std::pair<TermId, bool>> factors;
  AddFactors(a, /*inverse=*/false, factors);
  Dims inner = dims;
  for (const auto& [factor, inverse] : factors) {
    const Dims varies = VariesIn(factor, rank) & dims;
    if (varies != dims) inner &= ~varies;
  }
  const auto is_within = [&](const std::pair<TermId, bool>& factor) {
    return (VariesIn(factor.first, rank) & inner) != 0;
  };
  const bool takes_out =
      factors.size() > 1 && inner != 0 && !std::ranges::all_of(factors, is_within);
  const auto product_of = [&](bool within) {
    TermId product = Constant(1);
    for (const bool inverse : {false, true}) {
      for (const auto& factor : factors) {
        if (is_within(factor) != within || factor.second != inverse) continue;
        product = inverse ? Quotient(product, factor.first) : Product(product, factor.first);
      }
    }
    return product;
  };
  if (!takes_out) {
    // Over the samples, the first dimension, comes last: sums that differ in this only share the first part.
    if ((dims & 1U) != 0 && (dims & ~1U) != 0 && SizesOf(a)[0] > 1) {
      return SumOver(SumOver(a, dims & ~1U), 1U);
    }
    return Reduction(Primitive::kSum, a, dims);
  }
  // The products may be without leading dimensions of `a`.
  const auto sum_over = [&](TermId product, Dims of_a) {
    return SumOver(product, of_a >> (rank - SizesOf(product).size()));
  };
  return sum_over(Product(product_of(false), sum_over(product_of(true), inner)), dims & ~inner);
}

TermId TensorTerms::MeanOver(TermId a, Dims dims) {
  int64_t count = 1;
  for (size_t i = 0; i < SizesOf(a).size(); ++i) {
    if ((dims & (1U << i)) != 0) count *= SizesOf(a)[i];
  }
  return Product(Constant(1.0 / static_cast<double>(count)), SumOver(a, dims));
}

TermId TensorTerms::Expand(TermId a, Sizes sizes) {
  if (SizesOf(a) == sizes) return a;
  return Add({.primitive = Primitive::kExpand, .operands = {a}, .sizes = std::move(sizes)});
}

TermId TensorTerms::Reshape(TermId a, Sizes sizes) {
  if (SizesOf(a) == sizes) return a;
  return Add({.primitive = Primitive::kReshape, .operands = {a}, .sizes = std::move(sizes)});
}

TermId TensorTerms::Slice(TermId a, size_t dim, int64_t begin, int64_t size, int64_t step) {
  return Along(Primitive::kSlice, a, dim, begin, size, step);
}

TermId TensorTerms::Pad(TermId a, size_t dim, int64_t begin, int64_t size, int64_t step) {
  return Along(Primitive::kPad, a, dim, begin, size, step);
}

TermId TensorTerms::SumOfGroups(TermId a, size_t dim, int64_t count) {
  const int64_t size = SizesOf(a)[dim] / count;
  TermId sum = Slice(a, dim, 0, size, count);
  for (int64_t k = 1; k < count; ++k) sum = Sum(sum, Slice(a, dim, k, size, count));
  return sum;
}

TermId TensorTerms::Repeat(TermId a, size_t dim, int64_t times) {
  return Along(Primitive::kRepeat, a, dim, 0, SizesOf(a)[dim] * times, times);
}

TermId TensorTerms::Keep(TermId key, double drops, int64_t number, Sizes sizes) {
  return Add({.primitive = Primitive::kKeep,
              .operands = {Slice(key, 0, 0, 1), Slice(key, 0, 1, 1)},
              .number = drops,
              .sizes = std::move(sizes),
              .step = number});
}

std::vector<TermId> TensorTerms::Gradients(TermId result, TermId gradient,
                                           const std::vector<TermId>& inputs) {
  std::vector<TermId> of(result + 1, -1);  // for each term, the term of its gradient so far, or -1
  of[result] = gradient;
  for (TermId i = result; i >= 0; --i) {
    const TermId g = of[i];
    if (g < 0) continue;
    const Term& term = terms_[i];
    // Adds to the gradient of an operand `more`, a term that is broadcast to the sizes of term i.
    const auto give = [&](TermId operand, TermId more) {
      if (terms_[operand].primitive == Primitive::kConstant) return;
      more = SumTo(more, term.sizes, terms_[operand].sizes);
      of[operand] = of[operand] < 0 ? more : Sum(of[operand], more);
    };
    const auto [a, b, c, d] = term.operands;
    // Adds to the gradient of operand `a` a term that has its sizes, or size 1 where all values are equal.
    const auto give_whole = [&, a = a](TermId more) {
      of[a] = of[a] < 0 ? more : Sum(of[a], more);
    };
    switch (term.primitive) {
      case Primitive::kInput:
      case Primitive::kConstant:
      case Primitive::kStop:
      case Primitive::kMax:
      case Primitive::kFirst:
      case Primitive::kKeep:
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
        give(b, Product(Constant(-1), Product(d_a, Quotient(a, b))));
        break;
      }
      case Primitive::kExp:
        give(a, Product(g, i));
        break;
      case Primitive::kSqrt:
        give(a, Quotient(Product(Constant(0.5), g), i));
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
      case Primitive::kExpand:
        give(a, g);
        break;
      case Primitive::kSum:
        // Each summed element gets the gradient of the sum, which has size 1 in the summed dimensions.
        give_whole(g);
        break;
      case Primitive::kReshape:
        give_whole(Reshape(Expand(g, term.sizes), terms_[a].sizes));
        break;
      case Primitive::kSlice:
      case Primitive::kPad: {
        const auto dim = static_cast<size_t>(std::countr_zero(term.dims));
        const auto begin = static_cast<int64_t>(term.number);
        const int64_t size = terms_[a].sizes[dim];
        const TermId whole = Expand(g, term.sizes);
        give_whole(term.primitive == Primitive::kSlice ? Pad(whole, dim, begin, size, term.step)
                                                       : Slice(whole, dim, begin, size, term.step));
        break;
      }
      case Primitive::kRepeat: {
        const auto dim = static_cast<size_t>(std::countr_zero(term.dims));
        give_whole(SumOfGroups(Expand(g, term.sizes), dim, term.step));
        break;
      }
    }
  }
  std::vector<TermId> gradients;
  for (const TermId input : inputs) gradients.push_back(input <= result ? of[input] : -1);
  return gradients;
}

std::vector<bool> TensorTerms::NeededBy(const std::vector<TermId>& results) const {
  std::vector<bool> needed(terms_.size());
  for (const TermId result : results) needed[result] = true;
  for (size_t i = terms_.size(); i-- > 0;) {
    for (size_t k = 0; needed[i] && k < OperandsOf(terms_[i].primitive); ++k) {
      needed[terms_[i].operands[k]] = true;
    }
  }
  return needed;
}

TermId TensorTerms::Add(const Term& term) {
  const auto [known, is_new] = known_.emplace(term.Key(), static_cast<TermId>(terms_.size()));
  if (is_new) terms_.push_back(term);
  return known->second;
}

TermId TensorTerms::Pointwise(Primitive primitive, std::array<TermId, 4> operands) {
  Sizes sizes;
  for (size_t i = 0; i < OperandsOf(primitive); ++i) {
    sizes = Broadcast(sizes, SizesOf(operands[i]));
  }
  return Add({.primitive = primitive, .operands = operands, .sizes = std::move(sizes)});
}

TermId TensorTerms::Reduction(Primitive primitive, TermId a, Dims dims) {
  Sizes sizes = SizesOf(a);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if ((dims & (1U << i)) != 0) sizes[i] = 1;
  }
  if (sizes == SizesOf(a)) return primitive == Primitive::kSum ? a : Stop(a);
  return Add({.primitive = primitive, .operands = {a}, .dims = dims, .sizes = std::move(sizes)});
}

TermId TensorTerms::Along(Primitive primitive, TermId a, size_t dim, int64_t begin, int64_t size,
                          int64_t step) {
  Sizes sizes = SizesOf(a);
  if (sizes[dim] == size) return a;
  sizes[dim] = size;
  return Add({.primitive = primitive,
              .operands = {a},
              .number = static_cast<double>(begin),
              .dims = 1U << dim,
              .sizes = std::move(sizes),
              .step = step});
}

// Returns the sum of `a`, which is broadcast to the sizes `from`, over the dimensions in which an operand of sizes `to`
// was broadcast. The result may have size 1 in dimensions in which all its values are equal.
TermId TensorTerms::SumTo(TermId a, const Sizes& from, const Sizes& to) {
  if (from == to) return a;
  const size_t rank = from.size();
  const size_t added = rank - to.size();
  Dims dims = 0;
  double times = 1;
  for (size_t i = 0; i < rank; ++i) {
    const bool was_broadcast = from[i] > 1 && (i < added || to[i - added] == 1);
    if (!was_broadcast) continue;
    const size_t lacks = rank - SizesOf(a).size();
    if (i >= lacks && SizesOf(a)[i - lacks] > 1) {
      dims |= 1U << (i - lacks);
    } else {
      times *= static_cast<double>(from[i]);
    }
  }
  TermId sum = SumOver(a, dims);
  if (times != 1) sum = Product(Constant(times), sum);
  // Leaves out the leading dimensions that the operand does not have; their sizes are 1 now.
  if (SizesOf(sum).size() > to.size()) {
    const Sizes& sizes = SizesOf(sum);
    sum = Reshape(sum, Sizes(sizes.end() - static_cast<std::ptrdiff_t>(to.size()), sizes.end()));
  }
  return sum;
}

bool TensorTerms::IsConstant(TermId term, double number) const {
  return terms_[term].primitive == Primitive::kConstant && terms_[term].number == number;
}

// Returns the dimensions of a tensor of `rank` dimensions, to which the term is broadcast, along which it is not
// constant.
Dims TensorTerms::VariesIn(TermId term, size_t rank) const {
  const Sizes& sizes = SizesOf(term);
  Dims dims = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 1) dims |= 1U << (rank - sizes.size() + i);
  }
  return dims;
}

// Adds the factors of the term, and whether the term is divided by them.
void TensorTerms::AddFactors(TermId term, bool inverse,
                             std::vector<std::pair<TermId, bool>>& to) const {
  const Term& of = terms_[term];
  if (of.primitive == Primitive::kMultiply || of.primitive == Primitive::kDivide) {
    AddFactors(of.operands[0], inverse, to);
    AddFactors(of.operands[1], inverse != (of.primitive == Primitive::kDivide), to);
  } else if (!IsConstant(term, 1)) {
    to.emplace_back(term, inverse);
  }
}

}  // namespace lockstep::ops
