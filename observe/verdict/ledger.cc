#include "observe/verdict/ledger.h"

#include <algorithm>
#include <numeric>

namespace lockstep {
namespace {

constexpr double kIdealPercentile = 0.05;

}  // namespace

double Ledger::spent_s() const { return std::accumulate(spent_.begin(), spent_.end(), 0.0); }

void Ledger::Add(const StepSeconds& step) {
  if (step.unbroken > 0) {
    const auto [known, is_new] = unbroken_.try_emplace(step.shape, step.unbroken);
    if (!is_new) known->second = std::min(known->second, step.unbroken);
  }
  if (step.total <= 0) return;
  double left = step.total;
  // A part is limited to the time that is left of the step, because the clocks of host and device differ a little.
  const auto take = [&left](double seconds) {
    const double taken = std::clamp(seconds, 0.0, std::max(left, 0.0));
    left -= taken;
    return taken;
  };
  const double between = take(step.on_gpu ? std::min(step.between, step.idle) : step.between);
  between_s_ += between;
  if (step.on_gpu) hidden_s_ += step.between - between;
  const double data = take(step.data);
  sum_.lost(Loss::kReading) += data;
  sum_.lost(Loss::kDecoding) += take(step.preprocessing);
  sum_.lost(Loss::kCommunication) += take(step.exchange);
  sum_.lost(Loss::kLaunching) += take(step.idle - between - data);
  sum_.computed_s += left;
  sum_.wall_s += step.total;
  ++sum_.steps;
  computing_[step.shape].Add(left);
}

RankSeconds Ledger::Sum() const {
  RankSeconds sum = sum_;
  for (const auto& [shape, times] : computing_) {
    const double ideal_s = times.Percentile(kIdealPercentile);
    const auto count = static_cast<double>(times.count());
    sum.ideal_s += count * ideal_s;
    // Shapes of which no unbroken step was measured are rare. For such a shape the ideal time is used instead.
    const auto unbroken = unbroken_.find(shape);
    if (!unbroken_.empty()) {
      sum.unbroken_s += count * (unbroken != unbroken_.end() ? unbroken->second : ideal_s);
    }
  }
  for (const Loss loss : kLosses) sum.lost(loss) += spent_[static_cast<size_t>(loss)];
  double hidden_s = hidden_s_;
  for (const Loss loss : {Loss::kCheckpoints, Loss::kMemory, Loss::kEvaluation}) {
    const double taken = std::min(hidden_s, sum.lost(loss));
    sum.lost(loss) -= taken;
    hidden_s -= taken;
  }
  sum.wall_s += spent_s() - between_s_ - (hidden_s_ - hidden_s);
  return sum;
}

}  // namespace lockstep
