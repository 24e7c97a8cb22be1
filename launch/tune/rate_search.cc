#include "launch/tune/rate_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

// In decades.
constexpr double kStride = 0.5;
constexpr double kFineStride = 0.25;
constexpr double kSame = 0.05;

bool IsLower(const std::pair<const double, double>& a, const std::pair<const double, double>& b) {
  return a.second < b.second;
}

}  // namespace

RateSearch::RateSearch(double first, double least, double most)
    : least_(std::log10(least)),
      most_(std::log10(most)),
      first_(std::clamp(std::log10(first), least_, most_)) {}

std::optional<double> RateSearch::Next() const {
  if (losses_.empty()) return std::pow(10, first_);
  const auto best = std::ranges::min_element(losses_, IsLower);
  // Where everything diverged, only lower rates can be better.
  const bool all_diverged = !std::isfinite(best->second);
  const double centre = all_diverged ? losses_.begin()->first : best->first;
  for (const double stride : {kStride, kFineStride}) {
    for (const double direction : {-1.0, 1.0}) {
      if (all_diverged && direction > 0) continue;
      // A neighbour on this side that is no farther away than the stride has been tried.
      const bool tried = std::ranges::any_of(losses_, [&](const auto& known) {
        const double away = direction * (known.first - centre);
        return away > kSame && away < stride + kSame;
      });
      const double next = centre + direction * stride;
      if (!tried && next > least_ - kSame && next < most_ + kSame) return std::pow(10, next);
    }
  }
  return std::nullopt;
}

void RateSearch::Add(double rate, double loss) {
  losses_[std::log10(rate)] = std::isfinite(loss) ? loss : HUGE_VAL;
}

std::optional<double> RateSearch::Best() const {
  const auto best = std::ranges::min_element(losses_, IsLower);
  if (best == losses_.end() || !std::isfinite(best->second)) return std::nullopt;
  return std::pow(10, best->first);
}

}  // namespace lockstep
