// DataWait: measures how long training waited for samples, and how much of this time went to reading and copying. A run
// may replace its Input. DataWait adds up the waiting for all of its inputs.
#pragma once

#include "data/dataset/dataset.h"
#include "data/feed/loader.h"
#include "trainer/run/input.h"

namespace lockstep {

// The fractions of the waiting time that went to reading the samples' bytes and to copying samples to the device. The
// rest of the time went to computing, such as decoding and augmentation.
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

  // Resets the measured times to zero.
  void CountFromHere(Input& input);

  // Returns the seconds waited so far.
  double Seconds(Input& input) const { return before_s_ + input.feed.waited_s(); }

  // Returns the seconds waited for the first `batches` batches that the feed has queued on a GPU
  // (DeviceFeed::queued()).
  double Seconds(Input& input, int64_t batches) const {
    return before_s_ + input.feed.waited_s(batches);
  }

  // Returns the fraction of the last `seconds` that training waited. Only the waiting since the last call counts.
  double TakeShare(Input& input, double seconds);

  // Makes the next TakeShare() leave out all waiting before this call.
  void Forget(Input& input) { told_s_ = Seconds(input); }

  // Returns how much of the waiting went to reading and to copying.
  SampleShares Shares(Input& input) const;

 private:
  const Dataset& train_;
  double before_s_ = 0;  // this and loader_before_ are sums over the replaced inputs
  LoaderTimes loader_before_;
  ReadTimes reads_before_;  // the data set's times() when counting began
  double told_s_ = 0;       // the waiting that TakeShare() must not count again
};

}  // namespace lockstep
