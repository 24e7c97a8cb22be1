#include "ops/generated/kernel_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cstdint>

namespace lockstep::ops {
namespace {

// Returns the place of an operand with the sizes `sizes`, which is broadcast: it has no leading dimensions, or size 1.
template <typename Place>
Place Broadcast(const Place& place, const Sizes& sizes, int none) {
  Place of{.sizes = sizes, .index = {}, .lane = place.lane < 0 ? place.lane : none};
  const size_t lacks = place.sizes.size() - sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i) {
    of.index.push_back(sizes[i] == 1 ? "0" : place.index[i + lacks]);
    if (sizes[i] > 1 && place.lane == static_cast<int>(i + lacks)) of.lane = static_cast<int>(i);
  }
  return of;
}

Sizes ContiguousStrides(const Sizes& sizes) {
  return DenseLayout(ElementType::kFloat32, sizes, /*order=*/{}).strides;
}

std::string SumText(const std::vector<std::string>& parts) {
  return parts.empty() ? "0" : fmt::format("{}", fmt::join(parts, " + "));
}

}  // namespace

KernelText::KernelText(const TensorTerms& terms,
                       std::function<const KernelTensor*(TermId)> tensor_of, const Sizes& domain,
                       size_t lane, int lanes)
    : terms_(terms), tensor_of_(std::move(tensor_of)), lanes_count_(lanes) {
  domain_.sizes = domain;
  domain_.lane = domain.empty() ? kNone : static_cast<int>(lane);
  for (size_t i = 0; i < domain.size(); ++i) domain_.index.push_back(fmt::format("i{}", i));
}

std::string KernelText::Value(TermId term) { return ValueAt(term, domain_); }

// Returns the value of the term, which is broadcast to the place.
std::string KernelText::ValueAt(TermId term, const Place& place) {
  const Place own = Broadcast(place, terms_.SizesOf(term), kNone);
  const auto key = std::pair(term, own);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  const KernelTensor* const tensor = tensor_of_(term);
  const std::string value = tensor != nullptr ? Loaded(*tensor, own) : Computed(term, own);
  return known_[key] = value;
}

std::string KernelText::Computed(TermId term, const Place& place) {
  const Term& of = terms_.At(term);
  const auto value = [&](size_t operand) { return ValueAt(of.operands[operand], place); };
  std::string text;
  switch (of.primitive) {
    case Primitive::kConstant:
      return fmt::format("float({:.17e})", of.number);
    case Primitive::kStop:
    case Primitive::kExpand:
      return value(0);
    case Primitive::kFirst: {
      Place first = place;
      first.sizes = terms_.SizesOf(of.operands[0]);
      return ValueAt(of.operands[0], first);  // the index is 0 where the size was reduced to 1
    }
    case Primitive::kReshape:
      return ValueAt(of.operands[0], Reshaped(place, terms_.SizesOf(of.operands[0])));
    case Primitive::kSlice: {
      const auto dim = static_cast<size_t>(std::countr_zero(of.dims));
      const Sizes& sizes = terms_.SizesOf(of.operands[0]);
      return ValueAt(of.operands[0], Moved(Stepped(place, dim, of.step), dim,
                                           static_cast<int64_t>(of.number), sizes));
    }
    case Primitive::kPad:
      text = Padded(of, place);
      break;
    case Primitive::kRepeat:
      return ValueAt(of.operands[0],
                     Repeated(place, static_cast<size_t>(std::countr_zero(of.dims)), of));
    case Primitive::kAdd:
      text = fmt::format("{} + {}", value(0), value(1));
      break;
    case Primitive::kSubtract:
      text = fmt::format("{} - {}", value(0), value(1));
      break;
    case Primitive::kMultiply:
      text = fmt::format("{} * {}", value(0), value(1));
      break;
    case Primitive::kDivide:
      text = fmt::format("{} / {}", value(0), value(1));
      break;
    case Primitive::kExp:
      text = fmt::format("expf({})", value(0));
      break;
    case Primitive::kSqrt:
      text = fmt::format("sqrtf({})", value(0));
      break;
    case Primitive::kSigmoid:
      text = fmt::format("1.0f / (1.0f + expf(-{}))", value(0));
      break;
    case Primitive::kTanh:
      text = fmt::format("tanhf({})", value(0));
      break;
    case Primitive::kErf:
      text = fmt::format("erff({})", value(0));
      break;
    case Primitive::kIfAtMost:
      text = fmt::format("{} <= {} ? {} : {}", value(0), value(1), value(2), value(3));
      break;
    case Primitive::kKeep:
      // The place of the operands, which are single numbers, is any.
      text = fmt::format("Kept({}, {}, {}u, {}, {}u, float({:.17e}))", value(0), value(1), of.step,
                         Position(place), static_cast<uint32_t>(of.number * 0x1p32),
                         1 / (1 - of.number));
      break;
    case Primitive::kInput:
    case Primitive::kSum:
    case Primitive::kMax:
      break;  // these lie in memory
  }
  const std::string name = fmt::format("v{}", names_++);
  per_lane_ += fmt::format("      const float {} = {};\n", name, text);
  return name;
}

