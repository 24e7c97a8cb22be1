#include "launch/tune/line_search.h"

#include <algorithm>
#include <iterator>

namespace lockstep {
namespace {

// No number is tried between two numbers if the larger one is at most this factor times the smaller one.
constexpr double kNear = 1.12;

}  // namespace

LineSearch::LineSearch(int64_t first, int64_t least, int64_t most)
    : first_(first), least_(least), most_(most) {}

std::optional<int64_t> LineSearch::Next() const {
  if (!speeds_.contains(first_)) return first_;
  const auto best =
      std::ranges::max_element(speeds_, {}, [](const auto& known) { return known.second; });
  const int64_t number = best->first;
  // If the best number is the largest or the smallest number that was tried, the search goes on beyond that number.
  if (std::next(best) == speeds_.end() && number < most_) return std::min(2 * number, most_);
  if (best == speeds_.begin() && number > least_) return std::max(number / 2, least_);
  // Otherwise the search goes on between the best number and the next lower or next higher number that was tried. If
  // both gaps are wide enough, the gap to the faster of these two numbers comes first.
  const auto between = [&](int64_t low, int64_t high) -> std::optional<int64_t> {
    const auto middle = low + (high - low) / 2;
    if (middle == low || static_cast<double>(high) <= kNear * static_cast<double>(low)) {
      return std::nullopt;
    }
    return middle;
  };
  std::optional<int64_t> below, above;
  double speed_below = 0, speed_above = 0;
  if (best != speeds_.begin()) {
    below = between(std::prev(best)->first, number);
    speed_below = std::prev(best)->second;
  }
  if (std::next(best) != speeds_.end()) {
    above = between(number, std::next(best)->first);
    speed_above = std::next(best)->second;
  }
  if (below && (!above || speed_below >= speed_above)) return below;
  return above;
}

}  // namespace lockstep
