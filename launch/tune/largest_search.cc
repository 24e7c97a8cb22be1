#include "launch/tune/largest_search.h"

#include <algorithm>

namespace lockstep {

LargestSearch::LargestSearch(int64_t guess, int64_t most)
    : guess_(std::clamp<int64_t>(guess, 1, most)),
      step_(std::max<int64_t>(guess_ / 16, 1)),
      too_many_(most + 1) {}

std::optional<int64_t> LargestSearch::Next() const {
  if (!guessed_ && guess_ > fits_ && guess_ < too_many_) return guess_;
  const auto near = static_cast<int64_t>((1 + kWithin) * static_cast<double>(fits_));
  if (too_many_ <= std::max(near, fits_ + 1)) return std::nullopt;
  if (!one_did_not_) return std::min(fits_ + step_, too_many_ - 1);
  if (fits_ == 0) return std::max<int64_t>(too_many_ - step_, 1);
  return fits_ + (too_many_ - fits_) / 2;
}

void LargestSearch::Add(int64_t number, bool fits) {
  const bool is_guess = number == guess_;
  if (guessed_ && !is_guess && (fits_ == 0 || !one_did_not_)) step_ *= 2;
  guessed_ |= is_guess;
  if (fits) {
    fits_ = std::max(fits_, number);
  } else {
    too_many_ = std::min(too_many_, number);
    one_did_not_ = true;
  }
}

}  // namespace lockstep
