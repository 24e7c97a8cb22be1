// TypicalTime: finds percentiles of many durations in little memory.
//
// Each duration is counted in one of some 2,300 ranges, each one percent wider than the one before it, from 0.1 µs to
// 1,000 s. A percentile is therefore right to one percent.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

class TypicalTime {
 public:
  TypicalTime();

  // Durations that are not positive count as the shortest. Allocates nothing.
  void Add(double seconds);

  int64_t count() const { return count_; }

  // Seconds that `share` of the durations do not exceed, in [0, 1]; 0: there are none.
  double Percentile(double share) const;

 private:
  std::vector<int64_t> counts_;
  int64_t count_ = 0;
};

}  // namespace lockstep