// Returns the number of the element at the place, in the order of a contiguous tensor.
std::string KernelText::Position(const Place& place) {
  const Sizes strides = ContiguousStrides(place.sizes);
  std::vector<std::string> parts;
  for (size_t i = 0; i < place.sizes.size(); ++i) {
    if (place.sizes[i] == 1) continue;
    parts.push_back(fmt::format("{} * {}", place.index[i], strides[i]));
    if (place.lane == static_cast<int>(i)) parts.push_back(fmt::format("l * {}", strides[i]));
  }
  return SumText(parts);
}

std::string KernelText::Loaded(const KernelTensor& tensor, const Place& place) {
  const TensorLayout& layout = tensor.layout;
  std::vector<std::string> parts;
  int64_t lane_stride = 0;
  bool is_packed = layout.aligned;
  for (size_t i = 0; i < place.sizes.size(); ++i) {
    const int64_t stride = place.sizes[i] == 1 ? 0 : layout.strides[i];
    if (stride == 0) continue;
    parts.push_back(stride == 1 ? place.index[i] : fmt::format("{} * {}", place.index[i], stride));
    if (place.lane == static_cast<int>(i)) {
      lane_stride = stride;
    } else {
      is_packed = is_packed && stride % lanes_count_ == 0;
    }
  }
  const std::string offset = SumText(parts);
  std::string name = fmt::format("x{}", names_++);
  if (place.lane == kMixed) {
    per_lane_ += fmt::format("      const float {} = Wide({}[{}]);\n", name, tensor.name, offset);
    return name;
  }
  if (lane_stride == 0) {
    loads_ += fmt::format("    const float {} = Wide({}[{}]);\n", name, tensor.name, offset);
    return name;
  }
  loads_ += fmt::format("    float {}[{}];\n", name, lanes_count_);
  if (lane_stride == 1 && is_packed) {
    loads_ +=
        fmt::format("    Load<{}>({} + ({}), {});\n", lanes_count_, tensor.name, offset, name);
  } else {
    loads_ += fmt::format(
        "#pragma unroll\n    for (int l = 0; l < {}; ++l) {}[l] = Wide({}[{} + l * {}]);\n",
        lanes_count_, name, tensor.name, offset, lane_stride);
  }
  return name + "[l]";
}

// Returns the place at which a tensor of `sizes` has the element that its reshaped form has at `place`.
KernelText::Place KernelText::Reshaped(const Place& place, const Sizes& sizes) {
  Place to{.sizes = sizes, .index = {}, .lane = kNone};
  // If only dimensions of size 1 are added or left out, each of the others keeps its index.
  std::vector<size_t> from;
  Sizes longer, longer_to;
  for (size_t i = 0; i < place.sizes.size(); ++i) {
    if (place.sizes[i] != 1) {
      from.push_back(i);
      longer.push_back(place.sizes[i]);
    }
  }
  for (const int64_t size : sizes) {
    if (size != 1) longer_to.push_back(size);
  }
  if (longer == longer_to) {
    size_t next = 0;
    if (place.lane == kMixed) to.lane = kMixed;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == 1) {
        to.index.push_back("0");
        continue;
      }
      if (place.lane == static_cast<int>(from[next])) to.lane = static_cast<int>(i);
      to.index.push_back(place.index[from[next++]]);
    }
    return to;
  }
  const Sizes strides = ContiguousStrides(place.sizes);
  std::vector<std::string> parts;
  for (const size_t i : from) parts.push_back(fmt::format("({}) * {}", place.index[i], strides[i]));
  to.lane = place.lane == kMixed ? kMixed : kNone;
  if (place.lane >= 0 && place.sizes[place.lane] != 1) {
    parts.push_back(fmt::format("l * {}", strides[place.lane]));
    to.lane = kMixed;
  }
  const std::string name = fmt::format("r{}", names_++);
  (to.lane == kMixed ? per_lane_ : loads_) +=
      fmt::format("    const int {} = {};\n", name, SumText(parts));
  const Sizes to_strides = ContiguousStrides(sizes);
  for (size_t i = 0; i < sizes.size(); ++i) {
    to.index.push_back(
        sizes[i] == 1 ? "0" : fmt::format("({} / {} % {})", name, to_strides[i], sizes[i]));
  }
  return to;
}

