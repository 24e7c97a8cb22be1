// RateSearch: says which learning rate to try next, until it knows the best one to within a quarter of a decade.
//
//   RateSearch search(0.01, 1e-6, 1);
//   while (const std::optional<double> rate = search.Next()) search.Add(*rate, LossOfTrainingWith(*rate));
//   Use(search.Best());
//
// The loss of a training over the logarithm of its rate has one valley, with noise. The search walks into it in steps
// of half a decade until the rates on both sides of the best one are worse, and then tries the rates between.
#pragma once

#include <map>
#include <optional>

namespace lockstep {

class RateSearch {
 public:
  // Begins at the rate `first`, and tries none outside `least` and `most`.
  RateSearch(double first, double least, double most);

  // Returns the next rate to try; nothing if the search is at its end. Returns the same one until its loss is known.
  std::optional<double> Next() const;

  // Adds the loss that a training with `rate` ended with; infinity if it diverged. It may be a rate that Next() has not
  // named.
  void Add(double rate, double loss);

  // Returns the rate with the lowest loss; nothing if no loss is finite.
  std::optional<double> Best() const;

 private:
  // Decimal logarithms of rates.
  double least_;
  double most_;
  double first_;
  std::map<double, double> losses_;
};

}  // namespace lockstep
