// KernelText: writes the text that computes terms at one position of a kernel's domain, for some neighbours ("lanes") of
// that position at once.
//
// The text has two parts: what is loaded once for all lanes, and what is computed for each lane `l`. A term is computed
// at a place: an index in each of its dimensions, as text. A place changes where a term is broadcast (index 0), or where
// it is reshaped (other indices).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/generated/tensor_layout.h"
#include "ops/generated/tensor_terms.h"

namespace lockstep::ops {

// A tensor that a kernel reads or writes.
struct KernelTensor {
  std::string name;  // of the kernel's parameter
  TensorLayout layout;
};

class KernelText {
 public:
  // `tensor_of` returns the tensor in which a term lies, or null if the term is to be computed. The domain has the sizes
  // `domain`; the indices in it are variables i0, i1, ..., and lanes differ in dimension `lane`.
  KernelText(const TensorTerms& terms, std::function<const KernelTensor*(TermId)> tensor_of,
             const Sizes& domain, size_t lane, int lanes);

  // Adds the text that computes `term` and returns the name of its value in the loop over the lanes.
  std::string Value(TermId term);

  const std::string& loads() const { return loads_; }
  const std::string& lanes() const { return per_lane_; }

 private:
  static constexpr int kNone = -1;   // all lanes have the same indices
  static constexpr int kMixed = -2;  // the indices contain `l`

  struct Place {
    Sizes sizes;
    std::vector<std::string> index;
    int lane = kNone;  // the dimension in which lanes differ by 1

    auto operator<=>(const Place&) const = default;
  };

  std::string ValueAt(TermId term, const Place& place);
  std::string Computed(TermId term, const Place& place);
  std::string Loaded(const KernelTensor& tensor, const Place& place);
  static std::string Position(const Place& place);
  Place Reshaped(const Place& place, const Sizes& sizes);
  std::string Padded(const Term& of, const Place& place);
  Place Stepped(Place place, size_t dim, int64_t step) const;
  Place Repeated(Place place, size_t dim, const Term& of) const;
  Place Moved(Place place, size_t dim, int64_t by, const Sizes& sizes);
  void LetLanesDiffer(Place& place, size_t dim) const;

  const TensorTerms& terms_;
  std::function<const KernelTensor*(TermId)> tensor_of_;
  Place domain_;
  int lanes_count_;
  std::string loads_, per_lane_;
  std::map<std::pair<TermId, Place>, std::string> known_;
  int names_ = 0;
};

// Returns the text that sets the variables i0, i1, ... of these dimensions, the outermost first, from `number`, the
// number of a group of `lanes` neighbours in dimension `lane` if that is one of them.
std::string IndicesText(const std::string& number, const std::vector<size_t>& dims,
                        const Sizes& sizes, size_t lane, int lanes);

}  // namespace lockstep::ops
