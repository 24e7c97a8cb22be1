#include "launch/tune/rate_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

// Distances between rates, in decades. The search first takes steps of kStride, then of kFineStride. Rates that are
// less than kSame apart count as the same rate. The search goes at most kBeyond beyond its range.
constexpr double kStride = 0.5;
constexpr double kFineStride = 0.25;
constexpr double kSame = 0.05;
constexpr double kBeyond = 3;

bool IsLower(const std::pair<const double, double>& a, const std::pair<const double, double>& b) {
  return a.second < b.second;
}

}  // namespace

RateSearch::RateSearch(double least, double most)
    : least_(std::log10(least)), most_(std::max(std::log10(most), least_)) {}

std::optional<double> RateSearch::Next() const {
  // Returns whether any rate that was tried has a logarithm that is above `exponent` by at most `stride` (if
  // `direction` is 1), or below `exponent` by at most `stride` (if `direction` is -1).
  const auto has_neighbour = [&](double exponent, double direction, double stride) {
    return std::ranges::any_of(losses_, [&](const auto& known) {
      const double away = direction * (known.first - exponent);
      return away > kSame && away < stride + kSame;
    });
  };
  const auto is_known = [&](double exponent) {
    return std::ranges::any_of(
        losses_, [&](const auto& known) { return std::abs(known.first - exponent) < kStride / 2; });
  };
  // The search goes from the middle of the range outwards, so that the likeliest rates are tried even if the search
  // ends early.
  const double middle = (least_ + most_) / 2;
  for (double away = 0; middle + away < most_ + kSame; away += kStride) {
    for (const double exponent : {middle - away, middle + away}) {
      if (!is_known(exponent)) return std::pow(10, exponent);
    }
  }
  const auto best = std::ranges::min_element(losses_, IsLower);
  // If all trainings diverged, only lower rates can be better.
  const bool all_diverged = !std::isfinite(best->second);
  const double centre = all_diverged ? losses_.begin()->first : best->first;
  for (const double stride : {kStride, kFineStride}) {
    for (const double direction : {-1.0, 1.0}) {
      const double next = centre + direction * stride;
      const bool is_open =
          next > least_ - kBeyond && next < most_ + kBeyond && !(all_diverged && direction > 0);
      if (is_open && !has_neighbour(centre, direction, stride)) return std::pow(10, next);
    }
  }
  return std::nullopt;
}

void RateSearch::Add(double rate, double loss) {
  losses_[std::log10(rate)] = std::isfinite(loss) ? loss : HUGE_VAL;
}

}  // namespace lockstep
