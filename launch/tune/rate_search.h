// RateSearch: says which learning rate to try next, until it knows the best one to within a quarter of a decade.
//
//   RateSearch search(0.001, 0.1);
//   while (const std::optional<double> rate = search.Next()) search.Add(*rate, LossOfTrainingWith(*rate));
//
// The loss of a training over the logarithm of its rate is a valley, but a rough one: another rate is also another
// training. So the search tries rates half a decade apart over the whole range first, goes on beyond it if the best one
// lies at its end, and then tries the rates a quarter of a decade beside the best.
#pragma once

#include <map>
#include <optional>

namespace lockstep {

class RateSearch {
 public:
  // The range where the best rate is likely to be. Where rates beyond it turn out to be better, the search follows them,
  // at most by a factor of a thousand.
  RateSearch(double least, double most);

  // Returns the next rate to try; nothing if the search is at its end. Returns the same one until its loss is known.
  std::optional<double> Next() const;

  // Adds the loss that a training with `rate` ended with; infinity if it diverged. It may be a rate that Next() has not
  // named.
  void Add(double rate, double loss);

 private:
  // Decimal logarithms of rates.
  double least_;
  double most_;
  std::map<double, double> losses_;
};

}  // namespace lockstep
