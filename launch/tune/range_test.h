// RangeTest: finds out at which learning rates a model learns, from the losses of one short training in which the
// learning rate grows with each step.
//
// While the rate is too low, the loss stays about constant. At higher rates the loss falls to a minimum, and at rates
// that are too high the loss grows (Smith, 'Cyclical Learning Rates for Training Neural Networks', WACV 2017, section
// 3.3).
//
// what can fail -> what the caller sees -> the test that shows it (launch/tune/range_test_test.cc)
//   the loss falls at no rate -> falls() is false -> RangeTest.SaysThatNothingIsLearned
//   losses are not finite at high rates -> these rates count as too high -> RangeTest.ALossThatIsNotFiniteIsTooHigh
#pragma once

#include <vector>

namespace lockstep {

// The mean loss of one step, and the learning rate with which the optimizer made that step.
struct RatePoint {
  double rate = 0;
  double loss = 0;
};

class RangeTest {
 public:
  // `points` are in the order of growing rates. They may end with a loss that is not finite.
  explicit RangeTest(const std::vector<RatePoint>& points);

  // The points with smoothed losses: each loss is the mean of the losses around it.
  const std::vector<RatePoint>& curve() const { return curve_; }

  // Returns whether the loss falls clearly more than it varies from step to step.
  bool falls() const { return falls_; }

  // begins() is the rate at which the loss begins to fall, and lowest() is the rate with the lowest loss. diverges() is
  // the first rate above lowest() at which the loss is higher than at the beginning; if there is no such rate,
  // diverges() is the highest rate that was tried.
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
