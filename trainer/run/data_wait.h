// DataWait: measures how long training waited for samples, and for what. A run may replace its
// Input; DataWait counts all of them.
#pragma once

#include "data/dataset/dataset.h"
#include "data/feed/loader.h"
#include "trainer/run/input.h"

namespace lockstep {

// Of the time that was waited for samples: for their bytes to be read, and for their copy to the device. The rest was
// computing: decoding, augmentation and the like.
struct SampleShares {
  double reading = 0;
  double copying = 0;
};

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

  // ... and of the first `batches` that its feed has queued on a GPU (DeviceFeed::queued()).
  double Seconds(Input& input, int64_t batches) const {
    return before_s_ + input.feed.waited_s(batches);
  }

  // The share of the last `seconds`, of those since it was asked last.
  double TakeShare(Input& input, double seconds);

  // Nobody asks for the share until here.
  void Forget(Input& input) { told_s_ = Seconds(input); }

  SampleShares Shares(Input& input) const;

 private:
  const Dataset& train_;
  double before_s_ = 0;  // these two: for and of inputs that are gone
  LoaderTimes loader_before_;
  ReadTimes reads_before_;  // when counting began
  double told_s_ = 0;       // that TakeShare() has told
};

}  // namespace lockstep
