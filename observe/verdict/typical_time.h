// TypicalTime: computes percentiles of many durations in little memory.
//
// Each duration is counted in one of about 2,300 ranges between 0.1 µs and 1,000 s. The upper bound of a range is one
// percent greater than its lower bound, so a percentile is accurate to one percent.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

class TypicalTime {
 public:
  TypicalTime();

  // Adds a duration. A duration that is not positive counts in the first range. Allocates no memory.
  void Add(double seconds);

  int64_t count() const { return count_; }

  // Returns the duration, in seconds, that a fraction of `share` of all durations does not exceed; 0 if there are no
  // durations. `share` is in [0, 1].
  double Percentile(double share) const;

 private:
  std::vector<int64_t> counts_;
  int64_t count_ = 0;
};

}  // namespace lockstep
