// RangeTest: reads from one short training, in which the learning rate grows, at which rates a model learns.
//
// The loss stays where it is while the rate is too low to matter, falls, is lowest, and grows again when the rate is
// too high (Smith, 'Cyclical Learning Rates for Training Neural Networks', WACV 2017, section 3.3).
//
// what can fail -> what the caller sees -> the test that shows it (launch/tune/range_test_test.cc)
//   the loss falls at no rate -> falls() is false -> RangeTest.SaysThatNothingIsLearned
//   losses are not finite at high rates -> those rates are too high -> RangeTest.ALossThatIsNotFiniteIsTooHigh
#pragma once

#include <vector>

namespace lockstep {

// The mean loss of one step, and the learning rate that the optimizer made the step with.
struct RatePoint {
  double rate = 0;
  double loss = 0;
};

class RangeTest {
 public:
  // `points` are in the order of growing rates. They may end with a loss that is not finite.
  explicit RangeTest(const std::vector<RatePoint>& points);

  // The points, each loss being the mean of the losses around it.
  const std::vector<RatePoint>& curve() const { return curve_; }

  // Whether the loss falls by more than it varies from step to step.
  bool falls() const { return falls_; }

  // The rate from which on the loss falls, the one with the lowest loss, and the one from which on the loss is higher
  // than at the beginning; the last one is the highest rate that was tried if the loss never is.
  double begins() const { return begins_; }
  double lowest() const { return lowest_; }
  double diverges() const { return diverges_; }

 private:
  std::vector<RatePoint> curve_;
  bool falls_ = false;
  double begins_ = 0;
  double lowest_ = 0;
  double diverges_ = 0;
};

}  // namespace lockstep
