// DataWait: measures how long training waited for samples, and for what. A run may replace its
// Input; DataWait counts all of them.
#pragma once

#include "data/dataset/dataset.h"
#include "data/feed/loader.h"
#include "trainer/run/input.h"

namespace lockstep {

// The shares of the time spent waiting for samples that went to reading their bytes and to copying them to the device.
// The rest was computing: decoding, augmentation and the like.
struct SampleShares {
  double reading = 0;
  double copying = 0;
};

class DataWait {
 public:
  // Keeps a reference to `train`, the data set that the inputs read.
  explicit DataWait(const Dataset& train) : train_(train) {}

  // Call it before `input` is replaced by another one.
  void Leave(Input& input);

  // From now on counts from zero.
  void CountFromHere(Input& input);

  // Returns the seconds waited so far.
  double Seconds(Input& input) const { return before_s_ + input.feed.waited_s(); }

  // Returns the part of these seconds that belongs to the first `batches` that the feed has queued on a GPU
  // (DeviceFeed::queued()).
  double Seconds(Input& input, int64_t batches) const {
    return before_s_ + input.feed.waited_s(batches);
  }

  // Returns the fraction of the last `seconds` that training waited. Only the wait since the last call counts.
  double TakeShare(Input& input, double seconds);

  // The next TakeShare() does not count the wait until now.
  void Forget(Input& input) { told_s_ = Seconds(input); }

  // Says for what training waited.
  SampleShares Shares(Input& input) const;

 private:
  const Dataset& train_;
  double before_s_ = 0;  // these two are sums over the inputs that were replaced
  LoaderTimes loader_before_;
  ReadTimes reads_before_;  // the times when counting began
  double told_s_ = 0;       // the wait that TakeShare() has already returned
};

}  // namespace lockstep
