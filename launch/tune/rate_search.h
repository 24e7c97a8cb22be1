// RateSearch: says which learning rate to try next, until it knows the best rate to within a quarter of a decade.
//
//   RateSearch search(0.001, 0.1);
//   while (const std::optional<double> rate = search.Next()) search.Add(*rate, LossOfTrainingWith(*rate));
//
// The search assumes that the loss at the end of a training, as a function of the logarithm of the learning rate, has
// one minimum. But the loss is noisy, because each rate leads to a different training. The search therefore first tries
// rates half a decade apart over the whole range. If the best rate lies at an end of the range, the search goes on
// beyond that end. The search then tries the rates a quarter of a decade above and below the best rate.
#pragma once

#include <map>
#include <optional>

namespace lockstep {

class RateSearch {
 public:
  // `least` and `most` are the ends of the range in which the best rate is likely to be. If rates outside of the range
  // turn out to be better, the search follows them, to at most a factor of a thousand beyond the range.
  RateSearch(double least, double most);

  // Returns the next rate to try; nothing if the search has ended. Returns the same rate until Add() was called for it.
  std::optional<double> Next() const;

  // Adds the loss with which a training with `rate` ended; infinity if the training diverged. `rate` may be one that
  // Next() has not returned.
  void Add(double rate, double loss);

 private:
  // These members hold decimal logarithms of rates. `losses_` maps such a logarithm to the loss.
  double least_;
  double most_;
  std::map<double, double> losses_;
};

}  // namespace lockstep
