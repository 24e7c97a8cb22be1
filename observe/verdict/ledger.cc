#include "observe/verdict/ledger.h"

#include <algorithm>
#include <numeric>

namespace lockstep {
namespace {

constexpr double kIdealPercentile = 0.05;

}  // namespace

double Ledger::spent_s() const { return std::accumulate(spent_.begin(), spent_.end(), 0.0); }

void Ledger::Add(const StepSeconds& step) {
  double left = step.total;
  // A part of the step is never more than what is left of it: clocks of host and device differ a little.
  const auto take = [&left](double seconds) {
    const double taken = std::clamp(seconds, 0.0, std::max(left, 0.0));
    left -= taken;
    return taken;
  };
  const double between = take(step.between);
  between_s_ += between;
  const double data = take(step.data);
  sum_.lost(Loss::kReading) += data;
  sum_.lost(Loss::kDecoding) += take(step.preprocessing);
  sum_.lost(Loss::kCommunication) += take(step.exchange);
  sum_.lost(Loss::kLaunching) += take(step.idle - between - data);
  if (step.unbroken > 0 && (sum_.unbroken_s == 0 || step.unbroken < sum_.unbroken_s)) {
    sum_.unbroken_s = step.unbroken;
  }
  sum_.computed_s += left;
  sum_.wall_s += step.total;
  ++sum_.steps;
  computing_[step.shape].Add(left);
}

RankSeconds Ledger::Sum() const {
  RankSeconds sum = sum_;
  for (const auto& [shape, times] : computing_) {
    sum.ideal_s += static_cast<double>(times.count()) * times.Percentile(kIdealPercentile);
  }
  for (const Loss loss : kLosses) sum.lost(loss) += spent_[static_cast<size_t>(loss)];
  sum.wall_s += spent_s() - between_s_;
  return sum;
}

}  // namespace lockstep
