// Moments: computes the mean and the standard deviation of numbers that arrive one by one (Welford 1962). Moments does
// not add up the squares of the numbers, because such a sum would lose digits.
#pragma once

#include <cmath>
#include <cstdint>

namespace lockstep {

class Moments {
 public:
  void Add(double value) {
    ++count_;
    const double before = value - mean_;
    mean_ += before / static_cast<double>(count_);
    squares_ += before * (value - mean_);
  }

  int64_t count() const { return count_; }
  double mean() const { return mean_; }
  // Returns the standard deviation of the population, or 1 if all numbers are the same.
  double std() const {
    const double std = std::sqrt(squares_ / static_cast<double>(count_));
    return std > 0 ? std : 1;
  }

 private:
  int64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;  // the sum of the squared differences from the mean
};

}  // namespace lockstep
