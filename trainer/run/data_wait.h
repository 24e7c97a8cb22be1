// DataWait: measures how long training waited for samples, and says what limited the loader. A run may replace its
// Input; DataWait counts all of them.
#pragma once

#include <string>

#include "data/dataset/dataset.h"
#include "data/feed/loader.h"
#include "trainer/run/input.h"

namespace lockstep {

class DataWait {
 public:
  // Keeps a reference to `train`, which the inputs read.
  explicit DataWait(const Dataset& train) : train_(train) {}

  // `input` makes room for another.
  void Leave(Input& input);

  // What was before does not count.
  void CountFromHere(Input& input);

  // Seconds so far.
  double Seconds(Input& input) const { return before_s_ + input.feed.waited_s(); }

  // The share of the last `seconds`, of those since it was asked last.
  double TakeShare(Input& input, double seconds);

  // Nobody asks for the share until here.
  void Forget(Input& input) { told_s_ = Seconds(input); }

  // In words.
  std::string Limit(const Input& input) const;

 private:
  const Dataset& train_;
  double before_s_ = 0;  // these two: for and of inputs that are gone
  LoaderTimes loader_before_;
  ReadTimes reads_before_;  // when counting began
  double told_s_ = 0;       // that TakeShare() has told
};

}  // namespace lockstep