// Writes the lane into the index in dimension `dim`, if lanes differ in that dimension.
void KernelText::LetLanesDiffer(Place& place, size_t dim) const {
  if (place.lane != static_cast<int>(dim)) return;
  place.index[dim] = fmt::format("({} + l)", place.index[dim]);
  place.lane = kMixed;
}

// Returns the place with its index in dimension `dim` times `step`.
KernelText::Place KernelText::Stepped(Place place, size_t dim, int64_t step) const {
  if (step == 1) return place;
  LetLanesDiffer(place, dim);
  place.index[dim] = fmt::format("({} * {})", place.index[dim], step);
  return place;
}

// Returns the place in the operand of `of`, a kRepeat.
KernelText::Place KernelText::Repeated(Place place, size_t dim, const Term& of) const {
  LetLanesDiffer(place, dim);
  place.index[dim] = fmt::format("({} / {})", place.index[dim], of.step);
  place.sizes = terms_.SizesOf(of.operands[0]);
  return place;
}

// Returns the place that lies `by` elements further in dimension `dim` of a tensor of `sizes`.
KernelText::Place KernelText::Moved(Place place, size_t dim, int64_t by, const Sizes& sizes) {
  // Lanes stay together only if a group of them begins at a multiple of their number.
  if (by % lanes_count_ != 0 || sizes[dim] % lanes_count_ != 0) LetLanesDiffer(place, dim);
  if (by != 0) place.index[dim] = fmt::format("({} + {})", place.index[dim], by);
  place.sizes = sizes;
  return place;
}

// Returns the text of a padded term's value. Where it is 0, a value within the tensor is loaded and not used.
std::string KernelText::Padded(const Term& of, const Place& place) {
  const auto dim = static_cast<size_t>(std::countr_zero(of.dims));
  const Sizes& sizes = terms_.SizesOf(of.operands[0]);
  const int64_t size = sizes[dim];
  Place outer = place;
  if (of.step != 1) LetLanesDiffer(outer, dim);
  Place inner = Moved(std::move(outer), dim, -static_cast<int64_t>(of.number), sizes);
  const std::string index = fmt::format("q{}", names_++);
  (inner.lane == kMixed ? per_lane_ : loads_) +=
      fmt::format("    const int {} = {};\n", index, inner.index[dim]);
  const int64_t last = inner.lane == static_cast<int>(dim) ? size - lanes_count_ : size - 1;
  const std::string element = of.step == 1 ? index : fmt::format("{} / {}", index, of.step);
  inner.index[dim] = fmt::format("max(0, min({}, {}))", element, last);
  if (inner.lane != kMixed) {
    const std::string within = fmt::format("q{}", names_++);
    loads_ += fmt::format("    const int {} = {};\n", within, inner.index[dim]);
    inner.index[dim] = within;
  }
  const std::string value = ValueAt(of.operands[0], inner);
  const std::string between = of.step == 1 ? "" : fmt::format(" && {} % {} == 0", index, of.step);
  return fmt::format("{0} >= 0 && {1} < {2}{3} ? {4} : 0.0f", index, element, size, between, value);
}

std::string IndicesText(const std::string& number, const std::vector<size_t>& dims,
                        const Sizes& sizes, size_t lane, int lanes) {
  std::string text;
  std::string rest = number;
  for (size_t k = dims.size(); k-- > 0;) {
    const size_t i = dims[k];
    const int64_t groups = i == lane ? sizes[i] / lanes : sizes[i];
    const std::string index = k == 0        ? rest
                              : groups == 1 ? "0"
                                            : fmt::format("{} % {}", rest, groups);
    text += i == lane && lanes > 1
                ? fmt::format("    const int i{} = ({}) * {};\n", i, index, lanes)
                : fmt::format("    const int i{} = {};\n", i, index);
    if (k > 0 && groups != 1) {
      const std::string next = fmt::format("n{}", i);
      text += fmt::format("    const int {} = {} / {};\n", next, rest, groups);
      rest = next;
    }
  }
  return text;
}

}  // namespace lockstep::ops
